//! The streams that come to one port, told by their SSRC (RFC 3550 section 8).
//!
//! A caller may send several at a time: keypad events under a name of their own beside the audio, late music on hold,
//! comfort noise of a gateway, a new source before the old one has ended. One of them is heard, that in which somebody
//! speaks; keys are taken from all. Each that sends sound has an ear of its own, so that whichever is followed next is
//! in its order already, and what it said while the other was heard is kept for a while: a change loses nothing.
//!
//! Another source is followed when the one that is heard has ended ([`Source::has_taken_over`]). Stray packets are not
//! steady, and events and comfort noise have no sound: neither changes anything for the source that is heard.

use std::time::Duration;

use super::{LegEvent, RtpPacket};
use crate::audio::opus::OpusError;
use crate::peer::MediaTotals;
use crate::rtp::dtmf::Listener;
use crate::rtp::sdp::Format;
use crate::time::{RATE, Samples, Time};

/// Sources with sound that are told apart at a time, and sources of keys: more come from no device, and strays of any
/// number must not take the memory.
const MOST_SOURCES: usize = 8;

/// Packets of a source that show that it is no stray.
const STEADY: u32 = 2;

/// A source that has begun is followed when the one before has sent nothing for so long: two packets of 60 ms, the longest
/// in use, and some jitter. Nothing is lost meanwhile.
const ENDED: Duration = Duration::from_millis(130);

/// What comes so long after the last packet of another source was said when that had ended: behind two packets of 20 ms,
/// and some jitter.
const BEHIND: Duration = Duration::from_millis(50);

/// One that has been there beside it, only after so long: a network that holds packets back for a moment ends no source.
const ENDED_BESIDE: Duration = Duration::from_millis(200);

/// Who has sent nothing for so long begins anew with the next packet.
const PAUSE: Duration = Duration::from_millis(100);

/// So long after its last voice a source that still sends is silent: longer than the stops within words.
const QUIET: Duration = Duration::from_millis(200);

/// Packets with voice, one behind the other, that show that a source speaks.
const SPEAKS: u32 = 2;

/// Nobody talks for so long without a pause as long as [`QUIET`]: music does, and noise.
const UNBROKEN: Duration = Duration::from_secs(4);

/// Who speaks beside sound without a pause is heard after so long: the last notes of music that has just ended are over
/// before that, and an answer of one word is not.
const BESIDE_UNBROKEN: Duration = Duration::from_millis(300);

/// The power of a voice, as mean square of the samples: −45 dBFS.
const VOICE: u64 = 33_954;

/// What a source said that is not heard is kept for so long (1 s).
const MOST_KEPT: usize = RATE as usize;

/// A packet so little behind the newest was overtaken.
const OVERTAKEN: u16 = 128;

/// A source without events for so long may number the next as it likes: one that sends sound under the same name has
/// come round to the numbers just before the last event within 22 minutes.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// An event that another source has told within this time is the same one, sent twice.
const SAME_EVENT: Duration = Duration::from_millis(200);

