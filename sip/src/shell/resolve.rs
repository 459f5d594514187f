//! DNS (RFC 1035, RFC 2782): SRV, A and AAAA, asked of the system's servers by threads of its own. A
//! look-up has its deadline, and which one a thread takes next is the [`Queue`]'s to say, so that names
//! which nobody answers for hold up others for seconds at most.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use mio::Waker;

use crate::locate::{Answers, Lookup, Srv};
use crate::lookups::{Queue, Refused, THREADS, Wish};

/// How long a whole look-up may take: its SRV records and the addresses of each.
const DEADLINE: Duration = Duration::from_secs(4);

/// How long one server is waited for before the next is asked.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers are kept as long as they say, within these.
const LEAST_KEPT: u32 = 5;
const MOST_KEPT: u32 = 3_600;

/// SRV records that are followed, with the addresses of each.
const MOST_SRV: usize = 16;

/// What a look-up brought.
#[derive(Debug)]
pub struct Found {
    pub lookup: Lookup,
    /// `None`: no server answered, or the name has no address.
    pub answers: Option<Answers>,
    pub keep: Duration,
}

/// How a look-up ended.
#[derive(Debug)]
pub(super) enum Ended {
    Found(Found),
    /// It found no room, and was not begun.
    Refused(Refused),
}

/// Whether a host, a name or an address, may be called at an address that it leads to.
pub type Permit = Arc<dyn Fn(&str, IpAddr) -> bool + Send + Sync>;

pub(super) struct Resolver {
    queue: Queue,
    asks: Sender<Lookup>,
    found: Receiver<Found>,
    /// Look-ups that found no room.
    refused: Vec<Refused>,
    /// Look-ups that no thread took.
    failed: Vec<Lookup>,
}

impl Resolver {
    pub(super) fn start(
        servers: Vec<SocketAddr>,
        waker: Arc<Waker>,
        permit: Option<Permit>,
    ) -> io::Result<Self> {
        // A question leaves the queue when a thread is free for it, and its answer is taken before the next one
        // does: neither way is ever full.
        let (asks, asks_in) = bounded::<Lookup>(THREADS);
        let (found_out, found) = bounded(THREADS);
        let servers = match servers.is_empty() {
            true => system_servers(),
            false => servers,
        };
        for thread in 0..THREADS {
            let (servers, permit) = (servers.clone(), permit.clone());
            let (asks, found, waker) = (asks_in.clone(), found_out.clone(), Arc::clone(&waker));
            std::thread::Builder::new()
                .name(format!("sip-dns-{thread}"))
                .spawn(move || {
                    // Ends when the driver drops its side.
                    for lookup in asks {
                        let answer = look_up_whole(&servers, lookup, permit.as_ref());
                        if found.send(answer).is_err() || waker.wake().is_err() {
                            return;
                        }
                    }
                })?;
        }
        Ok(Self {
            queue: Queue::default(),
            asks,
            found,
            refused: Vec::new(),
            failed: Vec::new(),
        })
    }

    /// Has a name looked up in its turn. `false`: too many wait, and one of them is refused at the next look at what
    /// has ended.
    pub(super) fn ask(&mut self, wish: Wish) -> bool {
        let refused = self.queue.push(wish);
        let taken = refused.is_none();
        self.refused.extend(refused);
        self.begin();
        taken
    }

    pub(super) fn next(&mut self) -> Option<Ended> {
        if let Some(refused) = self.refused.pop() {
            return Some(Ended::Refused(refused));
        }
        if let Some(lookup) = self.failed.pop() {
            return Some(Ended::Found(Found {
                lookup,
                answers: None,
                keep: Duration::ZERO,
            }));
        }
        let found = self.found.try_recv().ok()?;
        self.queue.done(&found.lookup);
        self.begin();
        Some(Ended::Found(found))
    }

    /// Gives free threads something to do.
    fn begin(&mut self) {
        while let Some(lookup) = self.queue.take_next() {
            if let Err(refused) = self.asks.try_send(lookup) {
                let lookup = refused.into_inner();
                self.queue.done(&lookup);
                self.failed.push(lookup);
            }
        }
    }
}

