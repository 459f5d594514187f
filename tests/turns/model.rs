//! A much simpler model of the turn table: plain variables and a handful of deadlines. Its caller always says "Hello.",
//! its agent always answers "Hello there.". Times are microseconds.

use crate::properties::spans_of;
use crate::talks::{FILLER, Fault, Sent, Talk};

const MS: u64 = 1000;
const FRAME: u64 = 20 * MS;
const NEVER: u64 = u64::MAX;
/// What a provider may take to its first word.
const FIRST_WORD: u64 = 8000 * MS;
/// From the text of a line to its sound.
const VOICE: u64 = 40 * MS;

/// What happens in this call, one line an event, up to so many ms.
/// What is told, and until when (ms): what is final only after its turn is beyond this model.
pub(super) fn story(talk: &Talk, until_ms: u64) -> (Vec<String>, u64) {
    Model::new(talk).run(until_ms * MS)
}

/// What the agent says.
#[derive(Clone, Copy, PartialEq)]
enum Utterance {
    Answer,
    Greeting,
    CheckIn,
    Apology,
    Reprompt,
    Goodbye,
}

impl Utterance {
    const fn sentences(self) -> [&'static str; 2] {
        match self {
            Self::Answer => ["Hello there.", ""],
            Self::Greeting => ["Welcome.", ""],
            Self::CheckIn => ["Are you still there?", ""],
            Self::Apology => ["I am sorry, I cannot answer that right now.", ""],
            Self::Reprompt => ["Sorry, I did not catch that.", "Could you say it again?"],
            Self::Goodbye => ["Goodbye.", ""],
        }
    }
}

/// How long a text sounds: 60 ms a character.
const fn length(text: &str) -> u64 {
    text.len() as u64 * 60 * MS
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Listening,
    Caller,
    Thinking,
    Agent,
    Closing,
    Ended,
}

struct Reply {
    line: Utterance,
    /// When its text goes to the voice.
    spoken: u64,
    /// When the model gives up.
    fails: u64,
    /// The turn that it answers is over.
    committed: bool,
}

struct Filler {
    sounds: u64,
    over: u64,
    told: bool,
}

/// The deadlines of a state: gone when it is left.
struct Due {
    transcript: u64,
    keypad: u64,
    idle: u64,
    silence: u64,
    soft: u64,
    first_word: u64,
}

const NOTHING_DUE: Due = Due {
    transcript: NEVER,
    keypad: NEVER,
    idle: NEVER,
    silence: NEVER,
    soft: NEVER,
    first_word: NEVER,
};

struct Model<'a> {
    talk: &'a Talk,
    spans: Vec<(u64, u64)>,
    now: u64,
    story: Vec<String>,
    /// Milliseconds.
    known_until: u64,
    mode: Mode,
    due: Due,
    /// The longest that the call may last.
    longest: u64,
    next_frame: u64,
    messages: usize,

    /// The caller's voice: on, given to the recogniser, its last end, and the frames that may interrupt.
    on: bool,
    given: bool,
    last: u64,
    sum: Vec<u64>,
    /// The pauses of the caller have taught this, nanoseconds.
    floor: u64,
    /// When utterances under way become final.
    finals: Vec<u64>,
    /// Their turn: all words have come, keys end it, a reply was begun, and how often.
    heard: bool,
    keyed: bool,
    speculating: bool,
    speculations: u32,
    /// It has a text, or keys: these.
    typed: bool,
    keys: String,
    turns: u32,
    /// Silence so far, and since when it is counted.
    silent: u64,
    since: Option<u64>,

    reply: Option<Reply>,
    filler: Option<Filler>,
    /// When the line that is heard is over.
    over: u64,
    failures: u32,
    check_ins: u32,
}

