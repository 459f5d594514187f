//! A node: what its process knows, and its hearts. The rules it asks are the product's; the order of its
//! questions is that of `cluster/`, `admission/lease.rs` and `calls/renewal.rs`.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use control::admission::command::{self, Command, RenewalPart};
use control::admission::ledger::Ledger;
use control::admission::{Health, Owner, RENEW_EVERY, Renewal, Roll, State};
use control::calls::journal::Record;
use control::calls::rules::Ending;
use control::cluster::rules::{self, Standing};
use control::cluster::watch::Watch;
use control::ids::{AccountId, CallId};

use crate::calls::{self, LiveCall};
use crate::database::{Ask, Told, open_rows};
use crate::executor::{Life, Slot, Time};
use crate::mutants::Mutant;
use crate::outbox;
use crate::world::{Lost, MS, SECOND, W, duration};

/// `cluster::heart::BEAT`.
const BEAT: Time = 2 * SECOND;
const TRY_AGAIN: Time = 250 * MS;
/// `reconcile::EVERY`.
const RECONCILE: Time = 5 * SECOND;
/// `sweeper::EVERY`.
const SWEEP: Time = 2 * SECOND;
/// Leases in one renewal: few, so that telling a cold store takes several parts.
const BATCH: usize = 2;
const RELEASE_WITHIN: Time = 60 * SECOND;

pub(crate) struct Node {
    pub(crate) name: String,
    /// `None`: no process runs.
    pub(crate) life: Option<Life>,
    lives: u32,
    /// It takes requests.
    pub(crate) serving: bool,
    pub(crate) incarnation: i64,
    pub(crate) owner: Owner,
    pub(crate) ledger: Ledger,
    pub(crate) watch: Watch,
    started: Time,
    pub(crate) live: BTreeMap<CallId, Rc<LiveCall>>,
    pub(crate) seats: u32,
    pub(crate) link_up: bool,
    pub(crate) silent: u32,
    pub(crate) health: Health,
    pub(crate) trouble: Slot<()>,
    pub(crate) lost: bool,
    pub(crate) draining: bool,
    recovering: bool,
    burying: bool,
    releases: VecDeque<(CallId, Owner, Time)>,
    release: Slot<()>,
    pub(crate) in_flight: u32,
    pub(crate) clock_offset: i64,
    /// Outlives the process.
    pub(crate) disk: BTreeMap<CallId, Vec<u8>>,
}

impl Node {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            name: format!("n{number}"),
            life: None,
            lives: 0,
            serving: false,
            incarnation: 0,
            owner: Owner::new("", 0),
            ledger: Ledger::default(),
            watch: Watch::default(),
            started: 0,
            live: BTreeMap::new(),
            seats: 0,
            link_up: false,
            silent: 0,
            health: Health::Away,
            trouble: Slot::default(),
            lost: false,
            draining: false,
            recovering: false,
            burying: false,
            releases: VecDeque::new(),
            release: Slot::default(),
            in_flight: 0,
            clock_offset: 0,
            disk: BTreeMap::new(),
        }
    }
}

/// A process begins, if none runs.
pub(crate) fn start(w: &W, number: usize) {
    let life = {
        let mut node = w.nodes[number].borrow_mut();
        if node.life.is_some() {
            return;
        }
        let lives = node.lives + 1;
        let life = Life {
            node: number,
            number: lives,
        };
        let (disk, offset) = (std::mem::take(&mut node.disk), node.clock_offset);
        *node = Node {
            life: Some(life),
            lives,
            disk,
            clock_offset: offset,
            started: w.now(),
            ..Node::new(number)
        };
        life
    };
    w.say(|| format!("node {number} starts"));
    w.executor.spawn(Some(life), run(w.clone(), life));
}

/// kill -9.
pub(crate) fn kill(w: &W, number: usize) {
    let life = {
        let mut node = w.nodes[number].borrow_mut();
        node.serving = false;
        // Its calls are silent from now on.
        node.live.clear();
        node.life.take()
    };
    let Some(life) = life else { return };
    w.say(|| format!("node {number} is killed"));
    w.executor.kill(life);
    w.executor.put_to_sleep(number, 0);
    w.placed.borrow_mut().retain(|_, at| *at != life);
}

