//! The invariants of `docs/architecture.md`, read off the tree itself: a walk over files, no compiler needed.
//! `tidy/rooms.rs` holds the rooms of `control` to their map.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "tidy/rooms.rs"]
mod rooms;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Invariant 1: two leaves and one root. A leaf names neither the other leaf nor the root, nor any crate
/// that belongs to the API's world.
#[test]
fn leaves_depend_on_nothing_above_them() {
    let foreign = [
        "axum",
        "hyper",
        "reqwest",
        "sqlx",
        "redis",
        "tokio",
        "tower",
        "clap",
        "sidetone",
        "control",
        "sidetone-media",
        "sidetone-sip",
        "media",
        "sip",
    ];
    let mut wrong = Vec::new();
    for leaf in ["media", "sip"] {
        for name in dependencies(&read(&format!("{leaf}/Cargo.toml"))) {
            if foreign.contains(&name.as_str()) {
                wrong.push(format!("{leaf} depends on {name}"));
            }
        }
    }
    none(&wrong);
}

/// Invariant 2: outside `shell/` a leaf reads no clock, no randomness, no environment, spawns nothing
/// and touches no socket and no file. Tests are not held to it: they may write files and read clocks.
#[test]
fn cores_are_pure() {
    let words = [
        "Instant::now",
        "SystemTime",
        "thread::spawn",
        "thread::sleep",
        "thread::Builder",
        "std::env",
        "env::var",
        "rand::",
        "getrandom",
        "RandomState",
        "std::net",
        "TcpStream",
        "TcpListener",
        "UdpSocket",
        "mio::",
        "std::fs",
        "fs::File",
        "File::open",
        "File::create",
        "OpenOptions",
        "process::Command",
        "SystemRandom",
        "Uuid::",
        "rustix::",
        "tungstenite",
        "crossbeam_channel",
        "std::sync::Mutex",
        "static mut",
    ];
    let mut wrong = Vec::new();
    for leaf in ["media/src", "sip/src"] {
        let cores = files(leaf, "rs")
            .into_iter()
            .filter(|file| !file.components().any(|part| part.as_os_str() == "shell"));
        for file in cores {
            wrong.extend(found_in_product(&file, &words));
        }
    }
    none(&wrong);
}

/// Invariant 1: an audio call over SIP is put together by the bridge. Besides it only the settings (which
/// hold the closed words of both leaves) and `sidetone call` (a caller of its own) name both leaves.
#[test]
fn the_bridge_alone_holds_both_hands() {
    let allowed = [
        "control/src/calls/bridge/",
        "control/src/cli/call/",
        "control/src/config",
    ];
    let mut wrong = Vec::new();
    let mut both = BTreeSet::new();
    for file in files("control/src", "rs") {
        let path = shown(&file);
        let lines = product_lines(&file);
        let names = |leaf: &str| lines.iter().any(|(_, line)| names_crate(line, leaf));
        if names("media") && names("sip") {
            match allowed.iter().find(|folder| path.starts_with(**folder)) {
                Some(folder) => {
                    both.insert(*folder);
                }
                None => wrong.push(format!("{path}: names both leaves")),
            }
        }
    }
    none(&wrong);
    assert_eq!(both.len(), allowed.len(), "a place that needs no leave");
}

/// Invariant 3: no lock and no await where frames go. In `media` a lock stands only where calls begin and
/// end (the engine's own list, the pool of ports), and nothing is asynchronous.
#[test]
fn frames_wait_for_no_lock() {
    let words = [
        "Mutex", "RwLock", "Condvar", "Barrier", "lock", "async", "await", "block_on",
    ];
    let allowed = ["media/src/shell/engine.rs", "media/src/shell/ports.rs"];
    let mut wrong = Vec::new();
    for file in files("media/src", "rs") {
        let path = shown(&file);
        if allowed.contains(&path.as_str()) {
            continue;
        }
        for (number, line) in product_lines(&file) {
            let code = without_strings(&line);
            let found = words.iter().filter(|word| has_word(&code, word));
            wrong.extend(found.map(|word| format!("{path}:{number}: {word}")));
        }
    }
    none(&wrong);
}

