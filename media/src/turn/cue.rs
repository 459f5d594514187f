//! What a turn is told, what it asks for, and whose it can be: closed enums.

use super::CallerTurn;
use super::endpoint::Shape;
use crate::call::record::EndReason;
use crate::time::Time;

/// What happened, as far as the turn is concerned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cue {
    /// The call is connected.
    Start,
    /// 20 ms of the caller's audio ended at `at` (never later than now).
    Frame { at: Time, voiced: bool },
    /// The voice had ended at `at` already, within the last voiced frames.
    VoiceEnded { at: Time },
    /// Until the next frame the caller is known to be silent, though nothing comes.
    SilenceFollows,
    /// The recogniser's words for the turn (or, while the agent speaks, for the voice over it).
    Words(Words),
    /// The turn that is being answered has other words than were answered.
    LateWords,
    /// The recogniser failed, and there are no words.
    NotHeard,
    /// Typed text is a whole turn.
    Typed,
    /// A key; `last`: it ends the entry (`#`).
    Key { last: bool },
    /// The first sound of the reply (not of a filler) is on its way.
    ReplyHeard,
    /// The reply is complete and played (or had nothing to play).
    ReplyOver,
    /// No reply will come.
    ReplyFailed,
    /// The reply waits for a tool: the providers' deadlines do not apply.
    ToolBegan,
    /// All tools of the reply have answered; the model goes on.
    ToolsDone,
    /// The caller put us on hold: nobody listens, and nobody is waited for.
    Hold,
    /// The caller is back.
    Unhold,
    /// End the call after a closing line.
    Goodbye(EndReason),
    /// End the call now.
    End(EndReason),
    /// Time passed.
    Tick,
}

/// What the recogniser knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Nothing more will come for the audio it was given.
    pub is_final: bool,
    pub shape: Shape,
    pub acknowledgement: bool,
    pub stop: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A caller turn begins; its voice (if it has one) began at `onset`.
    OpenTurn {
        onset: Option<Time>,
    },
    /// Give the recogniser the voice from its onset on.
    Listen,
    /// The voice stopped: ask for the final words.
    StopListening,
    /// Begin a reply that nobody hears before `Commit`.
    Speculate,
    /// The caller spoke on: forget the speculative reply.
    DropSpeculation,
    /// The turn is over: answer it.
    Commit,
    /// The turn had no words: forget it.
    DropTurn,
    /// The reply is not wanted any more; nothing of it was heard.
    CancelReply,
    /// Cut the reply where it is being heard.
    Interrupt,
    /// Say what the interrupted reply still had to say.
    Resume,
    Greet,
    CheckIn,
    Filler,
    Apologise,
    Reprompt,
    Goodbye,
    /// Sound the tone after which a message is taken.
    Tone,
    /// The call is over.
    Finish(EndReason),
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    /// Before the call is connected, and on outbound calls until somebody has spoken.
    Opening,
    Listening,
    Caller(CallerTurn),
    Thinking {
        tool: bool,
    },
    Agent,
    /// The closing line is being said.
    Closing(EndReason),
    Ended(EndReason),
}
