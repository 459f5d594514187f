//! A caller who only listens, while others do what no caller does: on a thread of their own, so that
//! nothing else in the test delays what they note.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use kit::client::Answer;
use kit::socket::Caller;
use tokio::runtime::Builder;
use tokio::time::Instant;

/// What is sent ahead comes at once; behind it pieces come as they are played, ms.
const LEAD: f64 = 400.0;

pub(crate) struct Bystander {
    over: Arc<AtomicBool>,
    listening: JoinHandle<Caller>,
}

impl Bystander {
    /// Joins this session, and listens from now on.
    pub(crate) fn join(session: Answer) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let listening = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut caller = Caller::join(&session, "").await.unwrap();
                while !told.load(Ordering::Relaxed) && caller.closed.is_none() {
                    caller.listen(20).await;
                }
                if caller.closed.is_none() {
                    caller.close().await;
                }
                caller
            })
        });
        Self { over, listening }
    }

    /// Hangs up; what was heard.
    pub(crate) fn leave(self) -> Caller {
        self.over.store(true, Ordering::Relaxed);
        self.listening.join().unwrap()
    }
}

/// When each piece of the agent's voice came, and how far into it it lies, ms.
fn pieces(caller: &Caller) -> Vec<(Instant, f64)> {
    let audio = caller.messages.iter().filter(|(_, m)| m["type"] == "audio");
    audio
        .map(|(at, m)| (*at, m["offset_ms"].as_f64().unwrap()))
        .collect()
}

/// Every piece of the agent's voice came before its time to be played.
pub(crate) fn no_gap(caller: &Caller) {
    assert_eq!(caller.closed, None);
    let pieces = pieces(caller);
    assert!(pieces.len() > 50, "only {} pieces", pieces.len());
    let first = pieces[0];
    let leads = pieces
        .iter()
        .filter(|(_, offset)| offset - first.1 >= LEAD)
        .map(|(at, offset)| offset - first.1 - (*at - first.0).as_secs_f64() * 1000.0);
    let least = leads.fold(f64::MAX, f64::min);
    println!(
        "the other call: {} pieces, the least lead {least:.0} ms",
        pieces.len()
    );
    assert!(least > 0.0, "a piece came {least} ms too late");
    let audio = caller.of_kind("audio");
    let lost = audio.windows(2).find(|pair| {
        pair[0]["turn_id"] == pair[1]["turn_id"]
            && (pair[1]["offset_ms"].as_f64().unwrap()
                - pair[0]["offset_ms"].as_f64().unwrap()
                - pair[0]["duration_ms"].as_f64().unwrap())
            .abs()
                > 0.5
    });
    assert!(lost.is_none(), "{lost:?}");
}

/// How far from 20 ms the pieces that came since `from` were apart: p99, ms.
pub(crate) fn jitter(caller: &Caller, from: Instant) -> f64 {
    let pieces = pieces(caller);
    let first = pieces[0].1;
    let paced: Vec<Instant> = pieces
        .iter()
        .filter(|(at, offset)| *at >= from && offset - first >= LEAD)
        .map(|(at, _)| *at)
        .collect();
    assert!(paced.len() > 50, "only {} pieces", paced.len());
    let mut off: Vec<f64> = paced
        .windows(2)
        .map(|pair| ((pair[1] - pair[0]).as_secs_f64() * 1000.0 - 20.0).abs())
        .collect();
    off.sort_by(f64::total_cmp);
    off[off.len() * 99 / 100]
}