/// Invariant 11: whatever runs beside others in `control` is watched, so that nothing dies unheard: by the
/// supervisor, or by whoever awaits it.
#[test]
fn whatever_is_spawned_is_watched() {
    let words = [
        "tokio::spawn",
        "runtime.spawn",
        "thread::Builder",
        "thread::spawn",
    ];
    let watched = [
        // The supervisor itself.
        "control/src/supervisor.rs",
        // Whoever asks awaits the task, and answers for it.
        "control/src/http/abandoned.rs",
        // One answer of a provider each: one that does not come is one that fails, by the engine's deadlines.
        "control/src/vendors/remote/",
        // A look at a database that is away, and the end of a transaction that was dropped.
        "control/src/db/",
        // Programs of their own, which end with it.
        "control/src/cli/call/",
        "control/src/cli/load/",
    ];
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for file in files("control/src", "rs") {
        let path = shown(&file);
        let found = found_in_product(&file, &words);
        match watched.iter().find(|place| path.starts_with(**place)) {
            Some(place) if !found.is_empty() => _ = seen.insert(*place),
            Some(_) => {}
            None => wrong.extend(found),
        }
    }
    none(&wrong);
    assert_eq!(seen.len(), watched.len(), "a place that needs no leave");
}

/// Invariant 4: no channel without a bound.
#[test]
fn every_channel_has_a_bound() {
    let words = ["unbounded", "mpsc::channel()", "mpsc::channel::<"];
    let mut wrong = Vec::new();
    for folder in ["media/src", "sip/src", "control/src"] {
        for file in files(folder, "rs") {
            wrong.extend(found_in_product(&file, &words));
        }
    }
    none(&wrong);
}

/// Invariant 5: wall time only in `control`, so not in the leaves' shells either.
#[test]
fn leaves_know_no_wall_time() {
    let words = ["SystemTime", "UNIX_EPOCH"];
    let mut wrong = Vec::new();
    for leaf in ["media/src", "sip/src"] {
        for file in files(leaf, "rs") {
            wrong.extend(found_in_product(&file, &words));
        }
    }
    none(&wrong);
}

/// Invariant 6: a store function that takes an id takes the account before it, or says in its doc
/// that the account follows from a token, or gives the account as its answer.
#[test]
fn stores_are_asked_for_an_account() {
    let mut wrong = Vec::new();
    let is_store = |file: &PathBuf| {
        let in_folder = file
            .parent()
            .is_some_and(|folder| folder.ends_with("store"));
        file.ends_with("store.rs") || in_folder && !file.ends_with("tests.rs")
    };
    for file in files("control/src", "rs").into_iter().filter(is_store) {
        let text = fs::read_to_string(&file).unwrap();
        for (at, _) in text.match_indices("async fn ") {
            let signature: String = text[at..].chars().take_while(|c| *c != '{').collect();
            let doc: String = text[..at]
                .lines()
                .rev()
                .skip(1)
                .take_while(|line| is_doc(line))
                .collect();
            let (arguments, answer) = signature.split_once("->").unwrap_or((&signature, ""));
            let id = arguments.find("Id,").or_else(|| arguments.find("Id\n"));
            let account = arguments.find("AccountId");
            if let Some(id) = id
                && account.is_none_or(|account| account > id)
                && !doc.contains("account follows from")
                && !answer.contains("AccountId")
            {
                wrong.push(format!(
                    "{}: {}",
                    shown(&file),
                    signature.replace('\n', " ")
                ));
            }
        }
    }
    none(&wrong);
}

