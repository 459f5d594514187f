//! All that a user of the stack may ask for, and all that it may hear.

use core::net::SocketAddr;
use std::time::Duration;

use crate::endpoint::Peer;
use crate::message::{Body, Uri};
use crate::time::Time;
use crate::trunk::{Trunk, TrunkId};

/// A call's number. The user gives outgoing calls numbers below 2⁶³; those above are incoming ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

impl CallId {
    pub(crate) const FIRST_INCOMING: u64 = 1 << 63;
}

/// An outgoing call.
#[derive(Clone, Debug)]
pub struct Place {
    pub trunk: TrunkId,
    /// Who is called, as the carrier wants it: the user part of the Request-URI.
    pub to: String,
    /// Who calls: the user part of From, and of P-Asserted-Identity when it differs.
    pub from: String,
    pub display: Option<String>,
    /// Fields to add, such as `X-…`.
    pub headers: Vec<(String, String)>,
    /// The offer; a call is never placed without one.
    pub offer: Body,
    /// How long it may ring, from the first response that says it does. Until then each address that is
    /// tried has as long to say so.
    pub ring_for: Duration,
    /// `None`: the call begins here.
    pub forwarded: Option<Forwarded>,
}

/// What a call carries on that is made because another one came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Hops that are left: the other call's, less one (RFC 7332 section 4).
    pub max_forwards: u8,
    /// Stands behind a dot in the branch of each of its INVITEs, which proxies leave as it is (RFC 3261 section 16.6,
    /// step 8): [`Hops::branches`] shows it where the call comes back. A token.
    pub mark: String,
}

/// How an incoming call got here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hops {
    /// `None`: its sender counts no hops.
    pub max_forwards: Option<u8>,
    /// The entries of Diversion (RFC 5806), the latest first; at most [`MOST_ENTRIES`].
    pub diversion: Vec<String>,
    /// The entries of History-Info (RFC 7044), the latest last; at most [`MOST_ENTRIES`], the latest.
    pub history: Vec<String>,
    /// The branches of its Vias, the latest first.
    pub branches: Vec<String>,
}

/// Entries that are told of a list which grows with each hop: far more than a call may be diverted.
pub const MOST_ENTRIES: usize = 32;

/// What can be asked for. A command for a call that is over, or in a state where it makes no sense,
/// does nothing: the event that says so is on its way.
#[derive(Clone, Debug)]
pub enum Command {
    Place(CallId, Box<Place>),
    /// Tell the caller that it rings (180), or with a body that there is early media (183).
    Ring(CallId, Option<Body>),
    /// Take the call. The body is the answer, or the offer when the INVITE had none.
    Answer(CallId, Body),
    /// Refuse the call with a code of 300 to 699. 401 asks for a trunk's password: who knows one calls again. The
    /// text becomes a Warning header, such as `305 sidetone "Incompatible media format"`.
    Reject(CallId, u16, Option<String>),
    /// Cancel, or say goodbye. `reason` becomes a Reason header, such as `Q.850;cause=16`.
    HangUp(CallId, Option<String>),
    /// Offer another session (hold, another codec) in a call that is up.
    Offer(CallId, Body),
    /// Accept an [`Event::Offer`].
    AcceptOffer(CallId, Body),
    /// Refuse an [`Event::Offer`] with a code, 488 as a rule; the session stays as it was.
    RefuseOffer(CallId, u16),
    /// Ask the other side to call somebody else (RFC 3515): the target and a Replaces value (RFC 3891).
    Refer(CallId, String, Option<String>),
    /// Accept or refuse an [`Event::Referred`] with a code.
    AnswerRefer(CallId, u16),
    /// Tell how the call that was referred to goes; a final code ends the subscription.
    NotifyRefer(CallId, u16),
    /// Send a body in an INFO, such as keypad digits (`application/dtmf-relay`).
    Info(CallId, Body),
    /// Adds a trunk, or replaces the one of that id.
    SetTrunk(Box<Trunk>),
    RemoveTrunk(TrunkId),
    /// Registers again now, whatever the back-off says.
    Register(TrunkId),
}

/// Who ended a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    Local,
    Remote,
    /// Nobody: an answer, an ACK or a session refresh did not come.
    Network,
}

/// An incoming call.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The trunk whose credentials it gave, and those for which its source is enough.
    pub trunks: Vec<TrunkId>,
    /// Those of `trunks` whose binding the source holds: it is the registrar that took it.
    pub registered: Vec<TrunkId>,
    /// It gave the credentials of the first of them.
    pub by_password: bool,
    /// It gave no credentials that are right, and there are trunks that its source may give some of: where it is
    /// for none of `trunks`, refuse it with 401.
    pub may_prove: bool,
    pub source: SocketAddr,
    /// The Request-URI.
    pub to: Uri,
    /// The address in To: whom the caller wanted, before anybody on the way sent the call elsewhere.
    pub addressed: Uri,
    /// The address in From.
    pub from: Uri,
    pub display: Option<String>,
    /// The addresses in P-Asserted-Identity, which only a trusted carrier sets: as a rule one, or one of `sip:`
    /// and one of `tel:`. None where the caller withholds who calls.
    pub asserted: Vec<Uri>,
    /// The caller asks that nobody is told who calls (Privacy, RFC 3323 and RFC 3325).
    pub withheld: bool,
    /// Fields whose name begins with `X-`.
    pub headers: Vec<(String, String)>,
    pub hops: Hops,
    /// `None`: our answer is to make the offer.
    pub offer: Option<Body>,
}

