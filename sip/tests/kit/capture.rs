//! When packets really passed: what tcpdump saw on loopback, for times that neither side's own clock tells.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use crate::process::peer;

/// The first four bytes of what is looked at: an INVITE, and answers. The rest would cost time that the calls need.
const LOOKED_AT: &str = "(udp[8:4] = 0x494e5649 or udp[8:4] = 0x5349502f)";

/// A tcpdump that runs. Its file goes when this is dropped.
pub(crate) struct Capture {
    child: Child,
    file: PathBuf,
}

impl Capture {
    /// Listens to the datagrams of a port of loopback, and is ready when this returns.
    pub(crate) fn start(port: u16) -> Self {
        let file =
            std::env::temp_dir().join(format!("sidetone-{}-{port}.pcap", std::process::id()));
        let mut child = peer("tcpdump")
            // In microseconds, and enough of each for its Call-ID.
            .args([
                "-i",
                "lo",
                "-s",
                "600",
                "-B",
                "65536",
                "--time-stamp-precision",
                "micro",
            ])
            // Who it runs as may not write there.
            .args(["-Z", "root", "-w"])
            .arg(&file)
            .arg(format!("udp port {port} and {LOOKED_AT}"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("tcpdump does not start ({error}): `scripts/setup.sh test` installs it")
            });
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            let read = said.read_line(&mut line).unwrap();
            assert!(
                read > 0,
                "tcpdump may not listen on loopback: it needs to be run as root"
            );
        }
        Self { child, file }
    }

    /// How long the first answer above 100 to each INVITE took, the shortest first.
    pub(crate) fn answers(mut self) -> Vec<Duration> {
        // It writes what it has and ends.
        let pid = self.child.id().to_string();
        assert!(
            Process::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
        self.child.wait().unwrap();
        let bytes = std::fs::read(&self.file).unwrap();
        let mut asked = HashMap::new();
        let mut took = Vec::new();
        for (at, datagram) in datagrams(&bytes) {
            let text = String::from_utf8_lossy(datagram);
            let Some(call) = header(&text, "Call-ID:") else {
                continue;
            };
            if text.starts_with("INVITE ") {
                // Repeated, it is the first that counts.
                asked.entry(call.to_owned()).or_insert(Some(at));
            } else if text.starts_with("SIP/2.0 ")
                && !text.starts_with("SIP/2.0 100 ")
                && header(&text, "CSeq:").is_some_and(|sequence| sequence.ends_with("INVITE"))
                && let Some(asked) = asked.get_mut(call).and_then(Option::take)
            {
                took.push(at.saturating_sub(asked));
            }
        }
        took.sort();
        took
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // They are gone already where all went well.
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_file(&self.file);
    }
}

fn header<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// The payloads of a pcap file of Ethernet, IPv4 and UDP, and when they passed.
fn datagrams(bytes: &[u8]) -> Vec<(Duration, &[u8])> {
    const FILE: usize = 24;
    const RECORD: usize = 16;
    const ETHERNET: usize = 14;
    const UDP: usize = 8;
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(number(0), 0xa1b2_c3d4, "no pcap file in microseconds");
    let mut all = Vec::new();
    let mut at = FILE;
    while at + RECORD <= bytes.len() {
        let time = Duration::new(u64::from(number(at)), number(at + 4) * 1_000);
        let length = number(at + 8) as usize;
        let Some(packet) = bytes.get(at + RECORD..at + RECORD + length) else {
            break;
        };
        let ip = usize::from(packet[ETHERNET] & 0x0f) * 4;
        all.push((time, packet.get(ETHERNET + ip + UDP..).unwrap_or_default()));
        at += RECORD + length;
    }
    all
}
