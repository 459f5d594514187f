//! What a resource says of its jobs: where the rows are, what is due, what a step does; and the words in
//! which a step tells how it ended.

use std::future::Future;
use std::time::Duration;

use uuid::Uuid;

use super::policy::{Lane, Lease, Limits};
use super::{Claim, Look, Queue};
use crate::db::{DbError, Row, Tx};
use crate::ids::AccountId;
use crate::time::Timestamp;

/// The table of a kind. Besides columns of its own it has `id` and `account_id` (text), `status` (text),
/// `attempts` and `claim_token` (bigint, 0 at first), `next_attempt_at` (bigint, null once the job is
/// settled), `last_error` (text) and `updated_at` (bigint), and `intended_at` (bigint) where deeds must not
/// be repeated. An index over `(account_id, next_attempt_at) where <open>` finds what is due.
#[derive(Debug)]
pub struct Table {
    /// The name of the table; the log names the jobs by it, too.
    pub name: &'static str,
    /// The condition of rows that are not settled, to the letter as it stands in the index: SQLite would not
    /// use the index otherwise.
    pub open: &'static str,
    /// The status of a claimed row, which is an open one.
    pub claimed: &'static str,
    /// The columns that [`Kind::read`] reads, as they stand behind `returning`.
    pub columns: &'static str,
    /// The status of success, and the column that holds its time.
    pub done: Option<(&'static str, &'static str)>,
}

/// The rows of one account that are due.
pub type Due<K> = Vec<Found<<K as Kind>::Lane, <K as Kind>::Status>>;

/// A kind of job.
pub trait Kind: Send + Sync + Sized + 'static {
    /// Where a job stands: the resource's own closed set.
    type Status: Copy + Send + Sync;
    /// What jobs of one account may crowd; `()` where there is nothing.
    type Lane: Lane;
    /// What a step reads of its row.
    type Job: Send + Sync;
    /// What a step leaves in the database together with its end.
    type Effect: Send + Sync;

    const TABLE: &'static Table;
    /// The status of a job whose deed may or may not have been done. `None`: steps may be repeated, and the
    /// table has no `intended_at`.
    const UNKNOWN: Option<Self::Status>;

    /// The status as it stands in the table.
    fn word(status: Self::Status) -> &'static str;

    /// Reads [`Table::columns`].
    fn read(row: &Row) -> Result<Self::Job, DbError>;

    /// How many steps may run at the same time, read once at the start of a worker.
    fn limits(&self) -> Limits;

    /// How long a claim lasts.
    fn lease(&self) -> Lease;

    /// The longest that any row waits. A row that is due later than that was written by a clock that was
    /// ahead, and a starting worker makes it due. `None`: rows may be planned for any time.
    fn longest_wait(&self) -> Option<Duration>;

    /// The queue that the worker waits at.
    fn queue(&self) -> &Queue;

    /// The rows of one account that are due, oldest first, without those of the lanes that are `full`. Read
    /// with [`Look::rows`].
    fn due(
        &self,
        look: &Look<'_>,
        full: &[Self::Lane],
    ) -> impl Future<Output = Result<Due<Self>, DbError>> + Send;

    /// Does one step of a claimed job. `claim.held.attempts` counts this attempt, so a job whose steps kill
    /// their process can be told from others.
    fn step(
        &self,
        claim: &Claim<Self>,
        lane: Self::Lane,
        job: Self::Job,
    ) -> impl Future<Output = Result<Ended<Self::Status, Self::Effect>, Left>> + Send;

    /// Finds out whether a deed was done that an earlier attempt intended and nobody wrote an end of. A kind
    /// whose vendor cannot be asked leaves this as it is.
    fn ask(
        &self,
        _claim: &Claim<Self>,
        _job: &Self::Job,
    ) -> impl Future<Output = Result<Answer<Self::Status, Self::Effect>, Left>> + Send {
        async { Ok(Answer::Unknown) }
    }

    /// Writes a step's effect, in the transaction that writes its end. Tried again where the database is away
    /// and the step's deed must not be repeated.
    fn keep(
        &self,
        tx: &mut Tx,
        held: &Held,
        effect: &Self::Effect,
    ) -> impl Future<Output = Result<(), DbError>> + Send;

    /// Hears of every end that was written: for counters.
    fn ended(&self, _status: Self::Status) {}

    /// What every line of the log about a job carries.
    fn span(&self, held: &Held, _job: &Self::Job) -> tracing::Span {
        tracing::error_span!("job", of = Self::TABLE.name, id = %held.id, account = %held.account)
    }
}

/// A row that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<L, S> {
    pub id: Uuid,
    pub plan: Plan<L, S>,
}

/// What is to become of a due row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan<L, S> {
    /// A step, in that lane.
    Run(L),
    /// No other step: the job was cancelled, or what it was for is gone. A row whose deed is intended and
    /// not done is settled as [`Kind::UNKNOWN`] instead.
    Close(S),
}

/// A claim, as the database knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub account: AccountId,
    pub id: Uuid,
    /// Larger than those of all claims of this row before.
    pub token: i64,
    /// Attempts at this step, this one included.
    pub attempts: u32,
    /// When an earlier attempt intended a deed whose end nobody wrote.
    pub intended_at: Option<Timestamp>,
}

/// What is written of a step's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished<S> {
    pub status: S,
    /// When the row is due again; `None`: the job is settled.
    pub next_attempt_at: Option<Timestamp>,
    /// What went wrong, as a sentence for people.
    pub error: Option<String>,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended<S, E> {
    pub finished: Finished<S>,
    /// What is written together with it.
    pub effect: Option<E>,
    pub then: Then,
}

/// What whoever claims the row next has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The outcome is known. Attempts are counted on.
    Attempt,
    /// The outcome is known, and was a step of several. Attempts are counted anew.
    Step,
    /// Nobody knows yet whether the deed was done: the next attempt asks first.
    Ask,
}

impl<S, E> Ended<S, E> {
    /// An end of which all is known.
    pub const fn new(finished: Finished<S>) -> Self {
        Self {
            finished,
            effect: None,
            then: Then::Attempt,
        }
    }

    /// The same, written together with an effect.
    #[must_use]
    pub fn with(self, effect: E) -> Self {
        Self {
            effect: Some(effect),
            ..self
        }
    }

    /// The same, with another step or question to follow.
    #[must_use]
    pub fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }
}

/// What the vendor says of a deed that was intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<S, E> {
    /// The deed was not done: the step is run.
    NotDone,
    /// The deed was done, and ended so. Also for a vendor that does not answer now, with [`Then::Ask`].
    Ended(Ended<S, E>),
    /// Nobody knows: the job ends as [`Kind::UNKNOWN`].
    Unknown,
}

/// Why a step was left without an end. Its claim runs out, and the row is due again.
#[derive(Debug)]
pub enum Left {
    /// The claim ran out, and another has the job.
    Lost,
    Database(DbError),
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lost => f.write_str("the claim ran out: another has the job"),
            Self::Database(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Left {}

impl From<DbError> for Left {
    fn from(error: DbError) -> Self {
        Self::Database(error)
    }
}
