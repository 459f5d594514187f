//! Whose number was called, and over which trunk.
//!
//! Any account may say that a carrier is its own and register numbers on it. So what is matched are the numbers of the
//! account whose trunk the call came over, as far as that is proved: by the trunk's password, by the registration to
//! which the carrier sends the call, if the host that took it sends it, or by an address that is of this account's trunks alone. Where accounts share all
//! of that, the number is looked for in each, and exactly as it was dialled before any other spelling.

use media::rtp::sdp::Encryption;
use sip::event::{Hops, Incoming};
use sip::message::Uri;
use sip::trunk::TrunkId as Number;

use super::declined::{Declined, unavailable};
use super::task::InboundTask;
use super::{SOURCES, caller, diversion, trunks};
use crate::admission::{Request, State};
use crate::agents::Agent;
use crate::calls::bridge;
use crate::calls::matched::{MatchedBy, Proof, Spelling};
use crate::ids::{AccountId, AgentId, CallId, TrunkId};
use crate::node::Node;
use crate::phone_numbers::{self, PhoneNumber};
use crate::sip_trunks::rules::RegistrationStatus;
use crate::sip_trunks::{self, AuthMode, Status, Trunk, TrunkType};
use crate::time::Timestamp;

/// The callee of a call that came in, and the trunk that it came over.
pub(super) struct Called {
    pub(super) account: AccountId,
    /// As the record has it: the number as it is registered, else as it was dialled.
    pub(super) to: String,
    pub(super) from: Option<String>,
    /// The caller asks that nobody is told who calls.
    pub(super) withheld: bool,
    /// Of the caller's number, where it is one at a PBX.
    pub(super) extension: Option<String>,
    pub(super) agent: Option<AgentId>,
    /// That agent, as it was read last.
    pub(super) read: Option<Agent>,
    pub(super) number: Option<PhoneNumber>,
    pub(super) trunk: Option<Trunk>,
    /// The user of the Request-URI.
    pub(super) dialled: String,
    /// How the call got here.
    pub(super) hops: Hops,
    /// `None` for a number of the settings.
    pub(super) matched_by: Option<MatchedBy>,
    pub(super) encryption: Encryption,
}

impl Called {
    /// The trunk that the call takes room of, and how many calls that may have.
    pub(super) fn room(&self) -> Option<(TrunkId, u32)> {
        let trunk = self.trunk.as_ref()?;
        Some((trunk.id, trunk.max_concurrent_calls))
    }

    /// What is asked of the lease store for the call.
    pub(super) fn wish(&self, app: &Node, id: CallId, state: State) -> Request {
        Request {
            trunk: self.room(),
            ..bridge::wish(app, self.account, id, state)
        }
    }
}

/// A trunk that a call may have come over, and the number that it was then meant for, as the carrier writes it.
struct Candidate {
    trunk: Trunk,
    wanted: String,
}

/// A number that a call may be for, and the trunk that it then came over.
type Found = (PhoneNumber, Trunk);

impl InboundTask {
    /// Whose number was called: one of the settings, one that an account registered, or what the
    /// settings have for all others.
    pub(super) async fn called(&self, incoming: &Incoming) -> Result<Called, Declined> {
        let settings = &self.app.config.sip;
        let asked = incoming.to.user().unwrap_or_default();
        // A name of the settings may look like a number with what makes it easier to read.
        let dialled = match settings.numbers.contains_key(&asked) {
            true => asked,
            false => caller::bare(&asked).unwrap_or(asked),
        };
        let withheld = incoming.withheld;
        let caller = whose(incoming, &dialled);
        let (told, extension) = match caller {
            Some(caller) => (caller.user(), diversion::extension(caller)),
            None => (None, None),
        };
        let from = |called: &str| caller::calling(told.as_deref()?, called);
        let of_settings = |account, agent| Called {
            account,
            to: caller::dialled(&dialled),
            from: from(&dialled),
            withheld,
            extension: extension.clone(),
            agent: Some(agent),
            read: None,
            number: None,
            trunk: None,
            dialled: dialled.clone(),
            hops: incoming.hops.clone(),
            matched_by: None,
            encryption: settings.encryption,
        };
        let sources = self.sources(incoming);
        if let Some(account) = sources
            && let Some(agent) = settings.numbers.get(&dialled)
        {
            return Ok(of_settings(account, *agent));
        }
        if let Some(((number, trunk), matched_by)) = self.registered(incoming, &dialled).await? {
            return Ok(Called {
                account: number.account,
                to: number.phone_number.clone(),
                from: from(&number.phone_number),
                withheld,
                extension,
                agent: number.agent_id,
                read: None,
                encryption: trunks::encryption(trunk.media_encryption),
                number: Some(number),
                trunk: Some(trunk),
                dialled,
                hops: incoming.hops.clone(),
                matched_by: Some(matched_by),
            });
        }
        match (sources, settings.agent) {
            (Some(account), Some(agent)) => Ok(of_settings(account, agent)),
            _ => Err(Declined::NOBODY),
        }
    }