type Sink<'s> = &'s mut dyn FnMut(LegEvent<'_>);

/// What hears one stream.
pub(super) trait Ear: Sized {
    /// A packet in the order of its stream; those without audio have a number in it too. Whether there is sound in it.
    fn packet(&mut self, now: Time, packet: &RtpPacket<'_>, format: Format, sink: Sink<'_>)
    -> bool;

    /// When [`timeout`](Self::timeout) has something to do.
    fn deadline(&self) -> Time;

    /// Gives up what is missing by now.
    fn timeout(&mut self, now: Time, sink: Sink<'_>);

    /// What the stream said until now was not given here.
    fn skip(&mut self);

    /// Another stream comes here from now on.
    fn begin_anew(&mut self);

    /// Whether numbers and timestamps of the stream have begun anew since the last asking.
    fn take_restarted(&mut self) -> bool;

    fn totals(&self) -> MediaTotals;

    /// One like this, that has heard nothing. An error when its codec cannot be set up.
    fn another(&self) -> Result<Self, OpusError>;
}

/// All that comes to one port.
pub(super) struct Sources<E> {
    /// The first is heard.
    sources: Vec<Source<E>>,
    keys: Keys,
    /// What came of the sources that were heard before.
    before: MediaTotals,
}

/// One stream with sound.
struct Source<E> {
    /// `None`: nobody has sent yet.
    ssrc: Option<u32>,
    ear: E,
    /// When a packet came last, and the newest number of one with sound.
    last: Time,
    sequence: u16,
    /// When the first with sound came after the last of the source that is heard, and how many have since.
    since: Time,
    count: u32,
    /// It was there before that, too.
    beside: bool,
    voice: Voice,
    kept: Kept,
    /// What had come of it when it was not heard.
    unheard: MediaTotals,
    admitted: Time,
}

/// When a source spoke.
#[derive(Clone, Copy, Debug, Default)]
struct Voice {
    onset: Time,
    last: Time,
    /// Packets with voice, one behind the other.
    run: u32,
    /// Since when there was no pause in it.
    unbroken_since: Time,
}

/// What a source said while another was heard.
#[derive(Debug, Default)]
struct Kept {
    sound: Vec<i16>,
    /// How much of it was said since the source that is heard has sent nothing.
    fresh: usize,
    /// A key that was in it as a tone, and how much of the sound was there before.
    key: Option<(char, usize)>,
    /// How long the packet heard last had waited.
    waited: Duration,
}

impl<E: Ear> Sources<E> {
    /// `ear`: that of the first source.
    pub(super) fn new(ear: E) -> Self {
        Self {
            sources: vec![Source::new(None, ear, Time::default())],
            keys: Keys::default(),
            before: MediaTotals::default(),
        }
    }

    /// The ear of the source that is heard.
    pub(super) fn heard(&self) -> &E {
        &self.sources[0].ear
    }

    pub(super) fn heard_mut(&mut self) -> &mut E {
        &mut self.sources[0].ear
    }

    /// Those of all.
    pub(super) fn ears(&mut self) -> impl Iterator<Item = &mut E> {
        self.sources.iter_mut().map(|source| &mut source.ear)
    }

    /// Takes a packet of any source, and tells what can be heard because of it.
    pub(super) fn packet(
        &mut self,
        now: Time,
        packet: &RtpPacket<'_>,
        format: Format,
        sink: Sink<'_>,
    ) {
        if format == Format::Event
            && let Some(key) = self.keys.hear(now, packet)
        {
            sink(LegEvent::Digit(key));
        }
        let known = self
            .sources
            .iter()
            .position(|s| s.ssrc == Some(packet.ssrc));
        let Format::Audio(_) = format else {
            // Events and noise, whose level is not played, only have a number in the order of their own stream.
            if let Some(at) = known {
                self.give(at, now, sink, |ear, sink| {
                    ear.packet(now, packet, format, sink);
                });
                self.sources[at].last = now;
            }
            return;
        };
        // Of a codec that cannot be had: it is a packet lost.
        let Some(at) = known.or_else(|| self.admit(now, packet)) else {
            return;
        };
        if at > 0 {
            let heard_at = self.sources[0].last;
            self.sources[at].comes_beside(now, heard_at);
        }
        let is_sound = self.give(at, now, sink, |ear, sink| {
            ear.packet(now, packet, format, sink)
        });
        if !is_sound {
            return;
        }
        self.sources[at].came(now, packet.sequence);
        if at > 0 && self.sources[at].has_taken_over(now, &self.sources[0]) {
            self.follow(now, at, sink);
        }
    }

    /// When [`timeout`](Self::timeout) has something to do.
    pub(super) fn deadline(&self) -> Time {
        let all = self.sources.iter().map(|source| source.ear.deadline());
        all.min().unwrap_or(Time::NEVER)
    }

    /// Gives up what is missing by now.
    pub(super) fn timeout(&mut self, now: Time, sink: Sink<'_>) {
        for at in 0..self.sources.len() {
            self.give(at, now, sink, |ear, sink| ear.timeout(now, sink));
        }
    }

    /// What the other side sent until now was not given here.
    pub(super) fn skip(&mut self) {
        self.ears().for_each(E::skip);
    }

    /// What came of the packets that were heard.
    pub(super) fn totals(&self) -> MediaTotals {
        let source = &self.sources[0];
        let heard = each(source.ear.totals(), source.unheard, u64::saturating_sub);
        each(self.before, heard, u64::saturating_add)
    }

    /// A place for a source that is new. `None`: there is no ear for it.
    fn admit(&mut self, now: Time, packet: &RtpPacket<'_>) -> Option<usize> {
        if self.sources[0].ssrc.is_none() {
            self.sources[0].ssrc = Some(packet.ssrc);
            return Some(0);
        }
        if self.sources.len() < MOST_SOURCES {
            let ear = self.sources[0].ear.another().ok()?;
            self.sources.push(Source::new(Some(packet.ssrc), ear, now));
            return Some(self.sources.len() - 1);
        }
        // Strays go first, and then who has been silent for the longest time.
        let others = self.sources.iter().enumerate().skip(1);
        let (at, _) = others.min_by_key(|(_, source)| {
            let steady = source.count >= STEADY && now - source.last < PAUSE;
            (steady, source.last)
        })?;
        self.sources[at].rename(now, packet.ssrc);
        Some(at)
    }

    /// Gives something to the ear of a source. What it hears is told if it is the one that is heard, else kept.
    fn give<R>(
        &mut self,
        at: usize,
        now: Time,
        sink: Sink<'_>,
        run: impl FnOnce(&mut E, Sink<'_>) -> R,
    ) -> R {
        let source = &mut self.sources[at];
        let Source {
            ear, voice, kept, ..
        } = source;
        let result = run(ear, &mut |event| {
            match &event {
                LegEvent::Audio(samples) => voice.note(now, samples),
                LegEvent::Held(waited) => kept.waited = *waited,
                _ => {}
            }
            if at == 0 {
                sink(event);
            } else {
                kept.take(&event);
            }
        });
        if ear.take_restarted()
            && let Some(ssrc) = source.ssrc
        {
            self.keys.begin_anew(ssrc);
        }
        result
    }

    /// Another source is heard from now on, beginning with what it said since the one before did not.
    fn follow(&mut self, now: Time, at: usize, sink: Sink<'_>) {
        self.sources.swap(0, at);
        let (heard, others) = self.sources.split_at_mut(1);
        let (heard, left) = (&mut heard[0], &mut others[at - 1]);
        let totals = left.ear.totals();
        let new = each(totals, left.unheard, u64::saturating_sub);
        self.before = each(self.before, new, u64::saturating_add);
        left.unheard = totals;
        (left.since, left.count) = (Time::default(), 0);
        if now - heard.admitted > Samples(MOST_KEPT as u64).duration() {
            heard.unheard = heard.ear.totals();
        }
        let kept = std::mem::take(&mut heard.kept.sound);
        let most = kept.len().min(MOST_KEPT);
        let from = kept.len() - heard.said_alone(now, left).min(most);
        sink(LegEvent::Reconnected);
        sink(LegEvent::Held(Duration::ZERO));
        if from < kept.len() {
            sink(LegEvent::Audio(&kept[from..]));
        }
        sink(LegEvent::Held(heard.kept.waited));
        // One of long before was another's call.
        if let Some((key, at)) = heard.kept.key.take()
            && at >= from
        {
            sink(LegEvent::Digit(key));
        }
        heard.kept.sound = kept;
        heard.kept.clear();
    }
}

impl<E: Ear> Source<E> {
    fn new(ssrc: Option<u32>, ear: E, now: Time) -> Self {
        Self {
            ssrc,
            unheard: ear.totals(),
            ear,
            last: Time::default(),
            sequence: 0,
            since: Time::default(),
            count: 0,
            beside: false,
            voice: Voice::default(),
            kept: Kept::default(),
            admitted: now,
        }
    }

    /// The place is another source's from now on.
    fn rename(&mut self, now: Time, ssrc: u32) {
        self.ear.begin_anew();
        self.ssrc = Some(ssrc);
        self.unheard = self.ear.totals();
        (self.last, self.admitted) = (Time::default(), now);
        (self.since, self.count, self.beside) = (Time::default(), 0, false);
        self.voice = Voice::default();
        self.kept.clear();
    }

    /// A packet of a source comes that is not heard; one of that which is heard came last at `heard_at`.
    fn comes_beside(&mut self, now: Time, heard_at: Time) {
        if self.since <= heard_at {
            self.beside = now - self.last < PAUSE;
            (self.since, self.count) = (now, 0);
            self.kept.fresh = 0;
        }
    }

    /// A packet with sound came.
    fn came(&mut self, now: Time, sequence: u16) {
        let behind = self.sequence.wrapping_sub(sequence);
        let ahead = sequence.wrapping_sub(self.sequence);
        if self.count == 0 || (1..=OVERTAKEN).contains(&ahead) {
            self.count = self.count.saturating_add(1);
            self.sequence = sequence;
        } else if behind > OVERTAKEN {
            (self.count, self.sequence) = (1, sequence);
        }
        self.last = now;
    }

    /// Whether this source is to be heard in the place of another: it is steady, and that has ended, or it speaks while
    /// that is silent.
    fn has_taken_over(&self, now: Time, heard: &Self) -> bool {
        let patience = if self.beside { ENDED_BESIDE } else { ENDED };
        let ended = self.count >= STEADY && now - heard.last >= patience;
        ended || self.speaks_over(now, heard)
    }

    fn speaks_over(&self, now: Time, heard: &Self) -> bool {
        if self.voice.run < SPEAKS || self.voice.last != now {
            return false;
        }
        // Music does not come back in each pause of who speaks beside it.
        let patience = if self.voice.is_unbroken(now) {
            UNBROKEN
        } else {
            QUIET
        };
        now - heard.voice.last >= patience || self.speaks_beside_unbroken(now, heard)
    }

    /// Whether the source that is heard is no talker's, and this one began to speak beside it.
    fn speaks_beside_unbroken(&self, now: Time, heard: &Self) -> bool {
        heard.voice.is_unbroken(now)
            && self.voice.unbroken_since > heard.voice.unbroken_since
            && now - self.voice.onset >= BESIDE_UNBROKEN
    }

    /// How much of what is kept was said while the other source was silent, or had ended.
    fn said_alone(&self, now: Time, other: &Self) -> usize {
        if !self.beside && now - other.last >= BEHIND {
            return self.kept.fresh;
        }
        let from = if self.speaks_beside_unbroken(now, other) {
            self.voice.onset
        } else if self.voice.run >= SPEAKS {
            other.last.min(self.voice.onset.max(other.voice.last))
        } else {
            other.last
        };
        Samples::in_duration(now - from).0 as usize
    }
}

impl Voice {
    /// Sound of the source.
    fn note(&mut self, now: Time, samples: &[i16]) {
        let energy: u64 = samples
            .iter()
            .map(|sample| u64::from(u32::from(sample.unsigned_abs()).pow(2)))
            .sum();
        if energy <= VOICE * samples.len() as u64 {
            if now - self.last > PAUSE {
                self.run = 0;
            }
            return;
        }
        let begin = now.before(Samples(samples.len() as u64).duration());
        if self.run == 0 || now - self.last > PAUSE {
            self.run = 0;
            self.onset = begin;
        }
        if now - self.last >= QUIET {
            self.unbroken_since = begin;
        }
        self.run = self.run.saturating_add(1);
        self.last = now;
    }

    /// Whether the source sounds, and has for longer than anybody talks without a pause.
    fn is_unbroken(&self, now: Time) -> bool {
        now - self.last < QUIET && now - self.unbroken_since > UNBROKEN
    }
}

impl Kept {
    fn take(&mut self, event: &LegEvent<'_>) {
        match event {
            LegEvent::Audio(samples) => {
                self.sound.extend_from_slice(samples);
                self.fresh += samples.len();
            }
            LegEvent::Lost { samples } => match usize::try_from(*samples) {
                Ok(samples) if samples < MOST_KEPT => {
                    self.sound.resize(self.sound.len() + samples, 0);
                    // What is missing before the first packet was not said then.
                    self.fresh += if self.fresh > 0 { samples } else { 0 };
                }
                _ => self.clear(),
            },
            LegEvent::Reconnected => self.clear(),
            LegEvent::Digit(key) => self.key = Some((*key, self.sound.len())),
            _ => {}
        }
        // Now and then, so that not each packet moves all of it.
        if self.sound.len() > 2 * MOST_KEPT {
            let over = self.sound.len() - MOST_KEPT;
            self.sound.drain(..over);
            self.key = self
                .key
                .and_then(|(key, at)| Some((key, at.checked_sub(over)?)));
        }
        self.fresh = self.fresh.min(MOST_KEPT);
    }

    fn clear(&mut self) {
        self.sound.clear();
        self.fresh = 0;
        self.key = None;
    }
}

/// The keypad events of each source.
#[derive(Debug, Default)]
struct Keys(Vec<OfOne>);

#[derive(Debug)]
struct OfOne {
    ssrc: u32,
    listener: Listener,
    last: Time,
}

impl Keys {
    /// The key, if this is the first packet of it from any source.
    fn hear(&mut self, now: Time, packet: &RtpPacket<'_>) -> Option<char> {
        let RtpPacket {
            ssrc,
            sequence,
            timestamp,
            payload,
            ..
        } = *packet;
        let twice = self.0.iter().any(|other| {
            other.ssrc != ssrc
                && now - other.last <= SAME_EVENT
                && other.listener.knows(timestamp, payload)
        });
        let known = self.0.iter().position(|one| one.ssrc == ssrc);
        let at = known.unwrap_or_else(|| {
            if self.0.len() == MOST_SOURCES {
                let oldest = self.0.iter().enumerate().min_by_key(|(_, one)| one.last);
                let oldest = oldest.map_or(0, |(at, _)| at);
                self.0.swap_remove(oldest);
            }
            self.0.push(OfOne {
                ssrc,
                listener: Listener::default(),
                last: now,
            });
            self.0.len() - 1
        });
        let one = &mut self.0[at];
        if now - one.last > FORGOTTEN {
            one.listener.begin_anew();
        }
        one.last = now;
        let key = one.listener.hear(sequence, timestamp, payload);
        key.filter(|_| !twice)
    }

    /// A source counts anew.
    fn begin_anew(&mut self, ssrc: u32) {
        for one in &mut self.0 {
            if one.ssrc == ssrc {
                one.listener.begin_anew();
            }
        }
    }
}

/// Each of the counts of two.
fn each(a: MediaTotals, b: MediaTotals, of: fn(u64, u64) -> u64) -> MediaTotals {
    MediaTotals {
        packets: of(a.packets, b.packets),
        lost: of(a.lost, b.lost),
        late: of(a.late, b.late),
        duplicates: of(a.duplicates, b.duplicates),
        recovered_ms: of(a.recovered_ms, b.recovered_ms),
        concealed_ms: of(a.concealed_ms, b.concealed_ms),
        gap_ms: of(a.gap_ms, b.gap_ms),
    }
}
