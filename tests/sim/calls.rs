//! The life of a call: connect, join, talk, end, in the order of `sessions/service.rs`, `sessions/ws.rs`,
//! `calls/bridge.rs`, `calls/lifecycle.rs` and `calls/writer.rs`; and the clients who want it.

use std::cell::Cell;
use std::rc::Rc;

use control::admission::command::{Command, Word};
use control::admission::ledger::Denied;
use control::admission::{ADOPT_AGAIN, ADOPT_PATIENCE, Refusal, Renewal, Request, State};
use control::calls::backlog::Backlog;
use control::calls::journal::{Entry, Owner, Record};
use control::calls::rules::{CallStatus, ConversationStatus, Ending};
use control::ids::{AccountId, CallId};
use media::call::record::Offsets;
use uuid::Uuid;

use crate::database::{Ask, Told};
use crate::executor::{Life, Slot, Time};
use crate::mutants::Mutant;
use crate::node::{release, request, wish};
use crate::world::{Lost, MS, SECOND, W};

/// How long a client waits for an answer.
pub(crate) const PATIENCE: Time = 10 * SECOND;
/// `sessions::service::JOIN_WITHIN`.
const JOIN_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);
/// `calls::service::PLACING_PATIENCE`.
const PLACING: Time = 2 * SECOND;

/// A call on a node's engine.
pub(crate) struct LiveCall {
    pub(crate) slot: Renewal,
    pub(crate) leased: Cell<bool>,
    /// Filled: it ends now, for this reason.
    pub(crate) end: Slot<&'static str>,
}

/// What a client was given.
#[derive(Clone, Copy)]
pub(crate) struct Ticket {
    pub(crate) call: CallId,
    token: u64,
}

pub(crate) fn account(number: u64) -> AccountId {
    AccountId(Uuid::from_u128(u128::from(number) + 1))
}

/// One wish of the lease store, as `lease::Redis::take`.
async fn take(w: &W, life: Life, wish: &Request, new: bool) -> Result<(), Refusal> {
    let sent = w.nodes[life.node].borrow_mut().ledger.send(wish, new);
    let command = match new {
        true => Command::Acquire(wish.clone()),
        false => Command::Adopt(wish.clone()),
    };
    let answer = w.lease(life, command).await.map(|words| Word::read(&words));
    if answer == Ok(Word::Cold) {
        w.set_health(life, control::admission::Health::Cold);
    }
    let heard = w.nodes[life.node].borrow_mut().ledger.heard(sent, answer);
    heard.map_err(|Denied { refusal, give_back }| {
        if give_back {
            release(w, life, wish.lease, wish.owner.clone());
        }
        refusal
    })
}

/// `POST /conversation/connect`.
async fn connect(w: W, life: Life, account: AccountId) -> Result<Ticket, Option<Refusal>> {
    let refused = {
        let node = w.nodes[life.node].borrow();
        node.draining || node.lost
    };
    if refused {
        return Err(None);
    }
    let call = w.next_call();
    let now = w.wall(life.node);
    let wish = wish(&w, life, account, call, State::Pending);
    take(&w, life, &wish, true).await.map_err(Some)?;
    let token = w.roll(u64::MAX);
    let create = Ask::Create {
        account,
        call,
        token,
        expires_at: now.plus(JOIN_WITHIN),
        now,
    };
    match w.ask(life, create).await {
        Ok(_) => {
            w.say(|| format!("{call} is opened at node {}", life.node));
            w.nodes[life.node].borrow_mut().ledger.forget(call);
            Ok(Ticket { call, token })
        }
        Err(_) => {
            if !w.is(Mutant::LedgerLeaks) {
                release(&w, life, call, wish.owner);
            }
            Err(None)
        }
    }
}

/// How a call goes if nobody interferes.
#[derive(Clone, Copy)]
pub(crate) struct Talk {
    lasts: Time,
    turn_every: Time,
}

