//! Every command that README and the documents show: it is run as it stands, with what is a placeholder put in, or it
//! is looked up (a script, a goal of make, a test's name), or it is among the exceptions with the reason why not.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kit::ports::free_port;
use kit::server::{Server, program};
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

use crate::stage;
use crate::telephone::{records, server};

/// Documents besides those in `docs/`. (`deploy/sip/README.md` has a test of its own, which posts its requests.)
const DOCUMENTS: &[&str] = &[
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "deploy/README.md",
    "deploy/kubernetes/README.md",
];

/// What a command begins with, after its variables.
const PROGRAMS: &[&str] = &[
    "sidetone",
    "make",
    "bash",
    "cargo",
    "npm",
    "npx",
    "pip",
    "docker",
    "kubectl",
    "openssl",
    "createuser",
    "curl",
    "openapi-python-client",
    "chown",
];

/// Not run, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "createuser --pwprompt sidetone && createdb --owner sidetone sidetone",
        "asks for a password, and needs PostgreSQL's own user",
    ),
    (
        "npm install openapi-fetch",
        "installs from npm: tests/peers/document does it with locked packages",
    ),
    (
        "npm install --save-dev openapi-typescript typescript",
        "installs from npm: tests/peers/document does it with locked packages",
    ),
    (
        "npx openapi-typescript http://127.0.0.1:8080/api/v1/openapi.json --output schema.d.ts",
        "tests/peers/document runs it",
    ),
    (
        "pip install openapi-python-client",
        "installs from PyPI: scripts/setup.sh does",
    ),
    (
        "openapi-python-client generate --url http://127.0.0.1:8080/api/v1/openapi.json --meta none --config config.yaml --output-path sidetone_client",
        "tests/peers/document runs it",
    ),
    ("pip install websockets", "installs from PyPI"),
    (
        "cargo run --release -p sidetone -- openapi > docs/openapi.json",
        "builds the program; tests/api/document.rs runs it and compares",
    ),
    (
        "sidetone wer --codec opus --loss 0,5,10,20 --voices rms --one-call",
        "measures for minutes; with fewer utterances it is run below",
    ),
    (
        "kubectl apply -f deploy/kubernetes",
        "no cluster of Kubernetes here",
    ),
    (
        "kubectl label node MACHINE sidetone.example.com/turn=true",
        "no cluster of Kubernetes here",
    ),
];

/// Blocks without a language that are no commands, by their first line.
const NO_COMMANDS: &[&str] = &[
    "X-Svc-Event: call.ended",
    "            control  (axum, sqlx, redis, reqwest; the binary `sidetone`)",
];

/// A command as a document shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shown {
    text: String,
    /// It stands in a block, and not within a sentence.
    in_block: bool,
    file: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What is shown in one document.
fn shown(file: &str, document: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    let mut prose = String::new();
    let mut block: Option<(String, Vec<&str>)> = None;
    for line in document.lines() {
        match (&mut block, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => block = Some((language.trim().to_owned(), Vec::new())),
            (None, None) => {
                prose.push_str(line);
                prose.push('\n');
            }
            (Some((language, lines)), Some(_)) => {
                if matches!(language.as_str(), "" | "sh" | "bash" | "console") {
                    let commands = in_block(lines);
                    let one = |text| Shown {
                        text,
                        in_block: true,
                        file: file.to_owned(),
                    };
                    found.extend(commands.into_iter().map(one));
                }
                block = None;
            }
            (Some((_, lines)), None) => lines.push(line),
        }
    }
    for paragraph in prose.split("\n\n") {
        // Between an odd and the next even backtick.
        let spans = paragraph.split('`').skip(1).step_by(2);
        for span in spans {
            let text = span.split_whitespace().collect::<Vec<_>>().join(" ");
            let (_, command) = variables(&text);
            let mut words = command.split(' ');
            let starts = words.next().is_some_and(|word| PROGRAMS.contains(&word));
            // A program's name alone is no command.
            if starts && words.next().is_some() {
                found.push(Shown {
                    text,
                    in_block: false,
                    file: file.to_owned(),
                });
            }
        }
    }
    found
}

