//! The database in memory: the transactions of the stores, each one step, with their conditions.
//! `real.rs` holds it to what SQLite and PostgreSQL do with the product's own statements.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use control::calls::journal::{Entry, Owner};
use control::calls::rules::Ending;
use control::calls::store::OpenRow;
use control::ids::{AccountId, CallId};
use control::jobs::Finished;
use control::time::Timestamp;
use control::webhooks::event::Status;

use crate::mutants::Mutant;

/// A transaction of the product.
#[derive(Clone)]
pub(crate) enum Ask {
    /// A process takes its incarnation.
    Start,
    Register {
        incarnation: i64,
        name: String,
        now: Timestamp,
    },
    Beat {
        incarnation: i64,
        now: Timestamp,
    },
    Nodes,
    Bury {
        incarnation: i64,
        beats: i64,
        now: Timestamp,
    },
    Leave {
        incarnation: i64,
    },
    /// A session and its call.
    Create {
        account: AccountId,
        call: CallId,
        token: u64,
        expires_at: Timestamp,
        now: Timestamp,
    },
    /// Uses up the token and takes the call.
    Join {
        call: CallId,
        token: u64,
        node: String,
        incarnation: i64,
        now: Timestamp,
    },
    Get {
        account: AccountId,
        call: CallId,
    },
    End {
        account: AccountId,
        call: CallId,
        incarnation: i64,
        ending: Ending,
        event: bool,
        now: Timestamp,
    },
    /// What a call's writer or its journal holds.
    Write {
        owner: Owner,
        entries: Vec<Entry>,
    },
    Orphans {
        node: String,
        incarnation: i64,
    },
    WithoutNode,
    OpenCalls {
        now: Timestamp,
    },
    OpenAmong {
        ids: Vec<CallId>,
    },
    Expired {
        now: Timestamp,
    },
    /// Events that are due, of all accounts.
    Due {
        now: Timestamp,
    },
    Claim {
        account: AccountId,
        call: CallId,
        now: Timestamp,
        end: Timestamp,
    },
    Finish {
        account: AccountId,
        call: CallId,
        token: i64,
        finished: Finished<Status>,
        now: Timestamp,
    },
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Done,
    Flag(bool),
    Number(i64),
    /// Incarnation, name, beats.
    Nodes(Vec<(i64, String, i64)>),
    /// Whether it ended, and who hosts it (0: nobody).
    Call(Option<(bool, i64)>),
    /// Account, call, node and incarnation.
    Orphans(Vec<(AccountId, CallId, String, i64)>),
    Open(Vec<(CallId, AccountId, Option<(String, i64)>, Option<Timestamp>)>),
    Ids(BTreeSet<CallId>),
    Sessions(Vec<(AccountId, CallId)>),
    /// Token, attempts, body.
    Claimed(Option<(i64, u32, String)>),
    /// A second event of one end: the unique index refuses the transaction.
    Refused,
}

impl Told {
    pub(crate) fn flag(&self) -> bool {
        *self == Self::Flag(true)
    }
}

/// What [`Told::Open`] says, as the store says it.
pub(crate) fn open_rows(
    rows: Vec<(CallId, AccountId, Option<(String, i64)>, Option<Timestamp>)>,
) -> Vec<OpenRow> {
    let row = |(id, account, host, expires_at)| OpenRow {
        id,
        account,
        host,
        expires_at,
    };
    rows.into_iter().map(row).collect()
}

#[derive(Clone, Debug)]
pub(crate) struct CallRow {
    pub(crate) account: AccountId,
    token: u64,
    pub(crate) expires_at: Timestamp,
    pub(crate) spent_at: Option<Timestamp>,
    pub(crate) status: &'static str,
    pub(crate) host: Option<(String, i64)>,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) reason: Option<String>,
    pub(crate) turns: BTreeSet<u32>,
    pub(crate) joined: u32,
    /// Under which claim it was ended.
    pub(crate) ended_under: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct EventRow {
    pub(crate) account: AccountId,
    pub(crate) body: String,
    pub(crate) status: Status,
    pub(crate) attempts: u32,
    token: i64,
    pub(crate) next: Option<Timestamp>,
}

