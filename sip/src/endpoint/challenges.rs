//! Whose challenges are answered (RFC 3261 22).
//!
//! The digest of a trunk's password is for its carrier alone. Others may ask for one too: whoever a Contact names, and
//! a callee behind the carrier's proxy, whose challenge comes from the carrier's own address. So a challenge is
//! answered only where its request went to one of the trunk's hosts and it came from one, and only in the realm in
//! which the carrier asks by itself: the one of its first challenge to a REGISTER, which no callee sees, or to the
//! INVITE of a call.

use std::borrow::Cow;

use super::trunks::RegistrationId;
use super::{Endpoint, Peer};
use crate::auth::{Challenge, Credentials, Withheld};
use crate::call::Purpose;
use crate::dialog::CREDENTIALS;
use crate::event::{CallId, Event};
use crate::locate::{Located, all_targets, locate_host};
use crate::message::{Name, Request, Response, Transport};
use crate::trunk::{Trunk, TrunkId};

/// In which realm a trunk's carrier asks for credentials. It is remembered while the trunk stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Realm {
    /// It has not asked.
    #[default]
    Unseen,
    Seen(String),
    /// It took an INVITE without asking: who asks of a later one may be the callee. A registrar may still ask.
    Unasked,
}

impl Realm {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Seen(realm) => Some(realm),
            Self::Unseen | Self::Unasked => None,
        }
    }
}

/// How a response came.
#[derive(Clone, Debug)]
pub(super) struct Said {
    /// Where its request went.
    pub(super) to: Peer,
    /// Where it came from.
    pub(super) by: Peer,
}

/// A response, with the challenge of it that is to be answered. Where one is withheld its reason phrase says why.
type Judged<'a> = (Option<Challenge>, Cow<'a, Response>);