/// SIGTERM: no new calls, those that live may go on for a while.
pub(crate) async fn drain(w: W, life: Life) {
    w.say(|| format!("node {} is told to end", life.node));
    w.nodes[life.node].borrow_mut().draining = true;
    for round in 0..2 {
        let until = w.now() + if round == 0 { 5 * SECOND } else { 6 * SECOND };
        while w.now() < until && !w.nodes[life.node].borrow().live.is_empty() {
            w.sleep(50 * MS).await;
        }
        end_all(&w, life);
    }
    w.sleep(SECOND).await;
    let incarnation = w.nodes[life.node].borrow().incarnation;
    // The others take it for dead if they are not told.
    let _ = w.ask(life, Ask::Leave { incarnation }).await;
    let world = w.clone();
    w.executor.at(w.now(), move || kill(&world, life.node));
}

async fn run(w: W, life: Life) {
    let number = life.node;
    let incarnation = loop {
        match w.ask(life, Ask::Start).await {
            Ok(Told::Number(number)) => break number,
            _ => w.sleep(SECOND).await,
        }
    };
    {
        let mut node = w.nodes[number].borrow_mut();
        node.incarnation = incarnation;
        node.owner = Owner::new(&node.name, incarnation);
        node.recovering = true;
    }
    while register(&w, life).await.is_err() {
        w.sleep(SECOND).await;
    }
    w.nodes[number].borrow_mut().serving = true;
    w.say(|| format!("node {number} serves as {incarnation}"));
    let spawn = |future| w.executor.spawn(Some(life), future);
    spawn(Box::pin(recover(w.clone(), life)) as std::pin::Pin<Box<dyn Future<Output = ()>>>);
    spawn(Box::pin(heart(w.clone(), life)));
    spawn(Box::pin(lease_heart(w.clone(), life)));
    spawn(Box::pin(renewals(w.clone(), life)));
    spawn(Box::pin(reconciler(w.clone(), life)));
    spawn(Box::pin(sweeper(w.clone(), life)));
    spawn(Box::pin(releases(w.clone(), life)));
    spawn(Box::pin(outbox::worker(w.clone(), life)));
}

async fn register(w: &W, life: Life) -> Result<(), Lost> {
    let (incarnation, name) = {
        let node = w.nodes[life.node].borrow();
        (node.incarnation, node.name.clone())
    };
    let now = w.wall(life.node);
    let ask = Ask::Register {
        incarnation,
        name,
        now,
    };
    w.ask(life, ask).await.map(drop)
}

// The hearts (`cluster::heart`).

async fn heart(w: W, life: Life) {
    loop {
        if beat(&w, life).await.is_ok() {
            // What is not seen now is seen at the next beat.
            let _ = look(&w, life).await;
        }
        w.sleep(BEAT).await;
    }
}

async fn beat(w: &W, life: Life) -> Result<(), Lost> {
    let incarnation = w.nodes[life.node].borrow().incarnation;
    let now = w.wall(life.node);
    let beaten = w.ask(life, Ask::Beat { incarnation, now }).await?.flag();
    let standing = {
        let node = w.nodes[life.node].borrow();
        rules::standing(beaten, node.draining, node.live.len())
    };
    match standing {
        Standing::Well => w.nodes[life.node].borrow_mut().lost = false,
        Standing::Gone => {}
        Standing::Lost | Standing::Free => {
            w.say(|| format!("node {} was taken for dead", life.node));
            w.nodes[life.node].borrow_mut().lost = true;
            end_all(w, life);
            if standing == Standing::Free {
                register(w, life).await?;
                w.nodes[life.node].borrow_mut().lost = false;
            }
        }
    }
    Ok(())
}

/// The engine says goodbye to all its calls.
pub(crate) fn end_all(w: &W, life: Life) {
    let live: Vec<_> = w.nodes[life.node].borrow().live.values().cloned().collect();
    for call in live {
        call.end.fill(&w.executor, "drained");
    }
}