/// Invariant 10: `unsafe` only in `media/src/audio` and in adapters to C libraries, and each block has
/// its proof right above it.
#[test]
fn unsafe_has_its_places_and_its_proofs() {
    let allowed = ["media/src/audio/", "control/src/vendors/"];
    let mut wrong = Vec::new();
    for file in sources() {
        let path = shown(&file);
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let code = without_strings(line.split("//").next().unwrap_or_default());
            // A name that is spelt like the keyword.
            let code = code.replace("r#unsafe", "");
            if !has_word(&code, "unsafe") || code.contains("unsafe_code") || path == "tests/tidy.rs"
            {
                continue;
            }
            // A counting allocator can only be written with `unsafe`; the benches' kit and the tests
            // that assert zero allocations carry one.
            let counts = text.contains("GlobalAlloc");
            if !counts && !allowed.iter().any(|folder| path.starts_with(folder)) {
                wrong.push(format!("{path}:{}: unsafe outside its places", index + 1));
            }
            let block = code.contains("unsafe {");
            let above = &lines[index.saturating_sub(6)..=index];
            if block && !counts && !above.iter().any(|line| line.contains("SAFETY:")) {
                wrong.push(format!("{path}:{}: no SAFETY comment", index + 1));
            }
        }
    }
    none(&wrong);
}

/// Invariant 9: one client talks to addresses that users gave, `control/src/egress`. Others may only exist where the
/// address is the operator's own (speech and other vendors, other nodes, the collector of traces) or that of the person at the command line.
#[test]
fn one_client_talks_to_users_addresses() {
    let words = [
        "reqwest::Client",
        "reqwest::get",
        "ClientBuilder",
        "hyper::client",
        "hyper_util::client",
        "connect_async",
    ];
    let allowed = [
        "control/src/egress/",
        "control/src/vendors/",
        "control/src/cli/",
        "control/src/cluster/",
        "control/src/telemetry/",
    ];
    let mut wrong = Vec::new();
    for file in files("control/src", "rs") {
        let path = shown(&file);
        if !allowed.iter().any(|folder| path.starts_with(folder)) {
            wrong.extend(found_in_product(&file, &words));
        }
    }
    none(&wrong);
}

/// Every source file says in its first lines what story it tells.
#[test]
fn every_source_file_has_a_module_doc() {
    let undocumented: Vec<String> = sources()
        .iter()
        .filter(|file| {
            !fs::read_to_string(file)
                .unwrap()
                .lines()
                .take(3)
                .any(|line| line.starts_with("//! "))
        })
        .map(|file| shown(file))
        .collect();
    none(&undocumented);
}

/// Nothing is left for later: no stub, no test that does not run, no print left behind.
#[test]
fn nothing_is_left_for_later() {
    let words = [
        "todo!(",
        "unimplemented!(",
        "#[ignore",
        "dbg!(",
        "FIXME",
        "allow(dead_code)",
        "allow(unused)",
    ];
    let mut wrong = Vec::new();
    for file in sources()
        .into_iter()
        .filter(|file| !file.ends_with("tests/tidy.rs"))
    {
        for (number, line) in numbered(&file) {
            for word in words.iter().filter(|word| line.contains(**word)) {
                wrong.push(format!("{}:{number}: {word}", shown(&file)));
            }
        }
    }
    none(&wrong);
}

/// The repository speaks of itself alone: no path of a machine, no word of how it was made.
#[test]
fn no_file_names_a_machine_or_a_workplace() {
    // Put together here, so that this file does not name them itself.
    let words = [
        ["/wo", "rk/"].concat(),
        ["/tmp", "/wt"].concat(),
        ["/ro", "ot/"].concat(),
        ["/ho", "me/"].concat(),
        ["../sha", "red"].concat(),
        ["sub", "agent"].concat(),
        ["artifact", "registry"].concat(),
    ];
    let mut wrong = Vec::new();
    for file in texts() {
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                wrong.push(format!("{}:{}: {word}", shown(&file), index + 1));
            }
        }
    }
    none(&wrong);
}

