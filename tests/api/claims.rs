//! What README, the documents, the commented settings and the API's own prose speak of is there: each route that they
//! name is mounted, the settings that they show are taken, and where they speak of tools they say that no route gives an
//! agent any.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use control::config::Config;
use control::http::openapi::document;
use control::ids::SessionId;
use control::routes;
use control::sessions::rules::ws_url;
use media::config::Protocol;
use serde_json::Value;

/// What a document names although it is not there, and says so itself.
const MISSING: &[(&str, &str)] = &[("README.md", "POST /transcribe")];

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// What a document says of tools while they are missing.
const NO_TOOLS: &str = "cannot be given tools by the API yet";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &str) -> String {
    let path = root().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Documents besides those in `docs/`.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "deploy/README.md",
    "deploy/kubernetes/README.md",
    "deploy/sip/README.md",
    "sidetone.toml",
    "control/web/sidetone.d.ts",
];

/// All documents, each with its text.
fn documents() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(root().join("docs")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let of_docs = names
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/{name}"));
    let others = DOCUMENTS.iter().map(|file| (*file).to_owned());
    let mut files: Vec<String> = of_docs.chain(others).collect();
    files.sort();
    assert!(files.len() > 20, "{files:?}");
    files
        .into_iter()
        .map(|file| {
            let text = read(&file);
            (file, text)
        })
        .collect()
}

/// The documents and what the API's own says in words.
fn all_that_is_told(api: &Value) -> Vec<(String, String)> {
    let mut words = String::new();
    prose(api, &mut words);
    let mut all = documents();
    all.push(("the API's document".to_owned(), words));
    all
}

/// The blocks of a document in this language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("```{language}\n");
    let after = text.split(start.as_str()).skip(1);
    after
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

/// The routes that a text names: a method and a path, as in `POST /calls`.
fn named(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let routes = words.windows(2).filter_map(|pair| {
        let method = pair[0].trim_start_matches(|c: char| !c.is_ascii_uppercase());
        let path = pair[1].strip_prefix('/')?;
        let end = path.find(|c: char| !c.is_ascii_alphanumeric() && !"/{}_<>.-".contains(c));
        let path = path[..end.unwrap_or(path.len())].trim_end_matches(['.', '/']);
        METHODS
            .contains(&method)
            .then(|| format!("{method} /{path}"))
    });
    routes.collect()
}

/// A path with its variables made alike, and without the beginning that all have.
fn plain(path: &str) -> String {
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    let segments = path.split('/').map(|segment| match segment.chars().next() {
        Some('{' | '<') => "{}",
        _ => segment,
    });
    segments.collect::<Vec<_>>().join("/")
}

/// Whether a route is mounted.
fn is_mounted(route: &str, api: &Value) -> bool {
    let (method, path) = route.split_once(' ').unwrap();
    let described = api["paths"].as_object().unwrap().iter();
    let mut described = described
        .filter(|(of, _)| plain(of) == plain(path))
        .peekable();
    if described.peek().is_some() {
        return described.any(|(_, methods)| methods.get(method.to_lowercase()).is_some());
    }
    // The operator's routes stand in no document.
    routes::endpoints()
        .iter()
        .any(|one| plain(&one.full_path()) == plain(path))
}

/// All that the API's document says in words.
fn prose(value: &Value, into: &mut String) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "description" || key == "summary" => {
                        into.push_str(text);
                        into.push('\n');
                    }
                    other => prose(other, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| prose(item, into)),
        _ => {}
    }
}

#[test]
fn every_route_that_a_document_names_is_mounted() {
    let api = document(&routes::endpoints(), routes::EVENTS, "");
    let mut count = 0;
    for (file, text) in all_that_is_told(&api) {
        for route in named(&text) {
            count += 1;
            let known = is_mounted(&route, &api);
            let is_missing = MISSING.contains(&(file.as_str(), route.as_str()));
            assert!(
                known != is_missing,
                "{file} speaks of {route}, which is {}",
                if known { "there by now" } else { "no route" }
            );
        }
    }
    assert!(count > 30, "{count}");
    assert!(!is_mounted("POST /knowledge-bases", &api) && !is_mounted("DELETE /calls", &api));
    assert_eq!(
        named("(`PATCH /agents/{id}`), GET\n/x/<y>."),
        ["PATCH /agents/{id}", "GET /x/<y>"]
    );
}

/// As soon as an agent can be given tools, the documents have to say so.
#[test]
fn the_documents_speak_of_tools_as_what_is_missing_for_as_long_as_it_is() {
    let api = document(&routes::endpoints(), routes::EVENTS, "");
    let bodies = api["components"]["schemas"].as_object().unwrap();
    let can_be_given = ["CreateAgent", "UpdateAgent"].iter().any(|name| {
        let schema = bodies
            .get(*name)
            .unwrap_or_else(|| panic!("no {name} in {:?}", bodies.keys()));
        schema["properties"].get("tools").is_some()
    });
    let mut count = 0;
    for (file, text) in all_that_is_told(&api) {
        let line = text
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace(" * ", " ");
        let speaks = ["tool_call", "tool_result", "tool call", "ToolHandler"]
            .iter()
            .any(|word| line.contains(word));
        count += usize::from(speaks);
        let says_so = line.contains(NO_TOOLS);
        assert_eq!(
            says_so,
            speaks && !can_be_given,
            "{file}: says that tools are missing: {says_so}"
        );
    }
    assert!(count > 4, "{count}");
}

#[test]
fn the_settings_that_the_documents_show_are_taken() {
    let mut count = 0;
    for (file, text) in documents() {
        for block in blocks(&text, "toml") {
            count += 1;
            // No file with a key is here, and a key has no ellipsis.
            let settings = block
                .replace("api_key_file", "api_key")
                .replace('…', "secret");
            let read = Config::load(Some(&settings), &BTreeMap::new());
            assert!(read.is_ok(), "{file}: {block}{}", read.err().unwrap());
        }
    }
    assert!(count >= 3, "{count}");
    assert!(Config::load(Some("[providers.x]\nkid = \"openai\"\n"), &BTreeMap::new()).is_err());
}

/// The TwiML of the documents names the place where such a session is joined, with the token in the path or as a
/// parameter.
#[test]
fn the_streams_that_the_documents_show_lead_a_vendor_to_its_session() {
    let session = SessionId::NIL;
    let url = ws_url(
        "https://voice.example.com",
        Protocol::Telco,
        session,
        "TOKEN",
    );
    let url = url.replace(&session.to_string(), "SESSION");
    let (without_token, token) = url.rsplit_once('/').unwrap();
    let in_path = format!("<Stream url=\"{url}\"/>");
    let beside = [
        format!("<Stream url=\"{without_token}\">"),
        format!("<Parameter name=\"token\" value=\"{token}\"/>"),
    ];
    for (file, count) in [("README.md", 1), ("docs/telephony.md", 2)] {
        let text = read(file);
        let streams = blocks(&text, "xml");
        assert_eq!(streams.len(), count, "{file}");
        for stream in streams {
            let is_right =
                stream.contains(&in_path) || beside.iter().all(|one| stream.contains(one));
            assert!(is_right, "{file}: {stream}");
        }
    }
}