impl<'a> Model<'a> {
    fn new(talk: &'a Talk) -> Self {
        let [sentence, ..] = ENDS[talk.eagerness];
        Self {
            talk,
            spans: spans_of(&talk.voices),
            now: 0,
            story: Vec::new(),
            known_until: u64::MAX,
            mode: Mode::Listening,
            due: NOTHING_DUE,
            longest: u64::from(talk.max_seconds) * 1000 * MS,
            next_frame: FRAME,
            messages: 0,
            on: false,
            given: false,
            last: 0,
            sum: Vec::new(),
            floor: sentence * 1_000_000,
            finals: Vec::new(),
            heard: false,
            keyed: false,
            speculating: false,
            speculations: 0,
            typed: false,
            keys: String::new(),
            turns: 0,
            silent: 0,
            since: None,
            reply: None,
            filler: None,
            over: NEVER,
            failures: 0,
            check_ins: 0,
        }
    }

    fn run(mut self, until: u64) -> (Vec<String>, u64) {
        if self.talk.greets {
            self.say(Utterance::Greeting);
        } else {
            self.listen();
        }
        while self.mode != Mode::Ended {
            let at = self.next();
            if at > until {
                break;
            }
            self.now = at;
            self.providers();
            self.caller();
            self.deadlines();
            self.playout();
            self.client();
        }
        (self.story, self.known_until)
    }

    fn next(&self) -> u64 {
        let due = &self.due;
        let deadlines = due.transcript.min(due.keypad).min(due.idle);
        let deadlines = deadlines.min(due.silence).min(due.soft).min(due.first_word);
        let answers = self.finals.first().copied().unwrap_or(NEVER);
        let answers = answers.min(self.fails()).min(self.sounds());
        let filler = self.filler.as_ref();
        let filler = filler.map_or(NEVER, |f| if f.told { f.over } else { f.sounds });
        let message = self.talk.messages.get(self.messages);
        let message = message.map_or(NEVER, |(at, _)| at * MS);
        let own = self.turn_over().min(self.longest).min(self.over);
        let inputs = self.next_frame.min(answers).min(message);
        inputs.min(deadlines).min(filler).min(own)
    }

    fn tell(&mut self, what: &str) {
        self.story.push(format!("{} {what}", self.now / MS));
    }

    // What the providers answer.

    fn providers(&mut self) {
        // A call that is over at this instant ends before what has come for it is sent.
        if self.longest == self.now {
            return;
        }
        if let Some(filler) = &mut self.filler
            && filler.sounds == self.now
            && !filler.told
        {
            filler.told = true;
            self.tell("heard filler");
        }
        if self.finals.first() == Some(&self.now) {
            self.finals.remove(0);
            let answers = |reply: &Reply| reply.committed && reply.line == Utterance::Answer;
            if self.mode == Mode::Thinking && self.reply.as_ref().is_some_and(answers) {
                self.known_until = self.known_until.min(self.now / MS);
            }
            self.words();
        }
        if self.fails() <= self.now {
            let committed = self.reply.take().is_some_and(|reply| reply.committed);
            if committed {
                self.cancel();
                self.failed();
            }
        }
        // What has come is heard now, unless the filler before it is not over.
        if self.arrives() == self.now && self.sounds() == self.now {
            self.sound();
        }
    }

    /// The recogniser's words, or that there are none.
    fn words(&mut self) {
        if self.mode != Mode::Caller || self.on || !self.finals.is_empty() || self.keyed {
            return;
        }
        if self.talk.fault == Fault::EarFails && !self.typed && self.keys.is_empty() {
            return self.not_heard();
        }
        self.heard = true;
        self.due.transcript = NEVER;
        let most = [1, 2, 4][self.talk.eagerness];
        if self.keys.is_empty() && !self.speculating && self.speculations < most {
            self.speculating = true;
            self.speculations += 1;
            self.ask(Utterance::Answer, false);
        }
    }

    fn not_heard(&mut self) {
        self.turns -= 1;
        self.finals.clear();
        self.failures += 1;
        if self.failures >= 3 {
            self.end("provider_error");
        } else {
            self.say(Utterance::Reprompt);
        }
    }

