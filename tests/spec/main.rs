//! The rules of the API documents, each with the test that holds it: `rules.md` against the tree.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A line of `rules.md`: a rule, and the names of its tests.
struct Rule {
    line: usize,
    text: String,
    tests: Vec<String>,
}

#[test]
fn every_rule_names_a_test_that_exists() {
    let known = tests();
    let mut wrong = Vec::new();
    for Rule { line, text, tests } in rules() {
        if tests.is_empty() {
            wrong.push(format!("rules.md:{line}: no test for: {text}"));
        }
        for name in tests {
            if !known.contains(&name) {
                wrong.push(format!("rules.md:{line}: no test is named {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_rule_stands_once() {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for Rule { line, text, .. } in rules() {
        if text.len() < 10 {
            wrong.push(format!("rules.md:{line}: that is no rule: {text:?}"));
        }
        if let Some(first) = lines.insert(text.clone(), line) {
            wrong.push(format!("rules.md:{line}: as in line {first}: {text}"));
        }
    }
    assert!(lines.len() > 150, "only {} rules", lines.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The lines that begin with a dash: the rule, an arrow, the tests' names in backticks.
fn rules() -> Vec<Rule> {
    let file = fs::read_to_string(root().join("tests/spec/rules.md")).unwrap();
    let rules = file.lines().enumerate().filter_map(|(index, line)| {
        let text = line.strip_prefix("- ")?;
        let (text, named) = text.split_once(" → ").unwrap_or((text, ""));
        let tests = named.split('`').skip(1).step_by(2).map(str::to_owned);
        Some(Rule {
            line: index + 1,
            text: text.trim().to_owned(),
            tests: tests.collect(),
        })
    });
    rules.collect()
}

/// The names of all functions of the tree that a test runner runs.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in ["control/src", "media", "sip/src", "tests"] {
        for file in sources(&root().join(folder)) {
            let text = fs::read_to_string(file).unwrap();
            let mut runs = false;
            for line in text.lines().map(str::trim) {
                if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                    runs = true;
                } else if let Some(name) = function(line)
                    && std::mem::take(&mut runs)
                {
                    names.insert(name.to_owned());
                }
            }
        }
    }
    names
}

/// The name of the function that begins in this line.
fn function(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("async ").unwrap_or(line);
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}
