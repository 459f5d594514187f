//! A voice in the middle of a text: its pace, its end, its failures.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::sync::Mutex;

use futures_util::FutureExt;
use media::speech::SpeechEvent;

use super::*;
use crate::testing::TestApp;
use crate::tts::budget::SoundBudget;

/// What a voice was asked, and what it does with it.
#[derive(Clone, Default)]
struct Script {
    asked: Arc<Mutex<Vec<String>>>,
    /// Samples of one piece, and pieces of a sentence.
    pieces: (usize, usize),
    ends: End,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum End {
    #[default]
    Done,
    Failed,
    Never,
}

struct Voice {
    script: Script,
    sink: Arc<dyn SpeechSink>,
}

impl Synthesiser for Voice {
    fn speak(&mut self, reply: ReplyId, segment: u32, text: &str) {
        self.script.asked.lock().unwrap().push(text.to_owned());
        let send = |event| {
            self.sink.send(SpeechEvent::Synthesiser {
                reply,
                segment,
                event,
            })
        };
        let (samples, pieces) = self.script.pieces;
        for _ in 0..pieces {
            let samples = vec![100; samples];
            send(SynthesiserEvent::Audio {
                rate: 24_000,
                samples,
            });
        }
        match self.script.ends {
            End::Done => send(SynthesiserEvent::Done),
            End::Failed => send(SynthesiserEvent::Failed {
                message: "hoarse".to_owned(),
            }),
            End::Never => true,
        };
    }

