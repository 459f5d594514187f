//! The SIP stack of this node, and one line to each call's task.
//!
//! The stack runs on its own thread; what it tells goes over a bounded line to one task a call.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use media::leg::rtp::RtpLeg;
use media::rtp::sdp::{Encryption, Local};
use media::shell::{PortPair, Ports, Relays};
use sip::endpoint::Config as Endpoint;
use sip::event::{CallId as SipLegId, Command, Event, Incoming};
use sip::message::{Host, Transport};
use sip::shell::{Settings as Stack, Sip};
use sip::trunk::{InboundAuth, Net, Outbound, RegistrarRealms, Trunk};
use tokio::sync::{OnceCell, mpsc};

use super::standings::{self, Standings};
use super::whereabouts::{Rules, Whereabouts};
use super::{SOURCES, inbound, trunks};
use crate::calls::bridge::transports;
use crate::config::sip::Sip as Settings;
use crate::ids::AccountId;
use crate::node::Node;
use crate::{accounts, secret, sip_traces, sip_trunks, supervisor};

/// Events of all calls on their way to their tasks: as many as the stack itself keeps.
const EVENTS: usize = 16_384;

/// Events of one call that may wait for its task, which is busy only while the call is let in. A caller
/// that makes more of them is not served further.
const CALL_EVENTS: usize = 64;

/// Where our audio is for telephones of one family of addresses.
pub(super) struct Place {
    ports: Arc<Ports>,
    /// As the other side reaches it.
    address: IpAddr,
}

impl Place {
    /// Two ports for one call's audio.
    pub(super) fn take_ports(&self) -> io::Result<PortPair> {
        self.ports.take()
    }

    /// Our side of a session description, which is to get its port.
    pub(super) fn local(&self, encryption: Encryption) -> io::Result<Local> {
        let session: [u8; 4] = secret::random_bytes()?;
        Ok(Local {
            address: self.address,
            port: 0,
            session: u32::from_be_bytes(session).into(),
            version: 1,
            codecs: RtpLeg::CODECS.to_vec(),
            encryption,
            random: secret::random_bytes()?,
        })
    }
}

/// What all telephone calls of this node share.
pub struct Exchange {
    sip: Sip,
    /// Of the first address that is listened on, and of the other family.
    home: Place,
    other: Option<Place>,
    /// Whose agents the callers of `sip.sources` reach; `None` without any.
    pub(super) sources: Option<AccountId>,
    /// Which addresses that others name may be spoken with.
    rules: Arc<Rules>,
    /// The lines of calls that are not over.
    lines: Mutex<HashMap<SipLegId, mpsc::Sender<Event>>>,
    next_line: AtomicU64,
    not_led: AtomicU64,
    /// A test has the stack's queue full.
    #[cfg(test)]
    pub(super) full: std::sync::atomic::AtomicBool,
    pub(super) trunks: trunks::Register,
    /// What carriers said of them last.
    pub(super) standings: Standings,
    /// The thread on which two telephones hear each other; started with the first call that is handed on.
    pub(super) relays: OnceCell<Relays>,
    /// What was said on the lines.
    pub traces: Arc<sip_traces::Keeper>,
}

/// One call as the stack sees it: its number, and what happens to it.
pub struct SipLeg {
    pub id: SipLegId,
    pub events: mpsc::Receiver<Event>,
}

