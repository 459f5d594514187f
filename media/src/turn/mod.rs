//! Whose turn it is: the heart of a call, pure.
//!
//! [`TurnTaker`] is told what happened as a [`Cue`] and answers with [`Act`]s. It knows neither
//! audio nor text, only that a frame was voiced, what shape the words have, and that a reply can be
//! heard or is over. One state with data, all transitions in one match; time is an argument.
//!
//! | State | Cue | Next | Acts |
//! |---|---|---|---|
//! | `Opening` | voice | `Caller` | `OpenTurn`, `Listen` |
//! | | `Timer::Opening` (outbound, 3 s) | `Thinking` | `Greet` |
//! | `Listening` | voice | `Caller` | `OpenTurn`, `Listen`; `max_turns` is judged |
//! | | `Timer::IdleCheckIn` | `Thinking` | `CheckIn`, or `Goodbye` after `max_idle_attempts` |
//! | | `Timer::Silence` | `Ended` | `Finish` |
//! | `Caller` | `Timer::VoiceStop` | stays | `StopListening`; `Timer::EndOfTurn` armed |
//! | | words that end a sentence | stays | `Speculate` |
//! | | `Timer::EndOfTurn` | `Thinking` | `Commit` (the opening's hello: `Greet`) |
//! | | `Timer::Transcript` | `Thinking` | `Commit`; without any words `DropTurn`, `Reprompt` |
//! | | final without words | `Listening` | `DropTurn`; after an interruption `Timer::Resume` |
//! | | the same, before a line of the agent's own was heard | `Thinking` | `DropTurn`, the line again |
//! | | the same, outbound before the greeting | `Opening` | `DropTurn`; `Timer::Opening` anew |
//! | | `Timer::Resume` | `Thinking` | `DropTurn`, `Resume` |
//! | `Thinking` | the reply is heard | `Agent` | |
//! | | `Timer::SoftTimeout` | stays | `Filler` |
//! | | `Timer::FirstWord`, or the reply fails | `Thinking` | `CancelReply`, `Apologise` |
//! | | the caller speaks on | `Caller`, the same turn | `CancelReply`, `Listen` |
//! | | a voice before a line of the agent's own | `Caller` | `CancelReply`, `OpenTurn`, `Listen` |
//! | | final words of the turn come late | stays | `Commit` again |
//! | | a tool runs | stays, without the deadlines | |
//! | `Agent` | voice reaches `barge_in_min_speech_secs` | `Caller` | `Interrupt`, `OpenTurn` |
//! | | a stop word | `Caller` | `Interrupt`, `OpenTurn` |
//! | | an acknowledgement, or interruption disabled | stays | |
//! | | the reply is over | `Listening`; `Caller` when a voice goes on | `OpenTurn` |
//! | any | typed text | `Thinking` | `Interrupt` or `CancelReply`, `OpenTurn`, `Commit` |
//! | any | a key | `Caller` | `Interrupt` or `CancelReply`, `OpenTurn`; `Timer::Keypad` |
//! | any | goodbye wanted | `Closing` | `Goodbye`; then `Finish` |
//! | any | `Timer::MaxDuration` | `Ended` | `Finish` |

mod agent;
mod barge_in;
mod caller;
mod cue;
pub mod endpoint;
mod message;
pub mod timers;

use std::time::Duration;

use barge_in::BargeIn;
pub use cue::{Act, Cue, State, Words};
use endpoint::{Delays, Learnt, Shape};
use timers::{Timer, Timers};

use crate::call::record::EndReason;
use crate::config::{AgentConfig, Direction, MessageLimits};
use crate::time::Time;

/// How long an outbound call waits for the answering person's first words.
const OPENING_SILENCE: Duration = Duration::from_secs(3);

/// How long a provider may take to its first word, and a closing line to be heard.
const FIRST_WORD: Duration = Duration::from_secs(8);

/// The longest that a closing line may be.
const CLOSING_LINE: Duration = Duration::from_secs(20);

