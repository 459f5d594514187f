//! `sidetone sip trace`: the SIP messages of a call, as the server kept them.

use clap::Subcommand;
use serde_json::Value;

use super::Failure;
use super::client::{Client, Server};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print a telephone call's SIP messages in their order, passwords and keys masked.
    Trace(Trace),
}

#[derive(Debug, clap::Args)]
pub(super) struct Trace {
    #[command(flatten)]
    server: Server,
    /// The call.
    #[arg(value_name = "CALL_ID")]
    call: uuid::Uuid,
    /// Print the whole messages, too.
    #[arg(long)]
    full: bool,
}

pub(super) fn run(command: &Command) -> Result<(), Failure> {
    let Command::Trace(args) = command;
    super::block_on(async {
        let client = Client::new(&args.server)?;
        let trace = client
            .get(&format!("/calls/{}/sip-trace", args.call))
            .await?;
        for line in ladder(&trace) {
            println!("{line}");
        }
        if args.full {
            for line in whole(&trace) {
                println!("{line}");
            }
        }
        Ok(())
    })
}

/// The width of the ladder between its rails.
const RUNG: usize = 44;

/// One line a message: when, which way, what.
fn ladder(trace: &Value) -> Vec<String> {
    let messages = messages(trace);
    let Some(first) = messages.first() else {
        return vec!["No SIP messages are kept of this call: it did not come over SIP.".to_owned()];
    };
    let other =
        |message: &Value| format!("{} ({})", text(message, "peer"), text(message, "transport"));
    let (ours, theirs) = ("sidetone", other(first));
    let mut lines = vec![format!("{:13}{ours:<RUNG$}{theirs}", "")];
    for (index, message) in messages.iter().enumerate() {
        let label = label(text(message, "message"));
        let again = messages[..index]
            .iter()
            .any(|before| same(before, message))
            .then_some(" (again)");
        let label = format!(" {label}{} ", again.unwrap_or_default());
        let rung = match text(message, "direction") {
            "sent" => format!("{label:─^RUNG$}>"),
            _ => format!("<{label:─^RUNG$}"),
        };
        let elsewhere = other(message);
        let elsewhere = if elsewhere == theirs { "" } else { &*elsewhere };
        let line = format!("{} │{rung}│ {elsewhere}", clock(text(message, "at")));
        lines.push(line.trim_end().to_owned());
    }
    match trace["left_out"].as_u64() {
        None | Some(0) => {}
        Some(left_out) => lines.push(format!(
            "{left_out} messages after the first ones were not kept."
        )),
    }
    lines
}

/// The messages as they went over the wire.
fn whole(trace: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for message in messages(trace) {
        let way = match text(message, "direction") {
            "sent" => "to",
            _ => "from",
        };
        lines.push(String::new());
        lines.push(format!(
            "── {} {way} {} ({})",
            text(message, "at"),
            text(message, "peer"),
            text(message, "transport")
        ));
        lines.extend(text(message, "message").lines().map(str::to_owned));
    }
    lines
}

fn messages(trace: &Value) -> &[Value] {
    trace["messages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn text<'a>(message: &'a Value, field: &str) -> &'a str {
    message[field].as_str().unwrap_or_default()
}

/// Whether the one was sent again as the other.
fn same(one: &Value, other: &Value) -> bool {
    ["direction", "peer", "message"]
        .iter()
        .all(|field| one[*field] == other[*field])
}

/// The time of day of an ISO 8601 time, to the millisecond.
fn clock(at: &str) -> &str {
    at.get(11..23).unwrap_or(at)
}

/// `INVITE (sdp)`, `180 Ringing`, `200 OK (BYE)`.
fn label(message: &str) -> String {
    let mut lines = message.lines();
    let first = lines.next().unwrap_or_default();
    let head: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let field = |name: &str| {
        head.iter()
            .filter_map(|line| line.split_once(':'))
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value.trim())
    };
    let sdp = match field("Content-Type").to_ascii_lowercase().contains("sdp") {
        true => " (sdp)",
        false => "",
    };
    match first.strip_prefix("SIP/2.0 ") {
        Some(status) => {
            let method = field("CSeq").rsplit(' ').next().unwrap_or_default();
            let of = match method {
                "INVITE" | "" => String::new(),
                method => format!(" ({method})"),
            };
            format!("{status}{of}{sdp}")
        }
        None => format!("{}{sdp}", first.split(' ').next().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(second: u32, direction: &str, text: &str) -> Value {
        json!({"at": format!("2026-11-21T12:00:0{second}.250000+00:00"), "direction": direction, "transport": "udp",
            "peer": "198.51.100.7:5060", "message": text.replace('\n', "\r\n")})
    }

    #[test]
    fn a_ladder_reads_from_the_top() {
        let invite =
            "INVITE sip:100@h SIP/2.0\nCSeq: 1 INVITE\nContent-Type: application/sdp\n\nv=0\n";
        let mut moved = message(3, "received", "BYE sip:100@h SIP/2.0\nCSeq: 2 BYE\n\n");
        moved["peer"] = json!("198.51.100.8:5060");
        let trace = json!({"left_out": 2, "messages": [
            message(0, "received", invite),
            message(1, "received", invite),
            message(2, "sent", "SIP/2.0 200 OK\nCSeq: 1 INVITE\nContent-Type: application/sdp\n\nv=0\n"),
            moved,
            message(4, "sent", "SIP/2.0 200 OK\nCSeq: 2 BYE\n\n"),
        ]});
        let rails = |line: &str| line.replace('─', "");
        let lines: Vec<String> = ladder(&trace).iter().map(|line| rails(line)).collect();
        assert_eq!(
            lines[1..],
            [
                "12:00:00.250 │< INVITE (sdp) │",
                "12:00:01.250 │< INVITE (sdp) (again) │",
                "12:00:02.250 │ 200 OK (sdp) >│",
                "12:00:03.250 │< BYE │ 198.51.100.8:5060 (udp)",
                "12:00:04.250 │ 200 OK (BYE) >│",
                "2 messages after the first ones were not kept."
            ]
        );
        assert!(lines[0].contains("sidetone") && lines[0].ends_with("198.51.100.7:5060 (udp)"));
        assert!(whole(&trace).iter().any(|line| line == "v=0"));
        let nothing = ladder(&json!({"left_out": 0, "messages": []}));
        assert!(nothing[0].starts_with("No SIP messages"));
    }

    #[test]
    fn whatever_the_server_says_is_shown() {
        for message in ["", "\r\n", "SIP/2.0 ", "x", "SIP/2.0 200", ":\r\n:"] {
            label(message);
        }
        assert_eq!(clock("soon"), "soon");
    }
}