#[derive(Clone, Debug)]
pub(crate) struct NodeRow {
    pub(crate) name: String,
    pub(crate) beats: i64,
    pub(crate) lost_at: Option<Timestamp>,
}

#[derive(Default)]
pub(crate) struct Database {
    pub(crate) mutant: Option<Mutant>,
    incarnations: i64,
    pub(crate) nodes: BTreeMap<i64, NodeRow>,
    pub(crate) calls: BTreeMap<CallId, CallRow>,
    pub(crate) events: BTreeMap<CallId, EventRow>,
}

fn is_open(status: Status) -> bool {
    matches!(
        status,
        Status::Pending | Status::Failed | Status::Delivering
    )
}

impl Database {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(crate) fn run(&mut self, ask: &Ask) -> Told {
        match ask {
            Ask::Start => {
                self.incarnations += 1;
                Told::Number(self.incarnations)
            }
            Ask::Register {
                incarnation,
                name,
                now: _,
            } => {
                self.nodes
                    .retain(|number, node| node.name != *name || number >= incarnation);
                let node = self.nodes.get_mut(incarnation);
                match node {
                    Some(node) => {
                        node.lost_at = None;
                        node.beats += 1;
                    }
                    None => {
                        let node = NodeRow {
                            name: name.clone(),
                            beats: 0,
                            lost_at: None,
                        };
                        self.nodes.insert(*incarnation, node);
                    }
                }
                Told::Done
            }
            Ask::Beat {
                incarnation,
                now: _,
            } => {
                let alive = self.nodes.get_mut(incarnation);
                let beaten = alive.filter(|node| node.lost_at.is_none());
                Told::Flag(beaten.map(|node| node.beats += 1).is_some())
            }
            Ask::Nodes => Told::Nodes(
                self.living()
                    .map(|(number, node)| (*number, node.name.clone(), node.beats))
                    .collect(),
            ),
            Ask::Bury {
                incarnation,
                beats,
                now,
            } => {
                let node = self.nodes.get_mut(incarnation);
                let stands = node.filter(|node| node.lost_at.is_none() && node.beats == *beats);
                Told::Flag(stands.map(|node| node.lost_at = Some(*now)).is_some())
            }
            Ask::Leave { incarnation } => {
                self.nodes.remove(incarnation);
                Told::Done
            }
            Ask::Create {
                account,
                call,
                token,
                expires_at,
                now: _,
            } => {
                let row = CallRow {
                    account: *account,
                    token: *token,
                    expires_at: *expires_at,
                    spent_at: None,
                    status: "queued",
                    host: None,
                    ended_at: None,
                    reason: None,
                    turns: BTreeSet::new(),
                    joined: 0,
                    ended_under: -1,
                };
                self.calls.insert(*call, row);
                Told::Done
            }
            Ask::Join {
                call,
                token,
                node,
                incarnation,
                now,
            } => {
                let spent_twice = self.is(Mutant::TwoWinners);
                let Some(row) = self.calls.get_mut(call) else {
                    return Told::Flag(false);
                };
                let unspent = row.spent_at.is_none() || spent_twice;
                let free = row.host.is_none() || spent_twice;
                let open = row.token == *token && row.expires_at > *now && row.ended_at.is_none();
                if !(unspent && free && open) {
                    return Told::Flag(false);
                }
                row.spent_at = Some(*now);
                row.host = Some((node.clone(), *incarnation));
                row.status = "in_progress";
                row.joined += 1;
                Told::Flag(true)
            }
            Ask::Get { account, call } => {
                let row = self.calls.get(call).filter(|row| row.account == *account);
                Told::Call(row.map(|row| {
                    let host = row.host.as_ref().map_or(0, |(_, number)| *number);
                    (row.ended_at.is_some(), host)
                }))
            }
            Ask::End {
                account,
                call,
                incarnation,
                ending,
                event,
                now,
            } => self.whole(*call, |db| {
                db.end(*account, *call, *incarnation, ending, *event, *now)
                    .map(Told::Flag)
            }),
            Ask::Write { owner, entries } => self.whole(owner.call, |db| {
                for entry in entries {
                    db.write(owner, entry)?;
                }
                Some(Told::Done)
            }),
            Ask::Orphans { node, incarnation } => self.orphans(|host| match host {
                Some((name, number)) => name == node && number < incarnation,
                None => false,
            }),
            Ask::WithoutNode => {
                let living: HashSet<i64> = self.living().map(|(number, _)| *number).collect();
                self.orphans(|host| host.is_some_and(|(_, number)| !living.contains(number)))
            }
            Ask::OpenCalls { now } => {
                let open = self.calls.iter().filter(|(_, row)| {
                    row.ended_at.is_none() && (row.host.is_some() || row.expires_at > *now)
                });
                Told::Open(
                    open.map(|(id, row)| {
                        (*id, row.account, row.host.clone(), Some(row.expires_at))
                    })
                    .collect(),
                )
            }
            Ask::OpenAmong { ids } => Told::Ids(
                ids.iter()
                    .filter(|id| {
                        let row = self.calls.get(id);
                        row.is_some_and(|row| row.ended_at.is_none())
                    })
                    .copied()
                    .collect(),
            ),
            Ask::Expired { now } => {
                let expired = self
                    .calls
                    .iter()
                    .filter(|(_, row)| row.spent_at.is_none() && row.expires_at <= *now);
                let mut expired: Vec<_> = expired
                    .map(|(id, row)| (row.expires_at, row.account, *id))
                    .collect();
                expired.sort_unstable();
                Told::Sessions(expired.into_iter().map(|(_, of, id)| (of, id)).collect())
            }
            Ask::Due { now } => {
                let mut due: Vec<_> = self
                    .events
                    .iter()
                    .filter(|(_, event)| is_open(event.status))
                    .filter(|(_, event)| event.next.is_some_and(|next| next <= *now))
                    .map(|(id, event)| (event.account, event.next, *id))
                    .collect();
                due.sort_unstable();
                Told::Sessions(due.into_iter().map(|(of, _, id)| (of, id)).collect())
            }
            Ask::Claim {
                account,
                call,
                now,
                end,
            } => {
                let for_ever = self.is(Mutant::ClaimForEver);
                let event = self.events.get_mut(call);
                let due = event.filter(|event| {
                    event.account == *account
                        && is_open(event.status)
                        && event.next.is_some_and(|next| next <= *now)
                });
                Told::Claimed(due.map(|event| {
                    event.status = Status::Delivering;
                    event.token += 1;
                    event.attempts += 1;
                    event.next = (!for_ever).then_some(*end);
                    (event.token, event.attempts, event.body.clone())
                }))
            }
            Ask::Finish {
                account,
                call,
                token,
                finished,
                now: _,
            } => {
                let stale = self.is(Mutant::StaleFinish);
                let event = self.events.get_mut(call);
                let held = event.filter(|event| {
                    event.account == *account
                        && (stale || (event.token == *token && event.status == Status::Delivering))
                });
                Told::Flag(
                    held.map(|event| {
                        event.status = finished.status;
                        event.next = finished.next_attempt_at;
                    })
                    .is_some(),
                )
            }
        }
    }