    /// The account of the settings, where the call may be its: a password names the account of its trunk.
    fn sources(&self, incoming: &Incoming) -> Option<AccountId> {
        let account = self
            .exchange
            .sources
            .filter(|_| incoming.trunks.contains(&SOURCES))?;
        let proved = incoming.trunks.first().filter(|_| incoming.by_password);
        let of = |number: &Number| self.exchange.trunks.find(*number).map(|(of, _)| of);
        proved
            .is_none_or(|number| of(number) == Some(account))
            .then_some(account)
    }

    /// The registered number that was called, the trunk of its account that the call came over, and what told both.
    async fn registered(
        &self,
        incoming: &Incoming,
        dialled: &str,
    ) -> Result<Option<(Found, MatchedBy)>, Declined> {
        let (ways, proof) = self.ways(incoming, dialled).await?;
        let matched = |found: Found, number| {
            let trunk = proof;
            Some((found, MatchedBy { trunk, number }))
        };
        // As it is registered, on whichever trunk.
        let exact = self.exact(&ways).await?;
        if let Some(found) = best(exact) {
            return Ok(matched(found, Spelling::Exact));
        }
        let of_one_account = proof != Proof::SharedAddress;
        let mut meant = self.meant(&ways, true).await?;
        // Numbers of the trunk for calls out, say, while calls in come over another one.
        if meant.is_empty() && of_one_account {
            meant = self.meant(&ways, false).await?;
        }
        // Whose number was there first has its calls, and nothing that another account registers later changes that.
        let first = meant
            .iter()
            .map(|(number, _)| number)
            .min_by_key(|number| (number.created_at, number.id));
        let Some(account) = first.map(|number| number.account) else {
            let only = self.only_number(&ways, dialled).await?;
            return Ok(only.and_then(|found| matched(found, Spelling::OnlyNumber)));
        };
        // Where several may be meant, none is.
        let mut meant = meant
            .into_iter()
            .filter(|(number, _)| number.account == account);
        let only = meant.next().filter(|_| meant.next().is_none());
        Ok(only.and_then(|found| matched(found, Spelling::Other)))
    }

    /// The trunks that the call may have come over, of the account that is proved or of those that share what is, and
    /// what proves it.
    async fn ways(
        &self,
        incoming: &Incoming,
        dialled: &str,
    ) -> Result<(Vec<Candidate>, Proof), Declined> {
        let known = incoming
            .trunks
            .iter()
            .filter_map(|number| Some((*number, self.exchange.trunks.find(*number)?)));
        let (mut came_over, mut proved, mut at_registrar) = (Vec::new(), None, Vec::new());
        for (number, (account, id)) in known {
            let trunk = sip_trunks::store::get(&self.app.db, account, id).await;
            let trunk = trunk.map_err(|error| unavailable(&error))?;
            let Some(trunk) = trunk.filter(|trunk| trunk.status == Status::Active) else {
                continue;
            };
            if incoming.by_password && incoming.trunks.first() == Some(&number) {
                proved = Some(trunk.account);
            }
            if incoming.registered.contains(&number) {
                at_registrar.push(trunk.id);
            }
            came_over.push(trunk);
        }
        if incoming.by_password {
            came_over.retain(|trunk| Some(trunk.account) == proved);
            return Ok((ways(came_over, incoming, dialled), Proof::Digest));
        }
        let now = self.app.clock.now();
        let registered: Vec<AccountId> = came_over
            .iter()
            .filter(|trunk| at_registrar.contains(&trunk.id))
            .filter(|trunk| is_registered_as(trunk, dialled, now))
            .map(|trunk| trunk.account)
            .collect();
        let by_registration = !registered.is_empty();
        if by_registration {
            came_over.retain(|trunk| registered.contains(&trunk.account));
        }
        let ways = ways(came_over, incoming, dialled);
        let mut accounts: Vec<AccountId> = ways.iter().map(|way| way.trunk.account).collect();
        accounts.dedup();
        let proof = match accounts.len() {
            0 | 1 if by_registration => Proof::Registration,
            0 | 1 => Proof::Address,
            _ => Proof::SharedAddress,
        };
        Ok((ways, proof))
    }

    /// The numbers that are registered as these trunks were asked for them, with the plus or without.
    async fn exact(&self, ways: &[Candidate]) -> Result<Vec<(Found, bool)>, Declined> {
        let mut exact = Vec::new();
        for Candidate { trunk, wanted } in ways {
            let db = &self.app.db;
            let number = phone_numbers::store::find_active_by_number(db, trunk.account, wanted);
            let number = number.await.map_err(|error| unavailable(&error))?;
            // An outbound trunk brings calls to the numbers that are registered on it only.
            let fits = |number: &PhoneNumber| {
                trunk.kind == TrunkType::Inbound || number.trunk_id == Some(trunk.id)
            };
            if let Some(number) = number.filter(fits) {
                let same = number.phone_number == *wanted;
                exact.push(((number, trunk.clone()), same));
            }
        }
        Ok(exact)
    }

