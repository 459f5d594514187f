//! Rooms: the files and folders right below `control/src`. A room names others, and none of them names it back, by
//! whatever way round: so each can be read, tested and changed with what stands below it alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use super::{files, none, product_lines, read, shown, without_strings};

/// Where one room names another, by both: the first line that does.
type Names = BTreeMap<String, BTreeMap<String, String>>;

/// The rooms form no circle.
#[test]
fn rooms_form_no_circle() {
    let names = names();
    let circle: Vec<String> = shortest_circle(&names)
        .iter()
        .map(|(from, to)| format!("{from} names {to}: {}", names[from][to]))
        .collect();
    none(&circle);
}

/// The whole application is put together at the top. A resource takes the part that it works on.
#[test]
fn the_whole_application_is_named_at_the_top_alone() {
    let top = ["cli", "routes", "testing"];
    let wrong: Vec<String> = names()
        .iter()
        .filter(|(room, _)| !top.contains(&room.as_str()))
        .filter_map(|(room, others)| Some(format!("{room} names app: {}", others.get("app")?)))
        .collect();
    none(&wrong);
}

/// `docs/architecture.md` has every room, and each names only rooms of its own floor and of those below.
#[test]
fn the_map_shows_every_room_on_its_floor() {
    let text = read("docs/architecture.md");
    let (_, map) = text.split_once("\n## The rooms of `control`\n").unwrap();
    let map = map.split("\n## ").next().unwrap();
    let mut floors = BTreeMap::new();
    for (floor, row) in map.lines().filter(|line| line.starts_with('|')).enumerate() {
        // The second column names them.
        let rooms = row.split('|').nth(2).unwrap();
        for room in rooms.split('`').skip(1).step_by(2) {
            let twice = floors.insert(room.to_owned(), floor);
            assert!(twice.is_none(), "{room} stands twice on the map");
        }
    }
    let mapped: BTreeSet<String> = floors.keys().cloned().collect();
    assert_eq!(
        mapped,
        rooms(),
        "the rooms on the map, and those that are there"
    );
    let mut wrong = Vec::new();
    for (room, others) in names() {
        for (other, place) in others {
            if floors[&other] > floors[&room] {
                wrong.push(format!(
                    "{room} names {other}, which stands above it: {place}"
                ));
            }
        }
    }
    none(&wrong);
}

/// Every room, by its name.
fn rooms() -> BTreeSet<String> {
    files("control/src", "rs")
        .iter()
        .map(|file| parts(file).swap_remove(0))
        .filter(|room| !["lib", "main"].contains(&room.as_str()))
        .collect()
}

/// What the product's lines of every room name of other rooms.
fn names() -> Names {
    let rooms = rooms();
    let mut names = Names::new();
    for file in files("control/src", "rs") {
        let modules = parts(&file);
        let room = &modules[0];
        if !rooms.contains(room) {
            continue;
        }
        for (line, other) in named(&product_lines(&file), modules.len()) {
            if other != *room && rooms.contains(&other) {
                let place = format!("{}:{line}", shown(&file));
                let others = names.entry(room.clone()).or_default();
                others.entry(other).or_insert(place);
            }
        }
    }
    names
}

/// The modules that lead to a file of `control/src`, its own last.
fn parts(file: &Path) -> Vec<String> {
    let path = shown(file);
    let inner = path.trim_start_matches("control/src/");
    let inner = inner.trim_end_matches(".rs").trim_end_matches("/mod");
    inner.split('/').map(str::to_owned).collect()
}