/// Looks up; one that panics finds nothing, and costs no thread and no other look-up.
fn look_up_whole(servers: &[SocketAddr], lookup: Lookup, permit: Option<&Permit>) -> Found {
    let asked = lookup.clone();
    let found = catch_unwind(AssertUnwindSafe(|| look_up(servers, lookup, permit)));
    found.unwrap_or(Found {
        lookup: asked,
        answers: None,
        keep: Duration::ZERO,
    })
}

/// The name servers of `/etc/resolv.conf`, else the one of this machine.
fn system_servers() -> Vec<SocketAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let mut servers: Vec<SocketAddr> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|rest| rest.trim().parse::<IpAddr>().ok())
        .map(|ip| SocketAddr::new(ip, 53))
        .collect();
    if servers.is_empty() {
        servers.push(SocketAddr::from(([127, 0, 0, 1], 53)));
    }
    servers
}

/// Records of one kind, and how long they hold, seconds.
type Records = (Vec<RData>, u32);

fn look_up(servers: &[SocketAddr], lookup: Lookup, permit: Option<&Permit>) -> Found {
    let mut asking = Asking {
        servers,
        first: 0,
        number: drawn(),
        until: Instant::now() + DEADLINE,
    };
    let mut keep = MOST_KEPT;
    let mut answers = Answers::default();
    if let Some(service) = lookup.service()
        && let Some((records, ttl)) = asking.ask(&service, RecordType::SRV)
    {
        keep = keep.min(ttl);
        for record in records.into_iter().take(MOST_SRV) {
            let RData::SRV(srv) = record else {
                continue;
            };
            let target = srv.target.to_ascii();
            let (addresses, ttl) = asking.addresses(&target);
            keep = keep.min(ttl);
            answers.srv.push(Srv {
                priority: srv.priority,
                weight: srv.weight,
                port: srv.port,
                addresses,
            });
        }
    }
    if answers.srv.is_empty() {
        let (found, ttl) = asking.addresses(&lookup.host);
        keep = keep.min(ttl);
        answers.addresses = found;
    }
    if let Some(permit) = permit {
        let permitted = |ip: &IpAddr| permit(&lookup.host, *ip);
        answers.addresses.retain(permitted);
        for srv in &mut answers.srv {
            srv.addresses.retain(permitted);
        }
    }
    let any =
        !answers.addresses.is_empty() || answers.srv.iter().any(|srv| !srv.addresses.is_empty());
    Found {
        lookup,
        answers: any.then_some(answers),
        keep: Duration::from_secs(u64::from(keep.max(LEAST_KEPT))),
    }
}

/// The questions of one look-up.
struct Asking<'a> {
    servers: &'a [SocketAddr],
    /// The server that answered last: it is asked first.
    first: usize,
    number: u16,
    until: Instant,
}

impl Asking<'_> {
    fn addresses(&mut self, host: &str) -> (Vec<IpAddr>, u32) {
        let mut found = Vec::new();
        let mut keep = MOST_KEPT;
        for kind in [RecordType::A, RecordType::AAAA] {
            if let Some((records, ttl)) = self.ask(host, kind) {
                keep = keep.min(ttl);
                found.extend(records.into_iter().filter_map(|record| match record {
                    RData::A(ip) => Some(IpAddr::V4(ip.0)),
                    RData::AAAA(ip) => Some(IpAddr::V6(ip.0).to_canonical()),
                    _ => None,
                }));
            }
        }
        (found, keep)
    }

    /// Asks each server in turn, twice. `None` when none answered in time or the name has no such record.
    fn ask(&mut self, name: &str, kind: RecordType) -> Option<Records> {
        let mut name = Name::from_str(name).ok()?;
        name.set_fqdn(true);
        let count = self.servers.len();
        for at in (0..count).cycle().skip(self.first).take(2 * count) {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let until = Instant::now() + left.min(PATIENCE);
            self.number = self.number.wrapping_add(1);
            let server = *self.servers.get(at)?;
            let Ok(Some(message)) = exchange(server, &name, kind, self.number, until) else {
                continue;
            };
            if !matches!(
                message.metadata.response_code,
                ResponseCode::NoError | ResponseCode::NXDomain
            ) {
                continue;
            }
            self.first = at;
            let records: Vec<_> = message
                .answers
                .iter()
                .filter(|record| record.record_type() == kind)
                .collect();
            let ttl = records.iter().map(|record| record.ttl).min()?;
            let data = records.iter().map(|record| record.data.clone()).collect();
            return Some((data, ttl.min(MOST_KEPT)));
        }
        None
    }
}

