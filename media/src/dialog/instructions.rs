//! What the model is told beside the prompt: how to speak, how closely to follow the prompt, and what
//! to keep away from. Made from the agent's settings, once a call.

use crate::config::{Adherence, AgentConfig, Language};

/// The instructions of an agent, one a line. A model that reads them follows them; the prompt stays
/// apart, for models that answer with its sentences.
pub fn instructions(agent: &AgentConfig) -> String {
    let mut lines = vec![
        "Everything you say is spoken on a call: whole sentences, no lists, no markup.".to_owned(),
        match agent.language {
            Language::English => "Speak English.".to_owned(),
            Language::French => "Speak French.".to_owned(),
        },
    ];
    lines.extend(length(
        agent.response_min_sentences,
        agent.response_max_sentences,
    ));
    lines.push(adherence(agent.script_adherence).to_owned());
    lines.push(
        "Where the prompt says [name: not provided], that value is unknown: never read the brackets \
         out."
        .to_owned(),
    );
    if agent.focus_guardrail_enabled {
        lines.push(
            "Stay on the subject of the prompt. When the caller leaves it, say in a few words that \
             you cannot help with that, and lead back."
                .to_owned(),
        );
    }
    if agent.content_guardrail_enabled {
        lines.push(
            "Keep it clean, whatever the caller says or asks for: no insults, no obscenities, \
             nothing sexual, violent or illegal."
                .to_owned(),
        );
    }
    lines.extend(
        agent
            .custom_guardrails
            .iter()
            .map(|guardrail| format!("{}: {}", guardrail.name.trim(), guardrail.prompt.trim())),
    );
    lines.join("\n")
}

/// How long an answer should be; 0 is no bound.
fn length(min: u32, max: u32) -> Option<String> {
    let sentences = |count: u32| {
        if count == 1 {
            "1 sentence".to_owned()
        } else {
            format!("{count} sentences")
        }
    };
    match (min, max) {
        (0, 0) => None,
        (0, max) => Some(format!("Answer in at most {}.", sentences(max))),
        (min, 0) => Some(format!("Answer in at least {}.", sentences(min))),
        (min, max) if min == max => Some(format!("Answer in {}.", sentences(max))),
        (min, max) => Some(format!("Answer in {min} to {}.", sentences(max))),
    }
}

const fn adherence(how: Adherence) -> &'static str {
    match how {
        Adherence::Strict => {
            "Follow the prompt to the letter: say only what it covers, in its order and its words, \
             and never improvise."
        }
        Adherence::Medium => {
            "Follow the prompt; its words may change, and where it is silent stay close to what it is \
             meant for."
        }
        Adherence::Loose => {
            "Take the prompt as guidance and talk freely within what it is meant for."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Guardrail;

    fn told(change: impl FnOnce(&mut AgentConfig)) -> String {
        let mut agent = AgentConfig::default();
        change(&mut agent);
        instructions(&agent)
    }

    /// Whether the change makes, or takes away, lines with these words.
    #[track_caller]
    fn acts(change: impl FnOnce(&mut AgentConfig), appears: &str, goes: &str) {
        let (before, after) = (told(|_| {}), told(change));
        assert!(after.contains(appears), "{after}");
        assert!(!before.contains(appears) || appears.is_empty(), "{before}");
        if !goes.is_empty() {
            assert!(before.contains(goes) && !after.contains(goes), "{after}");
        }
    }

    #[test]
    fn each_guardrail_is_told_while_it_is_on() {
        acts(
            |agent| agent.focus_guardrail_enabled = false,
            "",
            "Stay on the subject",
        );
        acts(
            |agent| agent.content_guardrail_enabled = true,
            "Keep it clean",
            "",
        );
        acts(
            |agent| {
                agent.custom_guardrails = vec![Guardrail {
                    name: "Prices".into(),
                    prompt: "Never promise a discount. ".into(),
                }];
            },
            "\nPrices: Never promise a discount.",
            "",
        );
    }

    #[test]
    fn each_adherence_is_told_in_its_own_words() {
        acts(
            |agent| agent.script_adherence = Adherence::Medium,
            "its words may change",
            "to the letter",
        );
        acts(
            |agent| agent.script_adherence = Adherence::Loose,
            "talk freely",
            "to the letter",
        );
    }

    #[test]
    fn language_and_length_are_told() {
        acts(
            |agent| agent.language = Language::French,
            "Speak French.",
            "Speak English.",
        );
        for (min, max, line) in [
            (0, 0, None),
            (0, 1, Some("Answer in at most 1 sentence.")),
            (2, 0, Some("Answer in at least 2 sentences.")),
            (2, 2, Some("Answer in 2 sentences.")),
            (2, 3, Some("Answer in 2 to 3 sentences.")),
        ] {
            assert_eq!(length(min, max).as_deref(), line);
        }
        assert!(told(|_| {}).contains("Answer in 2 to 3 sentences."));
    }
}
