//! Whose challenges are answered (RFC 3261 22).
//!
//! The digest of a trunk's password is for its carrier alone. Others may ask for one too: whoever a Contact names, and
//! a callee behind the carrier's proxy, whose challenge comes from the carrier's own address. So a challenge is
//! answered only where its request went to one of the trunk's hosts and it came from one, while an INVITE has reached
//! nobody yet, and only in a realm and with a status code of the carrier's (`auth::Realms`).
//!
//! A host of the trunk is an address that its name, or that of its domain, leads to, with the port. Another port of
//! the same address is somebody else: the customers of a shared host, and the telephones behind one NAT with a PBX,
//! differ in nothing but the port. There are two exceptions. Over TLS a certificate shows who it is, so a connection
//! that was made to the trunk's own name may be to any port of its addresses. The trunk's `allowed` addresses are its
//! carrier's with every port, as they are for its calls in.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::clients::peers;
use super::trunks::RegistrationId;
use super::{Endpoint, Peer};
use crate::auth::{Challenge, Challenged, Withheld};
use crate::call::Purpose;
use crate::dialog::CREDENTIALS;
use crate::event::{CallId, Event};
use crate::locate::{Located, all_targets, locate_host};
use crate::message::{Request, Response, Transport};
use crate::trunk::{Trunk, TrunkId};

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
        let unchanged = (None, Cow::Borrowed(response));
        let (true, Some(record), Some(said)) = (is_challenge(response), self.calls.get(&id), said)
        else {
            return unchanged;
        };
        let (Some(trunk), Some(credentials)) = (record.trunk, record.call.credentials()) else {
            return unchanged;
        };
        let own = self.trunks.get(&trunk);
        let known = record.realms.as_ref().or(own.map(|own| &own.realms));
        let challenged = match purpose {
            // A trunk that is gone learns no realm any more.
            Purpose::Invite if known.is_some() => Challenged::OpeningInvite,
            _ => Challenged::InDialog,
        };
        let mut realms = known.cloned().unwrap_or_default();
        let stranger = stranger(said, |peer| self.is_host_of_call(id, peer));
        let chosen = match stranger {
            Some(stranger) => Err(stranger),
            // Who rings is not the carrier any more.
            None if purpose == Purpose::Invite && record.call.has_progressed() => {
                Err(Withheld::Progressed)
            }
            None => realms.choose(challenged, request, response, credentials),
        };
        if let Ok(challenge) = &chosen {
            realms.learn(challenged, response, challenge);
            // The trunk may have another carrier since the call was placed.
            let teaches = own.is_some_and(|own| self.is_host_of(&own.trunk, &said.by));
            if let Some(own) = self.trunks.get_mut(&trunk).filter(|_| teaches) {
                own.realms.learn(challenged, response, challenge);
            }
            if let Some(record) = self.calls.get_mut(&id) {
                record.realms = Some(realms);
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
        // One whose binding is taken back may have had another carrier.
        let current = self
            .trunks
            .get(&trunk)
            .filter(|own| own.registration == Some(id));
        let own = |peer: &Peer| {
            record.route.iter().any(|own| is_same(own, peer))
                || self.leads_to(&record.located, peer)
                || current.is_some_and(|own| is_allowed(&own.trunk, peer))
        };
        let stranger = stranger(said, own);
        let realms = current.map(|own| own.realms.clone()).unwrap_or_default();
        let is_current = current.is_some();
        let challenged = Challenged::Register;
        let chosen = match stranger {
            Some(stranger) => Err(stranger),
            None => realms.choose(challenged, request, response, credentials),
        };
        if let (true, Ok(challenge)) = (is_current, &chosen)
            && let Some(own) = self.trunks.get_mut(&trunk)
        {
            own.realms.learn(challenged, response, challenge);
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

    /// Keeps the credentials of a call's request with the trunk: it goes to those of `peers` which are hosts of it, or
    /// without credentials where none is. What a name leads to may have changed since the challenge was judged.
    pub(super) fn keep_to_hosts(
        &self,
        id: CallId,
        request: &mut Request,
        peers: VecDeque<Peer>,
    ) -> VecDeque<Peer> {
        if !CREDENTIALS.iter().any(|name| request.headers.has(name)) {
            return peers;
        }
        let hosts: VecDeque<Peer> = peers
            .iter()
            .filter(|peer| self.is_host_of_call(id, peer))
            .cloned()
            .collect();
        if hosts.is_empty() {
            without_credentials(request);
            return peers;
        }
        hosts
    }

    /// Whether a call's credentials may go to this peer: one of its trunk's hosts, or where its INVITE went to, or came
    /// from where that was the carrier.
    pub(super) fn is_host_of_call(&self, id: CallId, peer: &Peer) -> bool {
        let Some(record) = self.calls.get(&id) else {
            return false;
        };
        let trunk = record.trunk.and_then(|trunk| self.trunks.get(&trunk));
        record.route.iter().any(|own| is_same(own, peer))
            || trunk.is_some_and(|own| self.is_host_of(&own.trunk, peer))
    }

    /// Where a call came in from, if that is the carrier for its challenges too: it proved itself by the password, or it
    /// is one of the trunk's hosts. A source with another port of the carrier's address is let in, and given nothing.
    pub(super) fn carrier_of_incoming(
        &self,
        trunk: Option<&Trunk>,
        by_password: bool,
        peer: &Peer,
    ) -> VecDeque<Peer> {
        let is_host = trunk.is_some_and(|trunk| self.is_host_of(trunk, peer));
        let route = (by_password || is_host).then(|| peer.clone());
        route.into_iter().collect()
    }

    /// Whether this is where the trunk's host leads, or where its calls go or may come from.
    fn is_host_of(&self, trunk: &Trunk, peer: &Peer) -> bool {
        let own = trunk.host.as_ref().map(|host| (host, trunk.port));
        let hops = own.into_iter().chain(trunk.next_hop());
        is_allowed(trunk, peer)
            || hops
                .map(|(host, port)| locate_host(host, port, trunk.transport))
                .any(|located| self.leads_to(&located, peer))
    }

    fn leads_to(&self, located: &Located, peer: &Peer) -> bool {
        match located {
            Located::At(transport, addr) => is_same(&Peer::new(*transport, *addr), peer),
            Located::Ask(lookup) => {
                let known = self.resolved.get(lookup);
                let found = known.map(|(_, answers)| all_targets(lookup, answers));
                let found = peers(lookup, &found.unwrap_or_default());
                found.iter().any(|own| is_same(own, peer))
            }
        }
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

/// Whether both are one host: the address with its port, or over TLS with the name that was verified.
fn is_same(own: &Peer, peer: &Peer) -> bool {
    own.addr.ip().to_canonical() == peer.addr.ip().to_canonical()
        && keeps_tls(own.transport, peer)
        && (own.addr.port() == peer.addr.port() || (own.name.is_some() && own.name == peer.name))
}

/// Whether the trunk's calls may come from that address.
fn is_allowed(trunk: &Trunk, peer: &Peer) -> bool {
    keeps_tls(trunk.transport, peer) && trunk.allowed.iter().any(|net| net.contains(peer.addr.ip()))
}

/// What TLS protects goes to nobody who speaks otherwise.
fn keeps_tls(own: Transport, peer: &Peer) -> bool {
    own != Transport::Tls || peer.transport == Transport::Tls
}

/// Takes credentials from a request that does not go to who asked for them.
pub(super) fn without_credentials(request: &mut Request) {
    for name in &CREDENTIALS {
        request.headers.remove(name);
    }
}