/// What stands right below the crate and is named in these lines of a module that is so deep: after `crate::`, in the
/// braces after it, and after as many `super::` as lead there. With the number of the line.
fn named(lines: &[(usize, String)], depth: usize) -> Vec<(usize, String)> {
    let up = "super::".repeat(depth);
    let mut found = Vec::new();
    // How many braces are open of a list that began after `crate::`.
    let mut open = 0_usize;
    for (number, line) in lines {
        let code = without_strings(line).replace(&up, "crate::");
        let mut rest = code.as_str();
        while !rest.is_empty() {
            if open == 0 {
                let Some((_, after)) = rest.split_once("crate::") else {
                    break;
                };
                rest = after;
                if let Some(after) = rest.strip_prefix('{') {
                    (open, rest) = (1, after);
                } else {
                    found.push((*number, first_word(rest)));
                }
                continue;
            }
            let letter = rest.chars().next().unwrap_or_default();
            let word = first_word(rest);
            match letter {
                '{' => open += 1,
                '}' => open -= 1,
                _ if open == 1 && !word.is_empty() => {
                    found.push((*number, word.clone()));
                    // What follows it is inside that room, up to the next comma or brace.
                    let end = rest.find([',', '{', '}']).unwrap_or(rest.len());
                    rest = &rest[end..];
                    continue;
                }
                _ => {}
            }
            rest = &rest[letter.len_utf8()..];
        }
    }
    found
}

/// The word that a text begins with; empty where it begins with none.
fn first_word(text: &str) -> String {
    let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
    text.chars().take_while(is_word).collect()
}

/// The shortest way from a room back to itself, step by step; empty: there is none.
fn shortest_circle(names: &Names) -> Vec<(String, String)> {
    names
        .keys()
        .filter_map(|room| way_back(names, room))
        .min_by_key(Vec::len)
        .unwrap_or_default()
}

fn way_back(names: &Names, room: &str) -> Option<Vec<(String, String)>> {
    let mut came: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([room]);
    while let Some(here) = queue.pop_front() {
        for next in names.get(here).into_iter().flat_map(BTreeMap::keys) {
            if next == room {
                let mut way = vec![(here.to_owned(), room.to_owned())];
                let mut at = here;
                while at != room {
                    way.insert(0, (came[at].to_owned(), at.to_owned()));
                    at = came[at];
                }
                return Some(way);
            }
            if !came.contains_key(next.as_str()) {
                came.insert(next, here);
                queue.push_back(next);
            }
        }
    }
    None
}

/// The rule sees every way in which a file can name a room.
#[test]
fn every_way_to_name_a_room_is_seen() {
    let text = r#"use crate::agents::store;
use crate::{
    billing::{self, rules::Standing},
    calls, db,
    http::{Access, validate::{Field, Kind}},
    ids::AgentId};
fn f(x: &crate::jobs::Queue) -> super::super::live::Call {
    super::here(crate::node::of("crate::not"), $crate::time::NOW)
}"#;
    let lines: Vec<(usize, String)> = (1..).zip(text.lines().map(str::to_owned)).collect();
    let found: Vec<String> = named(&lines, 2)
        .into_iter()
        .map(|(line, room)| format!("{line} {room}"))
        .collect();
    let rooms = "1 agents, 3 billing, 4 calls, 4 db, 5 http, 6 ids, 7 jobs, 7 live, 8 node, 8 time";
    assert_eq!(found.join(", "), rooms);
}

/// Of two circles the shorter one is told, with all of its steps.
#[test]
fn the_shortest_circle_is_found() {
    let of = |pairs: &[(&str, &str)]| {
        let mut names = Names::new();
        for (from, to) in pairs {
            let others = names.entry((*from).to_owned()).or_default();
            others.insert((*to).to_owned(), String::new());
        }
        let told: Vec<String> = shortest_circle(&names)
            .iter()
            .map(|(from, to)| format!("{from}>{to}"))
            .collect();
        told.join(" ")
    };
    let straight = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")];
    assert_eq!(of(&straight), "");
    let mut round = straight.to_vec();
    round.push(("d", "a"));
    assert_eq!(of(&round), "a>c c>d d>a");
    round.push(("d", "c"));
    assert_eq!(of(&round), "c>d d>c");
}
