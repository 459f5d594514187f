//! What is listened to: human speech from packages, and synthetic callers.

use std::fmt::Display;
use std::path::Path;
use std::process::Command;

use super::sound;
use crate::vendors::voice::{installed, render};
use crate::vendors::words::words;
use crate::voices::Engine;

/// A set of utterances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Set {
    /// 100 of Asterisk's English prompts: one human voice, 8 kHz.
    Asterisk,
    /// pocketsphinx's own test data: humans, 16 kHz.
    Testdata,
    /// The questions of the demo agent, by synthetic callers: words only.
    Synthetic,
    /// The same, and whether the demo agent answers with the right sentence.
    Questions,
}

/// Utterances that share a voice and a domain.
pub(super) struct Group {
    pub(super) name: String,
    /// The agent's text: the recogniser's own words come from it.
    pub(super) domain: String,
    pub(super) items: Vec<Item>,
}

pub(super) struct Item {
    pub(super) text: String,
    /// The sentence that answers it.
    pub(super) answer: Option<String>,
    pub(super) pcm: Vec<i16>,
}

const DEMO_PROMPT: &str = include_str!("../../vendors/demo_prompt.txt");
const QUESTIONS: &str = include_str!("../../../../fixtures/questions.tsv");
const PHRASES: &str = include_str!("../../vendors/pocketsphinx/phrases.txt");

/// Renders or reads the set.
pub(super) fn load(set: Set, voices: &[String], scratch: &Path) -> Result<Vec<Group>, String> {
    match set {
        Set::Asterisk => asterisk(
            Path::new("/usr/share/asterisk/sounds/en_US_f_Allison"),
            Path::new("/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz"),
        ),
        Set::Testdata => testdata(Path::new("/usr/share/pocketsphinx/test/data")),
        Set::Synthetic | Set::Questions => {
            let mut groups = Vec::new();
            for voice in voices {
                let engine = caller(voice)?;
                let mut items = Vec::new();
                for line in QUESTIONS.lines().skip(1) {
                    let (question, answer) =
                        line.split_once('\t').ok_or("a question without answer")?;
                    let answer = (set == Set::Questions).then(|| answer.to_owned());
                    let pcm = sound::with_noise(&spoken(engine, question, scratch)?);
                    items.push(Item {
                        text: question.to_owned(),
                        answer,
                        pcm,
                    });
                }
                groups.push(Group {
                    name: format!("demo, {voice}"),
                    domain: DEMO_PROMPT.to_owned(),
                    items,
                });
            }
            Ok(groups)
        }
    }
}

/// Debian's packages of what is listened to. The prompts' texts are not in the package of their sound, which only
/// recommends theirs.
const PROMPTS: &str = "asterisk-core-sounds-en-wav";
const PROMPT_TEXTS: &str = "asterisk-core-sounds-en";
const TEST_DATA: &str = "pocketsphinx-testdata";

fn missing(what: impl Display, package: &str) -> String {
    format!("{what}: install the package {package}")
}

/// The sound of a sentence at the engine's rate.
pub(super) fn spoken(engine: Engine, text: &str, scratch: &Path) -> Result<Vec<i16>, String> {
    if let (Err(unavailable), Some(program)) = (installed(engine), engine.program()) {
        // The programs have the names of their packages.
        return Err(missing(unavailable, program));
    }
    let (rate, pcm) =
        render(engine, text, &scratch.join("caller.wav")).map_err(|error| error.to_string())?;
    sound::at_engine_rate(&pcm, rate)
}

/// What the telephone's transform is fitted to: everyday phrases and sentences about nothing that a
/// measurement asks, in turn by three voices.
pub(super) fn transform_sentences() -> Vec<(Engine, String)> {
    let voices = ["slt", "rms", "awb"].map(|name| Engine::Flite { name });
    let lines: Vec<&str> = PHRASES
        .lines()
        .filter(|line| line.split(' ').count() > 2)
        .collect();
    // Short phrases three at a time: sentences of a usual length.
    let sentences = lines
        .chunks(3)
        .map(|three| three.join(", "))
        .chain(LONG.iter().map(|&line| line.to_owned()));
    let spoken = sentences.flat_map(|sentence| voices.map(|voice| (voice, sentence.clone())));
    spoken.collect()
}

/// Sentences with every English sound in many neighbourhoods.
const LONG: &[&str] = &[
    "the quick brown fox jumps over the lazy dog while five boxing wizards watch",
    "she sells sea shells on the shore and he chooses cheese for his lunch",
    "a large size in stockings is hard to sell but these shoes fit very well",
    "the boy was there when the sun rose and the path was full of leaves",
    "a rod is used to catch pink salmon although the source of the river is far",
    "four hours of steady work faced us before the evening turned cold",
    "the juice of lemons makes fine punch and the box was thrown beside the truck",
    "help the woman get back to her feet and bring both of them a glass of water",
    "the young girl gave no clear response to the question about usual pleasure",
    "thieves who rob friends deserve jail and a yacht slid around the point into the bay",
];