/// Migrations run in the order of their numbers, so none stands twice; and both engines have the same
/// ones, with the same tables and columns.
#[test]
fn migrations_are_the_same_for_both_engines() {
    let of = |engine: &str| {
        let files = files(&format!("control/migrations/{engine}"), "sql");
        let named = files.iter().map(|file| {
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            (name, columns(&fs::read_to_string(file).unwrap()))
        });
        named.collect::<Vec<(String, Vec<String>)>>()
    };
    let (sqlite, postgres) = (of("sqlite"), of("postgres"));
    let numbers: Vec<&str> = sqlite.iter().map(|(name, _)| &name[..4]).collect();
    let distinct: BTreeSet<&str> = numbers.iter().copied().collect();
    assert_eq!(numbers.len(), distinct.len(), "a number stands twice");
    assert!(sqlite.iter().any(|(_, columns)| columns.len() > 20));
    assert_eq!(sqlite, postgres);
}

/// What a migration makes, each as `table.column` or `drop table.column`, in its order.
fn columns(sql: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut table = None;
    for line in sql.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["create", "table", name, ..] => {
                found.push((*name).to_owned());
                table = Some((*name).to_owned());
            }
            [
                "alter",
                "table",
                name,
                what @ ("add" | "drop"),
                "column",
                column,
                ..,
            ] => {
                let column = column.trim_end_matches(';');
                found.push(format!("{what} {name}.{column}"));
            }
            ["drop", "table", ..] => found.push(line.to_owned()),
            [");", ..] => table = None,
            [
                "--" | "primary" | "unique" | "foreign" | "check" | "constraint",
                ..,
            ]
            | [] => {}
            [column, ..] => {
                if let Some(table) = &table
                    && column.chars().all(|c| c.is_ascii_lowercase() || c == '_')
                {
                    found.push(format!("{table}.{column}"));
                }
            }
        }
    }
    found
}

/// The twentieth resource looks like the first: an endpoint table comes with its bodies, its rules and
/// its queries, each in the file of that name.
#[test]
fn resources_have_the_same_files() {
    let mut wrong = Vec::new();
    for folder in entries("control/src")
        .into_iter()
        .filter(|path| path.join("http.rs").exists())
    {
        let text = fs::read_to_string(folder.join("http.rs")).unwrap();
        if !text.contains("fn endpoints(") {
            continue;
        }
        // `wire.rs` and `store.rs` only where there are bodies and rows of its own; the rows may lie in a room below.
        let module = fs::read_to_string(folder.join("mod.rs")).unwrap();
        for (file, reason) in [
            ("mod.rs", true),
            ("wire.rs", text.contains("wire::")),
            (
                "store.rs",
                text.contains("store::") && !module.contains(" as store;"),
            ),
        ] {
            if reason && !folder.join(file).exists() {
                wrong.push(format!("{}: no {file}", shown(&folder)));
            }
        }
        for (word, file) in [
            ("$1", "store.rs"),
            ("SELECT ", "store.rs"),
            ("select ", "store.rs"),
        ] {
            if text
                .lines()
                .any(|line| line.contains(word) && !line.trim_start().starts_with("//"))
            {
                wrong.push(format!(
                    "{}/http.rs: SQL belongs into {file}",
                    shown(&folder)
                ));
            }
        }
    }
    none(&wrong);
}

/// `docs/dependencies.md` tells why of every dependency.
#[test]
fn readme_explains_every_dependency() {
    let document = read("docs/dependencies.md");
    let mut named = BTreeSet::new();
    let peer = "tests/peers/webrtc/webrtc-rs";
    for manifest in [
        "media",
        "sip",
        "control",
        "benches",
        "tests",
        "fuzz",
        "fuzz/bodies",
        peer,
    ] {
        named.extend(dependencies(&read(&format!("{manifest}/Cargo.toml"))));
    }
    let unexplained: Vec<String> = named
        .into_iter()
        .filter(|name| !["media", "sip", "control", "bodies"].contains(&name.as_str()))
        .filter(|name| {
            !document
                .lines()
                .any(|line| line.starts_with('|') && line.contains(&format!("`{name}`")))
        })
        .collect();
    none(&unexplained);
}