    fn living(&self) -> impl Iterator<Item = (&i64, &NodeRow)> {
        self.nodes.iter().filter(|(_, node)| node.lost_at.is_none())
    }

    fn orphans(&self, lost: impl Fn(Option<&(String, i64)>) -> bool) -> Told {
        let open = self.calls.iter().filter(|(_, row)| row.ended_at.is_none());
        Told::Orphans(
            open.filter(|(_, row)| lost(row.host.as_ref()))
                .filter_map(|(id, row)| {
                    let (name, number) = row.host.clone()?;
                    Some((row.account, *id, name, number))
                })
                .collect(),
        )
    }

    /// A transaction about one call, whose statements all hold or none; `None` from inside: one is
    /// refused.
    fn whole(&mut self, call: CallId, body: impl FnOnce(&mut Self) -> Option<Told>) -> Told {
        let before = self.calls.get(&call).cloned();
        // An event is inserted last, so it is never to be taken back.
        body(self).unwrap_or_else(|| {
            if let Some(before) = before {
                self.calls.insert(call, before);
            }
            Told::Refused
        })
    }

    fn write(&mut self, owner: &Owner, entry: &Entry) -> Option<()> {
        let fenced = !self.is(Mutant::NoFence);
        match entry {
            Entry::Turn { index, .. } => {
                let row = self.calls.get_mut(&owner.call);
                let own = row.filter(|row| {
                    let host = row.host.as_ref().map(|(_, number)| *number);
                    row.ended_at.is_none() && (!fenced || host == Some(owner.incarnation))
                });
                if let Some(row) = own {
                    row.turns.insert(*index);
                }
            }
            Entry::End { ending, at, .. } => {
                let Owner {
                    account,
                    call,
                    incarnation,
                } = *owner;
                self.end(account, call, incarnation, ending, true, *at)?;
            }
            Entry::Recorded(_) | Entry::NotRecorded { .. } | Entry::Taped { .. } => {}
        }
        Some(())
    }

