//! The stack's trunks, kept as the database has them.
//!
//! Every node looks at a counter that each change of a trunk moves, and tells its stack what is new. A
//! trunk that registers is registered by one node at a time: by whoever holds its claim, a row's two
//! columns, renewed while the node lives.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use media::rtp::sdp::Encryption;
use sip::auth::Credentials;
use sip::event::{Command, Event, MessageRefused};
use sip::message::{Host, Transport as Over};
use sip::trunk::{
    InboundAuth, Net, Outbound, Register as Registration, RegistrarRealms, Trunk as Told,
    TrunkId as Number,
};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::Calling;
use super::{Exchange, SOURCES};
use crate::db::DbError;
use crate::ids::{AccountId, TrunkId};
use crate::node::Node;
use crate::sip_trunks::store::{Failure, RefusedMessage, Standing};
use crate::sip_trunks::{
    self, AuthMode, MediaEncryption, OutboundAuth, RegistrationStatus, Transport, Trunk, TrunkType,
    rules, store,
};

/// How often a node looks for changes that another one made.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long a claim of a registration lasts: a node that died is taken over from after this.
const CLAIM: Duration = Duration::from_secs(15);

/// How long a call waits for the first word of its trunk's registrar, from when the stack was told of the trunk: a
/// REGISTER that is asked and answered twice, and a look of the nodes that do not send it.
const FIRST_WORD: Duration = Duration::from_secs(5);

/// Which trunk of whose a number of the stack is.
#[derive(Default)]
pub(super) struct Register {
    /// Before the stack is told of them: calls that it then takes are known at once.
    trunks: Mutex<HashMap<Number, (AccountId, TrunkId)>>,
    /// Those that the stack was told of: over others it places no calls.
    told: Mutex<HashSet<Number>>,
    /// Those whose carriers have answered OPTIONS, and whether they still do.
    reachable: Mutex<HashMap<Number, bool>>,
    /// Those whose registrars' realms no node has written down, since when; `None` once this node has heard how the
    /// registration went.
    awaited: watch::Sender<HashMap<Number, Option<Instant>>>,
}