/// README is read by people who decide within a minute. What does not fit goes to `docs/`.
#[test]
fn the_front_page_is_short() {
    const MOST_BYTES: usize = 9 * 1024;
    const MOST_BYTES_OF_PICTURE: u64 = 100 * 1024;
    let readme = read("README.md").len();
    assert!(readme < MOST_BYTES, "README.md has {readme} bytes");
    let picture = fs::metadata(root().join("docs/call.png")).unwrap().len();
    assert!(
        picture < MOST_BYTES_OF_PICTURE,
        "docs/call.png has {picture} bytes"
    );
}

/// Every link of a document to another file leads to it, and to a heading that is there.
#[test]
fn links_lead_somewhere() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for file in documents() {
        let text = fs::read_to_string(&file).unwrap();
        let ends = text.split("](").skip(1);
        let targets = ends.filter_map(|rest| Some(rest.split_once(')')?.0));
        for target in targets.filter(|target| !target.contains("://")) {
            count += 1;
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let other = match path {
                "" => file.clone(),
                path => file.parent().unwrap().join(path),
            };
            let leads = match heading {
                "" => other.exists(),
                heading => headings(&other).iter().any(|own| own == heading),
            };
            if !leads {
                wrong.push(format!("{}: {target}", shown(&file)));
            }
        }
    }
    assert!(count > 30, "{count}");
    none(&wrong);
}

/// The names by which a document's headings are linked to.
fn headings(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let name = |line: &str| -> String {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    lines.map(name).collect()
}

/// The map and the ways through the code name files and folders that are there.
#[test]
fn the_architecture_names_what_is_there() {
    let text = read("docs/architecture.md");
    let spans = text.split('`').skip(1).step_by(2);
    let paths: BTreeSet<&str> = spans
        .filter(|span| span.contains('/') && !["/", "shell/"].contains(span))
        .filter(|span| !span.contains(char::is_whitespace))
        .collect();
    assert!(paths.len() > 80, "{}", paths.len());
    let missing: Vec<String> = paths
        .iter()
        .filter(|path| !root().join(path).exists())
        .map(|path| format!("docs/architecture.md: {path}"))
        .collect();
    none(&missing);
}

/// The bars of `make soak` are listed as they stand in the script.
#[test]
fn the_long_bars_are_listed() {
    let script = read("scripts/soak.sh");
    let told = read("docs/testing.md");
    let bars: Vec<&str> = script
        .lines()
        .filter_map(|line| line.strip_prefix("bar \"")?.split('"').next())
        .collect();
    assert!(bars.len() > 15, "{bars:?}");
    let (_, list) = told.split_once("\n## The bars of `make soak`\n").unwrap();
    let listed: Vec<&str> = list
        .lines()
        .filter_map(|line| line.strip_prefix("- "))
        .collect();
    assert_eq!(listed, bars);
}

/// README, what stands beside it, `docs/` and `deploy/`.
fn documents() -> Vec<PathBuf> {
    let beside = entries("");
    let mut found: Vec<PathBuf> = beside.into_iter().filter(|path| path.is_file()).collect();
    found.extend(
        ["docs", "deploy"]
            .iter()
            .flat_map(|folder| files(folder, "md")),
    );
    found.retain(|path| path.extension().is_some_and(|own| own == "md"));
    found
}

/// A file tells one story. Above this length it surely tells two.
#[test]
fn no_source_file_is_an_attic() {
    const MOST: usize = 900;
    let long: Vec<String> = sources()
        .iter()
        .map(|file| {
            (
                shown(file),
                fs::read_to_string(file).unwrap().lines().count(),
            )
        })
        .filter(|(_, lines)| *lines > MOST)
        .map(|(file, lines)| format!("{file}: {lines} lines"))
        .collect();
    none(&long);
}

fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The path from the repository's root.
fn shown(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

fn entries(folder: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(root().join(folder))
        .map(|all| all.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    found.sort();
    found
}

/// All files with that extension below a folder, in the order of their paths.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    found.retain(|path| path.extension().is_some_and(|own| own == extension));
    found
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(all) = fs::read_dir(folder) else {
        return;
    };
    let mut all: Vec<PathBuf> = all.flatten().map(|entry| entry.path()).collect();
    all.sort();
    for path in all {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if !["target", "data", "node_modules", ".git"].contains(&name.as_str()) {
                walk(&path, found);
            }
        } else {
            found.push(path);
        }
    }
}

fn sources() -> Vec<PathBuf> {
    ["media", "sip", "control", "benches", "tests"]
        .iter()
        .flat_map(|folder| files(folder, "rs"))
        .collect()
}

/// Everything a person might read, not only Rust.
fn texts() -> Vec<PathBuf> {
    let kinds = [
        "rs", "toml", "md", "sh", "yml", "js", "css", "html", "sql", "tsv", "txt", "py", "lock",
    ];
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found.retain(|path| {
        let known = path
            .extension()
            .is_some_and(|own| kinds.iter().any(|kind| own == *kind));
        known
            || path
                .file_name()
                .is_some_and(|name| name == "Makefile" || name == "run")
    });
    found
}

fn numbered(file: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(file).unwrap();
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.to_owned()))
        .collect()
}