fn caller(name: &str) -> Result<Engine, String> {
    match name {
        "espeak" => Ok(Engine::Espeak {
            name: "en-us",
            pitch: 50,
            words_per_minute: 150,
        }),
        "slt" => Ok(Engine::Flite { name: "slt" }),
        "rms" => Ok(Engine::Flite { name: "rms" }),
        "awb" => Ok(Engine::Flite { name: "awb" }),
        "kal16" => Ok(Engine::Flite { name: "kal16" }),
        other => Err(format!("no caller is called {other}")),
    }
}

/// Every second of 200 prompts is measured; the others make the domain, so no measured sentence stands
/// in the language model unless the prompts themselves repeat it.
fn asterisk(sounds: &Path, list: &Path) -> Result<Vec<Group>, String> {
    if !sounds.is_dir() {
        let what = format!("{} is not there", sounds.display());
        return Err(missing(what, PROMPTS));
    }
    let output = Command::new("gzip")
        .arg("-dc")
        .arg(list)
        .output()
        .map_err(|error| missing(format!("gzip: {error}"), "gzip"))?;
    if !output.status.success() {
        let what = format!("{} cannot be read", list.display());
        return Err(missing(what, PROMPT_TEXTS));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let prompts: Vec<(&str, &str)> = text
        .lines()
        .filter(|line| !line.starts_with(';'))
        .filter_map(|line| line.split_once(": "))
        .filter(|(name, text)| {
            !text.contains(['[', '(', '<', '.', '"'])
                || text.matches('.').count() == 1
                    && text.ends_with('.')
                    && sounds.join(format!("{name}.wav")).is_file()
        })
        .filter(|(name, text)| {
            (4..=16).contains(&words(text).len()) && sounds.join(format!("{name}.wav")).is_file()
        })
        .collect();
    if prompts.is_empty() {
        let what = format!("{} holds none of the prompts", sounds.display());
        return Err(missing(what, PROMPTS));
    }
    let mut items = Vec::new();
    let mut domain = String::new();
    for (at, (name, text)) in prompts.iter().enumerate() {
        if at % 2 == 0 && items.len() < 100 {
            let pcm = sound::with_noise(&sound::read(&sounds.join(format!("{name}.wav")))?);
            items.push(Item {
                text: (*text).to_owned(),
                answer: None,
                pcm,
            });
        } else {
            domain.push_str(text);
            domain.push('\n');
        }
    }
    Ok(vec![Group {
        name: "asterisk, own domain".into(),
        domain,
        items,
    }])
}

fn testdata(base: &Path) -> Result<Vec<Group>, String> {
    let sound = |file: &Path| sound::read(file).map_err(|error| missing(error, TEST_DATA));
    let mut items = Vec::new();
    for (folder, list) in [
        ("cards", "cards.transcription"),
        ("librivox", "transcription"),
    ] {
        let path = base.join(folder).join(list);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| missing(format!("{}: {error}", path.display()), TEST_DATA))?;
        for line in text.lines() {
            let Some((said, name)) = line.trim_end_matches([')', ' ']).rsplit_once('(') else {
                continue;
            };
            let said = said.replace("<s>", "").replace("</s>", "");
            let pcm = sound(&base.join(folder).join(format!("{name}.wav")))?;
            items.push(Item {
                text: said.trim().to_owned(),
                answer: None,
                pcm,
            });
        }
    }
    for (file, said) in [
        ("goforward.raw", "go forward ten meters"),
        ("something.raw", "go somewhere and do something"),
    ] {
        items.push(Item {
            text: said.to_owned(),
            answer: None,
            pcm: sound(&base.join(file))?,
        });
    }
    Ok(vec![Group {
        name: "testdata, no domain".into(),
        domain: String::new(),
        items,
    }])
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn what_is_missing_is_named_by_the_package_that_has_it() {
        let folder = TempDir::new().unwrap();
        let (sounds, list) = (folder.path().join("sounds"), folder.path().join("list.gz"));
        let wrong = |result: Result<Vec<Group>, String>, package: &str| {
            let why = result.err().unwrap();
            assert!(
                why.ends_with(&format!("install the package {package}")),
                "{why}"
            );
        };
        wrong(asterisk(&sounds, &list), PROMPTS);
        std::fs::create_dir(&sounds).unwrap();
        wrong(asterisk(&sounds, &list), PROMPT_TEXTS);
        let plain = folder.path().join("list");
        std::fs::write(&plain, "hello: hello and welcome to you\n").unwrap();
        assert!(Command::new("gzip").arg(&plain).status().unwrap().success());
        wrong(asterisk(&sounds, &list), PROMPTS);

        wrong(testdata(folder.path()), TEST_DATA);
        let cards = folder.path().join("cards");
        std::fs::create_dir(&cards).unwrap();
        std::fs::write(cards.join("cards.transcription"), "ace (001)\n").unwrap();
        wrong(testdata(folder.path()), TEST_DATA);
    }
}
