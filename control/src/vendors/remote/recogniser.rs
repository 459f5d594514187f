//! From the media thread to a recogniser's task: a bounded line that never makes the thread wait.

use std::sync::Arc;

use media::frame::FRAME;
use media::speech::{Recogniser, RecogniserEvent, SpeechEvent, SpeechSink, UtteranceId};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// What may wait for the task, pieces of 20 ms: ten seconds of voice. A task that is so far behind
/// cannot answer within the turn, so what does not fit is dropped and its utterance fails.
const BACKLOG: usize = 512;

/// What a recogniser is told.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all of it is audio, and a box would be an allocation a frame on the media thread"
)]
pub(super) enum AudioCommand {
    Begin(UtteranceId),
    Audio(UtteranceId, Piece),
    Finish(UtteranceId),
    Cancel(UtteranceId),
}

/// Up to 20 ms of the caller at 16 kHz, without a heap of its own.
pub(super) struct Piece {
    length: usize,
    samples: [i16; FRAME],
}

impl Piece {
    /// The first [`FRAME`] samples, or fewer if there are no more.
    fn of(pcm: &[i16]) -> Self {
        let length = pcm.len().min(FRAME);
        let mut samples = [0; FRAME];
        samples[..length].copy_from_slice(&pcm[..length]);
        Self { length, samples }
    }

    pub(super) fn samples(&self) -> &[i16] {
        &self.samples[..self.length]
    }
}

/// The media thread's end of the line.
pub(super) struct RemoteRecogniser {
    line: mpsc::Sender<AudioCommand>,
    sink: Arc<dyn SpeechSink>,
    punctuates: bool,
    /// Something of this utterance was lost on the line.
    behind: Option<UtteranceId>,
}

impl RemoteRecogniser {
    /// The line and its other end. When the call drops its end, the task's ends too.
    pub(super) fn new(
        sink: Arc<dyn SpeechSink>,
        punctuates: bool,
    ) -> (Self, mpsc::Receiver<AudioCommand>) {
        let (line, told) = mpsc::channel(BACKLOG);
        let ears = Self {
            line,
            sink,
            punctuates,
            behind: None,
        };
        (ears, told)
    }

    fn tell(&mut self, utterance: UtteranceId, told: AudioCommand) {
        match self.line.try_send(told) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => self.behind = Some(utterance),
        }
    }
}

impl Recogniser for RemoteRecogniser {
    fn begin(&mut self, utterance: UtteranceId) {
        self.tell(utterance, AudioCommand::Begin(utterance));
    }

    fn audio(&mut self, utterance: UtteranceId, pcm: &[i16]) {
        for part in pcm.chunks(FRAME) {
            self.tell(utterance, AudioCommand::Audio(utterance, Piece::of(part)));
        }
    }

    fn finish(&mut self, utterance: UtteranceId) {
        if self.behind != Some(utterance) {
            self.tell(utterance, AudioCommand::Finish(utterance));
        }
        if self.behind == Some(utterance) {
            self.behind = None;
            // If this does not fit either, the task ignores words of an utterance that nobody awaits.
            let _ = self.line.try_send(AudioCommand::Cancel(utterance));
            let message = "the recogniser is seconds behind".to_owned();
            self.sink
                .send(SpeechEvent::Recogniser(RecogniserEvent::Failed {
                    utterance,
                    message,
                }));
        }
    }

    fn cancel(&mut self, utterance: UtteranceId) {
        self.tell(utterance, AudioCommand::Cancel(utterance));
    }

    fn punctuates(&self) -> bool {
        self.punctuates
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::vendors::queue::lock;

    #[derive(Default)]
    struct EventSink(Mutex<Vec<SpeechEvent>>);

    impl SpeechSink for EventSink {
        fn send(&self, event: SpeechEvent) -> bool {
            lock(&self.0).push(event);
            true
        }
    }

    #[test]
    fn a_task_that_does_not_listen_costs_its_utterance_and_no_time() {
        let ear = Arc::new(EventSink::default());
        let (mut ears, mut line) =
            RemoteRecogniser::new(Arc::clone(&ear) as Arc<dyn SpeechSink>, true);
        let first = UtteranceId(1);
        ears.begin(first);
        ears.audio(first, &[1; 2 * BACKLOG * FRAME]);
        ears.finish(first);
        assert!(matches!(
            lock(&ear.0).as_slice(),
            [SpeechEvent::Recogniser(RecogniserEvent::Failed { utterance, .. })] if *utterance == first
        ));
        while line.try_recv().is_ok() {}
        let second = UtteranceId(2);
        ears.begin(second);
        ears.audio(second, &[1; 500]);
        ears.finish(second);
        assert_eq!(lock(&ear.0).len(), 1);
        let mut samples = 0;
        while let Ok(told) = line.try_recv() {
            if let AudioCommand::Audio(of, piece) = told {
                assert_eq!(of, second);
                samples += piece.samples().len();
            }
        }
        assert_eq!(samples, 500);
    }
}