    fn failed(&mut self) {
        self.failures += 1;
        if self.failures >= 3 {
            self.end("provider_error");
        } else {
            self.say(Utterance::Apology);
        }
    }

    // The caller's voice.

    fn caller(&mut self) {
        if self.now != self.next_frame {
            return;
        }
        self.next_frame += FRAME;
        let at = self.now / MS;
        if self.spans.iter().any(|&(from, to)| at > from && at <= to) {
            self.voiced();
        } else if self.on && self.now >= self.last + STOP[self.talk.eagerness] * MS {
            self.on = false;
            if self.given && self.talk.fault != Fault::EarStalls {
                self.finals.push(self.now + self.talk.stt_ms * MS);
            }
            if self.mode == Mode::Caller && !self.keyed {
                self.due.transcript = self.last + TRANSCRIPT[self.talk.eagerness] * MS;
            }
        }
    }

    fn voiced(&mut self) {
        let (began, pause) = (!self.on, self.now - self.last);
        (self.on, self.last) = (true, self.now);
        if began {
            self.given = false;
            self.silent = 0;
        }
        match self.mode {
            Mode::Listening => {
                self.leave();
                self.open();
                self.finals.clear();
                self.given = true;
            }
            Mode::Caller => {
                if began {
                    if !self.keyed && pause * 1000 > self.floor {
                        let cap = CAP[self.talk.eagerness] * 1_000_000;
                        self.floor = (self.floor * 9 / 10 + pause * 100).min(cap);
                    }
                    self.heard = false;
                    self.drop_speculation();
                    self.given = true;
                }
                self.due.transcript = NEVER;
            }
            Mode::Thinking => {
                self.given = true;
                if self.spoke(100 * MS) {
                    // The same turn goes on.
                    self.cancel();
                    self.leave();
                    self.mode = Mode::Caller;
                    self.begin_turn();
                }
            }
            Mode::Agent if self.talk.interruptible => {
                self.given = true;
                if self.spoke(self.talk.barge_in_ms * MS) {
                    self.interrupt();
                    self.leave();
                    self.open();
                }
            }
            Mode::Agent | Mode::Closing | Mode::Ended => {}
        }
    }

    /// Whether so much was spoken, within one and a half times as long or a second.
    fn spoke(&mut self, limit: u64) -> bool {
        let (now, window) = (self.now, (1000 * MS).max(limit * 3 / 2));
        self.sum.retain(|&at| now - at < window);
        self.sum.push(now);
        self.sum.len() as u64 * FRAME >= limit
    }

    /// When the turn is over, if all its words have come.
    fn turn_over(&self) -> u64 {
        if self.mode != Mode::Caller || self.on || !self.heard || self.keyed {
            return NEVER;
        }
        let [sentence, digits] = ENDS[self.talk.eagerness];
        let shape = match self.keys.trim_end_matches('#') {
            "" => sentence,
            _ => digits,
        };
        self.last + (shape * MS).max(self.floor / 1000)
    }

    // Turns.

    fn open(&mut self) -> bool {
        self.turns += 1;
        if self.talk.max_turns.is_some_and(|most| self.turns >= most) {
            self.end("max_turns");
            return false;
        }
        self.mode = Mode::Caller;
        self.typed = false;
        self.keys.clear();
        self.begin_turn();
        true
    }

    fn begin_turn(&mut self) {
        (self.heard, self.keyed) = (false, false);
        (self.speculating, self.speculations) = (false, 0);
    }

    fn drop_speculation(&mut self) {
        if std::mem::take(&mut self.speculating) {
            self.reply = None;
        }
    }

    fn commit(&mut self) {
        self.check_ins = 0;
        self.tell("commit");
        let reply = self.reply.take();
        self.think();
        if let Some(soft) = self.talk.soft_ms {
            self.due.soft = self.now + soft * MS;
        }
        match reply {
            Some(reply) => {
                self.reply = Some(Reply {
                    committed: true,
                    ..reply
                });
                if self.sounds() <= self.now {
                    self.sound();
                }
            }
            None => self.ask(Utterance::Answer, true),
        }
    }