/// Voice during `Thinking` that counts as speaking on, so that a click cancels no reply.
const SPEAKS_ON: f64 = 0.1;

/// Silence ends when the next key does not come.
const KEYPAD_PAUSE: Duration = Duration::from_secs(2);

/// When no audio arrives at all, silence is believed only after this time: a stalled network is no
/// pause.
const STALL_GRACE: Duration = Duration::from_millis(600);

/// Audio younger than this shows that the stream is not stalled.
const FRESH: Duration = Duration::from_millis(60);

/// The resolution of time.
const INSTANT: Duration = Duration::from_micros(1);

/// Failed replies in a row that end the call.
const MAX_FAILURES: u32 = 3;

/// A caller's turn under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallerTurn {
    /// Words so far.
    words: Words,
    /// It cut the agent short.
    interrupted: bool,
    /// It has keys: words are not waited for.
    keyed: bool,
    /// Replies begun speculatively.
    speculations: u32,
    /// One of them stands.
    speculating: bool,
}

impl CallerTurn {
    const fn new(interrupted: bool) -> Self {
        Self {
            words: NO_WORDS,
            interrupted,
            keyed: false,
            speculations: 0,
            speculating: false,
        }
    }
}

const NO_WORDS: Words = Words {
    is_final: false,
    shape: Shape::Empty,
    acknowledgement: false,
    stop: false,
};

/// The caller's voice as the frames tell it.
#[derive(Clone, Copy, Debug, Default)]
struct Voice {
    /// Speaking, pauses below the stop delay included.
    on: bool,
    onset: Time,
    /// End of the last voiced frame.
    last: Time,
    /// End of the last frame of any kind.
    heard: Time,
    /// The sender has said that silence follows: that nothing comes is no stall.
    silent: bool,
    /// The recogniser is being given it.
    given: bool,
}

/// The machine.
#[derive(Debug)]
pub struct TurnTaker {
    state: State,
    timers: Timers,
    voice: Voice,
    barge_in: BargeIn,
    speaks_on: BargeIn,
    learnt: Learnt,
    delays: Delays,
    settings: Settings,
    /// Outbound: the greeting has not been said.
    greeting_due: bool,
    /// A caller's turn is open, or nothing was heard of its answer yet.
    unanswered: bool,
    /// The line of the agent's own of which nothing was heard yet.
    unsaid: Option<Act>,
    /// Turns of the caller, the open one included. One without words is taken back.
    turns: u32,
    idle_attempts: u32,
    failures: u32,
    /// The line under way is an apology: should it fail too, nothing more is said.
    apologising: bool,
    reprompting: bool,
    /// Silence already spent, and since when it runs.
    silence_spent: Duration,
    silence_since: Option<Time>,
    /// The tone was sounded after which a message is taken.
    tone_sounded: bool,
    acts: Vec<Act>,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    direction: Direction,
    greets: bool,
    interruption_enabled: bool,
    max_turns: Option<u32>,
    max_duration: Duration,
    silence_timeout: Option<Duration>,
    idle_check_in: Duration,
    max_idle_attempts: u32,
    soft_timeout: Option<Duration>,
    message: Option<MessageLimits>,
}

