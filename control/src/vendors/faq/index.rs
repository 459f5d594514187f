//! The prompt's sentences, ranked against what the caller said: BM25 (Robertson and Zaragoza, 2009)
//! over terms, where a term of the question may stand for a near one of the prompt at a discount.

use std::collections::BTreeMap;

use media::config::Language;

use super::super::words;
use super::terms::{self, Kind};

/// BM25's saturation of repeated terms. Sentences hardly repeat a word.
const K1: f64 = 1.2;

/// BM25's length penalty, mild: a long sentence of a prompt is long because it says more.
const B: f64 = 0.4;

/// A second sentence is said too when it fits nearly as well as the first.
const NEARLY: f64 = 0.92;

/// Below this share of a rarest word's score a match is chance.
const LEAST: f64 = 0.4;

/// How far a pair of neighbouring words counts on top of its words: "check out" is not "check in".
const PAIR_WEIGHT: f64 = 0.3;

/// The most that several words of a question for one term of the prompt count.
const MOST: f64 = 1.25;

/// The searchable prompt.
pub struct Index {
    language: Language,
    sentences: Vec<Sentence>,
    /// In how many sentences a term stands. Ordered, so that nothing depends on hashing.
    frequency: BTreeMap<String, usize>,
    mean_length: f64,
}

struct Sentence {
    text: String,
    terms: BTreeMap<String, usize>,
    kinds: Vec<Kind>,
    length: f64,
}

impl Index {
    /// Splits the prompt and counts. Instructions to the agent ("You are …", "Always …") are not
    /// things to say, so they are left out.
    pub fn new(prompt: &str, language: Language) -> Self {
        let mut sentences = Vec::new();
        let mut frequency = BTreeMap::new();
        for text in words::sentences(prompt) {
            if terms::is_instruction(&text, language) {
                continue;
            }
            let said = words::words(&text);
            let mut counted = BTreeMap::new();
            for word in said.iter().filter(|word| !terms::is_stop(word, language)) {
                *counted.entry(terms::stem(word)).or_insert(0) += 1;
            }
            let length = counted.values().sum::<usize>() as f64;
            for pair in pairs(&said, language) {
                counted.insert(pair, 1);
            }
            for term in counted.keys() {
                *frequency.entry(term.clone()).or_insert(0) += 1;
            }
            sentences.push(Sentence {
                kinds: terms::kinds(&said),
                text,
                terms: counted,
                length,
            });
        }
        let total: f64 = sentences.iter().map(|sentence| sentence.length).sum();
        let mean_length = (total / sentences.len().max(1) as f64).max(1.0);
        Self {
            language,
            sentences,
            frequency,
            mean_length,
        }
    }

    /// The sentences that answer, best first; mostly one, none when nothing fits.
    pub fn best(&self, asked: &str) -> Vec<&str> {
        let question = self.question(asked);
        let mut ranked: Vec<(f64, &Sentence)> = self
            .sentences
            .iter()
            .map(|sentence| (self.score(&question, sentence), sentence))
            .collect();
        // Equal scores: the order of the prompt, which a stable sort keeps.
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        let top = ranked.first().map_or(0.0, |(score, _)| *score);
        let fitting = ranked
            .iter()
            .take_while(|(score, _)| *score >= LEAST * self.rarest() && *score >= top * NEARLY);
        fitting
            .take(2)
            .map(|(_, sentence)| sentence.text.as_str())
            .collect()
    }

    fn score(&self, question: &Question, sentence: &Sentence) -> f64 {
        let penalty = K1 * (1.0 - B + B * sentence.length / self.mean_length);
        // One word of the question counts once, by the alternative that fits this sentence best.
        let mut matched: Vec<(&str, f64)> = Vec::new();
        for alternatives in &question.terms {
            let fits = alternatives
                .iter()
                .filter(|(term, _)| sentence.terms.contains_key(term));
            let worth = |(term, weight): &&(String, f64)| weight * self.rarity(term);
            let Some((term, weight)) = fits.max_by(|a, b| worth(a).total_cmp(&worth(b))) else {
                continue;
            };
            match matched.iter_mut().find(|(known, _)| known == term) {
                // Two words for the same thing say a little more than one.
                Some((_, sum)) => *sum = (*sum + weight).min(MOST),
                None => matched.push((term, *weight)),
            }
        }
        if matched.is_empty() {
            return 0.0;
        }
        let words = matched.iter().map(|(term, weight)| {
            let times = sentence.terms.get(*term).copied().unwrap_or(0) as f64;
            weight * self.rarity(term) * times * (K1 + 1.0) / (times + penalty)
        });
        let kinds = question
            .kinds
            .iter()
            .filter(|kind| sentence.kinds.contains(kind))
            .count();
        words.sum::<f64>() + self.rarest() * terms::KIND_WEIGHT * kinds.min(1) as f64
    }

