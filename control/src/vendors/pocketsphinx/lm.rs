//! A trigram language model of what an agent's callers may say, in the ARPA format.
//!
//! Sources: the agent's own text (weight 1), everyday telephone phrases with numbers and dates (2),
//! and question frames around the agent's words (½). Smoothing is interpolated Witten-Bell (Witten and
//! Bell, 1991; Chen and Goodman, 1998, section 2.5): no held-out text is needed, and rare words keep
//! their chance. Pure and deterministic: the same text gives the same file.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::super::words::{number, sentences, words};

/// Weights of the three sources.
const OWN: f64 = 1.0;
const GENERAL: f64 = 2.0;
const FRAMES: f64 = 0.5;

/// A frame counts as often as if it stood in the text this many times, at [`FRAMES`] each.
const FRAME_TURNS: f64 = 40.0;

/// At most this many words of the agent's text go into question frames: a long knowledge base must
/// not make the model big.
const FRAMED_WORDS: usize = 400;

/// The longest text that is read, characters.
pub const LONGEST_TEXT: usize = 200_000;

/// Everyday phrases, one a line.
const PHRASES: &str = include_str!("phrases.txt");

/// Question frames; `*` is a word, or two neighbouring words, of the agent's text.
const QUESTION_FRAMES: &str = include_str!("frames.txt");

/// A model, ready to be written to a file.
pub struct Model {
    pub arpa: String,
    /// Words of the agent's text that the recogniser has no pronunciation for, in order.
    pub unknown: Vec<String>,
    pub words: usize,
}

/// Builds the model of an agent with this text (prompt, first message, documents). `known` tells
/// whether the recogniser can pronounce a word; others are left out and reported.
pub fn build(text: &str, known: impl Fn(&str) -> bool) -> Model {
    let text: String = text.chars().take(LONGEST_TEXT).collect();
    let mut corpus = Corpus {
        counts: Counts::default(),
        known,
        unknown: BTreeSet::new(),
    };
    for (sentence, weight) in sources(&text) {
        corpus.add(&sentence, weight);
    }
    let unknown = corpus.unknown.into_iter().collect();
    let words = corpus.counts.unigrams.len();
    Model {
        arpa: corpus.counts.arpa(),
        unknown,
        words,
    }
}

/// Every sentence the model is made of, with its weight.
fn sources(text: &str) -> Vec<(Vec<String>, f64)> {
    let own: Vec<Vec<String>> = sentences(text)
        .iter()
        .map(|sentence| words(sentence))
        .collect();
    let fillers = fillers(&own);
    let mut found: Vec<(Vec<String>, f64)> =
        own.into_iter().map(|sentence| (sentence, OWN)).collect();
    let phrases = PHRASES.lines().filter(|line| !line.is_empty()).map(words);
    found.extend(
        phrases
            .chain(numbers_and_dates())
            .map(|phrase| (phrase, GENERAL)),
    );
    // A frame weighs the same however many words there are to fill it.
    let weight = FRAMES * (FRAME_TURNS / fillers.len().max(1) as f64).min(1.0);
    for frame in QUESTION_FRAMES.lines().filter(|line| !line.is_empty()) {
        for filler in &fillers {
            let filled = frame.split(' ').flat_map(|word| match word {
                "*" => filler.clone(),
                word => vec![word.to_owned()],
            });
            found.push((filled.collect(), weight));
        }
    }
    found
}

/// The vocabulary of a pronouncing dictionary file (one word a line, then its sounds).
pub fn dictionary(file: &str) -> HashSet<&str> {
    file.lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| !word.ends_with(')'))
        .collect()
}

struct Corpus<K> {
    counts: Counts,
    known: K,
    unknown: BTreeSet<String>,
}

impl<K: Fn(&str) -> bool> Corpus<K> {
    fn add(&mut self, sentence: &[String], weight: f64) {
        let mut said = Vec::with_capacity(sentence.len() + 2);
        for word in sentence {
            if (self.known)(word) {
                said.push(word.clone());
            } else {
                self.unknown.insert(word.clone());
            }
        }
        if !said.is_empty() {
            self.counts.add(&said, weight);
        }
    }
}

/// Weighted counts of one, two and three words. Words are numbers, in the order they came.
#[derive(Default)]
struct Counts {
    ids: HashMap<String, u32>,
    names: Vec<String>,
    unigrams: BTreeMap<u32, f64>,
    bigrams: BTreeMap<[u32; 2], f64>,
    trigrams: BTreeMap<[u32; 3], f64>,
}

const START: &str = "<s>";
const END: &str = "</s>";

impl Counts {
    fn id(&mut self, word: &str) -> u32 {
        if let Some(id) = self.ids.get(word) {
            return *id;
        }
        let id = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.ids.insert(word.to_owned(), id);
        self.names.push(word.to_owned());
        id
    }

