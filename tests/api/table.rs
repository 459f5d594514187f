//! The mounted routes against `fixtures/spec/endpoints.tsv`, which is written from the API documents:
//! both agree on who may call and how long a page is. (That both hold the same routes: `grid.rs`.)

use std::{collections::BTreeMap, fs, path::Path};

use control::http::{Access, Endpoint};

/// A line of the table.
struct Line {
    access: String,
    note: String,
}

#[test]
fn what_the_documents_do_not_say_has_its_reason() {
    for (route, line) in lines() {
        let (kind, reason) = line.note.split_once([' ', ',', ':']).unwrap();
        assert!(
            ["document", "addition"].contains(&kind) && !reason.trim().is_empty(),
            "{route:?}"
        );
    }
}

#[test]
fn both_agree_on_who_may_call() {
    let lines = lines();
    for (route, endpoint) in mounted() {
        let said: Vec<&str> = lines[&route].access.split(" or ").collect();
        let wanted = match endpoint.access {
            Access::Scopes(scopes) => vec![names(scopes).join(" and ")],
            Access::AnyScope(scopes) => names(scopes),
            Access::CallToken(scopes) => with(names(scopes), &["call-token"]),
            Access::PublicAgent(scopes) => with(names(scopes), &["call-token", "public-agent"]),
            // A key with a scope, or a signed token that the handler checks.
            Access::Signed => vec!["audio-token".to_owned()],
            Access::SignedUrl => vec!["signed-url".to_owned()],
            Access::Admin => vec!["admin".to_owned()],
            Access::None => vec!["none".to_owned()],
        };
        for one in &wanted {
            assert!(
                said.contains(&one.as_str()),
                "{route:?}: {one} against {said:?}"
            );
        }
        // No call token where the table has none.
        for one in ["call-token", "public-agent"] {
            let built = wanted.iter().any(|wanted| wanted == one);
            assert_eq!(said.contains(&one), built, "{route:?}: {one}");
        }
    }
}

#[test]
fn both_agree_on_how_long_a_page_is() {
    let lines = lines();
    for (route, endpoint) in mounted() {
        let said = lines[&route]
            .note
            .split("; ")
            .find_map(|part| part.strip_prefix("page "));
        let built = endpoint
            .page
            .map(|(default, max, min)| format!("{default}, {min} to {max}"));
        assert_eq!(said, built.as_deref(), "{route:?}");
    }
}

/// Method and path; parameters without their names.
type Route = (String, String);

fn mounted() -> BTreeMap<Route, Endpoint<control::app::App>> {
    let mut routes = BTreeMap::new();
    for endpoint in control::routes::endpoints() {
        let route = (endpoint.method.to_string(), unnamed(&endpoint.full_path()));
        let twice = routes.insert(route.clone(), endpoint);
        assert!(twice.is_none(), "{route:?} is mounted twice");
    }
    routes
}

fn lines() -> BTreeMap<Route, Line> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/spec/endpoints.tsv");
    let text = fs::read_to_string(file).unwrap();
    let (head, body) = text.split_once('\n').unwrap();
    assert_eq!(head, "method\tpath\taccess\tmounted\tnote");
    let mut lines = BTreeMap::new();
    for line in body.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [method, path, access, mounted, note] = columns[..] else {
            panic!("not five columns: {line}")
        };
        assert!(
            ["yes", "no"].contains(&mounted),
            "neither yes nor no: {mounted}"
        );
        let (access, note) = (access.to_owned(), note.to_owned());
        let route = (method.to_owned(), unnamed(path));
        let twice = lines.insert(route.clone(), Line { access, note });
        assert!(twice.is_none(), "{route:?} stands twice");
    }
    lines
}

fn unnamed(path: &str) -> String {
    let part = |part: &str| {
        if part.starts_with('{') {
            "{}".to_owned()
        } else {
            part.to_owned()
        }
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

fn with(mut names: Vec<String>, more: &[&str]) -> Vec<String> {
    names.extend(more.iter().map(|name| (*name).to_owned()));
    names
}

fn names(scopes: &[control::http::Scope]) -> Vec<String> {
    scopes.iter().map(ToString::to_string).collect()
}