/// A message that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRefused {
    /// All that its source may be.
    pub trunks: Vec<TrunkId>,
    pub source: SocketAddr,
    /// The method of a request, the code and method of a response: `BYE`, `200 INVITE`.
    pub method: String,
    pub call_id: String,
    /// The field that is at fault, as far as one is.
    pub header: Option<&'static str>,
    /// What it was answered with; `None`: nothing.
    pub code: Option<u16>,
    pub why: String,
}

/// Which way a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Received,
    Sent,
}

/// A message of a call, for people to look at.
#[derive(Clone)]
pub struct Traced {
    pub call: CallId,
    /// When, on the endpoint's clock.
    pub at: Time,
    pub direction: Direction,
    /// Where it came from, or goes to.
    pub peer: Peer,
    /// The message, long header names, with `***` in the place of what authenticates, of keys and of keypad
    /// digits; at most [`MOST_TEXT`](crate::endpoint::MOST_TEXT) bytes of it.
    pub text: String,
}

impl core::fmt::Debug for Traced {
    /// Without the text, which has phone numbers.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "Traced({:?}, {:?}, {} bytes)",
            self.call,
            self.direction,
            self.text.len()
        )
    }
}

/// What can happen.
#[derive(Clone, Debug)]
pub enum Event {
    Incoming(CallId, Box<Incoming>),
    /// A provisional response, 101 to 199. A body is early media.
    Progress {
        call: CallId,
        code: u16,
        body: Option<Body>,
    },
    /// Our call was answered. The body is the answer to our offer that holds: of whoever picked up, from
    /// a reliable provisional response when it gave it there, else from the 2xx. `None`: it never said
    /// any, or offered another session since, which was accepted: that one holds.
    Answered {
        call: CallId,
        body: Option<Body>,
    },
    /// The caller acknowledged our answer. A body is the answer to the offer we made in it.
    Established {
        call: CallId,
        body: Option<Body>,
    },
    /// The other side offers another session; without a body it asks for our offer. Answer with
    /// [`Command::AcceptOffer`] or [`Command::RefuseOffer`] within 16 seconds, or it is refused. It may
    /// come before the call is answered, when a reliable provisional response had an answer.
    Offer {
        call: CallId,
        body: Option<Body>,
    },
    /// Our [`Command::Offer`] was accepted.
    OfferAccepted {
        call: CallId,
        body: Option<Body>,
    },
    OfferRefused {
        call: CallId,
        code: u16,
    },
    /// The session was refreshed by offering again what we last described. The body is the answer: as a
    /// rule what the other side said before, but it may have moved (RFC 3264 8).
    Refreshed {
        call: CallId,
        body: Body,
    },
    /// A key, from an INFO, and how long it was pressed, ms.
    Digit {
        call: CallId,
        digit: char,
        duration_ms: u32,
    },
    /// The other side asks us to call somebody else.
    Referred {
        call: CallId,
        target: Uri,
    },
    /// How our [`Command::Refer`] goes: 100 trying … 200 reached. A final code comes once.
    ReferProgress {
        call: CallId,
        code: u16,
    },
    /// Over. `code` is the final response's when there was one. A call of ours that ends by
    /// [`EndedBy::Local`] with 408 rang in vain; by [`EndedBy::Network`] with 408, nobody said anything.
    Ended {
        call: CallId,
        by: EndedBy,
        code: Option<u16>,
        reason: String,
    },
    Registered {
        trunk: TrunkId,
        /// Seconds until it must be refreshed.
        expires: u32,
        /// In which realms the registrar asks; none where it took the REGISTER unasked.
        realms: Vec<String>,
    },
    RegistrationFailed {
        trunk: TrunkId,
        /// In which realms the registrar asks, as far as it is known.
        realms: Vec<String>,
        /// `None`: the registrar said nothing. It cannot be reached (its name has no address, or nothing
        /// takes what is sent there), or gave no answer.
        code: Option<u16>,
        reason: String,
        /// When it is tried again.
        retry_in: Duration,
    },
    /// A message of a call was received or is sent, where [`Config::trace`](crate::endpoint::Config::trace)
    /// asks for it; for 32 seconds after [`Event::Ended`] too.
    Message(Box<Traced>),
    /// A request of the trunk's was challenged, and its credentials were not given: `reason` says to what, and why.
    ChallengeWithheld {
        trunk: TrunkId,
        code: u16,
        reason: String,
    },
    /// A message from a source of these trunks is not used: it is malformed, or wants what is not understood here.
    MessageRefused(Box<MessageRefused>),
    /// Something that a call asked for cannot be sent to its other side, or had no answer: `why` says what and why.
    /// It is told after [`Event::Ended`] too, of the BYE.
    Unreached {
        call: CallId,
        why: String,
    },
    /// The carrier sends our call elsewhere (300 to 302, 305): to these addresses, the preferred one first; at most
    /// [`MOST_ENTRIES`]. [`Event::Ended`] follows.
    Redirected {
        call: CallId,
        to: Vec<Uri>,
    },
    /// A call gave credentials that are right for several trunks, which have name and password in common: it was
    /// refused.
    SharedPassword {
        trunks: Vec<TrunkId>,
        source: SocketAddr,
    },
    /// The carrier began or ceased to answer OPTIONS.
    Reachable {
        trunk: TrunkId,
        reachable: bool,
    },
}