    fn add(&mut self, sentence: &[String], weight: f64) {
        let mut ids = vec![self.id(START)];
        ids.extend(sentence.iter().map(|word| self.id(word)));
        ids.push(self.id(END));
        for &id in &ids[1..] {
            *self.unigrams.entry(id).or_insert(0.0) += weight;
        }
        for pair in ids.windows(2) {
            *self.bigrams.entry([pair[0], pair[1]]).or_insert(0.0) += weight;
        }
        for three in ids.windows(3) {
            *self
                .trigrams
                .entry([three[0], three[1], three[2]])
                .or_insert(0.0) += weight;
        }
    }

    /// Probabilities as an ARPA file. A history's unseen mass is T / (C + T), with T its distinct
    /// followers and C their summed weight; seen followers get that share of the shorter history's
    /// probability on top of their own.
    fn arpa(&self) -> String {
        let vocabulary = self.unigrams.len() as f64;
        let total: f64 = self.unigrams.values().sum();
        let single: BTreeMap<u32, f64> = self
            .unigrams
            .iter()
            .map(|(id, count)| (*id, (count + 1.0) / (total + vocabulary)))
            .collect();
        let after_one = followers(self.bigrams.iter().map(|([a, _], count)| (*a, *count)));
        let after_two = followers(
            self.trigrams
                .iter()
                .map(|([a, b, _], count)| ([*a, *b], *count)),
        );
        let pair: BTreeMap<[u32; 2], f64> = self
            .bigrams
            .iter()
            .map(|(words, count)| {
                (
                    *words,
                    after_one[&words[0]].share(*count, single[&words[1]]),
                )
            })
            .collect();

        let mut arpa = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| arpa.push_str(&text.to_string());
        line(format_args!(
            "\\data\\\nngram 1={}\n",
            self.unigrams.len() + 1
        ));
        line(format_args!(
            "ngram 2={}\nngram 3={}\n\n\\1-grams:\n",
            pair.len(),
            self.trigrams.len()
        ));
        for (id, name) in self.names.iter().enumerate() {
            let id = id as u32;
            let chance = single.get(&id).map_or(-99.0, |p| p.log10());
            match after_one.get(&id) {
                Some(after) => line(format_args!(
                    "{chance:.4}\t{name}\t{:.4}\n",
                    after.unseen().log10()
                )),
                None => line(format_args!("{chance:.4}\t{name}\n")),
            }
        }
        line(format_args!("\n\\2-grams:\n"));
        let name = |id: u32| self.names[id as usize].as_str();
        for ([a, b], chance) in &pair {
            let (chance, a_name, b_name) = (chance.log10(), name(*a), name(*b));
            match after_two.get(&[*a, *b]) {
                Some(after) => {
                    let unseen = after.unseen().log10();
                    line(format_args!(
                        "{chance:.4}\t{a_name} {b_name}\t{unseen:.4}\n"
                    ));
                }
                None => line(format_args!("{chance:.4}\t{a_name} {b_name}\n")),
            }
        }
        line(format_args!("\n\\3-grams:\n"));
        for ([a, b, c], count) in &self.trigrams {
            let chance = after_two[&[*a, *b]].share(*count, pair[&[*b, *c]]).log10();
            line(format_args!(
                "{chance:.4}\t{} {} {}\n",
                name(*a),
                name(*b),
                name(*c)
            ));
        }
        line(format_args!("\n\\end\\\n"));
        arpa
    }
}

/// What follows a history.
#[derive(Clone, Copy, Default)]
struct Followers {
    distinct: f64,
    weight: f64,
}

impl Followers {
    fn unseen(self) -> f64 {
        self.distinct / (self.weight + self.distinct)
    }

    fn share(self, count: f64, shorter: f64) -> f64 {
        (count + self.distinct * shorter) / (self.weight + self.distinct)
    }
}

fn followers<H: Ord>(counts: impl Iterator<Item = (H, f64)>) -> BTreeMap<H, Followers> {
    let mut found: BTreeMap<H, Followers> = BTreeMap::new();
    for (history, count) in counts {
        let after = found.entry(history).or_default();
        after.distinct += 1.0;
        after.weight += count;
    }
    found
}

/// Single words and neighbouring pairs of the agent's text that can be asked about: no little words.
fn fillers(own: &[Vec<String>]) -> Vec<Vec<String>> {
    const LITTLE: &[&str] = &[
        "a", "an", "and", "are", "as", "at", "be", "by", "can", "for", "from", "has", "have", "if",
        "in", "is", "it", "its", "no", "not", "of", "on", "or", "our", "that", "the", "their",
        "there", "they", "to", "we", "with", "you", "your", "who", "which", "when", "every",
        "each", "all", "any", "but", "you're", "i",
    ];
    let big = |word: &&String| word.len() > 2 && !LITTLE.contains(&word.as_str());
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for sentence in own {
        for (at, word) in sentence.iter().enumerate() {
            if !big(&word) {
                continue;
            }
            if seen.insert(vec![word.clone()]) {
                found.push(vec![word.clone()]);
            }
            if let Some(next) = sentence.get(at + 1).filter(big) {
                let both = vec![word.clone(), next.clone()];
                if seen.insert(both.clone()) {
                    found.push(both);
                }
            }
        }
    }
    found.truncate(FRAMED_WORDS);
    found
}