/// The lines of the product: without comments, and without the items that only tests have. A file of
/// tests has none.
fn product_lines(file: &Path) -> Vec<(usize, String)> {
    let path = shown(file);
    let is_test =
        path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs");
    match is_test {
        true => Vec::new(),
        false => without_tests(numbered(file))
            .into_iter()
            .map(|(number, line)| {
                let code = line.split("//").next().unwrap_or_default();
                (number, code.to_owned())
            })
            .collect(),
    }
}

/// Leaves out each item under `#[cfg(test)]`. An item ends at the first line that is no deeper than its
/// attribute and ends as items do, which holds in formatted code.
fn without_tests(lines: Vec<(usize, String)>) -> Vec<(usize, String)> {
    let mut product = Vec::new();
    // How deep the item stands that is being left out.
    let mut inside: Option<usize> = None;
    for (number, line) in lines {
        let text = line.trim();
        let depth = line.len() - line.trim_start().len();
        match inside {
            None if text == "#[cfg(test)]" => inside = Some(depth),
            None => product.push((number, line)),
            Some(own) => {
                let ends = text.ends_with([';', '}', ',']) && !text.starts_with("//");
                if depth == own && ends {
                    inside = None;
                }
            }
        }
    }
    product
}

/// What tests have is left out to its end and no further.
#[test]
fn only_items_of_tests_are_left_out() {
    let text = r#"mod a;
#[cfg(test)]
mod tests;
use b;
struct C {
    #[cfg(test)]
    counted: u32,
    kept: u32,
}
#[cfg(test)]
#[expect(
    one,
    reason = "two"
)]
pub(crate) fn seen(
    a: u32,
) -> u32 {
    // Three;
    a
}
fn last() {}"#;
    let lines = text.lines().map(str::to_owned).enumerate().collect();
    let left: Vec<String> = without_tests(lines)
        .into_iter()
        .map(|(_, line)| line)
        .collect();
    let product = "mod a;|use b;|struct C {|    kept: u32,|}|fn last() {}";
    assert_eq!(left.join("|"), product);
}

/// Where a product's line has one of the words.
fn found_in_product(file: &Path, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in product_lines(file) {
        for word in words.iter().filter(|word| line.contains(**word)) {
            found.push(format!("{}:{number}: {word}", shown(file)));
        }
    }
    found
}

/// Whether a line names something of this crate, and not of a module that is called like it.
fn names_crate(line: &str, name: &str) -> bool {
    let path = format!("{name}::");
    line.match_indices(&path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':')
    })
}

fn is_doc(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("///") || line.starts_with("#[")
}

/// What stands in quotes is no code.
fn without_strings(code: &str) -> String {
    code.split('"').step_by(2).collect()
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|one| one == word)
}

/// The names under every `dependencies` table of a manifest.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.trim_end_matches(']').ends_with("dependencies");
        } else if inside && let Some((name, _)) = line.split_once('=') {
            names.push(name.trim().trim_end_matches(".workspace").to_owned());
        }
    }
    names
}