/// The upgrade of a `ws_url`: whether this holder is let in.
async fn join(w: W, life: Life, account: AccountId, ticket: Ticket, talk: Talk) -> bool {
    let (node, incarnation) = {
        let node = w.nodes[life.node].borrow();
        (node.name.clone(), node.incarnation)
    };
    let Ticket { call, token } = ticket;
    let join = Ask::Join {
        call,
        token,
        node,
        incarnation,
        now: w.wall(life.node),
    };
    let owner = Owner {
        account,
        call,
        incarnation,
    };
    match w.ask(life, join).await {
        Ok(told) if told.flag() => {}
        Ok(_) | Err(Lost::Before) => return false,
        Err(Lost::Unsure) => {
            could_not_start(&w, life, owner).await;
            return false;
        }
    }
    let seated = {
        let mut node = w.nodes[life.node].borrow_mut();
        let free = !node.lost && node.seats < w.caps.node;
        node.seats += u32::from(free);
        free
    };
    let adopted = seated && adopt(&w, life, account, call).await;
    if !adopted {
        if seated && !w.is(Mutant::SeatLeaks) {
            w.nodes[life.node].borrow_mut().seats -= 1;
        }
        could_not_start(&w, life, owner).await;
        let own = w.nodes[life.node].borrow().owner.clone();
        release(&w, life, call, own);
        return false;
    }
    let live = Rc::new(LiveCall {
        slot: Renewal::from(&wish(&w, life, account, call, State::Live)),
        leased: Cell::new(true),
        end: Slot::default(),
    });
    w.place(call, life);
    w.nodes[life.node]
        .borrow_mut()
        .live
        .insert(call, live.clone());
    w.executor
        .spawn(Some(life), follow(w.clone(), life, owner, live, talk));
    true
}

/// `App::adopt`.
async fn adopt(w: &W, life: Life, account: AccountId, call: CallId) -> bool {
    let wish = wish(w, life, account, call, State::Live);
    let until = w.now() + ADOPT_PATIENCE.as_micros() as Time;
    loop {
        match take(w, life, &wish, false).await {
            Ok(()) => return true,
            Err(refusal) if !refusal.may_pass() || w.now() >= until => return false,
            Err(_) => w.sleep(ADOPT_AGAIN.as_micros() as Time).await,
        }
    }
}

/// What happens to a call is written down (`lifecycle::follow`).
async fn follow(w: W, life: Life, owner: Owner, live: Rc<LiveCall>, talk: Talk) {
    let mut writer = Writer::new(&w, life, owner);
    let over = w.now() + talk.lasts;
    let mut next_turn = w.now() + talk.turn_every;
    let mut index = 0;
    let reason = loop {
        let now = w.now();
        if now >= over {
            break "caller_hangup";
        }
        let mut next = over.min(next_turn);
        if !writer.backlog.is_empty() {
            next = next.min(writer.next_try.max(now + MS));
        }
        if let Some(reason) = live.end.within(&w.executor, next.saturating_sub(now)).await {
            break reason;
        }
        if w.now() >= next_turn {
            next_turn = w.now() + talk.turn_every;
            let at = w.wall(life.node);
            let (body, text) = ("{}".to_owned(), String::new());
            writer
                .put(Entry::Turn {
                    index,
                    body,
                    text,
                    at,
                })
                .await;
            index += 1;
        } else if !writer.backlog.is_empty() && w.now() >= writer.next_try {
            writer.catch_up().await;
        }
    };
    let free = |w: &W| {
        live.leased.set(false);
        let own = {
            let mut node = w.nodes[life.node].borrow_mut();
            node.seats -= 1;
            node.owner.clone()
        };
        release(w, life, owner.call, own);
    };
    if w.is(Mutant::ReleasesBeforeEnd) {
        free(&w);
    }
    let ending = Ending {
        status: CallStatus::Completed,
        conversation: ConversationStatus::Completed,
        reason: reason.into(),
        ended_by: "caller".into(),
        duration_ms: Some(1),
        turn_count: None,
        errors: Vec::new(),
        used: None,
        offsets: Offsets::default(),
        network: None,
        sip_code: None,
        provider_request_ids: Vec::new(),
        provider_faults: None,
        never_answered: false,
    };
    let at = w.wall(life.node);
    let recording = false;
    writer
        .put(Entry::End {
            ending,
            recording,
            at,
        })
        .await;
    w.promised.borrow_mut().insert(owner.call);
    w.placed.borrow_mut().remove(&owner.call);
    if !w.is(Mutant::ReleasesBeforeEnd) {
        free(&w);
    }
    writer.finish().await;
    w.nodes[life.node].borrow_mut().live.remove(&owner.call);
}

