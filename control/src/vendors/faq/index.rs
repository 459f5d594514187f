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

/// Below this a match is chance: less than one rare word in common.
const LEAST: f64 = 0.9;

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
            for term in counted.keys() {
                *frequency.entry(term.clone()).or_insert(0) += 1;
            }
            let length = counted.values().sum::<usize>() as f64;
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
            .take_while(|(score, _)| *score >= LEAST && *score >= top * NEARLY);
        fitting
            .take(2)
            .map(|(_, sentence)| sentence.text.as_str())
            .collect()
    }

    fn score(&self, question: &Question, sentence: &Sentence) -> f64 {
        let penalty = K1 * (1.0 - B + B * sentence.length / self.mean_length);
        let words = question.terms.iter().map(|alternatives| {
            // One word of the question counts once, by its best alternative.
            let scores = alternatives.iter().filter_map(|(term, weight)| {
                let times = *sentence.terms.get(term)? as f64;
                Some(weight * self.rarity(term) * times * (K1 + 1.0) / (times + penalty))
            });
            scores.fold(0.0, f64::max)
        });
        let words: f64 = words.sum();
        if words == 0.0 {
            return 0.0;
        }
        let kinds = question
            .kinds
            .iter()
            .filter(|kind| sentence.kinds.contains(kind))
            .count();
        words + terms::KIND_WEIGHT * kinds as f64
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
        for (at, word) in said.iter().enumerate() {
            if !terms::is_stop(word, self.language) {
                found.push(self.alternatives(word));
            }
            // A word that was heard as two: "brake fast".
            if let Some(next) = said.get(at + 1) {
                let joined = format!("{word}{next}");
                let stem = terms::stem(&joined);
                if self.frequency.contains_key(&stem) {
                    found.push(vec![(stem, 1.0)]);
                } else if joined.len() >= 7 {
                    let mut near = self.sound_alikes(&joined);
                    near.retain(|(term, _)| term.len() + 2 >= joined.len());
                    found.push(near);
                }
            }
        }
        // The same term twice in a question says no more than once.
        let mut seen: Vec<String> = Vec::new();
        for alternatives in &mut found {
            alternatives.retain(|(term, _)| !seen.contains(term));
            if let Some((term, _)) = alternatives.first() {
                seen.push(term.clone());
            }
        }
        Question {
            terms: found,
            kinds: terms::asked_kinds(&said),
        }
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
        let near = self.frequency.keys().filter_map(|term| {
            let weight = terms::likeness(&stem, term);
            (weight > 0.0).then(|| (term.clone(), weight))
        });
        near.collect()
    }
}

struct Question {
    /// For each word, what it may stand for.
    terms: Vec<Vec<(String, f64)>>,
    kinds: Vec<Kind>,
}
