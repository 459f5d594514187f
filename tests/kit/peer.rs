//! Live calls over WebSockets, over WebRTC and by telephone, in and out, seen alike: they go on beside what a test does to
//! the server, and tell afterwards what they heard.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use media::audio::tones;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::browser::Browser;
use crate::client::Client;
use crate::socket::{Caller, native};
use crate::stage;
use crate::telephone::{Ringing, Telephone, Waiting};

/// What telephones call.
pub const NUMBER: &str = "+4930123456";

/// No two telephones have one number.
static TELEPHONES: AtomicU32 = AtomicU32::new(0);

/// How long a peer speaks, and is silent then, in pieces.
const SPEAKS: usize = 6;
const LISTENS: usize = 9;
const PIECE: u64 = 100;

/// One side of a live call.
pub struct Peer {
    pub id: String,
    /// Since when the other side took it.
    pub since: Instant,
    /// How long it has spoken, ms.
    pub spoke: u64,
    end: End,
}

enum End {
    Socket(Box<Caller>),
    Browser(Box<Browser>),
    Telephone(Box<Telephone>),
}

/// How many of each kind.
#[derive(Clone, Copy)]
pub struct Mix {
    pub sockets: usize,
    /// Over WebRTC.
    pub browsers: usize,
    pub telephones: usize,
    /// Telephones that the agent calls.
    pub called: usize,
}

impl Mix {
    pub fn count(self) -> usize {
        self.sockets + self.browsers + self.telephones + self.called
    }
}

/// Makes `NUMBER` this agent's, for telephones of this machine.
pub async fn line(client: &Client, agent: &str) {
    let trunk = json!({"name": "in", "type": "inbound", "auth_mode": "ip_acl",
        "allowed_addresses": ["127.0.0.1"], "max_concurrent_calls": 100});
    let trunk = client.post("/sip-trunks", &trunk).await.expect(201);
    let number = json!({"phone_number": NUMBER, "trunk_id": trunk.text("id"), "agent_id": agent});
    let path = "/phone-numbers/sip/register";
    client.post(path, &number).await.expect(201);
}

/// Calls of a server that listens for telephones there, each with an agent that is heard. Sockets come last: a
/// client that reads nothing while others ring is behind.
pub async fn calls(client: &Client, listen: SocketAddr, agent: &str, mix: Mix) -> Vec<Peer> {
    let callers = (0..mix.telephones).map(|_| Peer::telephone(client, listen));
    let called = (0..mix.called).map(|_| Peer::called(client, agent));
    let browsers = (0..mix.browsers).map(|_| Peer::browser(client, agent));
    let (mut peers, called, browsers) =
        tokio::join!(join_all(callers), join_all(called), join_all(browsers));
    peers.extend(called);
    peers.extend(browsers);
    let sockets = (0..mix.sockets).map(|_| Peer::socket(client, agent));
    peers.extend(join_all(sockets).await);
    peers
}

/// Has the agent call a telephone, over a trunk of its own; the call, and the telephone, which rings.
pub async fn ringing(client: &Client, agent: &str) -> (String, Ringing) {
    let waiting = Waiting::new();
    let (from, to) = (number("+15550"), number("+4989"));
    let trunk = json!({"name": "out", "auth_mode": "ip_acl", "numbers": [from],
        "outbound_address": waiting.address().to_string()});
    client.post("/sip-trunks/onboard", &trunk).await.expect(201);
    let wish = json!({"agent_id": agent, "to_number": to, "from_number": from});
    let call = client.post("/calls", &wish).await.expect(202);
    (call.text("call_id"), waiting.rings().await)
}

/// A number that is nobody's yet.
fn number(prefix: &str) -> String {
    format!("{prefix}{:06}", TELEPHONES.fetch_add(1, Ordering::Relaxed))
}

impl Peer {
    /// A caller over a WebSocket.
    pub async fn socket(client: &Client, agent: &str) -> Self {
        Self::on(Caller::call(client, &native(agent)).await).await
    }

    /// This caller.
    pub async fn on(caller: Caller) -> Self {
        let (id, since) = (caller.session_id.clone(), caller.connected);
        Self::heard(id, since, End::Socket(Box::new(caller))).await
    }

    /// A caller over WebRTC.
    pub async fn browser(client: &Client, agent: &str) -> Self {
        let browser = Browser::call(client, agent).await;
        let id = browser.session_id.clone();
        Self::heard(id, Instant::now(), End::Browser(Box::new(browser))).await
    }

    /// A caller by telephone.
    pub async fn telephone(client: &Client, listen: SocketAddr) -> Self {
        let from = number("+33123");
        let phone = Telephone::call_as(&from, listen, NUMBER).await;
        let since = Instant::now();
        let path = format!("/calls?phone=%2B{}", &from[1..]);
        let list = client.get(&path).await.expect(200).body;
        assert_eq!(list["total"], 1, "{list}");
        let id = list["items"][0]["id"].as_str().expect("an id").to_owned();
        Self::heard(id, since, End::Telephone(Box::new(phone))).await
    }

    /// A telephone that the agent calls.
    pub async fn called(client: &Client, agent: &str) -> Self {
        let (id, phone) = ringing(client, agent).await;
        let phone = phone.answer();
        Self::heard(id, Instant::now(), End::Telephone(Box::new(phone))).await
    }

    /// Once its agent is heard.
    async fn heard(id: String, since: Instant, end: End) -> Self {
        let mut peer = Self {
            id,
            since,
            spoke: 0,
            end,
        };
        let until = Instant::now() + Duration::from_secs(20);
        while peer.times().next().is_none() {
            assert!(!peer.is_lost(), "{} is lost before it began", peer.id);
            assert!(Instant::now() < until, "{} hears nothing", peer.id);
            peer.be_silent(PIECE).await;
        }
        peer
    }