    /// The numbers that may be meant by what these trunks were asked for: those `on_them`, or all of their account.
    async fn meant(&self, ways: &[Candidate], on_them: bool) -> Result<Vec<Found>, Declined> {
        let mut meant: Vec<Found> = Vec::new();
        for Candidate { trunk, wanted } in ways {
            // An outbound trunk brings calls to the numbers that are registered on it only.
            let own = (on_them || trunk.kind == TrunkType::Outbound).then_some(trunk.id);
            let found = phone_numbers::find_meant(&self.app.db, trunk.account, own, wanted)
                .await
                .map_err(|error| unavailable(&error))?;
            for number in found {
                // Several blocks of one trunk may hold its source.
                if meant.iter().all(|(other, _)| other.id != number.id) {
                    meant.push((number, trunk.clone()));
                }
            }
        }
        Ok(meant)
    }

    /// Where the user that we registered was called and To names it, too, nothing tells a number: the only one of
    /// that trunk is meant, and of several none.
    async fn only_number(
        &self,
        ways: &[Candidate],
        dialled: &str,
    ) -> Result<Option<Found>, Declined> {
        let Some(trunk) = whose_user(ways, dialled) else {
            return Ok(None);
        };
        let number = phone_numbers::store::only_of_trunk(&self.app.db, trunk.account, trunk.id)
            .await
            .map_err(|error| unavailable(&error))?;
        Ok(number.map(|number| (number, trunk.clone())))
    }
}

/// Who calls: the address that the carrier vouches for, where it is one of a number, else that of From. `None`: it is
/// withheld.
fn whose<'a>(incoming: &'a Incoming, called: &str) -> Option<&'a Uri> {
    let is_number = |uri: &&Uri| {
        let user = uri.user();
        user.is_some_and(|user| caller::calling(&user, called).is_some())
    };
    let vouched = incoming.asserted.iter().find(is_number);
    let shown = vouched.unwrap_or(&incoming.from);
    (!incoming.withheld).then_some(shown)
}

/// The ways of those trunks that take the call.
fn ways(trunks: Vec<Trunk>, incoming: &Incoming, dialled: &str) -> Vec<Candidate> {
    let addressed = incoming.addressed.user();
    let addressed = addressed.map(|user| caller::bare(&user).unwrap_or(user));
    let way = |trunk: Trunk| {
        // Where we registered, the carrier calls the user we registered, and tells whom it wants in To.
        let wanted = match &addressed {
            Some(addressed) if registers_as(&trunk, dialled) => addressed.clone(),
            _ => dialled.to_owned(),
        };
        let takes = trunk.kind == TrunkType::Outbound || trunk.takes(&wanted);
        takes.then_some(Candidate { trunk, wanted })
    };
    trunks.into_iter().filter_map(way).collect()
}

/// Of the numbers that were found, the one that is written as it was dialled; else the one that was there first.
fn best(exact: Vec<(Found, bool)>) -> Option<Found> {
    let rank = |((number, _), same): &(Found, bool)| (!same, number.created_at, number.id);
    exact.into_iter().min_by_key(rank).map(|(found, _)| found)
}

/// Whether the trunk registers this user. One that looks like a number is called without what makes it easier to read.
fn registers_as(trunk: &Trunk, user: &str) -> bool {
    let is_user = |own: &String| own == user || caller::bare(own).as_deref() == Some(user);
    trunk.auth_mode == AuthMode::Register && trunk.auth_username.as_ref().is_some_and(is_user)
}

/// Whether the trunk's registrar took it as this user, and has not forgotten it: who gave the name alone has proved
/// nothing. (Nor has a call that comes from elsewhere: anybody may run a registrar.)
fn is_registered_as(trunk: &Trunk, user: &str, now: Timestamp) -> bool {
    let holds = trunk.registration.as_ref().is_some_and(|registration| {
        registration.status == RegistrationStatus::Registered
            && registration.expires_at.is_some_and(|until| until > now)
    });
    holds && registers_as(trunk, user)
}

/// The trunk that registers this user, where that alone was asked for and there is one alone.
fn whose_user<'a>(ways: &'a [Candidate], dialled: &str) -> Option<&'a Trunk> {
    let called = |way: &&Candidate| registers_as(&way.trunk, dialled) && way.wanted == dialled;
    let mut called = ways.iter().filter(called);
    let way = called.next()?;
    called.next().is_none().then_some(&way.trunk)
}
