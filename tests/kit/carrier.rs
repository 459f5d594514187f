//! A carrier that calls on whatever calls it: a back-to-back user agent of our own SIP stack. Where calls go on to, and
//! what of them it keeps, is the test's to say.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sip::event::{CallId, Command, Event, Forwarded, Hops, Incoming, Place};
use sip::message::Body;
use sip::shell::Sip;

use crate::telephone::{TRUNK, stack};

/// What such a carrier does with the calls that it sends on.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// It counts hops on, as RFC 7332 wants it; else each of its calls begins with 70.
    pub counts_hops: bool,
    /// It passes on who diverted the call.
    pub keeps_diversion: bool,
    /// The same in History-Info.
    pub keeps_history: bool,
    /// It shows this as the caller of every call.
    pub shows: Option<String>,
    /// It sends calls to these numbers to others.
    pub diverts: HashMap<String, String>,
}

/// A call that came to the carrier.
#[derive(Clone, Debug)]
pub struct Seen {
    pub to: String,
    pub hops: Hops,
}

/// A running carrier; it ends when this is dropped.
pub struct Carrier {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Carrier {
    /// Sends on to `target`.
    pub fn start(target: SocketAddr, manner: Manner) -> Self {
        let sip = stack(IpAddr::V4(Ipv4Addr::LOCALHOST), Some(target));
        let address = sip.addresses()[0].addr;
        let (seen, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let mut desk = Desk {
            sip,
            manner,
            seen: Arc::clone(&seen),
            came: HashMap::new(),
            went: HashMap::new(),
        };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                if let Ok(event) = desk.sip.events().recv_timeout(Duration::from_millis(100)) {
                    desk.serve(event);
                }
            }
        });
        Self {
            address,
            seen,
            stop,
            thread: Some(thread),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The calls that came so far.
    pub fn seen(&self) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the carrier's thread"
            );
        }
    }
}

struct Desk {
    sip: Sip,
    manner: Manner,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// By the call that went on, the one that came; and the other way round.
    came: HashMap<CallId, CallId>,
    went: HashMap<CallId, CallId>,
}

impl Desk {
    fn serve(&mut self, event: Event) {
        match event {
            Event::Incoming(line, incoming) => self.send_on(line, *incoming),
            Event::Progress { call, .. } => {
                if let Some(came) = self.came.get(&call) {
                    self.tell(Command::Ring(*came, None));
                }
            }
            Event::Answered { call, body } => {
                if let Some(came) = self.came.get(&call) {
                    let body = body.unwrap_or_else(|| Body::sdp(""));
                    self.tell(Command::Answer(*came, body));
                }
            }
            Event::Ended { call, code, .. } => {
                if let Some(came) = self.came.remove(&call) {
                    self.went.remove(&came);
                    self.tell(Command::Reject(came, code.unwrap_or(480), None));
                    self.tell(Command::HangUp(came, None));
                } else if let Some(went) = self.went.remove(&call) {
                    self.came.remove(&went);
                    self.tell(Command::HangUp(went, None));
                }
            }
            _ => {}
        }
    }

    fn send_on(&mut self, line: CallId, incoming: Incoming) {
        let (manner, hops) = (&self.manner, incoming.hops.clone());
        let to = incoming.to.user().unwrap_or_default();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(Seen {
            to: to.clone(),
            hops: hops.clone(),
        });
        let went = CallId(seen.len() as u64);
        drop(seen);
        let mut headers = Vec::new();
        let mut keep = |name: &str, entries: &[String]| {
            headers.extend(entries.iter().map(|entry| (name.to_owned(), entry.clone())));
        };
        if manner.keeps_diversion {
            keep("Diversion", &hops.diversion);
        }
        if manner.keeps_history {
            keep("History-Info", &hops.history);
        }
        let forwarded = manner.counts_hops.then(|| Forwarded {
            max_forwards: hops.max_forwards.unwrap_or(70).saturating_sub(1),
            mark: String::new(),
        });
        let shown = manner.shows.clone().or_else(|| incoming.from.user());
        let place = Place {
            trunk: TRUNK,
            to: manner.diverts.get(&to).cloned().unwrap_or(to),
            from: shown.unwrap_or_default(),
            display: None,
            headers,
            offer: incoming.offer.unwrap_or_else(|| Body::sdp("")),
            ring_for: Duration::from_secs(60),
            forwarded,
        };
        self.came.insert(went, line);
        self.went.insert(line, went);
        self.tell(Command::Place(went, Box::new(place)));
    }

    fn tell(&self, command: Command) {
        self.sip.command(command).unwrap();
    }
}