impl Exchange {
    /// Listens, and knows the trunk of the settings.
    pub(super) async fn bind(app: &Node) -> io::Result<Self> {
        let settings = &app.config.sip;
        if settings.listen.is_empty() {
            return Err(io::Error::other("sip.listen: names no address"));
        }
        let sources = match settings.sources.is_empty() {
            true => None,
            false => Some(
                accounts::store::find_by_name(&app.db, &settings.account)
                    .await
                    .map_err(io::Error::other)?
                    .ok_or_else(|| {
                        io::Error::other(format!("sip.account: no account {}", settings.account))
                    })?
                    .id,
            ),
        };
        let mut places = places(settings)?.into_iter();
        let (Some(home), other) = (places.next(), places.next()) else {
            let why = "sip.public_address: must be set when sip.listen names no address that callers reach";
            return Err(io::Error::other(why));
        };
        let mut all = std::iter::once(&home).chain(&other);
        if all.all(|place| place.address.is_loopback()) {
            tracing::warn!("sip.listen: telephone calls go to and come from this machine alone");
        }
        let mut endpoint = Endpoint::new(Vec::new());
        endpoint.advertised = transports::advertised(settings);
        endpoint.trace = true;
        let stack = Stack {
            endpoint,
            seed: secret::random_bytes()?,
            listen: settings.listen.clone(),
            tls: Some(transports::tls(settings, &app.supervisor)?),
            dns: app.config.egress.dns.into_iter().collect(),
        };
        // A carrier's name is a user's, and so is what it leads to.
        let rules = Rules::new(app.config.egress.allow.clone());
        let judge = Arc::clone(&rules);
        let permit = move |host: &str, ip| judge.permit(host, ip);
        let sip = Sip::start_permitting(stack, Arc::new(permit))
            .map_err(|error| io::Error::new(error.kind(), format!("sip.listen: {error}")))?;
        if sources.is_some() {
            let trunk = Trunk {
                id: SOURCES,
                tenant: sources.map(sip_trunks::tenant).unwrap_or_default(),
                host: None,
                port: None,
                transport: Transport::Udp,
                allowed: settings.sources.clone(),
                inbound: InboundAuth::Address,
                credentials: None,
                domain: None,
                outbound: Outbound::Host,
                register: None,
                registrar_realms: RegistrarRealms::Unknown,
                keep_alive: None,
            };
            sip.command(Command::SetTrunk(Box::new(trunk)))
                .map_err(io::Error::other)?;
        }
        for listen in sip.addresses() {
            tracing::info!(transport = ?listen.transport, address = %listen.addr, "telephone calls are taken");
        }
        Ok(Self {
            sip,
            home,
            other,
            sources,
            rules,
            lines: Mutex::default(),
            next_line: AtomicU64::new(1),
            not_led: AtomicU64::new(0),
            #[cfg(test)]
            full: std::sync::atomic::AtomicBool::new(false),
            trunks: trunks::Register::default(),
            standings: Standings::default(),
            relays: OnceCell::new(),
            traces: Arc::default(),
        })
    }

    /// Begins to hand events on. Ends with the process.
    pub(super) fn run(self: Arc<Self>, app: &Node) -> io::Result<()> {
        let (sender, events) = mpsc::channel(EVENTS);
        let told = self.sip.events().clone();
        let watch = &app.supervisor;
        watch.thread("sip-events".to_owned(), move || {
            while let Ok(event) = told.recv() {
                if sender.blocking_send(event).is_err() {
                    return;
                }
            }
        })?;
        let traces = sip_traces::run(app.clone(), Arc::clone(&self.traces));
        watch.keep("the keeper of SIP traces", traces);
        let standings = standings::follow(app.clone(), Arc::clone(&self));
        watch.keep("the writer of registrations", standings);
        // It ends with the stack's thread, of which the supervisor learns.
        let dispatching = dispatch(app.clone(), self, events);
        watch.once("the dispatch of SIP events", dispatching);
        Ok(())
    }

    /// The thread on which two telephones hear each other.
    pub(super) async fn relays(&self) -> io::Result<&Relays> {
        self.relays
            .get_or_try_init(|| async { Relays::start() })
            .await
    }

    /// How the stack's thread ended, if it has.
    pub(super) fn fallen(&self) -> Option<(String, std::thread::Result<()>)> {
        self.sip.fallen()
    }

    /// Asks the stack for something.
    pub fn tell(&self, command: Command) {
        self.try_tell(command);
    }

    /// The same; whether the stack took it.
    pub(super) fn try_tell(&self, command: Command) -> bool {
        let taken = self.sip.command(command);
        if let Err(error) = taken {
            tracing::error!(%error, "the SIP stack does not take a command");
        }
        taken.is_ok()
    }

