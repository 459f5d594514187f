//! Reads `CHANGES.md`: a heading `## YYYY-MM-DD` a day, newest first, below it one item a change; an
//! item that holds **action** may need a change in an existing integration. Pure.

use schemars::JsonSchema;
use serde::Serialize;

/// The changes of one day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ChangeDay")]
pub struct Day {
    /// The day, as YYYY-MM-DD.
    #[schemars(extend("format" = "date"))]
    pub date: String,
    /// What changed on it.
    pub changes: Vec<Change>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Change {
    /// What changed, in Markdown.
    pub text: String,
    /// Whether an existing integration may have to be changed.
    pub requires_action: bool,
}

/// The mark of a change that requires action.
const ACTION: &str = "**action**";

/// All days of the file, in its order.
pub fn parse(file: &str) -> Vec<Day> {
    let mut days: Vec<Day> = Vec::new();
    // Whether the line before belongs to an item that may go on.
    let mut open = false;
    for line in file.lines() {
        if let Some(date) = line.strip_prefix("## ") {
            open = false;
            days.push(Day {
                date: date.trim().to_owned(),
                changes: Vec::new(),
            });
            continue;
        }
        let Some(day) = days.last_mut() else { continue };
        if let Some(text) = line.strip_prefix("- ") {
            open = true;
            day.changes.push(Change {
                text: text.trim().to_owned(),
                requires_action: false,
            });
        } else if line.trim().is_empty() {
            open = false;
        } else if let Some(change) = day.changes.last_mut().filter(|_| open) {
            change.text.push(' ');
            change.text.push_str(line.trim());
        }
    }
    for change in days.iter_mut().flat_map(|day| &mut day.changes) {
        if change.text.contains(ACTION) {
            change.requires_action = true;
            let text = change.text.replace(ACTION, "");
            change.text = text.trim_start_matches([' ', ':', '.']).trim().to_owned();
        }
    }
    days
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changelog::http::CHANGES;

    fn change(text: &str, requires_action: bool) -> Change {
        Change {
            text: text.to_owned(),
            requires_action,
        }
    }

    #[test]
    fn items_go_on_over_lines_and_action_is_a_mark() {
        let file = "# Title\n\nWords.\n\n## 2026-02-03\n\n- One thing\n  and its end.\n- **action**: The other.\n\nnot an item\n\n## 2026-01-02\n- Old.\n";
        assert_eq!(
            parse(file),
            [
                Day {
                    date: "2026-02-03".into(),
                    changes: vec![
                        change("One thing and its end.", false),
                        change("The other.", true)
                    ]
                },
                Day {
                    date: "2026-01-02".into(),
                    changes: vec![change("Old.", false)]
                },
            ]
        );
    }

    #[test]
    fn the_log_of_this_program_is_dated_newest_first_and_no_day_is_empty() {
        let days = parse(CHANGES);
        assert!(!days.is_empty());
        assert!(days.is_sorted_by(|a, b| a.date > b.date));
        for day in days {
            assert!(
                day.date.parse::<jiff::civil::Date>().is_ok(),
                "{}",
                day.date
            );
            assert!(!day.changes.is_empty(), "{}", day.date);
            assert!(day.changes.iter().all(|change| !change.text.is_empty()));
        }
    }
}