/// The commands of a block: lines, where one that ends with a backslash goes on, without their remarks.
fn in_block(lines: &[&str]) -> Vec<String> {
    if lines
        .first()
        .is_some_and(|first| NO_COMMANDS.contains(first))
    {
        return Vec::new();
    }
    let joined = lines.join("\n").replace("\\\n", " ");
    let commands = joined.lines().map(|line| {
        let line = line.split("  #").next().unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    commands
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

/// The variables that a command begins with, and the rest of it.
fn variables(text: &str) -> (Vec<(String, String)>, &str) {
    let mut rest = text;
    let mut found = Vec::new();
    while let Some((name, after)) = rest.split_once('=') {
        if name.is_empty()
            || !name
                .chars()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        {
            break;
        }
        // A value ends at a blank, but for one in quotes or in a placeholder.
        let end = match after.chars().next() {
            Some('\'') => after[1..].find('\'').map(|at| at + 2),
            _ => {
                let inner = after.find('<').filter(|at| !after[..*at].contains(' '));
                let from = inner
                    .and_then(|at| after[at..].find('>').map(|end| at + end))
                    .unwrap_or(0);
                after[from..].find(' ').map(|at| from + at)
            }
        };
        let (value, more) = after.split_at(end.unwrap_or(after.len()));
        found.push((name.to_owned(), value.trim_matches('\'').to_owned()));
        rest = more.trim_start();
    }
    (found, rest)
}

/// What becomes of a command.
#[derive(Debug, PartialEq)]
enum Fate {
    Excepted,
    /// It names a command of the program without what it needs: its help is asked for.
    Help(Vec<String>),
    /// `sidetone serve`: its variables are read as settings.
    Serve(Vec<(String, String)>),
    Run,
    /// What it names is there.
    There,
    Unknown(String),
}

fn fate(shown: &Shown) -> Fate {
    if EXCEPTIONS.iter().any(|(text, _)| *text == shown.text) {
        return Fate::Excepted;
    }
    let (settings, command) = variables(&shown.text);
    let words: Vec<&str> = command.split(' ').collect();
    match words[..] {
        ["sidetone", "serve"] => Fate::Serve(settings),
        ["sidetone", ref names @ ..]
            if !shown.in_block
                && names.iter().all(|name| is_word(name))
                && names != ["migrate"] =>
        {
            Fate::Help(names.iter().map(|name| (*name).to_owned()).collect())
        }
        ["sidetone", ..] | ["curl", ..] => Fate::Run,
        ["make", goal] if goals().contains(goal) => Fate::There,
        ["bash", script, ..] if root().join(script).is_file() => Fate::There,
        ["cargo", "test", ..] => tests_named(&words),
        _ => Fate::Unknown(shown.text.clone()),
    }
}

fn is_word(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_lowercase())
}

/// The goals of the Makefile.
fn goals() -> BTreeSet<&'static str> {
    let makefile = include_str!("../../../Makefile");
    makefile
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0))
        .collect()
}

/// Whether there are tests of the name that `cargo test` is given.
fn tests_named(words: &[&str]) -> Fate {
    let after = |option: &str| {
        words
            .iter()
            .position(|word| *word == option)
            .map(|at| words[at + 1])
    };
    let places: Vec<PathBuf> = match (after("-p"), after("--test")) {
        (Some("sidetone-media"), _) => vec![root().join("media")],
        (Some("sidetone-sip"), _) => vec![root().join("sip")],
        (_, Some("sim")) => vec![root().join("tests/sim")],
        (_, Some("peer")) => vec![root().join("benches/tests")],
        (_, Some("calls")) => vec![root().join("tests/peers/calls")],
        (_, Some("peers")) => vec![root().join("tests/peers")],
        other => return Fate::Unknown(format!("{other:?}")),
    };
    let options = [
        "cargo",
        "test",
        "--release",
        "--workspace",
        "-p",
        "--lib",
        "--test",
        "--",
        "--nocapture",
    ];
    let values = [after("-p"), after("--test")];
    let filter = words
        .iter()
        .rfind(|word| !options.contains(word) && !values.contains(&Some(**word)));
    let Some(filter) = filter else {
        return Fate::There;
    };
    let mut sources = String::new();
    for place in &places {
        read_sources(place, &mut sources);
    }
    let is_there = filter.split("::").all(|name| {
        // Beginnings of names select tests, too.
        [format!("fn {name}"), format!("mod {name}")]
            .iter()
            .any(|item| sources.contains(item.as_str()))
            || sources
                .lines()
                .any(|line| line.contains("fn ") && line.contains(name))
    });
    if is_there {
        Fate::There
    } else {
        Fate::Unknown(format!("no test {filter}"))
    }
}