impl TurnTaker {
    pub fn new(agent: &AgentConfig, direction: Direction) -> Self {
        let delays = Delays::of(agent.turn_eagerness);
        Self {
            state: State::Opening,
            timers: Timers::default(),
            voice: Voice::default(),
            barge_in: BargeIn::new(agent.barge_in_min_speech_secs),
            speaks_on: BargeIn::new(SPEAKS_ON),
            learnt: Learnt::new(&delays),
            delays,
            settings: Settings {
                direction,
                greets: agent.first_message.is_some(),
                interruption_enabled: agent.interruption_enabled,
                max_turns: agent.max_turns,
                max_duration: Duration::from_secs(agent.max_duration_seconds.into()),
                silence_timeout: agent
                    .silence_timeout_seconds
                    .map(|s| Duration::from_secs(s.into())),
                idle_check_in: secs(agent.idle_check_in_after_secs),
                max_idle_attempts: agent.max_idle_attempts,
                soft_timeout: agent.soft_timeout_seconds.map(secs),
                message: agent.message,
            },
            greeting_due: agent.first_message.is_some() && direction == Direction::Outbound,
            unanswered: false,
            unsaid: None,
            turns: 0,
            idle_attempts: 0,
            failures: 0,
            apologising: false,
            reprompting: false,
            silence_spent: Duration::ZERO,
            silence_since: None,
            tone_sounded: false,
            acts: Vec::with_capacity(8),
        }
    }

    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether the caller's voice is on (short pauses included).
    pub const fn voice_on(&self) -> bool {
        self.voice.on
    }

    /// When the caller's newest voice was noticed.
    pub const fn voice_onset(&self) -> Time {
        self.voice.onset
    }

    /// End of the caller's last voiced frame.
    pub const fn last_voice(&self) -> Time {
        self.voice.last
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.timers.next()
    }

    /// The silence that ended (or would end) the turn as it stands.
    pub fn end_of_turn_delay(&self) -> Duration {
        match self.state {
            State::Caller(turn) => self.delay(turn.words.shape),
            _ => self.delays.sentence,
        }
    }

    /// The silence that makes a voice stopped.
    pub const fn voice_stop_delay(&self) -> Duration {
        self.delays.voice_stop
    }

    /// One mutation; what is to be done is then taken with [`take_act`](Self::take_act). Timers that
    /// are due come first, in order of their deadlines.
    pub fn handle(&mut self, now: Time, cue: Cue) {
        // What happens at the very moment of a deadline happens before it: a voice that goes on then
        // has gone on in time.
        self.fire_due(now.before(INSTANT));
        if !matches!(self.state, State::Ended(_)) {
            self.step(now, cue);
            self.fire_due(now);
        }
    }

    /// The next thing to do, oldest first.
    pub fn take_act(&mut self) -> Option<Act> {
        (!self.acts.is_empty()).then(|| self.acts.remove(0))
    }

