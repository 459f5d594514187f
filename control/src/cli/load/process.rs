//! What the kernel knows of the server's process: CPU time and memory, read from `/proc`.

use std::collections::BTreeMap;
use std::fs;

/// Ticks a second of `/proc/PID/stat`; Linux has fixed it at 100 for user space.
const TICKS: u64 = 100;

/// A reading of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// User and system time of the process, ms.
    pub cpu_ms: u64,
    /// Resident memory, KiB.
    pub rss_kib: u64,
    /// CPU time by thread name (without a number at its end), ms.
    pub threads: BTreeMap<String, u64>,
}

/// Reads a process; `None` when it is gone or may not be read.
pub(super) fn read(pid: u32) -> Option<Reading> {
    let (_, cpu_ms) = stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mut threads = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        if let Some((name, ms)) = stat(&text) {
            let kind = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-' || c == '_');
            *threads.entry(kind.to_owned()).or_default() += ms;
        }
    }
    Some(Reading {
        cpu_ms,
        rss_kib: rss(&status)?,
        threads,
    })
}

/// Name and CPU time in ms of a `stat` line. The name stands in parentheses and may hold any character.
fn stat(text: &str) -> Option<(&str, u64)> {
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let name = text.get(open + 1..close)?;
    // After the name: state is field 3, utime 14, stime 15.
    let mut fields = text.get(close + 1..)?.split_ascii_whitespace().skip(11);
    let utime: u64 = fields.next()?.parse().ok()?;
    let stime: u64 = fields.next()?.parse().ok()?;
    Some((name, (utime + stime) * 1000 / TICKS))
}

fn rss(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn a_name_may_look_like_fields() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 12 34 0 0 20 0 1 0 100 1000 10";
        assert_eq!(stat(text), Some(("a) b (c", 460)));
    }

    #[test]
    fn this_process_can_be_read() {
        let reading = read(std::process::id()).unwrap();
        assert!(reading.rss_kib > 0 && !reading.threads.is_empty());
        assert!(read(u32::MAX).is_none());
    }
}