    /// Tells the stack something for one call. Where as many commands wait as may, the call cannot be led any more and
    /// is ended: its line at the stack, for which there is always room, and for whoever carries it, who hears nothing
    /// more of it.
    pub(super) fn lead(&self, line: SipLegId, command: Command) {
        #[cfg(test)]
        let refused = self.full.load(Ordering::Relaxed);
        #[cfg(not(test))]
        let refused = false;
        if refused || !self.try_tell(command) {
            tracing::error!(
                ?line,
                "a call is ended: its command finds no room at the SIP stack"
            );
            self.not_led.fetch_add(1, Ordering::Relaxed);
            self.abandon(line);
        }
    }

    /// Ends a call that nobody carries any more.
    pub(super) fn abandon(&self, line: SipLegId) {
        self.sip.end(line);
        self.close(line);
    }

    /// How many lines are open.
    #[cfg(test)]
    pub(super) fn count_lines(&self) -> usize {
        self.lines().len()
    }

    /// Has the stack's thread end, as a fault in it would.
    #[cfg(test)]
    pub(super) fn break_off(&self) {
        self.sip.stop();
    }

    /// How many commands for calls found no room so far; each ended its call.
    pub fn not_led(&self) -> u64 {
        self.not_led.load(Ordering::Relaxed)
    }

    /// A line for a call that is to be placed: its number goes into [`Command::Place`], and it is open
    /// until its [`Event::Ended`].
    pub fn line(&self) -> SipLeg {
        let id = SipLegId(self.next_line.fetch_add(1, Ordering::Relaxed));
        self.open_line(id)
    }

    /// The line of a call that has ended, for one that is placed in its stead.
    pub(super) fn line_again(&self, id: SipLegId) -> SipLeg {
        self.traces.goes_on(id);
        self.open_line(id)
    }

    /// Lets go of a call that did not come to be: cancels what rings, and ends what was answered before both
    /// agreed. Nothing of it is heard any more.
    pub(super) fn give_up(&self, line: SipLegId) {
        self.lead(line, Command::HangUp(line, None));
        self.close(line);
    }

    /// Closes the line of a call that did not come to be: nothing of it is heard any more.
    fn close(&self, line: SipLegId) {
        self.lines().remove(&line);
    }

    /// Whether calls over this transport can come in.
    pub fn listens_on(&self, transport: sip_trunks::Transport) -> bool {
        let mut addresses = self.sip.addresses().iter();
        addresses.any(|listen| listen.transport.param() == transport.name())
    }

    /// Where the audio of a call is whose other side is there: of the same family as its signalling, as far as that
    /// is known.
    pub(super) fn place(&self, at: &Whereabouts) -> &Place {
        let of = |ip: IpAddr| {
            let mut places = std::iter::once(&self.home).chain(&self.other);
            places.find(|place| place.address.is_ipv4() == ip.is_ipv4())
        };
        at.heard().into_iter().find_map(of).unwrap_or(&self.home)
    }

    /// Where a caller is. For a call of `sip.sources` that is all that the setting names.
    pub(super) fn of_caller(&self, incoming: &Incoming, sources: &[Net]) -> Whereabouts {
        let own = incoming.trunks.contains(&SOURCES);
        Whereabouts {
            rules: Arc::clone(&self.rules),
            hosts: vec![Host::Ip(incoming.source.ip())],
            blocks: if own { sources.to_vec() } else { Vec::new() },
        }
    }

    /// Where the carrier of a trunk is.
    pub(super) fn of_carrier(&self, trunk: &sip_trunks::Trunk) -> Whereabouts {
        Whereabouts {
            rules: Arc::clone(&self.rules),
            hosts: trunks::hosts(trunk),
            blocks: Vec::new(),
        }
    }