/// `lifecycle::could_not_start`.
async fn could_not_start(w: &W, life: Life, owner: Owner) {
    let mut writer = Writer::new(w, life, owner);
    let ending = Ending::engine_error("it could not start".to_owned());
    let at = w.wall(life.node);
    let recording = false;
    writer
        .put(Entry::End {
            ending,
            recording,
            at,
        })
        .await;
    if !writer.backlog.is_empty() {
        w.executor.spawn(Some(life), writer.finish());
    }
}

/// `calls::writer::Writer`.
struct Writer {
    w: W,
    life: Life,
    owner: Owner,
    backlog: Backlog,
    next_try: Time,
}

impl Writer {
    fn new(w: &W, life: Life, owner: Owner) -> Self {
        Self {
            w: w.clone(),
            life,
            owner,
            backlog: Backlog::default(),
            next_try: 0,
        }
    }

    async fn put(&mut self, entry: Entry) {
        if self.backlog.push(entry) && self.catch_up().await {
            return;
        }
        if !self.w.is(Mutant::NoJournal) {
            self.journal().await;
        }
        self.backlog.handed(true);
    }

    /// Onto the disk, in two blocks: a crash in between leaves a torn line.
    async fn journal(&self) {
        let (w, call) = (&self.w, self.owner.call);
        let record = Record {
            owner: self.owner,
            entries: self.backlog.unkept().to_vec(),
        };
        let text = record.text().unwrap_or_default();
        let mut bytes = {
            let node = w.nodes[self.life.node].borrow();
            node.disk.get(&call).cloned().unwrap_or_default()
        };
        let new = match bytes.is_empty() {
            true => text.as_str(),
            // Its first line is there already.
            false => text.split_once('\n').map_or("", |(_, rest)| rest),
        };
        let half = w.roll(new.len() as u64 + 1) as usize;
        for block in [&new[..half], &new[half..]] {
            w.sleep(w.between(MS / 2, 5 * MS)).await;
            bytes.extend_from_slice(block.as_bytes());
            let mut node = w.nodes[self.life.node].borrow_mut();
            node.disk.insert(call, bytes.clone());
        }
        w.say(|| format!("{call} is kept in the journal"));
    }

    async fn catch_up(&mut self) -> bool {
        while !self.backlog.is_empty() {
            let entries = self.backlog.entries().to_vec();
            let count = entries.len();
            let owner = self.owner;
            match self.w.ask(self.life, Ask::Write { owner, entries }).await {
                Ok(Told::Done) => self.backlog.took(count),
                _ => {
                    let pause = self.backlog.pause().as_micros() as Time;
                    self.next_try = self.w.now() + pause;
                    return false;
                }
            }
        }
        if self.backlog.leaves_journal() {
            let mut node = self.w.nodes[self.life.node].borrow_mut();
            node.disk.remove(&self.owner.call);
        }
        true
    }

    async fn finish(mut self) {
        while !self.backlog.is_empty() {
            let wait = self.next_try.saturating_sub(self.w.now());
            self.w.sleep(wait.max(MS)).await;
            self.catch_up().await;
        }
    }
}

/// `POST /conversation/{id}/end` (`calls::service`).
async fn end(w: W, life: Life, account: AccountId, call: CallId) {
    let Ok(Told::Call(Some((ended, host)))) = w.ask(life, Ask::Get { account, call }).await else {
        return;
    };
    if ended {
        return;
    }
    let own = w.nodes[life.node].borrow().incarnation;
    if host != 0 && host != own {
        let at = (0..w.nodes.len()).find(|node| w.nodes[*node].borrow().incarnation == host);
        if let Some(at) = at {
            request(&w, at, |w, life| Box::pin(end_here(w, life, account, call))).await;
        }
        return;
    }
    end_here(w, life, account, call).await;
}