    pub fn is_socket(&self) -> bool {
        matches!(self.end, End::Socket(_))
    }

    /// How it reaches its agent.
    pub fn way(&self) -> &'static str {
        match self.end {
            End::Socket(_) => "over a socket",
            End::Browser(_) => "over WebRTC",
            End::Telephone(_) => "by telephone",
        }
    }

    /// Whether its call has ended, as far as it knows.
    pub fn is_lost(&mut self) -> bool {
        match &mut self.end {
            End::Socket(caller) => caller.closed.is_some(),
            End::Browser(browser) => browser.is_over(),
            End::Telephone(phone) => phone.is_over(),
        }
    }

    pub async fn be_silent(&mut self, ms: u64) {
        match &mut self.end {
            End::Socket(caller) => caller.listen(ms).await,
            End::Browser(browser) => browser.silence(ms as usize).await,
            End::Telephone(phone) => phone.silence(ms as usize).await,
        }
    }

    /// Speaks as the energy detector takes it for a voice.
    pub async fn speak(&mut self, ms: u64) {
        self.spoke += ms;
        let voice = |rate: u32| tones::sine(rate, 500.0, -12.0, ms as usize * rate as usize / 1000);
        match &mut self.end {
            End::Socket(caller) => caller.speak(&voice(16_000)).await,
            End::Browser(browser) => browser.speak(&voice(16_000)).await,
            End::Telephone(phone) => phone.speak(&voice(8_000)).await,
        }
    }

    /// The longest time between `from` and `to` in which nothing of the agent's sound came.
    pub fn longest_silence(&self, from: Instant, to: Instant) -> Duration {
        let within = self.times().filter(|at| (from..to).contains(at));
        let (mut last, mut longest) = (from, Duration::ZERO);
        for at in within.chain([to]) {
            longest = longest.max(at - last);
            last = at;
        }
        longest
    }

    /// How long after this time each piece of the agent's sound came that came later.
    pub fn heard_since(&self, from: Instant) -> Vec<Duration> {
        let later = self.times().filter(|at| *at > from);
        later.map(|at| at - from).collect()
    }

    /// When each piece of the agent's sound came.
    fn times(&self) -> impl Iterator<Item = Instant> {
        let (socket, packets) = match &self.end {
            End::Socket(caller) => (caller.audio_since(caller.connected), &[][..]),
            End::Browser(browser) => (Vec::new(), &browser.came[..]),
            End::Telephone(phone) => (Vec::new(), &phone.came[..]),
        };
        let socket = socket.into_iter().map(|(at, _)| at);
        socket.chain(packets.iter().copied())
    }

    pub async fn hang_up(self) {
        match self.end {
            End::Socket(caller) => caller.hang_up().await,
            End::Browser(browser) => browser.hang_up().await,
            End::Telephone(phone) => phone.hang_up().await,
        }
    }
}

/// Hangs up all of them; their ids.
pub async fn hang_up(peers: Vec<Peer>) -> Vec<String> {
    let ids = ids(&peers);
    join_all(peers.into_iter().map(Peer::hang_up)).await;
    ids
}

pub fn ids(peers: &[Peer]) -> Vec<String> {
    peers.iter().map(|peer| peer.id.clone()).collect()
}

/// The ids, and for how long each spoke.
pub fn spoken(peers: &[Peer]) -> Vec<(String, u64)> {
    let told = peers.iter().map(|peer| (peer.id.clone(), peer.spoke));
    told.collect()
}

/// None of them was lost, and since `from` each heard its agent without a pause as long as `gap`.
pub fn check_heard(peers: &mut [Peer], from: Instant, gap: Duration) {
    let now = Instant::now();
    for peer in peers {
        assert!(!peer.is_lost(), "a call was lost");
        let longest = peer.longest_silence(from, now);
        let way = peer.way();
        assert!(longest < gap, "{longest:?} of silence {way}: {}", peer.id);
    }
}

/// What a peer said for so many milliseconds is in its call's recording, and so is its agent.
pub async fn check_recorded(client: &Client, id: &str, spoke: u64) {
    stage::over(client, id, Duration::from_secs(20)).await;
    let [theirs, agents] = stage::recording(client, id).await;
    let (theirs, agents) = (stage::loud(&theirs), stage::loud(&agents));
    let spoke = spoke as f64 / 1000.0;
    assert!(
        (0.9 * spoke..1.1 * spoke + 0.2).contains(&theirs),
        "{id}: {theirs} s of {spoke} s that were spoken are recorded"
    );
    assert!(agents > spoke, "{id}: {agents} s of the agent are recorded");
}

/// Calls that go on by themselves: each peer speaks and listens by turns.
pub struct Live {
    peers: Vec<JoinHandle<Peer>>,
    over: Arc<AtomicBool>,
}

impl Live {
    pub fn begin(peers: Vec<Peer>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let peers = peers
            .into_iter()
            .map(|peer| tokio::spawn(go_on(peer, Arc::clone(&over))));
        Self {
            peers: peers.collect(),
            over,
        }
    }

    /// The peers, once all of them have come to the end of a piece.
    pub async fn stop(self) -> Vec<Peer> {
        self.over.store(true, Ordering::Relaxed);
        let peers = join_all(self.peers).await;
        peers.into_iter().map(Result::unwrap).collect()
    }
}

async fn go_on(mut peer: Peer, over: Arc<AtomicBool>) -> Peer {
    for piece in (0..SPEAKS + LISTENS).cycle() {
        if over.load(Ordering::Relaxed) || peer.is_lost() {
            break;
        }
        if piece < SPEAKS {
            peer.speak(PIECE).await;
        } else {
            peer.be_silent(PIECE).await;
        }
    }
    peer
}