    fn open_line(&self, id: SipLegId) -> SipLeg {
        let (sender, events) = mpsc::channel(CALL_EVENTS);
        self.lines().insert(id, sender);
        SipLeg { id, events }
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, HashMap<SipLegId, mpsc::Sender<Event>>> {
        // Whole after any panic: entries are only added and removed.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an event to its call's task.
    fn deliver(&self, line: SipLegId, event: Event) {
        let ended = matches!(event, Event::Ended { .. });
        let mut floods = false;
        let mut lines = self.lines();
        if let Some(sender) = lines.get(&line)
            && let Err(mpsc::error::TrySendError::Full(event)) = sender.try_send(event)
        {
            // An end is never lost: the task has its room back in a moment.
            let sender = sender.clone();
            if ended {
                let told = async move { drop(sender.send(event).await) };
                supervisor::detached("a call's end is told", told);
            } else {
                floods = true;
            }
        }
        if ended {
            lines.remove(&line);
        }
        drop(lines);
        if floods {
            self.lead(line, Command::HangUp(line, None));
        }
    }
}

/// One place for each family of addresses that callers reach, that of the first listener first.
fn places(settings: &Settings) -> io::Result<Vec<Place>> {
    let (first, last) = settings.ports;
    let mut places: Vec<Place> = Vec::new();
    for listen in &settings.listen {
        let bind = listen.addr.ip();
        let ports = Ports::new(bind, first, last)
            .ok_or_else(|| io::Error::other("rtp.ports: there is no pair of ports among them"))?;
        let own = (!bind.is_unspecified()).then_some(bind);
        for address in settings.public(bind).chain(own) {
            let is_new = |place: &Place| place.address.is_ipv4() != address.is_ipv4();
            if places.iter().all(is_new) {
                places.push(Place {
                    ports: Arc::clone(&ports),
                    address,
                });
            }
        }
    }
    Ok(places)
}

async fn dispatch(app: Node, exchange: Arc<Exchange>, mut events: mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        hand_on(&app, &exchange, event);
    }
    // The stack is gone: whoever waits for a call's events learns that none will come.
    exchange.lines().clear();
}

/// Hands an event to whom it concerns, and waits for nobody: those of all calls stand behind it.
pub(super) fn hand_on(app: &Node, exchange: &Arc<Exchange>, event: Event) {
    match event {
        Event::Incoming(line, incoming) => {
            let line = exchange.open_line(line);
            let (app, exchange) = (app.clone(), Arc::clone(exchange));
            inbound::begin(app, exchange, line, incoming);
        }
        Event::Registered { .. } | Event::RegistrationFailed { .. } => {
            trunks::registration(app, exchange, &event);
        }
        Event::Reachable { trunk, reachable } => {
            trunks::reachable(app, exchange, trunk, reachable);
        }
        Event::ChallengeWithheld {
            trunk,
            code,
            reason,
        } => trunks::challenge_withheld(app, exchange, trunk, code, &reason),
        Event::SharedPassword { trunks, source } => {
            trunks::password_shared(exchange, &trunks, source);
        }
        Event::MessageRefused(refused) => trunks::message_refused(app, exchange, &refused),
        Event::Unreached { call, why } => {
            let not_reached =
                || tracing::warn!(why, "a telephone call's other side is not reached");
            match exchange.traces.whose(call) {
                Some((account, call)) => {
                    crate::calls::span(account, call).in_scope(not_reached);
                    exchange.standings.put_unreached(account, call, why);
                }
                None => not_reached(),
            }
        }
        Event::Message(traced) => exchange.traces.saw(&app.clock, &traced),
        event => {
            if let Some(line) = line_of(&event) {
                if matches!(event, Event::Ended { .. }) {
                    exchange.traces.over(app.clock.moment(), line);
                }
                exchange.deliver(line, event);
            }
        }
    }
}

/// The call that an event is of.
const fn line_of(event: &Event) -> Option<SipLegId> {
    match event {
        Event::Progress { call, .. }
        | Event::Answered { call, .. }
        | Event::Established { call, .. }
        | Event::Offer { call, .. }
        | Event::OfferAccepted { call, .. }
        | Event::OfferRefused { call, .. }
        | Event::Refreshed { call, .. }
        | Event::Digit { call, .. }
        | Event::Referred { call, .. }
        | Event::ReferProgress { call, .. }
        | Event::Redirected { call, .. }
        | Event::Unreached { call, .. }
        | Event::Ended { call, .. } => Some(*call),
        Event::Incoming(..)
        | Event::Message(_)
        | Event::Registered { .. }
        | Event::RegistrationFailed { .. }
        | Event::ChallengeWithheld { .. }
        | Event::SharedPassword { .. }
        | Event::MessageRefused(_)
        | Event::Reachable { .. } => None,
    }
}