async fn look(w: &W, life: Life) -> Result<(), Lost> {
    let Told::Nodes(nodes) = w.ask(life, Ask::Nodes).await? else {
        return Ok(());
    };
    let dead = {
        let mut node = w.nodes[life.node].borrow_mut();
        let mut seen = duration(w.now() - node.started);
        if w.is(Mutant::Impatient) {
            seen *= 4;
        }
        let own = node.incarnation;
        let others = nodes
            .iter()
            .filter(|(incarnation, ..)| *incarnation != own)
            .map(|(incarnation, _, beats)| (*incarnation, *beats));
        node.watch.look(others, seen)
    };
    let mut buried = false;
    for (incarnation, beats) in dead {
        let now = w.wall(life.node);
        let bury = Ask::Bury {
            incarnation,
            beats,
            now,
        };
        buried |= w.ask(life, bury).await?.flag();
    }
    if buried {
        end_calls(w, life).await?;
    }
    Ok(())
}

async fn lease_heart(w: W, life: Life) {
    let mut trusted = false;
    loop {
        let health = tend(&w, life).await;
        if health == Health::Ready && !trusted {
            // What fails is done at the reconciler's next look.
            let _ = mend_leases(&w, life).await;
        }
        trusted = health == Health::Ready;
        match health {
            Health::Ready => {
                let trouble = w.nodes[life.node].borrow().trouble.clone();
                trouble.within(&w.executor, BEAT).await;
            }
            Health::Cold | Health::Away => w.sleep(TRY_AGAIN).await,
        }
    }
}

async fn tend(w: &W, life: Life) -> Health {
    let health = beat_store(w, life).await;
    w.set_health(life, health);
    let (lost, recovering) = {
        let node = w.nodes[life.node].borrow();
        (node.lost, node.recovering)
    };
    if health != Health::Cold || lost || recovering {
        return health;
    }
    let health = open(w, life).await.unwrap_or(Health::Cold);
    if health == Health::Ready {
        w.set_health(life, health);
    }
    health
}

/// `lease::Redis::beat`.
async fn beat_store(w: &W, life: Life) -> Health {
    if !w.connect(life).await {
        return Health::Away;
    }
    match w.lease(life, Command::Beat).await {
        Ok(words) if is(&words, "warm") => return Health::Ready,
        Ok(_) => {}
        Err(refusal) => return trouble(refusal),
    }
    let (parts, owner) = {
        let mut node = w.nodes[life.node].borrow_mut();
        (node.ledger.tell(BATCH), node.owner.clone())
    };
    for (part, leases) in parts {
        let tell = Command::Renew {
            part,
            owner: owner.clone(),
            leases,
        };
        match w.lease(life, tell).await {
            Ok(words) if is(&words, "ok") => {}
            Ok(_) => return Health::Away,
            Err(refusal) => return trouble(refusal),
        }
    }
    Health::Cold
}

fn trouble(refusal: control::admission::Refusal) -> Health {
    match refusal == control::admission::Refusal::unavailable() {
        true => Health::Away,
        false => Health::Cold,
    }
}

fn is(words: &[String], word: &str) -> bool {
    words.first().is_some_and(|first| first == word)
}

async fn open(w: &W, life: Life) -> Result<Health, Lost> {
    let Told::Nodes(nodes) = w.ask(life, Ask::Nodes).await? else {
        return Ok(Health::Cold);
    };
    let mut roll = Roll {
        owners: nodes
            .iter()
            .map(|(incarnation, name, _)| Owner::new(name, *incarnation))
            .collect(),
        open: Vec::new(),
    };
    match w.lease(life, Command::Ask(roll.clone())).await {
        Ok(words) if is(&words, "back") || is(&words, "warm") => {}
        _ => return Ok(Health::Cold),
    }
    end_calls(w, life).await?;
    let now = w.wall(life.node);
    if let Told::Open(open) = w.ask(life, Ask::OpenCalls { now }).await?
        && !w.is(Mutant::OpensTooEarly)
    {
        let open = open_rows(open);
        roll.open = open
            .iter()
            .map(|call| rules::open_call(call, now))
            .collect();
    }
    let by = w.nodes[life.node].borrow().owner.clone();
    Ok(match w.lease(life, Command::Open { roll, by }).await {
        Ok(words) if is(&words, "warm") => {
            w.say(|| format!("node {} opened the lease store", life.node));
            Health::Ready
        }
        Ok(_) => Health::Cold,
        Err(refusal) => trouble(refusal),
    })
}