    /// Leaves the state: its deadlines are gone, and the silence so far counts unless the caller broke it.
    fn leave(&mut self) {
        if let Some(since) = self.since.take() {
            self.silent += self.now - since;
        }
        if self.mode == Mode::Caller || self.on {
            self.silent = 0;
        }
        self.due = NOTHING_DUE;
    }

    fn listen(&mut self) {
        self.leave();
        self.mode = Mode::Listening;
        self.since = Some(self.now);
        self.due.idle = self.now + self.talk.idle_ms * MS;
        if let Some(seconds) = self.talk.silence_seconds {
            let most = u64::from(seconds) * 1000 * MS;
            self.due.silence = self.now + most.saturating_sub(self.silent);
        }
    }

    fn end(&mut self, reason: &str) {
        self.tell(&format!("ended {reason}"));
        self.mode = Mode::Ended;
        self.due = NOTHING_DUE;
        (self.reply, self.filler, self.over) = (None, None, NEVER);
    }

    // What the agent says.

    fn think(&mut self) {
        self.leave();
        self.mode = Mode::Thinking;
        self.sum.clear();
        self.due.first_word = self.now + FIRST_WORD;
    }

    fn say(&mut self, line: Utterance) {
        self.think();
        self.ask(line, true);
    }

    fn ask(&mut self, line: Utterance, committed: bool) {
        let (now, llm) = (self.now, self.talk.llm_ms * MS);
        let (spoken, fails) = match (line, self.talk.fault) {
            // It is asked twice.
            (Utterance::Answer, Fault::ModelFails) => (NEVER, now + 2 * llm),
            (Utterance::Answer, Fault::ModelStalls) => (NEVER, NEVER),
            // Two words and the end come 5 ms after one another.
            (Utterance::Answer, _) => (now + llm + 10 * MS, NEVER),
            _ => (now, NEVER),
        };
        self.reply = Some(Reply {
            line,
            spoken,
            fails,
            committed,
        });
    }

    /// When the sound of the reply comes from the voice.
    fn arrives(&self) -> u64 {
        match &self.reply {
            Some(reply) if self.mode != Mode::Agent && self.over == NEVER => {
                reply.spoken.saturating_add(VOICE)
            }
            _ => NEVER,
        }
    }

    fn fails(&self) -> u64 {
        let Some(reply) = &self.reply else {
            return NEVER;
        };
        if reply.line == Utterance::Answer && self.talk.fault == Fault::VoiceFails {
            return reply.spoken.saturating_add(VOICE);
        }
        reply.fails
    }

    /// When it is sent: 100 ms ahead of what is heard before it, a frame at a time.
    fn sounds(&self) -> u64 {
        let committed = self.reply.as_ref().is_some_and(|reply| reply.committed);
        if !committed || self.fails() != NEVER {
            return NEVER;
        }
        let arrives = self.arrives();
        let filler = self.filler.as_ref();
        filler.map_or(arrives, |filler| arrives.max(filler.over - 80 * MS))
    }

    fn sound(&mut self) {
        let Some(line) = self.reply.as_ref().map(|reply| reply.line) else {
            return;
        };
        let [first, rest] = line.sentences();
        self.tell(&format!("heard {first}"));
        let before = self.filler.as_ref().map_or(self.now, |filler| filler.over);
        self.over = played(before, length(first) + length(rest));
        self.finals.clear();
        self.sum.clear();
        self.due.soft = NEVER;
        self.due.first_word = NEVER;
        if !matches!(line, Utterance::Apology | Utterance::Reprompt) {
            self.failures = 0;
        }
        if self.mode == Mode::Thinking {
            self.mode = Mode::Agent;
        }
    }

    /// Forgets a reply of which nothing was heard; a filler is cut.
    fn cancel(&mut self) {
        self.reply = None;
        if self.filler.take().is_some() {
            self.tell("interruption");
        }
    }