    fn step(&mut self, now: Time, cue: Cue) {
        if let Some(limits) = self.settings.message {
            return self.message_cue(now, cue, limits);
        }
        match (self.state, cue) {
            (State::Ended(_), _) | (_, Cue::Tick) => {}
            (_, Cue::End(reason)) => self.finish(reason),
            (State::Closing(_), Cue::Hold | Cue::Unhold) => {}
            (_, Cue::Hold) => self.hold(now),
            (State::Listening, Cue::Unhold) => self.go_on(now),
            (_, Cue::Unhold) => {}
            (_, Cue::Frame { at, voiced }) => self.frame(now, at, voiced),
            (_, Cue::VoiceEnded { at }) => {
                if self.voice.on && at < self.voice.last {
                    self.voice.last = at;
                    self.timers
                        .arm(Timer::VoiceStop, at + self.delays.voice_stop);
                }
            }
            (_, Cue::SilenceFollows) => self.voice.silent = true,

            (_, Cue::Start) => {
                self.timers
                    .arm(Timer::MaxDuration, now + self.settings.max_duration);
                match (self.settings.direction, self.settings.greets) {
                    (Direction::Inbound, true) => self.say(now, Act::Greet),
                    (Direction::Inbound, false) => self.listen(now),
                    (Direction::Outbound, _) => self.await_hello(now),
                }
            }

            (State::Closing(reason), Cue::ReplyOver | Cue::ReplyFailed) => self.finish(reason),
            (State::Closing(_), Cue::ReplyHeard) => {
                self.timers.arm(Timer::FirstWord, now + CLOSING_LINE)
            }
            (State::Closing(_), _) => {}
            (_, Cue::Goodbye(reason)) => {
                self.leave(now);
                self.timers.arm(Timer::FirstWord, now + FIRST_WORD);
                self.state = State::Closing(reason);
                self.acts.push(Act::Goodbye);
            }

            (State::Caller(turn), Cue::Words(words)) => self.words(now, turn, words),
            (State::Agent, Cue::Words(words)) => {
                if words.stop && self.settings.interruption_enabled {
                    self.interrupt(now, words);
                }
            }
            (_, Cue::Words(_)) => {}

            (State::Thinking { .. }, Cue::LateWords)
                if self.unanswered && self.unsaid.is_none() =>
            {
                self.say(now, Act::Commit);
            }
            (_, Cue::LateWords) => {}

            (State::Caller(turn), Cue::NotHeard) => {
                if !self.voice.on && !turn.keyed {
                    self.not_heard(now);
                }
            }
            (_, Cue::NotHeard) => {}

            (State::Caller(_), Cue::Typed) => {
                self.greeting_due = false;
                self.commit(now);
            }
            (_, Cue::Typed) => {
                // A text is no hello: it is answered, in place of the greeting.
                self.greeting_due = false;
                self.take_floor(now);
                if self.open_turn(None, CallerTurn::new(false)) {
                    self.commit(now);
                }
            }

            (State::Caller(mut turn), Cue::Key { last }) => {
                turn.keyed = true;
                self.state = State::Caller(turn);
                self.drop_speculation();
                self.key(now, last);
            }
            (_, Cue::Key { last }) => {
                self.take_floor(now);
                let turn = CallerTurn {
                    keyed: true,
                    ..CallerTurn::new(false)
                };
                if self.open_turn(None, turn) {
                    self.key(now, last);
                }
            }

            (State::Thinking { .. }, Cue::ReplyHeard) => {
                self.timers.disarm(Timer::SoftTimeout);
                self.timers.disarm(Timer::FirstWord);
                self.barge_in.reset();
                // Hearing the agent say that it failed is no success.
                if !self.apologising && !self.reprompting {
                    self.failures = 0;
                }
                self.unsaid = None;
                self.unanswered = false;
                self.state = State::Agent;
            }
            (_, Cue::ReplyHeard) => {}

            (State::Thinking { .. } | State::Agent, Cue::ReplyOver) => self.reply_over(now),
            (_, Cue::ReplyOver) => {}

            (State::Thinking { .. }, Cue::ReplyFailed) => self.reply_failed(now),
            (State::Agent, Cue::ReplyFailed) => self.reply_over(now),
            (_, Cue::ReplyFailed) => {}

            (State::Thinking { .. }, Cue::ToolBegan) => {
                self.timers.disarm(Timer::FirstWord);
                self.timers.disarm(Timer::SoftTimeout);
                self.state = State::Thinking { tool: true };
            }
            (State::Thinking { tool: true }, Cue::ToolsDone) => self.think(now),
            (_, Cue::ToolBegan | Cue::ToolsDone) => {}
        }
    }

    fn fire_due(&mut self, now: Time) {
        while let Some((timer, at)) = self.timers.take_due(now) {
            self.fire(now, timer, at);
        }
    }