async fn renewals(w: W, life: Life) {
    loop {
        let (owner, leases) = {
            let node = w.nodes[life.node].borrow();
            let leased = node.live.values().filter(|call| call.leased.get());
            let leases: Vec<Renewal> = leased.map(|call| call.slot).collect();
            (node.owner.clone(), leases)
        };
        let mut done = true;
        for part in leases.chunks(BATCH) {
            let renew = Command::Renew {
                part: RenewalPart::Plain,
                owner: owner.clone(),
                leases: part.to_vec(),
            };
            done &= w.lease(life, renew).await.is_ok();
        }
        let pause = if done {
            RENEW_EVERY
        } else {
            Duration::from_secs(1)
        };
        w.sleep(pause.as_micros() as Time).await;
    }
}

// Putting right what a death left (`cluster::reconcile`, `calls::recover`).

async fn reconciler(w: W, life: Life) {
    loop {
        // What fails is done at the next look.
        let _ = reconcile(&w, life).await;
        w.sleep(RECONCILE).await;
    }
}

async fn reconcile(w: &W, life: Life) -> Result<(), Lost> {
    end_calls(w, life).await?;
    mend_leases(w, life).await
}

async fn mend_leases(w: &W, life: Life) -> Result<(), Lost> {
    if w.nodes[life.node].borrow().health != Health::Ready {
        return Ok(());
    }
    let Ok(words) = w.lease(life, Command::List).await else {
        return Ok(());
    };
    let held = command::held(&words).unwrap_or_else(|| {
        w.fail(format!("no list: {words:?}"));
        Vec::new()
    });
    let own = w.nodes[life.node].borrow().owner.clone();
    let unrenewed = rules::unrenewed(&held, &own);
    if !unrenewed.is_empty() {
        let now = w.wall(life.node);
        let Told::Open(open) = w.ask(life, Ask::OpenCalls { now }).await? else {
            return Ok(());
        };
        let open = open_rows(open);
        for (owner, renewal) in rules::vouched(&unrenewed, &open) {
            w.say(|| format!("node {} renews {} of {}", life.node, renewal.lease, owner.0));
            let renew = Command::Renew {
                part: RenewalPart::Plain,
                owner,
                leases: vec![renewal],
            };
            if w.lease(life, renew).await.is_err() {
                break;
            }
        }
    }
    let old = rules::old(&held);
    let ids = old.iter().map(|held| held.lease).collect();
    let Told::Ids(open) = w.ask(life, Ask::OpenAmong { ids }).await? else {
        return Ok(());
    };
    let open: HashSet<CallId> = open.into_iter().collect();
    if !w.is(Mutant::NoReconciler) {
        for held in rules::without_call(&old, &open) {
            w.say(|| format!("node {} frees {}", life.node, held.lease));
            release(w, life, held.lease, held.owner.clone());
        }
    }
    Ok(())
}

/// Waits until nobody else of this process buries.
async fn alone(w: &W, life: Life) {
    while w.nodes[life.node].borrow().burying {
        w.sleep(2 * MS).await;
    }
    w.nodes[life.node].borrow_mut().burying = true;
}

async fn end_calls(w: &W, life: Life) -> Result<(), Lost> {
    if w.nodes[life.node].borrow().recovering {
        return Ok(());
    }
    alone(w, life).await;
    let ended = bury(w, life, Ask::WithoutNode).await;
    w.nodes[life.node].borrow_mut().burying = false;
    ended.map(drop)
}

/// Ends the calls that such a question finds. Which of them it did end.
async fn bury(w: &W, life: Life, which: Ask) -> Result<Vec<CallId>, Lost> {
    let Told::Orphans(orphans) = w.ask(life, which).await? else {
        return Ok(Vec::new());
    };
    let mut ended = Vec::new();
    for (account, call, node, incarnation) in orphans {
        let end = Ask::End {
            account,
            call,
            incarnation,
            ending: Ending::node_lost(None),
            event: true,
            now: w.wall(life.node),
        };
        if w.ask(life, end).await?.flag() {
            ended.push(call);
        }
        release(w, life, call, Owner::new(&node, incarnation));
    }
    Ok(ended)
}

