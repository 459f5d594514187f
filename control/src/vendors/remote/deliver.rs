//! Handing a provider's answers to its call without ever blocking the runtime's threads.

use std::time::Duration;

use media::speech::{NotTaken, SpeechEvent, SpeechSink};
use tokio::time::{Instant, sleep};

/// How long an answer waits for room in its call's queue before it is dropped. A call empties its queue
/// every few milliseconds; one that does not for so long has worse trouble.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two tries. The media thread tells nobody that it has room: it must not pay for that.
const PAUSE: Duration = Duration::from_millis(2);

/// Hands the event to the call. `false`: the call is gone, or stuck: stop working for it.
pub(super) async fn deliver(sink: &dyn SpeechSink, event: SpeechEvent) -> bool {
    let until = Instant::now() + PATIENCE;
    let mut event = event;
    loop {
        match sink.offer(event) {
            Ok(()) => return true,
            Err(NotTaken::Gone) => return false,
            Err(NotTaken::Full(_)) if Instant::now() >= until => return false,
            Err(NotTaken::Full(back)) => event = *back,
        }
        sleep(PAUSE).await;
    }
}