    fn interrupt(&mut self) {
        self.tell("interruption");
        (self.reply, self.filler, self.over) = (None, None, NEVER);
    }

    fn playout(&mut self) {
        if self.filler.as_ref().is_some_and(|f| f.over <= self.now) {
            self.filler = None;
        }
        if self.mode == Mode::Thinking && self.sounds() <= self.now {
            self.sound();
        }
        if self.over > self.now {
            return;
        }
        (self.reply, self.over) = (None, NEVER);
        match self.mode {
            Mode::Closing => self.end("idle_limit"),
            Mode::Agent if self.on => {
                self.leave();
                self.open();
                if !self.given {
                    self.finals.clear();
                }
                self.given = true;
            }
            Mode::Agent => self.listen(),
            _ => {}
        }
    }

    fn deadlines(&mut self) {
        if self.turn_over() <= self.now {
            self.commit();
        }
        if self.due.transcript <= self.now {
            self.not_heard();
        }
        if self.due.keypad <= self.now {
            self.commit();
        }
        if self.due.idle <= self.now {
            self.idle();
        }
        if self.due.silence <= self.now {
            self.end("silence_timeout");
        }
        if self.due.soft <= self.now {
            self.fill();
        }
        if self.due.first_word <= self.now {
            self.cancel();
            self.failed();
        }
        if self.longest <= self.now && self.mode != Mode::Ended {
            self.end("max_duration");
        }
    }

    fn idle(&mut self) {
        self.check_ins += 1;
        let most = self.talk.most_check_ins;
        if most > 0 && self.check_ins > most {
            self.say(Utterance::Goodbye);
            self.mode = Mode::Closing;
        } else {
            self.say(Utterance::CheckIn);
        }
    }

    /// A line while the reply is awaited, which waits for it then.
    fn fill(&mut self) {
        self.due.soft = NEVER;
        let Some(reply) = self.reply.as_mut().filter(|r| r.spoken >= self.now) else {
            return;
        };
        let sounds = self.now + VOICE;
        let over = played(sounds, length(FILLER));
        // It goes to the voice when less than 500 ms wait to be sent, 100 ms ahead and a frame at a time.
        reply.spoken = reply.spoken.max(over - 580 * MS);
        self.filler = Some(Filler {
            sounds,
            over,
            told: false,
        });
    }

    // What the client sends.

    fn client(&mut self) {
        let Some(&(at, sent)) = self.talk.messages.get(self.messages) else {
            return;
        };
        if at * MS != self.now {
            return;
        }
        self.messages += 1;
        if matches!(self.mode, Mode::Closing | Mode::Ended) {
            return;
        }
        if self.mode != Mode::Caller {
            match self.mode {
                Mode::Agent => self.interrupt(),
                _ => self.cancel(),
            }
            self.leave();
            if !self.open() {
                return;
            }
            self.finals.clear();
        }
        match sent {
            Sent::Typed => {
                self.typed = true;
                self.reply = None;
                self.commit();
            }
            Sent::Key | Sent::LastKey => {
                self.keyed = true;
                self.keys
                    .push_str(if matches!(sent, Sent::Key) { "5" } else { "5#" });
                self.drop_speculation();
                self.due.transcript = NEVER;
                self.due.keypad = self.now + 2000 * MS;
                if matches!(sent, Sent::LastKey) {
                    self.commit();
                }
            }
        }
    }
}

/// When a sound from then on is over, on the clock of samples at 16 kHz.
const fn played(from: u64, length: u64) -> u64 {
    ((from * 16 / MS + length * 16 / MS) * MS).div_ceil(16)
}

/// Patient, normal, eager: ms. When a turn ends whose words end a sentence, or are digits.
const ENDS: [[u64; 2]; 3] = [[900, 1800], [400, 1000], [200, 700]];
const STOP: [u64; 3] = [300, 200, 160];
const CAP: [u64; 3] = [1500, 1000, 500];
const TRANSCRIPT: [u64; 3] = [6000, 5000, 4000];