    fn cancel(&mut self, _reply: ReplyId) {
        self.script.asked.lock().unwrap().push("cancel".to_owned());
    }
}

async fn speaking(script: &Script, text: &str, pace: Pace) -> (Arc<SoundBudget>, Speaking) {
    let desk = SoundBudget::new(1);
    let share = desk.whole();
    let room = share.room(1).await;
    let script = script.clone();
    let speaking = Speaking::begin(text, &share, pace, room, |sink| {
        Box::new(Voice { script, sink })
    });
    (desk, speaking)
}

#[tokio::test]
async fn the_next_sentence_is_asked_for_when_the_one_before_was_taken() {
    let script = Script {
        pieces: (240, 2),
        ..Script::default()
    };
    let (desk, mut speaking) = speaking(&script, "One two. Three four.", Pace::Stream).await;
    let asked = || script.asked.lock().unwrap().clone();
    for _ in 0..2 {
        assert_eq!(speaking.next().await.unwrap().unwrap().len(), 480);
        assert_eq!(asked(), ["One two."]);
    }
    assert!(speaking.next().await.unwrap().is_some());
    assert_eq!(asked(), ["One two.", "Three four."]);
    assert!(speaking.next().await.unwrap().is_some());
    assert!(speaking.next().await.unwrap().is_none());
    drop(speaking);
    assert_eq!(desk.active(), 0);
}

#[tokio::test]
async fn who_goes_away_takes_the_synthesis_with_them() {
    let script = Script {
        pieces: (240, 1),
        ends: End::Never,
        ..Script::default()
    };
    let (desk, mut speaking) = speaking(&script, "One two. Three.", Pace::Stream).await;
    assert!(speaking.next().await.unwrap().is_some());
    assert_eq!(desk.active(), 1);
    drop(speaking);
    assert_eq!(*script.asked.lock().unwrap(), ["One two.", "cancel"]);
    assert_eq!(desk.active(), 0);
}

#[tokio::test]
async fn a_voice_that_fails_or_does_not_end_breaks_the_stream() {
    let failing = Script {
        pieces: (240, 1),
        ends: End::Failed,
        ..Script::default()
    };
    let (_, mut failed) = speaking(&failing, "One.", Pace::Stream).await;
    assert!(failed.next().await.unwrap().is_some());
    assert_eq!(
        failed.next().await.unwrap_err().to_string(),
        "the voice failed"
    );

    // All seconds but those that it may not sound; five are sent.
    let most = usize::try_from(rules::longest("One.").as_secs()).unwrap();
    assert!(most < 5);
    // A voice that is stopped says that it is done, or nothing at all.
    for ends in [End::Done, End::Never] {
        let endless = Script {
            pieces: (24_000, 5),
            ends,
            ..Script::default()
        };
        let (_, mut endless) = speaking(&endless, "One.", Pace::Stream).await;
        let mut pieces = 0;
        let broken = loop {
            match endless.next().await {
                Ok(Some(_)) => pieces += 1,
                Ok(None) => panic!("it ended"),
                Err(broken) => break broken,
            }
        };
        assert_eq!(
            (pieces, broken.to_string().as_str()),
            (most, "the voice does not end")
        );
    }
}

#[tokio::test]
async fn a_voice_without_a_sound_is_given_up() {
    let silent = Script {
        ends: End::Never,
        ..Script::default()
    };
    let (_, mut silent) = speaking(&silent, "One.", Pace::Whole).await;
    silent.stall = Duration::ZERO;
    assert_eq!(
        silent.next().await.unwrap_err().to_string(),
        "no sound for 0 s"
    );
}

/// The status, the code and the detail of what a start came to.
async fn refusal(script: &Script, desk: &Arc<SoundBudget>) -> (u16, String, serde_json::Value) {
    let script = script.clone();
    let whole = desk.whole();
    let made = start(&whole, Duration::ZERO, "One.", Pace::Stream, |sink| {
        Box::new(Voice { script, sink })
    });
    let error = made.await.map(drop).unwrap_err();
    let body = error.body("");
    (
        error.status().as_u16(),
        error.code().to_owned(),
        body["detail"].clone(),
    )
}

#[tokio::test]
async fn a_voice_that_fails_is_a_502() {
    let hoarse = Script {
        ends: End::Failed,
        ..Script::default()
    };
    let mute = Script::default();
    let desk = SoundBudget::new(1);
    for script in [hoarse, mute] {
        let (status, code, _) = refusal(&script, &desk).await;
        assert_eq!((status, code.as_str()), (502, "provider_failed"));
        assert_eq!(desk.active(), 0);
    }
}

#[tokio::test]
async fn a_wav_that_its_client_leaves_is_metered_and_one_that_breaks_off_is_not() {
    let test = TestApp::new().await;
    let begun = async |ends| {
        let script = Script {
            pieces: (240, 1),
            ends,
            ..Script::default()
        };
        let (_, mut speaking) = speaking(&script, "One.", Pace::Whole).await;
        let first = speaking.next().await.unwrap().unwrap();
        (speaking, first)
    };
    let broken = metered(&test.app, test.account, 100, begun(End::Failed).await).await;
    assert_eq!(broken.unwrap_err().code(), "provider_failed");
    // The voice has not said all when the client goes.
    let left = metered(&test.app, test.account, 4, begun(End::Never).await);
    assert!(left.now_or_never().is_none());
    let used = async {
        loop {
            let rows = test.app.db.query("select amount from usage_records");
            let rows = rows.all(|row| row.i64("amount")).await.unwrap();
            if !rows.is_empty() {
                break rows;
            }
            tokio::task::yield_now().await;
        }
    };
    let used = tokio::time::timeout(Duration::from_secs(10), used).await;
    assert_eq!(used.unwrap(), [4]);
}

#[tokio::test]
async fn without_room_the_client_is_told_to_come_back() {
    let desk = SoundBudget::new(1);
    let all = desk.whole().room(1024 * 1024).await;
    let script = Script::default();
    let (status, code, _) = refusal(&script, &desk).await;
    assert_eq!((status, code.as_str()), (503, "service_unavailable"));
    assert!(script.asked.lock().unwrap().is_empty(), "nothing was begun");
    drop(all);
    assert_eq!(
        refusal(&script, &desk).await.0,
        502,
        "a mute voice, but room"
    );
}

#[test]
fn a_voice_that_cannot_speak_here_is_said_so() {
    let why = |may_pass| SpeechUnavailable {
        what: crate::vendors::ProviderRole::Voice,
        why: "The voice is starting.".to_owned(),
        may_pass,
    };
    let never = unavailable(why(false));
    assert_eq!(
        (never.status().as_u16(), never.code()),
        (422, "voice_unavailable")
    );
    assert_eq!(
        never.body("")["detail"],
        "Voice not linked to an active TTS model"
    );
    let later = unavailable(why(true));
    assert_eq!(
        (later.status().as_u16(), later.retry_after()),
        (503, Some(5))
    );
}
