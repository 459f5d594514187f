//! Every body runs on every seed, on what is left of it when it is cut, and on bytes of any kind.

use std::path::Path;

type Body = (&'static str, fn(&[u8]));

const BODIES: [Body; 7] = [
    ("dtmf", bodies::dtmf::fuzz),
    ("rtcp", bodies::rtcp::fuzz),
    ("rtp", bodies::rtp::fuzz),
    ("sdp", bodies::sdp::fuzz),
    ("sip_endpoint", bodies::sip_endpoint::fuzz),
    ("sip_message", bodies::sip_message::fuzz),
    ("sip_transactions", bodies::sip_transactions::fuzz),
];

#[test]
fn every_body_is_a_target_and_every_target_a_body() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../targets");
    let mut names: Vec<String> = std::fs::read_dir(targets)
        .expect("fuzz/targets")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| {
            path.file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    assert_eq!(names, BODIES.map(|(name, _)| name));
    for (name, _) in BODIES {
        let shim = format!("../targets/{name}.rs");
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(shim));
        let body = format!("bodies::{name}::fuzz(bytes)");
        assert!(text.expect("a target").contains(&body), "{name}");
    }
}

#[test]
fn the_seeds_break_no_body() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../seeds");
    let mut seeds = 0;
    for (name, body) in BODIES {
        let Ok(entries) = std::fs::read_dir(folder.join(name)) else {
            continue;
        };
        for entry in entries {
            let bytes = std::fs::read(entry.expect("an entry").path()).expect("a seed");
            body(&bytes);
            body(&bytes[..bytes.len() / 2]);
            body(&bytes[bytes.len() / 2..]);
            seeds += 1;
        }
    }
    assert!(seeds > 0, "there are seeds");
}

#[test]
fn bytes_of_any_kind_break_no_body() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..200 {
        let bytes: Vec<u8> = (0..round * 5)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                state.to_be_bytes()[0]
            })
            .collect();
        for (_, body) in BODIES {
            body(&bytes);
        }
    }
}