    /// `None`: refused.
    fn end(
        &mut self,
        account: AccountId,
        call: CallId,
        incarnation: i64,
        ending: &Ending,
        event: bool,
        now: Timestamp,
    ) -> Option<bool> {
        let (fenced, once) = (!self.is(Mutant::NoFence), !self.is(Mutant::EndsTwice));
        let apart = self.is(Mutant::EventApart);
        let Some(row) = self.calls.get_mut(&call) else {
            return Some(false);
        };
        let host = row.host.as_ref().map_or(0, |(_, number)| *number);
        let own = !fenced || host == incarnation;
        let open = row.ended_at.is_none() || !once;
        if row.account != account || !own || !open {
            return Some(false);
        }
        row.status = ending.status.name();
        row.ended_at = Some(now);
        row.ended_under = incarnation;
        row.reason = Some(ending.reason.to_string());
        row.spent_at.get_or_insert(now);
        let body = format!("{call} ended as {} at {}", ending.reason, now.0);
        if !event || (apart && now.0 % 7 == 0) {
            return Some(true);
        }
        if once && self.events.contains_key(&call) {
            return None;
        }
        let event = EventRow {
            account,
            body,
            status: Status::Pending,
            attempts: 0,
            token: 0,
            next: Some(now),
        };
        self.events.insert(call, event);
        Some(true)
    }
}

impl Database {
    /// Every row, a line each, as `real.rs` reads them from the tables.
    pub(crate) fn rows(&self) -> Vec<String> {
        let time = |time: Option<Timestamp>| time.map_or(-1, |time| time.0);
        let mut rows = Vec::new();
        for (call, row) in &self.calls {
            let host = row.host.as_ref();
            rows.push(format!(
                "call {call} {} {} {}:{} {} {} {}",
                row.status,
                row.reason.as_deref().unwrap_or("-"),
                host.map_or("", |(name, _)| name),
                host.map_or(0, |(_, number)| *number),
                time(row.ended_at),
                time(row.spent_at),
                row.turns.len(),
            ));
        }
        for (call, event) in &self.events {
            rows.push(format!(
                "event {call} {} {} {} {}",
                event.status.name(),
                event.attempts,
                event.token,
                time(event.next),
            ));
        }
        for (incarnation, node) in &self.nodes {
            rows.push(format!(
                "node {incarnation} {} {} {}",
                node.name,
                node.beats,
                time(node.lost_at),
            ));
        }
        rows
    }
}