/// Numbers, clock times and days as callers say them.
fn numbers_and_dates() -> Vec<Vec<String>> {
    const DAYS: [&str; 7] = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ];
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let say = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut found = Vec::new();
    for value in 0..=60 {
        found.push(say(number(value).join(" ")));
    }
    for hour in 1..=12 {
        let hour = number(hour).join(" ");
        found.push(say(format!("at {hour} o'clock")));
        for minutes in ["fifteen", "thirty", "forty five"] {
            found.push(say(format!("at {hour} {minutes}")));
        }
    }
    for day in DAYS {
        found.push(say(format!("on {day}")));
        found.push(say(format!("next {day}")));
        found.push(say(format!("on {day} morning")));
        found.push(say(format!("on {day} afternoon")));
    }
    for month in MONTHS {
        found.push(say(format!("in {month}")));
        found.push(say(format!("the first of {month}")));
    }
    for people in 2..=6 {
        found.push(say(format!("for {} people", number(people).join(" "))));
        found.push(say(format!("for {} nights", number(people).join(" "))));
    }
    found
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]
mod tests {
    use super::*;

    const PROMPT: &str = "Breakfast is served from 7 to 10. Parking at Zzyzx costs 12 dollars.";

    fn known(word: &str) -> bool {
        word != "zzyzx"
    }

    #[test]
    fn the_same_text_gives_the_same_model_and_strangers_are_reported() {
        let one = build(PROMPT, known);
        assert_eq!(one.arpa, build(PROMPT, known).arpa);
        assert_eq!(one.unknown, ["zzyzx"]);
        assert!(one.words > 200);
    }

    /// For every history, seen probabilities plus backed-off rest must sum to one.
    #[test]
    fn probabilities_sum_to_one() {
        let model = build(PROMPT, known);
        let mut section = 0;
        let mut single: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        let mut pairs: BTreeMap<&str, Vec<(&str, f64)>> = BTreeMap::new();
        for line in model.arpa.lines() {
            match line {
                "\\1-grams:" => section = 1,
                "\\2-grams:" => section = 2,
                "\\3-grams:" => section = 3,
                _ => {}
            }
            let columns: Vec<&str> = line.split('\t').collect();
            if columns.len() < 2 {
                continue;
            }
            let chance = 10f64.powf(columns[0].parse().unwrap());
            let backoff = columns
                .get(2)
                .map_or(1.0, |b| 10f64.powf(b.parse().unwrap()));
            match section {
                1 => drop(single.insert(columns[1], (chance, backoff))),
                2 => {
                    let (history, word) = columns[1].split_once(' ').unwrap();
                    pairs.entry(history).or_default().push((word, chance));
                }
                _ => {}
            }
        }
        let total: f64 = single.values().map(|(chance, _)| chance).sum();
        assert!((total - 1.0).abs() < 0.01, "unigrams sum to {total}");
        for (history, seen) in &pairs {
            let here: f64 = seen.iter().map(|(_, chance)| chance).sum();
            let covered: f64 = seen.iter().map(|(word, _)| single[word].0).sum();
            let sum = here + single[history].1 * (1.0 - covered);
            assert!((sum - 1.0).abs() < 0.01, "after {history}: {sum}");
        }
    }

    /// The measurement would be worth nothing if the model had been told its sentences.
    #[test]
    fn no_measured_question_stands_in_the_model_or_the_prompt() {
        let prompt = include_str!("../demo_prompt.txt");
        let told: HashSet<Vec<String>> = sources(prompt)
            .into_iter()
            .map(|(sentence, _)| sentence)
            .collect();
        let questions = include_str!("../../../../fixtures/questions.tsv")
            .lines()
            .skip(1);
        let mut count = 0;
        for line in questions {
            let (question, answer) = line.split_once('\t').unwrap();
            assert!(!told.contains(&words(question)), "{question}");
            assert!(prompt.lines().any(|line| line == answer), "{answer}");
            count += 1;
        }
        assert_eq!(count, 30);
    }

    #[test]
    fn variants_are_not_words_of_the_dictionary() {
        let words = dictionary("a AH\na(2) EY\nbreakfast B R EH K\n");
        assert!(words.contains("a") && words.contains("breakfast") && words.len() == 2);
    }
}
