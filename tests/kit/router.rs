//! A home router between UDP clients and a server: the server sees an address of the router's for each
//! client. Its wire can be cut, its addresses changed, and it can be one that lies: it sends media twice,
//! damages copies of it, and slips in what nobody sent.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// Longer than any datagram here.
const LONGEST: usize = 2048;

/// Media packets that are kept to be sent once more: two windows of replay protection (RFC 3711 section
/// 3.3.2 asks for 64).
const KEPT: usize = 128;

/// A router, alive as long as this is.
pub struct Router {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    target: SocketAddr,
    cut: AtomicBool,
    lies: AtomicBool,
    /// How often the addresses were changed.
    moves: AtomicU64,
    /// Media packets of clients that were sent on, each counted once.
    media: AtomicU64,
    /// Packets that no client sent at that time.
    lied: AtomicU64,
    /// The first DTLS record of each kind of handshake message seen, either way.
    handshakes: Mutex<HashMap<u8, Vec<u8>>>,
    outside: Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>,
}

impl Router {
    /// Leads to this address.
    pub async fn to(target: SocketAddr) -> Self {
        let inside = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a free port"));
        let address = inside.local_addr().expect("an address");
        let state = Arc::new(State {
            target,
            cut: AtomicBool::new(false),
            lies: AtomicBool::new(false),
            moves: AtomicU64::new(0),
            media: AtomicU64::new(0),
            lied: AtomicU64::new(0),
            handshakes: Mutex::default(),
            outside: Mutex::default(),
        });
        let task = tokio::spawn(route(inside, Arc::clone(&state)));
        Self {
            address,
            state,
            task,
        }
    }

    /// Where clients send to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Nothing gets through, either way, while `cut`.
    pub fn cut(&self, cut: bool) {
        self.state.cut.store(cut, Ordering::Relaxed);
    }

    /// Each client gets another address outside; the old ones are dead.
    pub fn change_addresses(&self) {
        self.state.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// Each media packet of a client's is sent again, at once and later, and again with one bit changed.
    pub fn lie(&self, lies: bool) {
        self.state.lies.store(lies, Ordering::Relaxed);
    }

    /// Media packets of clients that were sent on, each counted once.
    pub fn media(&self) -> u64 {
        self.state.media.load(Ordering::Relaxed)
    }

    /// Packets that were sent without a client's having sent them just then.
    pub fn lied(&self) -> u64 {
        self.state.lied.load(Ordering::Relaxed)
    }

    /// Sends this to the server from every client's outside address.
    pub async fn slip_in(&self, bytes: &[u8]) {
        let outside: Vec<_> = self
            .state
            .outside
            .lock()
            .expect("no panic")
            .values()
            .cloned()
            .collect();
        for socket in outside {
            if socket.send_to(bytes, self.state.target).await.is_ok() {
                self.state.lied.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A record with this DTLS handshake message (RFC 6347 section 4.3.2), as it went by: 1 is a
    /// ClientHello, 2 a ServerHello.
    pub fn handshake(&self, kind: u8) -> Option<Vec<u8>> {
        let seen = self.state.handshakes.lock().expect("no panic");
        seen.get(&kind).cloned()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    fn note_handshake(&self, bytes: &[u8]) {
        // A record of handshake (22) with its message's kind behind a header of 13 bytes.
        if bytes.first() == Some(&22)
            && let Some(kind) = bytes.get(13)
        {
            let mut seen = self.handshakes.lock().expect("no panic");
            seen.entry(*kind).or_insert_with(|| bytes.to_vec());
        }
    }
}

/// RTP and not RTCP (RFC 5761 section 4).
fn is_media(bytes: &[u8]) -> bool {
    bytes.len() > 12 && (128..192).contains(&bytes[0]) && !(64..96).contains(&(bytes[1] & 0x7f))
}

/// One client as the outside sees it.
struct Mapping {
    outside: Arc<UdpSocket>,
    back: JoinHandle<()>,
    kept: VecDeque<Vec<u8>>,
    /// Chooses what is damaged.
    dice: u32,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.back.abort();
    }
}

async fn route(inside: Arc<UdpSocket>, state: Arc<State>) {
    let mut clients: HashMap<SocketAddr, Mapping> = HashMap::new();
    let mut moves = 0;
    let mut room = vec![0; LONGEST];
    loop {
        // An ICMP error of an earlier datagram says nothing about the next.
        let Ok((length, client)) = inside.recv_from(&mut room).await else {
            continue;
        };
        let now = state.moves.load(Ordering::Relaxed);
        if now != moves {
            moves = now;
            clients.clear();
            state.outside.lock().expect("no panic").clear();
        }
        if state.cut.load(Ordering::Relaxed) {
            continue;
        }
        let mapping = match clients.get_mut(&client) {
            Some(mapping) => mapping,
            None => {
                let made = map(&inside, client, &state).await;
                clients.entry(client).or_insert(made)
            }
        };
        let bytes = &room[..length];
        state.note_handshake(bytes);
        let _ = mapping.outside.send_to(bytes, state.target).await;
        if is_media(bytes) {
            state.media.fetch_add(1, Ordering::Relaxed);
            if state.lies.load(Ordering::Relaxed) {
                let lied = mapping.lie(bytes, state.target).await;
                state.lied.fetch_add(lied, Ordering::Relaxed);
            }
        }
    }
}

async fn map(inside: &Arc<UdpSocket>, client: SocketAddr, state: &Arc<State>) -> Mapping {
    let outside = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a free port"));
    state
        .outside
        .lock()
        .expect("no panic")
        .insert(client, Arc::clone(&outside));
    let (inside, from, state) = (Arc::clone(inside), Arc::clone(&outside), Arc::clone(state));
    let back = tokio::spawn(async move {
        let mut room = vec![0; LONGEST];
        loop {
            let Ok((length, _)) = from.recv_from(&mut room).await else {
                continue;
            };
            state.note_handshake(&room[..length]);
            if !state.cut.load(Ordering::Relaxed) {
                let _ = inside.send_to(&room[..length], client).await;
            }
        }
    });
    Mapping {
        outside,
        back,
        kept: VecDeque::new(),
        dice: 1,
    }
}

impl Mapping {
    /// Sends the packet again, an old one again, and the packet with one bit changed; how many went out.
    async fn lie(&mut self, bytes: &[u8], target: SocketAddr) -> u64 {
        let mut damaged = bytes.to_vec();
        // Any bit but those that say that it is RTP: header, payload or tag.
        self.dice = self
            .dice
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        let bit = 16 + (self.dice >> 8) as usize % (8 * damaged.len() - 16);
        damaged[bit / 8] ^= 1 << (bit % 8);
        let old = self.kept.front().cloned();
        self.kept.push_back(bytes.to_vec());
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
        let mut sent = 0;
        for packet in [Some(bytes.to_vec()), old, Some(damaged)]
            .into_iter()
            .flatten()
        {
            if self.outside.send_to(&packet, target).await.is_ok() {
                sent += 1;
            }
        }
        sent
    }
}