async fn recover(w: W, life: Life) {
    while try_recover(&w, life).await.is_err() {
        w.sleep(SECOND).await;
    }
    w.nodes[life.node].borrow_mut().recovering = false;
}

async fn try_recover(w: &W, life: Life) -> Result<(), Lost> {
    let (files, incarnation, node) = {
        let node = w.nodes[life.node].borrow();
        (node.disk.clone(), node.incarnation, node.name.clone())
    };
    for (call, bytes) in files {
        let Some(record) = Record::parse(&bytes) else {
            continue;
        };
        if record.owner.incarnation == incarnation {
            continue;
        }
        let write = Ask::Write {
            owner: record.owner,
            entries: record.entries,
        };
        w.ask(life, write).await?;
        w.say(|| format!("node {} wrote the journal of {call}", life.node));
        w.nodes[life.node].borrow_mut().disk.remove(&call);
    }
    alone(w, life).await;
    let ended = bury(w, life, Ask::Orphans { node, incarnation }).await;
    w.nodes[life.node].borrow_mut().burying = false;
    for call in ended? {
        if w.promised.borrow().contains(&call) {
            w.fail(format!("{call}: an end that was kept is lost"));
        }
    }
    Ok(())
}

// Sessions that nobody joins (`sessions::sweeper`), and slots that are given back.

async fn sweeper(w: W, life: Life) {
    loop {
        w.sleep(SWEEP).await;
        let now = w.wall(life.node);
        let Ok(Told::Sessions(expired)) = w.ask(life, Ask::Expired { now }).await else {
            continue;
        };
        for (account, call) in expired {
            let Ok(told) = w.ask(life, expiry(account, call, now)).await else {
                break;
            };
            if told.flag() {
                let own = w.nodes[life.node].borrow().owner.clone();
                release(&w, life, call, own);
            }
        }
    }
}

fn expiry(account: AccountId, call: CallId, now: control::time::Timestamp) -> Ask {
    Ask::End {
        account,
        call,
        incarnation: 0,
        ending: Ending::session_expired(),
        event: false,
        now,
    }
}

/// `Leases::release`.
pub(crate) fn release(w: &W, life: Life, lease: CallId, owner: Owner) {
    let mut node = w.nodes[life.node].borrow_mut();
    node.ledger.forget(lease);
    node.releases.push_back((lease, owner, w.now()));
    node.release.fill(&w.executor, ());
}

async fn releases(w: W, life: Life) {
    loop {
        let next = w.nodes[life.node].borrow_mut().releases.pop_front();
        let Some((lease, owner, since)) = next else {
            let bell = w.nodes[life.node].borrow().release.clone();
            bell.within(&w.executor, 3600 * SECOND).await;
            continue;
        };
        loop {
            let release = Command::Release {
                lease,
                owner: owner.clone(),
            };
            if w.lease(life, release).await.is_ok() || w.now() - since > RELEASE_WITHIN {
                break;
            }
            w.sleep(TRY_AGAIN).await;
        }
    }
}

/// What a node asks for a call (`calls::bridge::wish`).
pub(crate) fn wish(
    w: &W,
    life: Life,
    account: AccountId,
    lease: CallId,
    state: State,
) -> control::admission::Request {
    control::admission::Request {
        lease,
        owner: w.nodes[life.node].borrow().owner.clone(),
        account,
        agent: None,
        trunk: None,
        beyond: false,
        state,
    }
}

/// Whether a process runs and takes requests.
pub(crate) fn serving(w: &W, number: usize) -> Option<Life> {
    let node = w.nodes[number].borrow();
    node.life.filter(|_| node.serving)
}

/// A request that a node serves; its answer, unless the node dies.
pub(crate) async fn request<T: 'static>(
    w: &W,
    number: usize,
    serve: impl FnOnce(W, Life) -> std::pin::Pin<Box<dyn Future<Output = T>>>,
) -> Option<T> {
    let life = serving(w, number)?;
    let slot = Slot::default();
    let (answer, serving, world) = (slot.clone(), serve(w.clone(), life), w.clone());
    w.executor.spawn(Some(life), async move {
        let value = serving.await;
        answer.fill(&world.executor, value);
    });
    slot.within(&w.executor, calls::PATIENCE).await
}
