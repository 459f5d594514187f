//! A session against a recogniser that hears words in numbers: every 0.2 s of the value 7 is the word
//! `w7`, and of 0 no word. Connections drop at any moment.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::VecDeque;
use std::time::Duration;

use media::speech::{RecogniserEvent, UtteranceId};
use proptest::prelude::*;
use tokio::time::Instant;

use super::super::plan::Fault;
use super::session::{Act, Recognition, Session};

/// Samples of a word.
const WORD: usize = 3200;

const FRAME: usize = 320;

/// The value of a word that this recogniser has no text for.
const MUTE: i16 = 0;

/// The server's side of one connection.
#[derive(Default)]
struct Recogniser {
    /// Samples before `pending`.
    done: usize,
    pending: Vec<i16>,
    /// Answers a `Finalize` even when nothing is left to say.
    always_answers: bool,
}

impl Recogniser {
    fn audio(&mut self, samples: &[i16]) -> Vec<Recognition> {
        self.pending.extend(samples);
        let words = self.pending.len() / WORD;
        if words == 0 {
            return Vec::new();
        }
        vec![self.heard(words, words >= 5, false)]
    }

    fn finalize(&mut self) -> Vec<Recognition> {
        let words = self.pending.len().div_ceil(WORD);
        if words == 0 && !self.always_answers {
            return Vec::new();
        }
        vec![self.heard(words, true, true)]
    }

    fn heard(&mut self, words: usize, is_final: bool, from_finalize: bool) -> Recognition {
        let length = self.pending.len().min(words * WORD);
        let text: Vec<String> = self.pending[..length]
            .chunks(WORD)
            .filter(|word| word[0] != MUTE)
            .map(|word| format!("w{}", word[0]))
            .collect();
        let seconds = |samples: usize| samples as f64 / 16_000.0;
        let span = Some((seconds(self.done), seconds(length)));
        if is_final {
            self.done += length;
            self.pending.drain(..length);
        }
        Recognition {
            span,
            is_final,
            from_finalize,
            text: text.join(" "),
            confidence: Some(0.9),
        }
    }
}

/// A call: a session, its server, and what it was told.
struct Call {
    session: Session,
    server: Option<Recogniser>,
    now: Instant,
    said: Vec<RecogniserEvent>,
    handed: Vec<(UtteranceId, usize)>,
    faults: Vec<Fault>,
    always_answers: bool,
    /// How long results are on their way, and those that are. A connection that drops takes them along.
    latency: Duration,
    under_way: VecDeque<(Instant, Recognition)>,
}

impl Call {
    fn new(fallback: bool) -> Self {
        Self {
            session: Session::new(fallback),
            server: None,
            now: Instant::now(),
            said: Vec::new(),
            handed: Vec::new(),
            faults: Vec::new(),
            always_answers: true,
            latency: Duration::ZERO,
            under_way: VecDeque::new(),
        }
    }

    fn connect(&mut self) {
        self.server = Some(Recogniser {
            always_answers: self.always_answers,
            ..Recogniser::default()
        });
        self.session.connected(self.now);
        self.work();
    }

    fn drop_connection(&mut self) {
        self.server = None;
        self.under_way.clear();
        self.session.lost(None);
    }

    fn work(&mut self) {
        while let Some(act) = self.session.take() {
            let heard = match (act, &mut self.server) {
                (Act::Audio(samples), Some(server)) => server.audio(&samples),
                (Act::Finalize, Some(server)) => server.finalize(),
                (Act::Audio(_) | Act::Finalize, None) => Vec::new(),
                (Act::Say(event), _) => {
                    self.said.push(event);
                    continue;
                }
                (Act::HandOver(id, samples), _) => {
                    self.handed.push((id, samples.len()));
                    continue;
                }
                (Act::Reconnect, _) => Vec::new(),
                (Act::Fault(fault), _) => {
                    self.faults.push(fault);
                    continue;
                }
            };
            self.under_way.extend(
                heard
                    .into_iter()
                    .map(|heard| (self.now + self.latency, heard)),
            );
            self.arrive();
        }
    }

