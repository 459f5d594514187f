//! The signature checks of `docs/webhooks.md` do what they say: each is run against signatures of the server's own.

use std::io::Write;
use std::process::{Command, Stdio};

use control::webhooks::sign;
use serde_json::{Value, json};

use crate::verify_webhook;

const SECRET: &str = "whsec_example";
const NOW: i64 = 1_767_323_045;
const BODY: &str = "{\"event_id\":\"1\",\"text\":\"où ça ?\"}";

/// A header, a body and whether the one holds for the other.
fn cases() -> Vec<(String, String, bool)> {
    let at = |t: i64| sign::header(SECRET.as_bytes(), t, BODY.as_bytes());
    let good = at(NOW);
    let body = BODY.to_owned();
    vec![
        (good.clone(), body.clone(), true),
        (at(NOW - 299), body.clone(), true),
        (at(NOW - 301), body.clone(), false),
        (at(NOW + 301), body.clone(), false),
        (good.clone(), "{}".to_owned(), false),
        (
            sign::header(b"another", NOW, BODY.as_bytes()),
            body.clone(),
            false,
        ),
        (
            good.replace("t=1767323045", "t=1767323046"),
            body.clone(),
            false,
        ),
        (good[..good.len() - 2].to_owned(), body.clone(), false),
        ("t=soon,v1=00".to_owned(), body.clone(), false),
        ("t=1767323045,v1=zz".to_owned(), body.clone(), false),
        (String::new(), body, false),
    ]
}

/// The block of the document in this language.
fn block(language: &str) -> String {
    let document = include_str!("../../docs/webhooks.md");
    let start = format!("```{language}\n");
    let text = document
        .split(&start)
        .nth(1)
        .unwrap_or_else(|| panic!("no {language} in docs/webhooks.md"));
    text.split("```").next().unwrap().to_owned()
}

/// Runs the block with lines behind it that read the cases and print what it makes of them.
fn run(program: &str, args: &[&str], source: &str) {
    let cases = cases();
    let input: Vec<Value> = cases
        .iter()
        .map(|(header, body, _)| json!([header, body]))
        .collect();
    let mut child = Command::new(program)
        .args(args)
        .arg(source)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}: scripts/setup.sh test installs it"));
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(json!(input).to_string().as_bytes())
        .unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    let found: Vec<bool> = serde_json::from_slice(&output.stdout).unwrap();
    let wanted: Vec<bool> = cases.iter().map(|(_, _, good)| *good).collect();
    assert_eq!(found, wanted, "{program}");
}

#[test]
fn the_check_in_python_holds() {
    let harness = format!(
        "\nimport json, sys\nprint(json.dumps([verify({SECRET:?}, body.encode(), header, {NOW}) \
         for header, body in json.loads(sys.stdin.buffer.read())]))\n"
    );
    run("python3", &["-c"], &(block("python") + &harness));
}

#[test]
fn the_check_in_javascript_holds() {
    let harness = format!(
        "\nlet text = \"\";\nprocess.stdin.on(\"data\", (d) => (text += d)).on(\"end\", () =>\n\
         console.log(JSON.stringify(JSON.parse(text).map(([header, body]) => verify({SECRET:?}, Buffer.from(body), header, {NOW})))));\n"
    );
    run("node", &["-e"], &(block("javascript") + &harness));
}

#[test]
fn the_check_in_rust_holds_and_is_the_one_in_readme() {
    for (header, body, good) in cases() {
        let found = verify_webhook::verify(SECRET, NOW, body.as_bytes(), &header);
        assert_eq!(found, good, "{header}");
    }
    let source = include_str!("verify_webhook.rs");
    let (_, code) = source.split_once("\n\n").unwrap();
    assert_eq!(block("rust"), code.replace("pub(crate) fn", "pub fn"));
}