    /// The rarity of a term that stands in one sentence.
    fn rarest(&self) -> f64 {
        (1.0 + (self.sentences.len() as f64 - 0.5) / 1.5).ln()
    }

    /// Inverse document frequency, never negative.
    fn rarity(&self, term: &str) -> f64 {
        let with = self.frequency.get(term).copied().unwrap_or(0) as f64;
        let all = self.sentences.len() as f64;
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    }

    fn question(&self, asked: &str) -> Question {
        let said = words::words(asked);
        let mut found: Vec<Vec<(String, f64)>> = Vec::new();
        let mut at = 0;
        while let Some(word) = said.get(at) {
            // A word that was heard as two: "brake fast". Its halves then mean nothing.
            let joined = said
                .get(at + 1)
                .map_or_else(Vec::new, |next| self.joined(word, next));
            let whole = !joined.is_empty();
            if whole {
                found.push(joined);
            } else if !terms::is_stop(word, self.language) {
                found.push(self.alternatives(word));
            }
            at += if whole { 2 } else { 1 };
        }
        found.extend(
            pairs(&said, self.language)
                .into_iter()
                .map(|pair| vec![(pair, PAIR_WEIGHT)]),
        );
        Question {
            terms: found,
            kinds: terms::asked_kinds(&said),
        }
    }

    /// The terms of the prompt that two words may be together, unless one of them is a term itself.
    fn joined(&self, word: &str, next: &str) -> Vec<(String, f64)> {
        let both = format!("{word}{next}");
        let stem = terms::stem(&both);
        if self.frequency.contains_key(&stem) {
            return vec![(stem, 1.0)];
        }
        let known = |word: &str| self.frequency.contains_key(&terms::stem(word));
        let little = |word: &str| terms::is_stop(word, self.language);
        if both.len() < 7 || known(word) || known(next) || little(word) || little(next) {
            return Vec::new();
        }
        let mut near = self.sound_alikes(&both);
        near.retain(|(term, _)| term.len() + 2 >= both.len());
        near
    }

    /// The terms of the prompt that a word may stand for, with their weights.
    fn alternatives(&self, word: &str) -> Vec<(String, f64)> {
        let stem = terms::stem(word);
        let mut found = Vec::new();
        if self.frequency.contains_key(&stem) {
            found.push((stem.clone(), 1.0));
        }
        for (near, weight) in terms::synonyms(&stem) {
            if near != stem && self.frequency.contains_key(near.as_str()) {
                found.push((near, weight));
            }
        }
        if found.is_empty() {
            found = self.sound_alikes(word);
        }
        found
    }

    fn sound_alikes(&self, word: &str) -> Vec<(String, f64)> {
        let stem = terms::stem(word);
        let single = self.frequency.keys().filter(|term| !term.contains(' '));
        let near = single.filter_map(|term| {
            let weight = terms::likeness(&stem, term);
            (weight > 0.0).then(|| (term.clone(), weight))
        });
        near.collect()
    }
}

/// Neighbouring words as terms, if the first of them is not a little word: "check in", not "in the".
fn pairs(said: &[String], language: Language) -> Vec<String> {
    let telling = |pair: &&[String]| !terms::is_stop(&pair[0], language);
    let joined = |pair: &[String]| format!("{} {}", terms::stem(&pair[0]), terms::stem(&pair[1]));
    said.windows(2).filter(telling).map(joined).collect()
}

struct Question {
    /// For each word, what it may stand for.
    terms: Vec<Vec<(String, f64)>>,
    kinds: Vec<Kind>,
}
