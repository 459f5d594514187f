//! `sidetone replay`: runs a call again from its tape, prints what it put out, and names the first
//! place where that is not what the recording put out.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use media::tape::{self, Replay};

/// Run a call again from its tape.
#[derive(Debug, Clone, clap::Args)]
pub struct ReplayArgs {
    /// The tape: a file that ends in .tape, beside the call's recording.
    pub tape: PathBuf,
    /// Print only the closing lines.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Exit code 0: the outputs are those of the recording. 1: they differ. 2: the tape cannot be read.
pub fn run(args: &ReplayArgs) -> ExitCode {
    let unreadable = |why: String| {
        eprintln!("{}: {why}", args.tape.display());
        ExitCode::from(2)
    };
    let bytes = match std::fs::read(&args.tape) {
        Ok(bytes) => bytes,
        Err(error) => return unreadable(error.to_string()),
    };
    let replay = match tape::replay(&bytes) {
        Ok(replay) => replay,
        Err(error) => return unreadable(error.to_string()),
    };
    if !args.quiet
        && let Err(error) = print(&replay.outputs)
    {
        // A reader that has seen enough, such as `head`, is no fault.
        let code = if error.kind() == io::ErrorKind::BrokenPipe {
            0
        } else {
            2
        };
        return ExitCode::from(code);
    }
    for line in closing(&replay) {
        eprintln!("{line}");
    }
    ExitCode::from(u8::from(replay.difference.is_some()))
}

fn print(lines: &[String]) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// What the replay says of the tape.
fn closing(replay: &Replay) -> Vec<String> {
    let mut lines = vec![format!(
        "{} inputs, {} outputs",
        replay.inputs,
        replay.outputs.len()
    )];
    if let Some(error) = &replay.broken {
        lines.push(format!("The tape breaks off: {error}"));
    } else if replay.stopped {
        lines.push("The recorder stopped before the call ended".to_owned());
    } else if !replay.ended {
        lines.push("The call does not reach its end".to_owned());
    }
    match &replay.difference {
        Some(difference) => {
            let seconds = difference
                .at
                .as_micros()
                .saturating_sub(replay.header.start.as_micros()) as f64
                / 1e6;
            lines.push(format!(
                "DIFFERENT from input {} on ({seconds:.3} s, byte {}); the replay gave for it:",
                difference.record, difference.offset
            ));
            lines.extend(
                difference
                    .outputs
                    .iter()
                    .map(|output| format!("  {output}")),
            );
        }
        None if replay.header.redacted => {
            lines.push(
                "A redacted tape: without sound and words there is nothing to compare".to_owned(),
            );
        }
        None => lines.push("The same outputs as the recording".to_owned()),
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use media::tape::Difference;
    use media::time::Time;

    use super::*;

    fn empty_tape() -> Vec<u8> {
        let config = media::config::CallConfig {
            session_id: "s".to_owned(),
            agent_id: "a".to_owned(),
            direction: media::config::Direction::Inbound,
            protocol: media::config::Protocol::Native,
            audio_format: media::config::AudioFormat::Pcm16000,
            agent: media::config::AgentConfig::default(),
            recording: true,
            events: media::config::OptionalEvents::default(),
            vad: media::config::VadKind::Energy,
            lead_ms: 0,
        };
        let header = tape::Header {
            format: tape::FORMAT.to_owned(),
            version: tape::VERSION,
            start: Time::from_millis(5),
            punctuates: true,
            redacted: false,
            config,
        };
        let mut bytes = serde_json::to_vec(&header).unwrap();
        bytes.push(b'\n');
        bytes
    }

    #[test]
    fn a_tape_without_an_end_says_so() {
        let replay = tape::replay(&empty_tape()).unwrap();
        let lines = closing(&replay);
        assert!(
            lines.contains(&"The call does not reach its end".to_owned()),
            "{lines:?}"
        );
        assert!(
            lines.contains(&"The same outputs as the recording".to_owned()),
            "{lines:?}"
        );
    }

    #[test]
    fn a_difference_is_placed_in_time_and_in_the_file() {
        let mut replay = tape::replay(&empty_tape()).unwrap();
        replay.difference = Some(Difference {
            record: 12,
            offset: 3456,
            at: Time::from_millis(2005),
            outputs: vec!["2.000 wait".to_owned()],
        });
        let lines = closing(&replay).join("\n");
        assert!(
            lines.contains("DIFFERENT from input 12 on (2.000 s, byte 3456)"),
            "{lines}"
        );
        assert!(lines.ends_with("  2.000 wait"), "{lines}");
    }
}