    /// Each at its time, however long ago the last look was.
    fn arrive(&mut self) {
        while let Some((at, heard)) = self.under_way.pop_front_if(|(at, _)| *at <= self.now) {
            self.session.result(at, heard);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.arrive();
        self.session.tick(self.now);
        self.work();
    }

    /// Says words, frame by frame; `each` is asked after every frame.
    fn say(
        &mut self,
        id: u32,
        words: impl IntoIterator<Item = i16>,
        mut each: impl FnMut(&mut Self),
    ) {
        let id = UtteranceId(id);
        self.session.begin(id);
        let samples: Vec<i16> = words
            .into_iter()
            .flat_map(|word| vec![word; WORD])
            .collect();
        for frame in samples.chunks(FRAME) {
            self.session.audio(self.now, id, frame);
            self.work();
            self.pass(20);
            each(self);
        }
        self.session.finish(self.now, id);
        self.work();
    }

    fn final_of(&self, id: u32) -> Option<&str> {
        self.said.iter().find_map(|event| match event {
            RecogniserEvent::Final {
                utterance, text, ..
            } if *utterance == UtteranceId(id) => Some(text.as_str()),
            _ => None,
        })
    }
}

fn words(range: std::ops::Range<i16>) -> String {
    range.map(|w| format!("w{w}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn words_come_while_they_are_said_and_the_last_at_once() {
    let mut call = Call::new(false);
    call.connect();
    call.say(1, 1..13, |_| {});
    assert_eq!(call.final_of(1), Some(words(1..13).as_str()));
    let interims = call
        .said
        .iter()
        .filter(|e| matches!(e, RecogniserEvent::Interim { .. }))
        .count();
    assert_eq!(interims, 12, "one a word");
    call.say(2, 20..22, |_| {});
    assert_eq!(call.final_of(2), Some("w20 w21"));
}

#[test]
fn a_finalize_that_is_not_answered_ends_with_what_was_heard() {
    let mut call = Call::new(false);
    call.always_answers = false;
    call.connect();
    // Five words are a final result of their own: nothing is left.
    call.say(1, 1..6, |_| {});
    assert_eq!(call.final_of(1), None);
    call.pass(990);
    assert_eq!(call.final_of(1), None);
    call.pass(20);
    assert_eq!(call.final_of(1), Some(words(1..6).as_str()));
    // And one that the next answer overtakes is not given the next one's words.
    call.say(2, 1..6, |_| {});
    call.say(3, 7..9, |_| {});
    assert_eq!(call.final_of(2), Some(words(1..6).as_str()));
    assert_eq!(call.final_of(3), Some("w7 w8"));
}

#[test]
fn a_late_answer_does_not_complete_the_next_utterance() {
    let mut call = Call::new(false);
    call.connect();
    let server = call.server.take();
    // The answer is on its way for longer than it is waited for.
    call.say(1, 1..4, |_| {});
    call.pass(2_100);
    assert_eq!(call.final_of(1), Some(""));
    call.session.begin(UtteranceId(2));
    call.session.audio(call.now, UtteranceId(2), &[5; 2 * WORD]);
    let late = Recognition {
        span: Some((0.0, 0.6)),
        is_final: true,
        from_finalize: true,
        text: "w1 w2 w3".into(),
        confidence: None,
    };
    call.session.finish(call.now, UtteranceId(2));
    call.session.result(call.now, late);
    call.server = server;
    call.work();
    assert!(call.final_of(2).is_none_or(|text| !text.contains("w1")));
}

#[test]
fn a_cancelled_utterance_leaves_no_words_behind() {
    let mut call = Call::new(false);
    call.connect();
    call.session.begin(UtteranceId(1));
    call.session.audio(call.now, UtteranceId(1), &[5; 2 * WORD]);
    call.session.cancel(call.now, UtteranceId(1));
    call.work();
    call.say(2, 7..9, |_| {});
    assert_eq!(call.final_of(2), Some("w7 w8"));
    assert_eq!(call.final_of(1), None);
}

#[test]
fn what_is_said_before_the_connection_is_there_is_sent_when_it_is() {
    let mut call = Call::new(false);
    call.say(1, 1..4, |_| {});
    call.pass(300);
    call.connect();
    assert_eq!(call.final_of(1), Some("w1 w2 w3"));
}

#[test]
fn without_a_connection_an_utterance_fails_in_time_or_is_handed_over() {
    let mut call = Call::new(false);
    call.say(1, 1..4, |_| {});
    call.pass(3_400);
    assert!(call.said.is_empty());
    call.pass(200);
    assert!(matches!(
        call.said.as_slice(),
        [RecogniserEvent::Failed { .. }]
    ));

    let mut call = Call::new(true);
    call.say(1, 1..4, |_| {});
    call.pass(1_600);
    assert_eq!(call.handed, [(UtteranceId(1), 3 * WORD)]);
    assert!(call.said.is_empty());
    call.session.refused(call.now, "status 401".into());
    call.say(2, 1..3, |_| {});
    assert_eq!(call.handed[1], (UtteranceId(2), 2 * WORD), "at once");
}

#[test]
fn what_was_heard_before_the_connection_dropped_is_not_thrown_away() {
    let mut call = Call::new(false);
    call.connect();
    call.say(1, 1..4, |_| {});
    assert_eq!(call.final_of(1), Some("w1 w2 w3"));
    call.session.begin(UtteranceId(2));
    call.session.audio(call.now, UtteranceId(2), &[5; 2 * WORD]);
    call.work();
    call.drop_connection();
    call.session.finish(call.now, UtteranceId(2));
    call.pass(5_000);
    assert_eq!(call.final_of(2), Some("w5 w5"), "the interim words");
}

#[test]
fn an_endless_utterance_is_held_in_bounds() {
    let mut call = Call::new(false);
    call.session.begin(UtteranceId(1));
    for _ in 0..6000 {
        call.session.audio(call.now, UtteranceId(1), &[1; FRAME]);
    }
    call.connect();
    let sent: usize =
        call.server.as_ref().unwrap().done + call.server.as_ref().unwrap().pending.len();
    assert_eq!(sent, 480_000);
}

/// A sentence of 2 s, whatever comes back of it.
fn sentence(call: &mut Call, id: u32) {
    let id = UtteranceId(id);
    call.session.begin(id);
    call.session.audio(call.now, id, &[5; 10 * WORD]);
    call.session.finish(call.now, id);
    while let Some(act) = call.session.take() {
        assert!(matches!(act, Act::Audio(_) | Act::Finalize), "{act:?}");
    }
}

/// A result without words of the sentence that began at this second.
fn wordless(call: &mut Call, from: f64, from_finalize: bool) {
    let heard = Recognition {
        span: Some((from, 2.0)),
        is_final: true,
        from_finalize,
        ..Recognition::default()
    };
    call.session.result(call.now, heard);
    call.work();
}

#[test]
fn a_recogniser_that_answers_nothing_is_a_fault_and_its_utterances_are_handed_over_whole() {
    let mut call = Call::new(true);
    call.connect();
    sentence(&mut call, 1);
    call.pass(1_900);
    assert_eq!((call.handed.len(), call.faults.len()), (0, 0));
    call.pass(200);
    assert_eq!(call.handed, [(UtteranceId(1), 10 * WORD)]);
    assert!(matches!(call.faults.as_slice(), [Fault::Stalled(_)]));
    // Known to be mute, it is not waited for as long.
    sentence(&mut call, 2);
    call.pass(350);
    assert_eq!(call.handed[1..], [(UtteranceId(2), 10 * WORD)]);
    assert_eq!(call.faults.len(), 2);
    // It finds its words again.
    let mut again = Call::new(true);
    again.session = call.session;
    again.connect();
    again.say(3, 7..17, |_| {});
    assert_eq!(again.final_of(3), Some(words(7..17).as_str()));
    assert!(again.handed.is_empty() && again.faults.is_empty());
}

#[test]
fn without_another_recogniser_a_mute_one_fails_its_utterance() {
    let mut call = Call::new(false);
    call.connect();
    sentence(&mut call, 1);
    call.pass(2_100);
    assert!(matches!(
        call.said.as_slice(),
        [RecogniserEvent::Failed { .. }]
    ));
    assert!(matches!(call.faults.as_slice(), [Fault::Stalled(_)]));
}

#[test]
fn a_recogniser_that_falls_mute_in_mid_call_is_found_out_as_soon() {
    let mut call = Call::new(true);
    call.connect();
    call.say(1, 1..11, |_| {});
    assert_eq!(call.final_of(1), Some(words(1..11).as_str()));
    sentence(&mut call, 2);
    call.pass(2_100);
    assert_eq!(call.handed, [(UtteranceId(2), 10 * WORD)]);
    assert_eq!(call.faults.len(), 1);
}

#[test]
fn empty_results_are_believed_once_and_no_longer_when_they_go_on() {
    let mut call = Call::new(false);
    call.connect();
    for id in 1..=2_u32 {
        sentence(&mut call, id);
        wordless(&mut call, 2.0 * f64::from(id - 1), true);
    }
    assert_eq!(call.final_of(1), Some(""));
    assert!(matches!(call.said[1], RecogniserEvent::Failed { .. }));
    assert!(matches!(call.faults.as_slice(), [Fault::Wrong(_)]));

    // Another one hears both.
    let mut call = Call::new(true);
    call.connect();
    for id in 1..=2_u32 {
        sentence(&mut call, id);
        wordless(&mut call, 2.0 * f64::from(id - 1), true);
    }
    let whole = [1, 2].map(|id| (UtteranceId(id), 10 * WORD));
    assert_eq!(call.handed, whole);
    assert_eq!((call.said.len(), call.faults.len()), (0, 1));
}

/// A result of the sentence that began at this second, before its `Finalize` is answered.
fn final_words(call: &mut Call, from: f64, text: &str) {
    let heard = Recognition {
        span: Some((from, 2.0)),
        is_final: true,
        text: text.to_owned(),
        ..Recognition::default()
    };
    call.session.result(call.now, heard);
    call.work();
}

/// A result of what lies between these seconds.
fn result(call: &mut Call, from: f64, until: f64, text: &str, is_final: bool, from_finalize: bool) {
    let heard = Recognition {
        span: Some((from, until - from)),
        is_final,
        from_finalize,
        text: text.to_owned(),
        confidence: Some(0.9),
    };
    call.session.result(call.now, heard);
    call.work();
}

#[test]
fn words_are_not_lost_to_a_last_result_without_any() {
    for last in ["", ".", "[BLANK_AUDIO]", "…"] {
        for between in [None, Some("")] {
            let mut call = Call::new(false);
            call.connect();
            sentence(&mut call, 1);
            result(&mut call, 0.0, 1.0, "two rooms", true, false);
            result(&mut call, 1.0, 2.0, "please", false, false);
            if let Some(between) = between {
                result(&mut call, 1.0, 2.0, between, false, false);
            }
            result(&mut call, 1.0, 2.0, last, true, true);
            assert_eq!(call.final_of(1), Some("two rooms please"), "{last:?}");
        }
    }
}

#[test]
fn a_noise_alone_is_no_word() {
    for text in [".", "(coughs)", "<noise>", "♪♪♪"] {
        let mut call = Call::new(false);
        call.connect();
        sentence(&mut call, 1);
        result(&mut call, 0.0, 2.0, text, false, false);
        result(&mut call, 0.0, 2.0, text, true, true);
        assert_eq!(call.final_of(1), Some(""), "{text}");
    }
    // Who names noises has listened, however long they last, and nobody else need listen.
    for fallback in [false, true] {
        let mut call = Call::new(fallback);
        call.connect();
        for id in 1..=5_u32 {
            sentence(&mut call, id);
            let from = 2.0 * f64::from(id - 1);
            result(&mut call, from, from + 2.0, "[Music]", true, true);
            assert_eq!(call.final_of(id), Some(""), "{id}");
        }
        assert!(call.faults.is_empty() && call.handed.is_empty());
    }
}

#[test]
fn the_same_span_twice_counts_once() {
    let mut call = Call::new(false);
    call.connect();
    sentence(&mut call, 1);
    result(&mut call, 0.0, 1.0, "two rooms", true, false);
    result(&mut call, 1.0, 2.0, "plea", false, false);
    // Again, before the words after it are final, and again as the answer.
    result(&mut call, 0.0, 1.0, "two rooms", true, false);
    result(&mut call, 1.0, 2.0, "please", true, false);
    result(&mut call, 1.0, 2.0, "please", true, true);
    assert_eq!(call.final_of(1), Some("two rooms please"));
    // All of it once more.
    sentence(&mut call, 2);
    result(&mut call, 2.0, 3.0, "for three", true, false);
    result(&mut call, 2.0, 4.0, "for three nights", true, true);
    assert_eq!(call.final_of(2), Some("for three nights"));
}

#[test]
fn final_words_that_come_after_they_were_waited_for_are_told() {
    let mut call = Call::new(false);
    call.connect();
    sentence(&mut call, 1);
    result(&mut call, 0.0, 1.0, "two", false, false);
    call.server = None;
    call.pass(1_100);
    assert_eq!(call.final_of(1), Some("two"));
    let told = call.said.len();
    result(&mut call, 0.0, 2.0, "two rooms please", true, true);
    let last = call.said.get(told..).unwrap_or_default();
    assert!(
        matches!(last, [RecogniserEvent::Final { utterance: UtteranceId(1), text, .. }] if text == "two rooms please"),
        "{last:?}"
    );
    // The same again says nothing new, and neither do words of no utterance.
    result(&mut call, 0.0, 2.0, "two rooms please", true, true);
    result(&mut call, 7.0, 8.0, "boo", true, true);
    assert_eq!(call.said.len(), told + 1);
}

#[test]
fn what_the_provider_said_when_it_gave_up_is_told() {
    let mut call = Call::new(false);
    call.connect();
    call.server = None;
    call.session.lost(Some("no credits".into()));
    call.session.lost(None);
    call.say(1, 1..4, |_| {});
    call.pass(3_600);
    let said = call.said.as_slice();
    assert!(
        matches!(said, [RecogniserEvent::Failed { message, .. }] if message == "no credits"),
        "{said:?}"
    );
}

/// Words of a later utterance are final while an earlier one, of which the recogniser said this, is still to be handed over.
#[test]
fn the_words_of_a_later_utterance_take_no_sound_from_one_that_is_still_to_be_handed_over() {
    for said_nothing in [true, false] {
        let mut call = Call::new(true);
        call.connect();
        sentence(&mut call, 1);
        if !said_nothing {
            wordless(&mut call, 0.0, false);
        }
        sentence(&mut call, 2);
        final_words(&mut call, 2.0, "w5");
        assert!(call.handed.is_empty());
        call.pass(2_100);
        assert_eq!(call.handed, [(UtteranceId(1), 10 * WORD)], "{said_nothing}");
        assert_eq!(call.final_of(2), Some("w5"));
        // The sound of a third is whole, too.
        sentence(&mut call, 3);
        call.pass(2_100);
        assert_eq!(call.handed[1..], [(UtteranceId(3), 10 * WORD)]);
    }
}

#[test]
fn nor_does_one_whose_words_nobody_wants_any_more_keep_any() {
    let mut call = Call::new(true);
    call.connect();
    sentence(&mut call, 1);
    call.session.cancel(call.now, UtteranceId(1));
    sentence(&mut call, 2);
    final_words(&mut call, 2.0, "w5");
    sentence(&mut call, 3);
    call.pass(2_100);
    call.pass(2_100);
    assert_eq!(call.handed, [(UtteranceId(3), 10 * WORD)]);
    assert_eq!(call.final_of(2), Some("w5"));
}

#[test]
fn sound_that_is_kept_for_another_recogniser_is_not_heard_twice_on_a_new_connection() {
    let mut call = Call::new(true);
    call.connect();
    sentence(&mut call, 1);
    wordless(&mut call, 0.0, false);
    let id = UtteranceId(2);
    call.session.begin(id);
    call.session.audio(call.now, id, &[5; 10 * WORD]);
    while call.session.take().is_some() {}
    final_words(&mut call, 2.0, "w5 w5");
    call.session.audio(call.now, id, &[8; 2 * WORD]);
    while call.session.take().is_some() {}
    call.drop_connection();
    call.connect();
    // The first is over: nothing of it would be sent again.
    assert_eq!(call.handed, [(UtteranceId(1), 10 * WORD)]);
    assert_eq!(call.server.as_ref().unwrap().pending.len(), 2 * WORD);
    call.session.finish(call.now, id);
    call.work();
    assert_eq!(call.final_of(2), Some("w5 w5 w8 w8"));
    assert_eq!((call.handed.len(), call.faults.len()), (1, 0));
}

#[test]
fn an_utterance_whose_words_were_final_before_the_connection_dropped_is_not_asked_for_again() {
    for fallback in [false, true] {
        let mut call = Call::new(fallback);
        call.connect();
        sentence(&mut call, 1);
        final_words(&mut call, 0.0, "w5");
        call.drop_connection();
        call.connect();
        assert_eq!(call.final_of(1), Some("w5"));
        assert!(call.handed.is_empty() && call.faults.is_empty());
    }
}

#[test]
fn coughs_of_a_whole_call_do_not_add_up_to_a_fault() {
    let mut call = Call::new(false);
    call.connect();
    for id in 1..=20 {
        // 400 ms of voice that the recogniser says nothing of.
        call.session.begin(UtteranceId(id));
        call.session
            .audio(call.now, UtteranceId(id), &[MUTE; 5 * WORD]);
        call.session.finish(call.now, UtteranceId(id));
        while call.session.take().is_some() {}
        call.pass(2_100);
        assert_eq!(call.final_of(id), Some(""));
        call.pass(60_000);
    }
    assert!(call.faults.is_empty());
}

#[test]
fn a_noise_that_has_no_words_is_no_fault() {
    for fallback in [false, true] {
        let mut call = Call::new(fallback);
        call.connect();
        for id in 1..=20 {
            call.session.begin(UtteranceId(id));
            call.session
                .audio(call.now, UtteranceId(id), &[0; 3 * WORD]);
            call.session.finish(call.now, UtteranceId(id));
            while call.session.take().is_some() {}
            call.pass(2_100);
            assert_eq!(call.final_of(id), Some(""));
        }
        assert!(call.handed.is_empty() && call.faults.is_empty());
    }
}

#[test]
fn words_that_stay_interim_are_the_answer_and_a_fault() {
    let mut call = Call::new(true);
    call.connect();
    sentence(&mut call, 1);
    let heard = Recognition {
        span: Some((0.0, 2.0)),
        text: "two rooms".to_owned(),
        ..Recognition::default()
    };
    call.session.result(call.now, heard);
    call.pass(1_100);
    assert_eq!(call.final_of(1), Some("two rooms"));
    assert!(matches!(call.faults.as_slice(), [Fault::Stalled(_)]));
    assert!(call.handed.is_empty());
}

#[test]
fn a_new_connection_gets_nothing_that_was_meant_for_the_old_one() {
    let mut call = Call::new(false);
    call.connect();
    let id = UtteranceId(1);
    call.session.begin(id);
    call.session.audio(call.now, id, &[5; 2 * WORD]);
    call.session.finish(call.now, id);
    // The connection was lost before any of it could be sent.
    call.drop_connection();
    call.connect();
    assert_eq!(call.final_of(1), Some("w5 w5"));
}

/// Says the utterances one behind the other, as people do, on connections that drop at these frames and are there again
/// after so many milliseconds.
fn talk(call: &mut Call, utterances: &[Vec<i16>], drops: &[(usize, u64)]) {
    call.connect();
    let mut frames = 0;
    let mut reconnect = None;
    for (place, utterance) in utterances.iter().enumerate() {
        call.say(place as u32 + 1, utterance.iter().copied(), |call| {
            frames += 1;
            if let Some((_, after)) = drops.iter().find(|(at, _)| *at == frames) {
                call.drop_connection();
                reconnect = Some(call.now + Duration::from_millis(*after));
            }
            if reconnect.is_some_and(|at| at <= call.now) {
                reconnect = None;
                call.connect();
            }
        });
        if reconnect.take().is_some() {
            call.pass(300);
            call.connect();
        }
    }
}

/// Utterances of these lengths, each word another one.
fn spoken(lengths: &[i16]) -> Vec<Vec<i16>> {
    let mut next = 1;
    let utterance = |length: &i16| {
        let words = next..next + length;
        next = words.end;
        words.collect()
    };
    lengths.iter().map(utterance).collect()
}

fn text(utterance: &[i16]) -> String {
    let words: Vec<String> = utterance.iter().map(|word| format!("w{word}")).collect();
    words.join(" ")
}

proptest! {
    #[test]
    fn no_word_is_lost_or_repeated_when_connections_drop(
        lengths in prop::collection::vec(1_i16..30, 1..5),
        drops in prop::collection::vec((0_usize..600, 0_u64..500), 0..8),
        latency in 0_u64..400,
    ) {
        let mut call = Call::new(false);
        call.latency = Duration::from_millis(latency);
        let utterances = spoken(&lengths);
        talk(&mut call, &utterances, &drops);
        call.pass(2 * latency + 20);
        call.pass(2 * latency + 20);
        for (id, wanted) in (1..).zip(&utterances) {
            let wanted = text(wanted);
            prop_assert_eq!(call.final_of(id), Some(wanted.as_str()));
        }
    }

    #[test]
    fn what_has_no_words_is_handed_over_whole_and_once_whatever_is_said_after_it(
        lengths in prop::collection::vec((1_i16..30, any::<bool>()), 1..5),
        drops in prop::collection::vec((0_usize..600, 0_u64..500), 0..8),
        latency in 0_u64..100,
        always_answers in any::<bool>(),
    ) {
        let mut call = Call::new(true);
        call.latency = Duration::from_millis(latency);
        call.always_answers = always_answers;
        let words: Vec<i16> = lengths.iter().map(|(length, _)| *length).collect();
        let mut utterances = spoken(&words);
        for (utterance, (_, is_mute)) in utterances.iter_mut().zip(&lengths) {
            if *is_mute {
                *utterance = vec![MUTE; 10];
            }
        }
        talk(&mut call, &utterances, &drops);
        for _ in 0..utterances.len() {
            call.pass(2_100);
        }
        for (id, utterance) in (1..).zip(&utterances) {
            let handed: Vec<usize> = call
                .handed
                .iter()
                .filter(|(handed, _)| *handed == UtteranceId(id))
                .map(|(_, length)| *length)
                .collect();
            if utterance.contains(&MUTE) {
                prop_assert_eq!(handed, vec![10 * WORD]);
                prop_assert_eq!(call.final_of(id), None);
            } else {
                let wanted = text(utterance);
                prop_assert_eq!(call.final_of(id), Some(wanted.as_str()));
                prop_assert!(handed.is_empty());
            }
        }
    }
}