/// The first number of a look-up's questions, which nobody can guess.
fn drawn() -> u16 {
    let drawn = RandomState::new().build_hasher().finish();
    u16::try_from(drawn & 0xffff).unwrap_or_default()
}

/// One question, over a socket of its own whose port the system draws: with the number it is what an
/// answer must fit (RFC 5452).
fn exchange(
    server: SocketAddr,
    name: &Name,
    kind: RecordType,
    number: u16,
    until: Instant,
) -> io::Result<Option<Message>> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    let port = socket.local_addr()?.port();
    let id = number ^ port.rotate_left(5);
    let mut question = Message::query();
    question.metadata.id = id;
    question.metadata.recursion_desired = true;
    question.add_query(Query::query(name.clone(), kind));
    let bytes = question.to_vec().map_err(io::Error::other)?;
    socket.send(&bytes)?;
    let mut buffer = [0; 4_096];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        let length = socket.recv(&mut buffer)?;
        let Ok(message) = Message::from_vec(&buffer[..length]) else {
            continue;
        };
        let fits = |message: &Message| {
            let mut queries = message.queries.iter();
            let same = |query: &Query| query.name() == name && query.query_type() == kind;
            message.metadata.id == id && queries.next().is_some_and(same)
        };
        if !fits(&message) {
            continue;
        }
        if !message.metadata.truncation {
            return Ok(Some(message));
        }
        // Where nothing goes over TCP a part of the answer is better than none.
        let whole = exchange_over_tcp(server, &bytes, until).ok();
        return Ok(Some(whole.filter(fits).unwrap_or(message)));
    }
}

/// The same question where the answer was too long for a datagram (RFC 7766 section 5).
fn exchange_over_tcp(server: SocketAddr, question: &[u8], until: Instant) -> io::Result<Message> {
    let left = || {
        let left = until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::Error::from(io::ErrorKind::TimedOut)),
            false => Ok(left),
        }
    };
    let mut stream = TcpStream::connect_timeout(&server, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), question].concat())?;
    // At most 64 KiB: its length has two bytes.
    let (mut heard, mut wanted) = (Vec::new(), 2);
    while heard.len() < wanted {
        let mut buffer = [0; 4_096];
        let room = buffer.len().min(wanted - heard.len());
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut buffer[..room]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => heard.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if let (2, [high, low]) = (wanted, heard.as_slice()) {
            wanted = 2 + usize::from(u16::from_be_bytes([*high, *low]));
        }
    }
    Message::from_vec(&heard[2..]).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locate::Lookup;
    use crate::lookups::{Full, Urgency};
    use crate::message::Transport;
    use crate::trunk::Tenant;

    /// A server that says nothing, and an account with more names than it has room for.
    #[test]
    fn what_finds_no_room_is_refused_and_not_taken_for_a_name_without_an_address() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let poll = mio::Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), mio::Token(0)).unwrap());
        let servers = vec![silent.local_addr().unwrap()];
        let mut resolver = Resolver::start(servers, waker, None).unwrap();
        let wish = |at: usize| Wish {
            lookup: Lookup {
                host: format!("silent{at}.example"),
                port: Some(5060),
                transport: Transport::Udp,
            },
            tenant: Tenant(1),
            urgency: Urgency::Call,
        };
        let first = (0..1_000).find(|at| !resolver.ask(wish(*at))).unwrap();
        match resolver.next() {
            Some(Ended::Refused(refused)) => {
                assert_eq!((refused.wish, refused.full), (wish(first), Full::Tenant));
            }
            other => panic!("{other:?}"),
        }
        // Who has room is taken.
        let tenant = Tenant(2);
        assert!(resolver.ask(Wish {
            tenant,
            ..wish(first)
        }));
    }
}