async fn end_here(w: W, life: Life, account: AccountId, call: CallId) {
    let Ok(Told::Call(Some((ended, host)))) = w.ask(life, Ask::Get { account, call }).await else {
        return;
    };
    if ended {
        return;
    }
    if host == 0 {
        let end = Ask::End {
            account,
            call,
            incarnation: 0,
            ending: Ending::canceled_by_api(),
            event: true,
            now: w.wall(life.node),
        };
        match w.ask(life, end).await {
            Ok(told) if told.flag() => {
                let own = w.nodes[life.node].borrow().owner.clone();
                return release(&w, life, call, own);
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
    let until = w.now() + PLACING;
    loop {
        let live = w.nodes[life.node].borrow().live.get(&call).cloned();
        if let Some(live) = live {
            return live.end.fill(&w.executor, "ended_by_api");
        }
        if w.now() >= until {
            return;
        }
        w.sleep(50 * MS).await;
    }
}

/// Somebody who wants a call: connects, joins once or with a rival, talks, ends it or does not.
pub(crate) async fn client(w: W, number: u64) {
    let account = account(w.roll(2));
    let nodes = w.nodes.len() as u64;
    let talk = Talk {
        lasts: match w.roll(4) {
            0 => w.between(10 * MS, SECOND),
            1 => w.between(20 * SECOND, 45 * SECOND),
            _ => w.between(SECOND, 15 * SECOND),
        },
        turn_every: w.between(500 * MS, 6 * SECOND),
    };
    let mut ticket = None;
    for _ in 0..3 {
        if w.now() >= w.storm.get() {
            return;
        }
        let at = w.roll(nodes) as usize;
        let answer = request(&w, at, |w, life| Box::pin(connect(w, life, account))).await;
        match answer {
            Some(Ok(got)) => {
                ticket = Some(got);
                break;
            }
            Some(Err(refusal)) => {
                w.say(|| {
                    let why = refusal.map(|refusal| (refusal.reason, refusal.resource));
                    format!("client {number} is refused by node {at}: {why:?}")
                });
            }
            None => {}
        }
        w.sleep(w.between(100 * MS, 4 * SECOND)).await;
    }
    let Some(ticket) = ticket else { return };
    let call = ticket.call;
    // Ends from several sides, at any time.
    for _ in 0..w.roll(3) {
        let (world, after, at) = (w.clone(), w.between(0, 20 * SECOND), w.roll(nodes) as usize);
        w.executor.spawn(None, async move {
            world.sleep(after).await;
            request(&world, at, |w, life| Box::pin(end(w, life, account, call))).await;
        });
    }
    let wait = match w.roll(8) {
        // Never comes, or late.
        0 => return,
        1 => w.between(50 * SECOND, 70 * SECOND),
        _ => w.between(10 * MS, 4 * SECOND),
    };
    w.sleep(wait).await;
    if w.now() >= w.storm.get() {
        return;
    }
    let rivals = [1, 1, 1, 2, 3][w.roll(5) as usize];
    for _ in 0..rivals {
        let (world, at) = (w.clone(), w.roll(nodes) as usize);
        let after = w.roll(30 * MS);
        w.executor.spawn(None, async move {
            world.sleep(after).await;
            request(&world, at, |w, life| {
                Box::pin(join(w, life, account, ticket, talk))
            })
            .await;
        });
    }
}

/// One more call when all is well: whether it is let in, or why not. An answer may yet be lost.
pub(crate) async fn probe(w: W, at: usize, slot: Slot<Option<Refusal>>) {
    let mut answer = Some(Refusal::error());
    for _ in 0..6 {
        let got = request(&w, at, |w, life| Box::pin(connect(w, life, account(7)))).await;
        answer = match got {
            Some(Ok(ticket)) => {
                let of = account(7);
                request(&w, at, |w, life| {
                    Box::pin(end_here(w, life, of, ticket.call))
                })
                .await;
                None
            }
            Some(Err(Some(refusal))) => Some(refusal),
            Some(Err(None)) | None => Some(Refusal::unavailable()),
        };
        if answer.is_none_or(|refusal| !refusal.may_pass()) {
            break;
        }
        w.sleep(300 * MS).await;
    }
    slot.fill(&w.executor, answer);
}
