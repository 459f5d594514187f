//! The lease store that nodes share, in memory: the book of the product's policy, and whether its counts
//! can be trusted. `real.rs` holds it to what Redis does with the product's scripts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use control::admission::command::{Command, RenewalPart};
use control::admission::policy::{Book, Caps};
use control::admission::{Owner, Refusal, Roll};
use control::http::error::Reason;
use control::time::Moment;

use crate::mutants::Mutant;

/// How long the counts are trusted without a beat.
const EPOCH: Duration = Duration::from_secs(10);

pub(crate) struct Server {
    pub(crate) mutant: Option<Mutant>,
    caps: Caps,
    pub(crate) book: Book,
    /// Changes when another process serves.
    identity: u64,
    /// Whose counts, until when.
    epoch: Option<(u64, Moment)>,
    /// Who told this process of its calls since it is cold, until when that is remembered.
    back: (BTreeSet<String>, Moment),
    telling: BTreeMap<String, Moment>,
}

impl Server {
    pub(crate) fn new(caps: Caps, mutant: Option<Mutant>) -> Self {
        let more = u32::from(mutant == Some(Mutant::OneTooMany));
        let caps = Caps {
            account: caps.account + more,
            pool: caps.pool + more,
            node: caps.node,
        };
        Self {
            mutant,
            caps,
            book: Book::new(caps),
            identity: 1,
            epoch: None,
            back: (BTreeSet::new(), Moment::default()),
            telling: BTreeMap::new(),
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// All data are gone.
    pub(crate) fn flush(&mut self) {
        self.book = Book::new(self.caps);
        self.back.0.clear();
        self.telling.clear();
        if !self.is(Mutant::WarmAfterFlush) {
            self.epoch = None;
        }
    }

    /// Another process serves, with these data.
    pub(crate) fn replace(&mut self, snapshot: Option<Snapshot>) {
        self.identity += 1;
        self.back.0.clear();
        match snapshot {
            None => self.flush(),
            Some(Snapshot {
                book,
                epoch,
                telling,
            }) => {
                self.book = book;
                self.epoch = epoch;
                self.telling = telling;
            }
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            book: self.book.clone(),
            epoch: self.epoch,
            telling: self.telling.clone(),
        }
    }

    pub(crate) fn is_warm(&self, now: Moment) -> bool {
        self.epoch
            .is_some_and(|(identity, until)| identity == self.identity && until > now)
    }

    /// What has run out by now, by the names of the keys: [`Self::run`] forgets it.
    pub(crate) fn ran_out(&mut self, now: Moment) -> Vec<String> {
        let mut keys = Vec::new();
        if self.epoch.is_some_and(|(_, until)| until <= now) {
            self.epoch = None;
            keys.push("epoch".to_owned());
        }
        if !self.back.0.is_empty() && self.back.1 <= now {
            self.back.0.clear();
            keys.push("back".to_owned());
        }
        self.telling.retain(|owner, until| {
            let stays = *until > now;
            if !stays {
                keys.push(format!("telling:{owner}"));
            }
            stays
        });
        keys
    }

    /// One script at the server's time.
    pub(crate) fn run(&mut self, command: &Command, now: Moment) -> Vec<String> {
        let warm = self.is_warm(now);
        if matches!(command, Command::Acquire(_) | Command::Adopt(_)) {
            self.book.expire(now);
        }
        match command {
            Command::Acquire(_) if !warm => words(["cold"]),
            Command::Acquire(request) => said(self.book.acquire(request, now)),
            Command::Adopt(request) => {
                let known = self.book.list(now);
                let held = known
                    .iter()
                    .any(|held| held.lease == request.lease && !held.left.is_zero());
                if held || warm || self.book.is_gone(request.lease, now) {
                    said(self.book.adopt(request, now))
                } else {
                    words(["cold"])
                }
            }
            Command::Renew {
                part,
                owner,
                leases,
            } => {
                let name = owner.0.to_string();
                self.book.expire(now);
                match part {
                    RenewalPart::First => {
                        self.telling.insert(name.clone(), now.plus(EPOCH));
                    }
                    RenewalPart::Next | RenewalPart::Last if !self.telling.contains_key(&name) => {
                        return words(["again"]);
                    }
                    _ => {}
                }
                self.book.renew(owner, leases, now);
                if matches!(part, RenewalPart::Last | RenewalPart::Only) {
                    self.telling.remove(&name);
                    self.back.0.insert(name);
                    self.back.1 = now.plus(EPOCH * 3);
                }
                words(["ok"])
            }
            Command::Release { lease, owner } => {
                let foreign = self.book.list(now).iter().any(|held| {
                    held.lease == *lease
                        && held.live
                        && held.owner != *owner
                        && !held.left.is_zero()
                });
                self.book.release(*lease, owner, now);
                words([if foreign { "other" } else { "ok" }])
            }
            Command::Count => {
                // It looks at the time, and changes nothing.
                let mut book = self.book.clone();
                book.expire(now);
                let counts = book.counts();
                vec![
                    "ok".to_owned(),
                    counts.pending.to_string(),
                    counts.live.to_string(),
                ]
            }
            Command::List => {
                self.book.expire(now);
                let mut all = self.book.list(now);
                all.sort_by_key(|held| (held.left, held.lease.to_string()));
                let mut answer = words(["ok"]);
                for held in all {
                    answer.extend([
                        held.lease.to_string(),
                        held.owner.0.to_string(),
                        if held.live { "live" } else { "pending" }.to_owned(),
                        held.age.as_micros().to_string(),
                        held.left.as_micros().to_string(),
                    ]);
                }
                answer
            }
            Command::Beat if warm => {
                self.epoch = Some((self.identity, now.plus(EPOCH)));
                words(["warm"])
            }
            Command::Beat => words(["cold"]),
            Command::Ask(roll) => match self.missing(roll, now) {
                Some(answer) => answer,
                None => words(["back"]),
            },
            Command::Open { roll, by } => {
                if let Some(answer) = self.missing(roll, now) {
                    return answer;
                }
                for call in &roll.open {
                    self.book.take_up(call, by, now);
                }
                self.epoch = Some((self.identity, now.plus(EPOCH)));
                self.back.0.clear();
                words(["warm"])
            }
        }
    }

    /// `warm`, or who has not told this server yet.
    fn missing(&self, roll: &Roll, now: Moment) -> Option<Vec<String>> {
        if self.is_warm(now) {
            return Some(words(["warm"]));
        }
        let told = |owner: &Owner| self.back.0.contains(&*owner.0);
        let missing = roll.owners.iter().find(|owner| !told(owner))?;
        if self.is(Mutant::OpensTooEarly) {
            return None;
        }
        Some(vec!["cold".to_owned(), missing.0.to_string()])
    }
}

/// What a replica has.
pub(crate) struct Snapshot {
    book: Book,
    epoch: Option<(u64, Moment)>,
    telling: BTreeMap<String, Moment>,
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

fn said(answer: Result<(), Refusal>) -> Vec<String> {
    match answer {
        Ok(()) => words(["ok"]),
        Err(Refusal {
            reason: Reason::DuplicateLease,
            ..
        }) => words(["duplicate"]),
        Err(refusal) => vec![
            "full".to_owned(),
            refusal.resource.unwrap_or_default().to_owned(),
            refusal.current.unwrap_or_default().to_string(),
            refusal.cap.unwrap_or_default().to_string(),
        ],
    }
}
