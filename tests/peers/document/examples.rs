//! Every example of the document is what its schema says, and nothing more: members that a schema does not name
//! are not let through here.

use std::process::Command;

use crate::{beside, copy, run, tool};

#[test]
fn every_example_is_as_its_schema_says() {
    let printed = run(Command::new(tool("python"))
        .arg(beside("examples.py"))
        .arg(copy())
        .env("PYTHONDONTWRITEBYTECODE", "1"));
    let checked: usize = printed
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("{printed}"));
    assert!(checked > 300, "{printed}");
}