impl Endpoint {
    /// Judges the response to a request of a call; `None` for `said`: it was made up here.
    pub(super) fn judge_for_call<'a>(
        &mut self,
        id: CallId,
        purpose: Purpose,
        request: &Request,
        response: &'a Response,
        said: Option<&Said>,
    ) -> Judged<'a> {
        if purpose == Purpose::Invite && (200..300).contains(&response.code) {
            self.answered_unasked(id, request);
        }
        let unchanged = (None, Cow::Borrowed(response));
        let (true, Some(record), Some(said)) = (is_challenge(response), self.calls.get(&id), said)
        else {
            return unchanged;
        };
        let (Some(trunk), Some(credentials)) = (record.trunk, record.call.credentials()) else {
            return unchanged;
        };
        let seen = self.trunks.get(&trunk).map(|own| &own.realm);
        let realm = record.realm.as_deref();
        let realm = realm.or(seen.and_then(Realm::name)).map(str::to_owned);
        // Who rings is not the carrier any more.
        let opens = purpose == Purpose::Invite
            && seen.is_some_and(|realm| *realm == Realm::Unseen)
            && !record.call.has_progressed();
        let own = |peer: &Peer| self.is_host_of_call(id, peer);
        let chosen = match stranger(said, own) {
            Some(stranger) => Err(stranger),
            None => choose(response, credentials, realm.as_deref(), opens),
        };
        if let Ok(challenge) = &chosen {
            self.saw_realm(trunk, &challenge.realm);
            if let Some(record) = self.calls.get_mut(&id) {
                record.realm = Some(challenge.realm.clone());
            }
        }
        self.judged(trunk, request, response, chosen)
    }

    /// Judges the response to a REGISTER.
    pub(super) fn judge_for_registration<'a>(
        &mut self,
        id: RegistrationId,
        request: &Request,
        response: &'a Response,
        said: Option<&Said>,
    ) -> Judged<'a> {
        let unchanged = (None, Cow::Borrowed(response));
        let (true, Some(record), Some(said)) =
            (is_challenge(response), self.registrations.get(&id), said)
        else {
            return unchanged;
        };
        let Some(credentials) = record.registration.credentials() else {
            return unchanged;
        };
        let trunk = record.trunk;
        let own = |peer: &Peer| {
            record.route.iter().any(|own| is_same(own, peer))
                || self.leads_to(&record.located, peer)
        };
        let stranger = stranger(said, own);
        // One whose binding is taken back may have had another carrier.
        let current = self
            .trunks
            .get(&trunk)
            .filter(|own| own.registration == Some(id));
        let (is_current, realm) = match current {
            Some(own) => (true, own.realm.name().map(str::to_owned)),
            None => (false, None),
        };
        let chosen = match stranger {
            Some(stranger) => Err(stranger),
            None => choose(response, credentials, realm.as_deref(), true),
        };
        if let (true, Ok(challenge)) = (is_current, &chosen) {
            self.saw_realm(trunk, &challenge.realm);
        }
        self.judged(trunk, request, response, chosen)
    }

    fn judged<'a>(
        &mut self,
        trunk: TrunkId,
        request: &Request,
        response: &'a Response,
        chosen: Result<Challenge, Withheld>,
    ) -> Judged<'a> {
        let why = match chosen {
            Ok(challenge) => return (Some(challenge), Cow::Borrowed(response)),
            Err(why) => why,
        };
        let method = request.method.as_str();
        let reason = format!("challenge not answered: {why}");
        self.event(Event::ChallengeWithheld {
            trunk,
            code: response.code,
            reason: format!("{method}: {reason}"),
        });
        let mut response = response.clone();
        response.reason = reason;
        (None, Cow::Owned(response))
    }

    fn saw_realm(&mut self, trunk: TrunkId, realm: &str) {
        if let Some(own) = self.trunks.get_mut(&trunk)
            && own.realm.name().is_none()
        {
            own.realm = Realm::Seen(realm.to_owned());
        }
    }

    /// The INVITE of a call was answered: without credentials, if nobody asked for any.
    fn answered_unasked(&mut self, call: CallId, invite: &Request) {
        let trunk = self.calls.get(&call).and_then(|record| record.trunk);
        if let Some(own) = trunk.and_then(|trunk| self.trunks.get_mut(&trunk))
            && own.realm == Realm::Unseen
            && !CREDENTIALS.iter().any(|name| invite.headers.has(name))
        {
            own.realm = Realm::Unasked;
        }
    }

    /// Whether a call's credentials may go to this peer: one of its trunk's hosts, or where its INVITE came from or
    /// went to.
    pub(super) fn is_host_of_call(&self, id: CallId, peer: &Peer) -> bool {
        let Some(record) = self.calls.get(&id) else {
            return false;
        };
        let trunk = record.trunk.and_then(|trunk| self.trunks.get(&trunk));
        record.route.iter().any(|own| is_same(own, peer))
            || trunk.is_some_and(|own| self.is_host_of(&own.trunk, peer))
    }

    /// Whether this is where the trunk's host leads, or where its calls go.
    fn is_host_of(&self, trunk: &Trunk, peer: &Peer) -> bool {
        let own = trunk.host.as_ref().map(|host| (host, trunk.port));
        let hops = own.into_iter().chain(trunk.next_hop());
        hops.map(|(host, port)| locate_host(host, port, trunk.transport))
            .any(|located| self.leads_to(&located, peer))
    }

    fn leads_to(&self, located: &Located, peer: &Peer) -> bool {
        let (transport, addresses) = match located {
            Located::At(transport, addr) => (*transport, vec![*addr]),
            Located::Ask(lookup) => {
                let known = self.resolved.get(lookup);
                let found = known.map(|(_, answers)| all_targets(lookup, answers));
                (lookup.transport, found.unwrap_or_default())
            }
        };
        let mut own = addresses.into_iter();
        own.any(|addr| is_same(&Peer::new(transport, addr), peer))
    }
}

fn is_challenge(response: &Response) -> bool {
    matches!(response.code, 401 | 407)
}

/// The side of a response that is none of the trunk's hosts, if either is not.
fn stranger(said: &Said, own: impl Fn(&Peer) -> bool) -> Option<Withheld> {
    let mut both = [&said.to, &said.by].into_iter();
    let stranger = both.find(|peer| !own(peer))?;
    Some(Withheld::Stranger(stranger.addr))
}

/// The challenge of a host of the trunk that is answered. `opens`: where no realm is known, its is the trunk's.
fn choose(
    response: &Response,
    credentials: &Credentials,
    realm: Option<&str>,
    opens: bool,
) -> Result<Challenge, Withheld> {
    let name = match response.code {
        401 => Name::WwwAuthenticate,
        _ => Name::ProxyAuthenticate,
    };
    let values = response.headers.all(&name);
    let chosen = Challenge::choose(values, credentials, realm)?;
    match realm.or(credentials.realm.as_deref()) {
        None if !opens => Err(Withheld::NoRealm(chosen.realm)),
        _ => Ok(chosen),
    }
}

/// Whether both are one place; what TLS protects goes to nobody who speaks otherwise.
fn is_same(own: &Peer, peer: &Peer) -> bool {
    own.addr.port() == peer.addr.port()
        && own.addr.ip().to_canonical() == peer.addr.ip().to_canonical()
        && (own.transport != Transport::Tls || peer.transport == Transport::Tls)
}

/// Takes credentials from a request that does not go to who asked for them.
pub(super) fn without_credentials(request: &mut Request) {
    for name in &CREDENTIALS {
        request.headers.remove(name);
    }
}