impl Register {
    pub(super) fn find(&self, number: Number) -> Option<(AccountId, TrunkId)> {
        self.trunks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&number)
            .copied()
    }

    /// Whether the stack knows it.
    pub(super) fn is_told(&self, number: Number) -> bool {
        self.told
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&number)
    }

    fn set_told(&self, told: HashSet<Number>) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = told;
    }

    /// Takes over which registrars are still to be heard.
    pub(super) fn set_awaited(&self, awaited: &HashSet<Number>, now: Instant) {
        self.awaited.send_modify(|known| {
            known.retain(|number, _| awaited.contains(number));
            for number in awaited {
                known.entry(*number).or_insert(Some(now));
            }
        });
    }

    /// A registrar was heard, or cannot be.
    pub(super) fn heard(&self, number: Number) {
        self.awaited.send_modify(|known| {
            known.insert(number, None);
        });
    }

    /// Waits until the first word of a trunk's registrar has come, where there is one to come: until then the stack gives
    /// its password to nobody. A call that then is asked for it fails, and says why.
    pub(super) async fn settled(&self, number: Number) {
        let mut changes = self.awaited.subscribe();
        loop {
            let since = changes.borrow_and_update().get(&number).copied();
            let Some(since) = since.flatten() else {
                return;
            };
            match timeout_at(since + FIRST_WORD, changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// Remembers whether a carrier answers; whether it did before, if it ever has.
    fn reached(&self, number: Number, reachable: bool) -> Option<bool> {
        let mut known = self
            .reachable
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match known.get_mut(&number) {
            Some(before) => Some(std::mem::replace(before, reachable)),
            None if reachable => known.insert(number, true),
            None => None,
        }
    }

    pub(super) fn set(&self, trunks: &[Trunk]) {
        let all: HashMap<_, _> = trunks
            .iter()
            .map(|trunk| (sip_trunks::sip_id(trunk.id), (trunk.account, trunk.id)))
            .collect();
        self.reachable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|number, _| all.contains_key(number));
        *self.trunks.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// Follows the trunks until the process ends.
pub(super) async fn follow(app: Calling) {
    let mut tick = tokio::time::interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut edge = Edge::default();
    let mut failed = false;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = app.trunks_changed.notified() => {}
        }
        match edge.sync(&app).await {
            Ok(()) => failed = false,
            // Said once, not every two seconds.
            Err(error) if !failed => {
                failed = true;
                tracing::error!(%error, "the SIP trunks cannot be kept as the database has them");
            }
            Err(_) => {}
        }
    }
}

/// What the stack was told.
#[derive(Default)]
pub(super) struct Edge {
    version: Option<i64>,
    told: HashMap<Number, Told>,
    trunks: Vec<Trunk>,
}

impl Edge {
    pub(super) async fn sync(
        &mut self,
        app: &Calling,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let version = store::version(&app.db).await?;
        if self.version != Some(version) || self.waits_for_another() {
            self.trunks = store::all_active(&app.db).await?;
        }
        if self.trunks.is_empty() && self.told.is_empty() {
            self.version = Some(version);
            return Ok(());
        }
        let exchange = app.telephone.open(app).await?;
        let ours = self.claimed(app).await?;
        exchange.trunks.set(&self.trunks);
        let mut wanted = HashMap::new();
        for trunk in &self.trunks {
            match told(app, trunk, ours.contains(&trunk.id)) {
                Some(told) => drop(wanted.insert(told.id, told)),
                None => {
                    tracing::error!(trunk = %trunk.id, "a trunk's password or address cannot be read");
                }
            }
        }
        tell(&mut self.told, wanted, |command| exchange.try_tell(command));
        // Not before: a call over one that the stack does not know tells it first.
        exchange
            .trunks
            .set_told(self.told.keys().copied().collect());
        let awaits = |told: &&Told| told.registrar_realms == RegistrarRealms::Awaited;
        let awaited = self.told.values().filter(awaits).map(|told| told.id);
        exchange
            .trunks
            .set_awaited(&awaited.collect(), Instant::now());
        self.version = Some(version);
        Ok(())
    }

    /// Whether a registrar is still to be heard by another node. One of the version before, which runs beside this one
    /// while it is rolled out, writes down that a trunk is registered and moves no counter.
    fn waits_for_another(&self) -> bool {
        let mut told = self.told.values();
        told.any(|told| {
            told.register.is_none() && told.registrar_realms == RegistrarRealms::Awaited
        })
    }

    /// The trunks that this node registers. One that ends lets go of them.
    async fn claimed(&self, app: &Node) -> Result<Vec<TrunkId>, DbError> {
        if !self
            .trunks
            .iter()
            .any(|trunk| trunk.auth_mode == AuthMode::Register)
        {
            return Ok(Vec::new());
        }
        let (node, now) = (&app.config.cluster.node, app.clock.shared());
        if app.is_draining() {
            store::release_registrations(&app.db, node).await?;
            return Ok(Vec::new());
        }
        store::claim_registrations(&app.db, node, now, CLAIM).await
    }
}

/// Tells the stack what is wanted and was not told yet. What it does not take (too much waits for it) counts
/// as not told, and is told at the next look.
fn tell(
    told: &mut HashMap<Number, Told>,
    wanted: HashMap<Number, Told>,
    mut takes: impl FnMut(Command) -> bool,
) {
    told.retain(|number, _| wanted.contains_key(number) || !takes(Command::RemoveTrunk(*number)));
    for (number, trunk) in wanted {
        if told.get(&number) != Some(&trunk) && takes(Command::SetTrunk(Box::new(trunk.clone()))) {
            told.insert(number, trunk);
        }
    }
}

/// How a registration goes.
pub(super) fn registration(app: &Node, exchange: &Exchange, event: &Event) {
    let (number, standing) = match event {
        Event::Registered {
            trunk,
            expires,
            realms,
        } => {
            let expires = Duration::from_secs(u64::from(*expires));
            let standing = Standing {
                outcome: Ok(app.clock.now().plus(expires)),
                realms: Some(realms.clone()),
            };
            (*trunk, standing)
        }
        Event::RegistrationFailed {
            trunk,
            realms,
            code,
            reason,
            retry_in,
        } => {
            let seconds = retry_in.as_secs();
            tracing::warn!(code, reason, seconds, "a trunk is not registered");
            let failure = Failure {
                at: app.clock.now(),
                code: *code,
                reason: reason.chars().take(200).collect(),
            };
            let standing = Standing {
                outcome: Err(failure),
                realms: Some(realms.clone()).filter(|realms| !realms.is_empty()),
            };
            (*trunk, standing)
        }
        _ => return,
    };
    exchange.trunks.heard(number);
    let Some((account, trunk)) = exchange.trunks.find(number) else {
        return;
    };
    exchange.standings.put(account, trunk, standing);
}

/// A request over a trunk was challenged in vain: its record says so.
pub(super) fn challenge_withheld(
    app: &Node,
    exchange: &Exchange,
    number: Number,
    code: u16,
    reason: &str,
) {
    let Some((account, trunk)) = exchange.trunks.find(number) else {
        return;
    };
    tracing::warn!(%trunk, code, reason, "a trunk's credentials were asked for and not given");
    let refused = Failure {
        at: app.clock.now(),
        code: Some(code),
        reason: reason.chars().take(200).collect(),
    };
    exchange.standings.put_refused(account, trunk, refused);
}

/// What the record of a trunk says of a message that may be another account's.
const NOT_TOLD: &str = "Bad Message";

/// A message from an address of these trunks is not used: each of them has it in its record. Where they are several
/// accounts', none is told what the message says: it may be of another's call.
pub(super) fn message_refused(app: &Node, exchange: &Exchange, refused: &MessageRefused) {
    let MessageRefused {
        trunks,
        source,
        method,
        call_id,
        header,
        code,
        why,
    } = refused;
    tracing::warn!(%source, method, call_id, header, code, why, "a SIP message is refused");
    let found = trunks
        .iter()
        .filter_map(|number| exchange.trunks.find(*number));
    let found: Vec<(AccountId, TrunkId)> = found.collect();
    let of_sources = exchange.sources.filter(|_| trunks.contains(&SOURCES));
    let mut accounts = found.iter().map(|(account, _)| *account).chain(of_sources);
    let first = accounts.next();
    let is_shared = accounts.any(|account| Some(account) != first);
    for (account, trunk) in found {
        let told = RefusedMessage {
            at: app.clock.now(),
            source: source.to_string(),
            method: method.clone(),
            call_id: match is_shared {
                true => String::new(),
                false => call_id.clone(),
            },
            header: header.map(str::to_owned),
            code: *code,
            reason: match is_shared {
                true => NOT_TOLD.to_owned(),
                false => why.clone(),
            },
        };
        exchange.standings.put_message(account, trunk, told);
    }
}

/// A call was refused, for its credentials are those of several trunks. Their accounts are not told: each would learn
/// of the other.
pub(super) fn password_shared(exchange: &Exchange, numbers: &[Number], source: SocketAddr) {
    let trunks: Vec<String> = numbers
        .iter()
        .filter_map(|number| exchange.trunks.find(*number))
        .map(|(_, trunk)| trunk.to_string())
        .collect();
    let trunks = trunks.join(" ");
    tracing::warn!(%source, trunks, "a call was refused: several trunks have its user name and password in common");
}

/// A carrier with which a trunk registered began or ceased to answer OPTIONS. One that never answers them
/// does not know them; one that did and comes back is registered with at once, for it may have forgotten
/// us, and the trunk's record is right again by the answer.
pub(super) fn reachable(app: &Node, exchange: &Exchange, number: Number, reachable: bool) {
    let before = exchange.trunks.reached(number, reachable);
    let Some((account, trunk)) = exchange.trunks.find(number) else {
        return;
    };
    match (before, reachable) {
        (Some(false), true) => {
            tracing::info!(%trunk, "a trunk's carrier answers again");
            exchange.tell(Command::Register(number));
        }
        (Some(true), false) => {
            tracing::warn!(%trunk, "a trunk's carrier does not answer any more");
            let failure = Failure {
                at: app.clock.now(),
                code: None,
                reason: "the carrier does not answer OPTIONS any more".to_owned(),
            };
            exchange.standings.put(account, trunk, Err(failure));
        }
        _ => {}
    }
}

/// A trunk as the stack knows it; `registers`: it is for this node to register it. `None`: its password
/// does not open, or its address is none.
pub(super) fn told(app: &Node, trunk: &Trunk, registers: bool) -> Option<Told> {
    let (host, port) = match &trunk.outbound_address {
        Some(address) => {
            let (host, port) = rules::host_and_port(address)?;
            (Some(name(host)), port)
        }
        None => (None, None),
    };
    let credentials = match (&trunk.auth_username, trunk.auth_mode.has_credentials()) {
        (Some(username), true) => Some(Credentials {
            username: username.clone(),
            password: trunk.password(&app.master_key)?.expose().clone(),
            // `realm` of the API is the domain that is registered with, of which carriers' challenges may differ.
            realm: None,
            md5_without_qop: trunk.allow_md5_without_qop,
        }),
        _ => None,
    };
    let register = match (trunk.auth_mode, &trunk.auth_username) {
        (AuthMode::Register, Some(user)) if registers => Some(Registration {
            expires: trunk.register_expires.unwrap_or(rules::REGISTER_EXPIRES),
            user: user.clone(),
        }),
        _ => None,
    };
    Some(Told {
        id: sip_trunks::sip_id(trunk.id),
        tenant: sip_trunks::tenant(trunk.account),
        host,
        port,
        transport: match trunk.transport {
            Transport::Udp => Over::Udp,
            Transport::Tcp => Over::Tcp,
            Transport::Tls => Over::Tls,
        },
        allowed: trunk
            .allowed_addresses
            .iter()
            .filter_map(|net| Net::parse(net))
            .collect(),
        inbound: match (trunk.kind, trunk.auth_mode) {
            (TrunkType::Inbound, AuthMode::Digest) => InboundAuth::Digest,
            (TrunkType::Inbound, AuthMode::DigestPlusIpAcl) => InboundAuth::AddressAndDigest,
            _ => InboundAuth::Address,
        },
        credentials,
        domain: trunk.realm.as_deref().map(name),
        outbound: outbound(trunk.outbound_auth),
        keep_alive: app.config.sip.keep_alive.filter(|_| register.is_some()),
        registrar_realms: registrar_realms(trunk, register.is_some()),
        register,
    })
}

/// What is known of the realms of a trunk's registrar. One of which a node says that it is registered, but not in which
/// realms, is registered by a node of the version before, which tells them nobody: its calls go by their first INVITE.
fn registrar_realms(trunk: &Trunk, registers: bool) -> RegistrarRealms {
    let Some(registration) = &trunk.registration else {
        return RegistrarRealms::Unknown;
    };
    match (&registration.realms, registration.status) {
        (Some(realms), _) => RegistrarRealms::Known(realms.clone()),
        (None, RegistrationStatus::Registered) if !registers => RegistrarRealms::Unknown,
        (None, _) => RegistrarRealms::Awaited,
    }
}

/// Where its calls go: only a trunk that registers has a choice.
const fn outbound(auth: Option<OutboundAuth>) -> Outbound {
    match auth {
        None => Outbound::Host,
        Some(OutboundAuth::Proxy) => Outbound::Proxy,
        Some(OutboundAuth::Direct) => Outbound::Direct,
    }
}

/// Where a trunk's carrier is: its address, and its realm where calls go there.
pub(super) fn hosts(trunk: &Trunk) -> Vec<Host> {
    let direct = trunk.outbound_auth == Some(OutboundAuth::Direct);
    let realm = trunk.realm.as_deref().filter(|_| direct);
    let address = trunk.outbound_address.as_deref();
    let address = address.and_then(|address| Some(rules::host_and_port(address)?.0));
    realm.into_iter().chain(address).map(name).collect()
}

fn name(host: &str) -> Host {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse()
        .map_or_else(|_| Host::Name(host.to_owned()), Host::Ip)
}

/// A trunk's encryption as session descriptions know it.
pub(super) const fn encryption(wanted: MediaEncryption) -> Encryption {
    match wanted {
        MediaEncryption::Allow => Encryption::Allow,
        MediaEncryption::Disable => Encryption::Disable,
        MediaEncryption::Require => Encryption::Require,
    }
}

#[cfg(test)]
mod tests {
    use sip::trunk::Tenant;

    use super::*;
    use crate::calls::dial::rules::tests::trunk;

    #[test]
    fn a_trunk_calls_where_its_outbound_auth_says() {
        let [address, realm] = ["sip.carrier.example", "acme.example"];
        for (auth, asked, expected) in [
            (None, Outbound::Host, vec![address]),
            (Some(OutboundAuth::Proxy), Outbound::Proxy, vec![address]),
            (
                Some(OutboundAuth::Direct),
                Outbound::Direct,
                vec![realm, address],
            ),
        ] {
            let trunk = Trunk {
                outbound_address: Some(format!("{address}:5070")),
                realm: Some(realm.to_owned()),
                outbound_auth: auth,
                ..trunk(&[])
            };
            assert_eq!(outbound(trunk.outbound_auth), asked);
            let expected: Vec<Host> = expected.into_iter().map(name).collect();
            assert_eq!(hosts(&trunk), expected, "{auth:?}");
        }
    }

    /// A trunk of that number, with a carrier on a port.
    fn told_at(number: u64, port: u16) -> (Number, Told) {
        let told = Told {
            id: Number(number),
            tenant: Tenant::default(),
            host: None,
            port: Some(port),
            transport: Over::Udp,
            allowed: Vec::new(),
            inbound: InboundAuth::Address,
            credentials: None,
            domain: None,
            outbound: Outbound::Host,
            register: None,
            registrar_realms: RegistrarRealms::Unknown,
            keep_alive: None,
        };
        (told.id, told)
    }

    #[test]
    fn what_the_stack_does_not_take_is_told_again() {
        let mut known = HashMap::new();
        let mut look = |wanted: &[(Number, Told)], room: usize| {
            let mut commands = Vec::new();
            tell(&mut known, wanted.iter().cloned().collect(), |command| {
                let taken = commands.len() < room;
                commands.push(match command {
                    Command::SetTrunk(trunk) => format!("{} at {:?}", trunk.id.0, trunk.port),
                    Command::RemoveTrunk(number) => format!("{} is gone", number.0),
                    other => format!("{other:?}"),
                });
                taken
            });
            commands.sort();
            commands
        };
        let (one, moved, two) = (told_at(1, 5060), told_at(1, 5070), told_at(2, 5060));
        let (one, both) = ([one], [moved, two]);
        assert_eq!(look(&one, 0), ["1 at Some(5060)"]);
        assert_eq!(look(&one, 1), ["1 at Some(5060)"]);
        assert!(look(&one, 1).is_empty());
        assert_eq!(look(&both[..1], 0), ["1 at Some(5070)"]);
        assert_eq!(look(&both, 2), ["1 at Some(5070)", "2 at Some(5060)"]);
        assert!(look(&both, 2).is_empty());
        assert_eq!(look(&both[..1], 0), ["2 is gone"]);
        assert_eq!(look(&both[..1], 1), ["2 is gone"]);
        assert!(look(&both[..1], 1).is_empty());
    }

    #[test]
    fn a_carrier_that_never_answered_is_not_away() {
        let register = Register::default();
        let told = [false, true, false, true, true].map(|now| register.reached(Number(1), now));
        assert_eq!(told, [None, None, Some(true), Some(false), Some(true)]);
        assert_eq!(register.reached(Number(2), true), None);
        register.set(&[]);
        assert_eq!(register.reached(Number(1), false), None);
    }
}