    fn fire(&mut self, now: Time, timer: Timer, at: Time) {
        if let Some(limits) = self.settings.message {
            return self.message_timer(now, timer, limits);
        }
        match (self.state, timer) {
            (State::Ended(_), _) => {}
            (_, Timer::MaxDuration) => self.finish(EndReason::MaxDuration),
            // A stalled stream is no silence: wait for the audio, or for the grace to pass.
            (_, Timer::VoiceStop | Timer::EndOfTurn) if self.stalled(now, at) => {
                self.timers.arm(timer, self.voice.heard + STALL_GRACE);
            }
            (_, Timer::VoiceStop) => self.voice_stopped(now),
            (State::Caller(turn), Timer::EndOfTurn) => self.end_of_turn(now, turn),
            (State::Caller(turn), Timer::Transcript) => self.transcript_overdue(now, turn),
            (State::Caller(_), Timer::Resume) => {
                self.drop_turn();
                self.say(now, Act::Resume);
            }
            (State::Caller(_), Timer::Keypad) => self.commit(now),
            (State::Opening, Timer::Opening) => {
                if self.greeting_due {
                    self.say(now, Act::Greet);
                } else {
                    self.listen(now);
                }
            }
            (State::Listening, Timer::IdleCheckIn) => self.idle(now),
            (State::Listening, Timer::Silence) => self.finish(EndReason::SilenceTimeout),
            (State::Thinking { tool: false }, Timer::SoftTimeout) => self.acts.push(Act::Filler),
            (State::Thinking { .. }, Timer::FirstWord) => {
                self.acts.push(Act::CancelReply);
                self.reply_failed(now);
            }
            (State::Closing(reason), Timer::FirstWord) => self.finish(reason),
            // The state that wanted it is gone.
            (_, _) => {}
        }
    }

    /// Whether no audio has come for so long that silence at `at` was not heard but missed.
    fn stalled(&self, now: Time, at: Time) -> bool {
        let stale = self.voice.heard + FRESH < at && now < self.voice.heard + STALL_GRACE;
        stale && !self.voice.silent
    }

    /// Whatever was said or asked is over; no timer runs until the caller is back.
    fn hold(&mut self, now: Time) {
        self.drop_speculation();
        match self.state {
            State::Agent => self.acts.push(Act::Interrupt),
            State::Thinking { .. } => self.acts.push(Act::CancelReply),
            State::Caller(_) => self.drop_turn(),
            _ => {}
        }
        self.leave(now);
        // Who was put off before the greeting is greeted when the caller is back.
        self.unsaid = self.unsaid.filter(|line| *line == Act::Greet);
        self.unanswered = false;
        self.state = State::Listening;
        self.silence_since = None;
    }

    /// Outbound: who is called is heard first, or greeted after a while of silence.
    fn await_hello(&mut self, now: Time) {
        self.state = State::Opening;
        self.timers.arm(Timer::Opening, now + OPENING_SILENCE);
    }

    fn listen(&mut self, now: Time) {
        let spoke = matches!(self.state, State::Caller(_));
        self.leave(now);
        if spoke {
            self.silence_spent = Duration::ZERO;
        }
        self.unsaid = None;
        self.unanswered = false;
        if self.greeting_due {
            return self.await_hello(now);
        }
        self.state = State::Listening;
        self.silence_since = Some(now);
        self.timers
            .arm(Timer::IdleCheckIn, now + self.settings.idle_check_in);
        if let Some(most) = self.settings.silence_timeout {
            self.timers.arm(
                Timer::Silence,
                now + most.saturating_sub(self.silence_spent),
            );
        }
    }

    /// Leaves the state: its timers are gone, and the silence counted so far is kept unless the
    /// caller broke it.
    fn leave(&mut self, now: Time) {
        if let Some(since) = self.silence_since.take() {
            self.silence_spent += now - since;
        }
        if matches!(self.state, State::Caller(_)) || self.voice.on {
            self.silence_spent = Duration::ZERO;
        }
        for timer in [
            Timer::EndOfTurn,
            Timer::Transcript,
            Timer::Resume,
            Timer::Keypad,
            Timer::Opening,
            Timer::IdleCheckIn,
            Timer::Silence,
            Timer::SoftTimeout,
            Timer::FirstWord,
        ] {
            self.timers.disarm(timer);
        }
    }

    fn finish(&mut self, reason: EndReason) {
        self.timers.disarm_all();
        self.state = State::Ended(reason);
        self.acts.push(Act::Finish(reason));
    }

    fn delay(&self, shape: Shape) -> Duration {
        shape.delay(&self.delays).max(self.learnt.floor())
    }
}

fn secs(seconds: f64) -> Duration {
    Duration::from_millis((seconds.clamp(0.0, 86_400.0) * 1000.0).round() as u64)
}