fn read_sources(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            read_sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&std::fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

fn all_shown() -> Vec<Shown> {
    let read = |file: String| {
        let text = std::fs::read_to_string(root().join(&file)).unwrap();
        shown(&file, &text)
    };
    let folder = std::fs::read_dir(root().join("docs")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let of_docs = names
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/{name}"));
    let others = DOCUMENTS.iter().map(|file| (*file).to_owned());
    others.chain(of_docs).flat_map(read).collect()
}

/// What the documents' placeholders stand for here.
struct World {
    server: Server,
    listen: SocketAddr,
    agent: String,
    /// Of a call over SIP.
    call: String,
    /// Where `question.wav` is.
    folder: PathBuf,
}

impl World {
    async fn new() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let over = format!("udp:{listen}");
        let (server, agent) = server(json!({}), &[("SIP__LISTEN", &over)]).await;
        let folder = server.data.join("terminal");
        std::fs::create_dir_all(folder.join("docs")).unwrap();
        let spec = hound::WavSpec {
            channels: 1,
            sample_rate: 16_000,
            bits_per_sample: 16,
            sample_format: hound::SampleFormat::Int,
        };
        let mut writer = hound::WavWriter::create(folder.join("question.wav"), spec).unwrap();
        for sample in stage::voice(600) {
            writer.write_sample(sample).unwrap();
        }
        writer.finalize().unwrap();
        Self {
            server,
            listen,
            agent,
            call: String::new(),
            folder,
        }
    }

    /// The command with what its placeholders stand for, and less of what takes long.
    fn filled(&self, command: &str) -> String {
        let sip = format!("sip:+4930123456@{}", self.listen);
        let mut filled = command.to_owned();
        for (from, to) in [
            ("sip:+4930123456@203.0.113.5", sip.clone()),
            ("sip:number@host:port", sip),
            ("--agent ID", format!("--agent {}", self.agent)),
            ("CALL_ID", self.call.clone()),
            ("<call id>", self.call.clone()),
            ("<agent id>", self.agent.clone()),
            ("https://voice.example.com", self.server.url.clone()),
            // Any answer but a good one fails.
            ("curl ", "curl --fail --silent --show-error ".to_owned()),
            ("--pid PID", format!("--pid {}", self.server.pid())),
            (
                "--sessions 200 --seconds 30",
                "--sessions 2 --warm-up 1 --seconds 2".to_owned(),
            ),
            ("data/recordings/….tape", "call.tape".to_owned()),
            ("whsec_…", "whsec_example".to_owned()),
            ("--set asterisk", "--set asterisk --first 1".to_owned()),
            ("--set testdata", "--set testdata --first 1".to_owned()),
        ] {
            filled = filled.replace(from, &to);
        }
        let begins = |with: &str| command.starts_with(&format!("sidetone {with}"));
        if begins("call --sip") {
            filled.push_str(" --linger 1 --seconds 6");
        } else if begins("call --agent") {
            filled.push_str(" --linger 1");
        }
        if ["call --agent", "load", "sip trace"]
            .into_iter()
            .any(begins)
        {
            filled.push_str(&format!(" --url {}", self.server.url));
        }
        if begins("webhooks listen") && !filled.ends_with("--help") {
            // It goes on until somebody ends it.
            filled = format!("timeout 1 {filled} --port {}; test $? = 124", free_port());
        }
        filled
    }

    /// Runs a command as a shell does, in a folder of its own.
    async fn run(&self, command: &str) {
        let filled = self.filled(command);
        let programs = program().parent().unwrap().display().to_string();
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
        let running = Command::new("sh")
            .args(["-c", &filled])
            .env_clear()
            .env("PATH", path)
            .env("SIDETONE_API_KEY", &self.server.key)
            .env("SIDETONE_SERVER__DATA_DIR", &self.server.data)
            .env("DATABASE_URL", self.server.database_url())
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(Duration::from_secs(40), running).await;
        let output = output
            .unwrap_or_else(|_| panic!("{filled} does not end"))
            .unwrap();
        assert!(
            output.status.success(),
            "{filled}\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn every_command_of_the_documents_has_its_fate() {
    let all = all_shown();
    assert!(all.len() > 30, "{all:?}");
    let unknown: Vec<String> = all
        .iter()
        .filter_map(|shown| match fate(shown) {
            Fate::Unknown(why) => Some(format!("{}: {} ({why})", shown.file, shown.text)),
            _ => None,
        })
        .collect();
    assert!(
        unknown.is_empty(),
        "have them run, or give the reason why not: {unknown:#?}"
    );
    let unused = EXCEPTIONS
        .iter()
        .filter(|(text, _)| !all.iter().any(|shown| shown.text == *text));
    assert_eq!(
        unused.count(),
        0,
        "an exception stands in no document any more"
    );
    // A new one is found out, in a block and in a sentence, and so is one that names what is gone.
    for (document, wanted) in [
        ("```\nsidetone-ctl restart\n```\n", "sidetone-ctl restart"),
        ("```sh\nA=1 foo \\\n  --bar  # why\n```\n", "A=1 foo --bar"),
        (
            "Run `bash scripts/nowhere.sh` first.",
            "bash scripts/nowhere.sh",
        ),
        ("Run `make tea`.", "make tea"),
        (
            "`cargo test -p sidetone-media --lib no_such_test_at_all`",
            "no test no_such_test_at_all",
        ),
    ] {
        let found = shown("README.md", document);
        assert_eq!(found.len(), 1, "{document}");
        assert!(
            matches!(fate(&found[0]), Fate::Unknown(why) if why == wanted),
            "{document}"
        );
    }
}

#[tokio::test]
async fn the_commands_of_the_documents_do_what_they_are_shown_for() {
    let _together = stage::together().await;
    let mut world = World::new().await;
    let mut commands: BTreeSet<String> = BTreeSet::new();
    for shown in all_shown() {
        match fate(&shown) {
            Fate::Run => {
                commands.insert(variables(&shown.text).1.to_owned());
            }
            Fate::Help(mut names) => {
                names.insert(0, "sidetone".to_owned());
                commands.insert(format!("{} --help", names.join(" ")));
            }
            Fate::Serve(settings) => {
                let settings = settings.into_iter().map(|(name, value)| {
                    (
                        name,
                        value
                            .replace("<agent id>", &world.agent)
                            .replace('…', "secret"),
                    )
                });
                let read = control::config::Config::load(None, &settings.collect());
                assert!(read.is_ok(), "{}: {}", shown.text, read.err().unwrap());
            }
            Fate::Excepted | Fate::There | Fate::Unknown(_) => {}
        }
    }
    // What is excepted for its length alone.
    commands
        .insert("sidetone wer --codec opus --loss 5 --voices rms --one-call --first 1".to_owned());
    // First the calls, which later commands look at; what changes keys and accounts last, each alone. Sessions that
    // nobody joins come in between: their calls are not over soon.
    let takes = |command: &str, words: &str| command.starts_with(&format!("sidetone {words}"));
    let (last, commands): (Vec<String>, Vec<String>) = commands
        .into_iter()
        .partition(|c| (takes(c, "keys") || takes(c, "accounts")) && !c.ends_with("--help"));
    let (requests, commands): (Vec<String>, Vec<String>) =
        commands.into_iter().partition(|c| c.starts_with("curl "));
    let (of_calls, first): (Vec<String>, Vec<String>) = commands
        .into_iter()
        .partition(|c| takes(c, "sip trace") || takes(c, "replay"));
    futures_util::future::join_all(first.iter().map(|command| world.run(command))).await;

    let client = world.server.client();
    let over_sip = first
        .iter()
        .filter(|command| takes(command, "call --sip"))
        .count();
    assert!(
        over_sip > 0 && !of_calls.is_empty() && last.len() > 3 && !requests.is_empty(),
        "{first:?} {of_calls:?} {last:?} {requests:?}"
    );
    let list = client.get("/calls?limit=100").await.expect(200).body;
    let calls = records(&client, list["items"].as_array().unwrap().len()).await;
    let by_telephone = calls.iter().find(|call| call["channel"] == "sip").unwrap();
    world.call = by_telephone["id"].as_str().unwrap().to_owned();
    let tape = tape(&world.server.data.join("objects")).unwrap();
    std::fs::copy(tape, world.folder.join("call.tape")).unwrap();
    futures_util::future::join_all(of_calls.iter().map(|command| world.run(command))).await;
    for command in requests.iter().chain(&last) {
        world.run(command).await;
    }
    assert!(world.folder.join("reply.wav").is_file());
    let printed = std::fs::read_to_string(world.folder.join("docs/openapi.json")).unwrap();
    let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed["openapi"], "3.1.0");
    client
        .post("/conversation/connect", &json!({"agent_id": world.agent}))
        .await
        .expect(402);
}

/// A tape in this folder.
fn tape(folder: &Path) -> Option<PathBuf> {
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "tape")
        {
            return Some(path);
        }
        if let Some(found) = tape(&path) {
            return Some(found);
        }
    }
    None
}
