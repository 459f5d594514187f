//! What nodes and the shared lease store say to each other, pure: a [`Command`] is one script of
//! `scripts/` with its values, and every script answers with a list of words.

use std::time::Duration;

use super::policy::Caps;
use super::{GONE_FOR, Held, LIVE_TTL, Owner, Refusal, Renewal, Request, Roll, State};
use crate::ids::CallId;

/// One step of the store, for all nodes at once.
#[derive(Clone, Debug)]
pub enum Command {
    Acquire(Request),
    /// Always a live wish.
    Adopt(Request),
    Renew {
        part: RenewalPart,
        owner: Owner,
        leases: Vec<Renewal>,
    },
    Release {
        lease: CallId,
        owner: Owner,
    },
    Count,
    List,
    Beat,
    /// Have all of the roll told a cold store of their calls?
    Ask(Roll),
    /// Then it may count again. `by` holds the sessions that wait for somebody.
    Open {
        roll: Roll,
        by: Owner,
    },
}

/// Which part of a renewal it is: a cold store is told all that a node holds in parts of a bounded
/// size, and takes the node for told with the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalPart {
    /// An ordinary renewal.
    Plain,
    Only,
    First,
    Next,
    Last,
}

impl RenewalPart {
    /// Of the `index`th of `count` parts.
    pub const fn of(index: usize, count: usize) -> Self {
        match index {
            0 if count <= 1 => Self::Only,
            0 => Self::First,
            _ if index + 1 == count => Self::Last,
            _ => Self::Next,
        }
    }

    pub const fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Only => "only",
            Self::First => "first",
            Self::Next => "next",
            Self::Last => "last",
        }
    }
}

impl Command {
    /// The values of the script, in its order.
    pub fn args(&self, caps: &Caps) -> Vec<String> {
        match self {
            Self::Acquire(request) | Self::Adopt(request) => wish(request, caps),
            Self::Renew {
                part,
                owner,
                leases,
            } => {
                let mut args = vec![part.word().to_owned(), owner.0.to_string()];
                for renewal in leases {
                    args.extend([
                        renewal.lease.to_string(),
                        renewal.account.to_string(),
                        renewal.agent.map_or_else(String::new, |id| id.to_string()),
                        renewal.trunk.map_or_else(String::new, |id| id.to_string()),
                        word(renewal.state).to_owned(),
                        micros(renewal.state.ttl()),
                    ]);
                }
                args
            }
            Self::Release { lease, owner } => {
                vec![lease.to_string(), owner.0.to_string(), micros(GONE_FOR)]
            }
            Self::Count | Self::List | Self::Beat => Vec::new(),
            Self::Ask(roll) => names("ask", roll),
            Self::Open { roll, by } => {
                let mut args = names("open", roll);
                for call in &roll.open {
                    let (owner, state) = match &call.owner {
                        Some(owner) => (owner, State::Live),
                        None => (by, State::Pending),
                    };
                    args.extend([
                        call.lease.to_string(),
                        owner.0.to_string(),
                        call.account.to_string(),
                        word(state).to_owned(),
                        micros(call.left),
                    ]);
                }
                args
            }
        }
    }
}

fn names(how: &str, roll: &Roll) -> Vec<String> {
    let mut args = vec![how.to_owned(), roll.owners.len().to_string()];
    args.extend(roll.owners.iter().map(|owner| owner.0.to_string()));
    args
}

fn wish(request: &Request, caps: &Caps) -> Vec<String> {
    let Request {
        lease,
        owner,
        account,
        agent,
        trunk,
        beyond,
        state,
    } = request;
    let unless_beyond = |cap: u32| if *beyond { u32::MAX } else { cap };
    vec![
        lease.to_string(),
        owner.0.to_string(),
        account.to_string(),
        agent.map_or_else(String::new, |(agent, _)| agent.to_string()),
        trunk.map_or_else(String::new, |(trunk, _)| trunk.to_string()),
        word(*state).to_owned(),
        micros(state.ttl()),
        unless_beyond(caps.account).to_string(),
        unless_beyond(agent.map_or(0, |(_, cap)| cap)).to_string(),
        trunk.map_or(0, |(_, cap)| cap).to_string(),
        caps.pool.to_string(),
        caps.node.to_string(),
        micros(LIVE_TTL),
    ]
}

/// What acquire and adopt answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Ok,
    Full {
        resource: &'static str,
        current: u32,
        cap: u32,
    },
    Duplicate,
    Cold,
    /// None that a script gives.
    Other,
}

impl Word {
    pub fn read(answer: &[String]) -> Self {
        match answer {
            [word] if word == "ok" => Self::Ok,
            [word] if word == "duplicate" => Self::Duplicate,
            [word] if word == "cold" => Self::Cold,
            [word, resource, current, cap] if word == "full" => {
                let resource = ["account", "agent", "trunk", "pool", "node"]
                    .into_iter()
                    .find(|known| known == resource);
                match (resource, current.parse(), cap.parse()) {
                    (Some(resource), Ok(current), Ok(cap)) => Self::Full {
                        resource,
                        current,
                        cap,
                    },
                    _ => Self::Other,
                }
            }
            _ => Self::Other,
        }
    }

    /// Why there is no lease; `None`: there is one.
    pub const fn refusal(self) -> Option<Refusal> {
        Some(match self {
            Self::Ok => return None,
            Self::Full {
                resource,
                current,
                cap,
            } => Refusal::full(resource, current, cap),
            Self::Duplicate => Refusal::duplicate(),
            Self::Cold => Refusal::unavailable(),
            Self::Other => Refusal::error(),
        })
    }
}

/// What a list answers; `None`: that is no list.
pub fn held(answer: &[String]) -> Option<Vec<Held>> {
    let rows = answer.get(1..)?.chunks_exact(5).map(|row| {
        Some(Held {
            lease: row[0].parse().ok()?,
            owner: Owner(row[1].as_str().into()),
            live: row[2] == "live",
            age: Duration::from_micros(row[3].parse().ok()?),
            left: Duration::from_micros(row[4].parse().ok()?),
        })
    });
    rows.collect()
}

const fn word(state: State) -> &'static str {
    match state {
        State::Pending | State::Keyless => "pending",
        State::Live => "live",
    }
}

fn micros(duration: Duration) -> String {
    duration.as_micros().to_string()
}
