//! Faults that are planted to see whether the simulation finds them.
//!
//! Each stands for one condition, argument or order of the product that its author might have got wrong.
//! It is planted on this side: where a store in memory has the condition of a statement or script, or
//! where a node asks a pure rule of the product or does what it says. So the product has no switch that
//! only tests know, ten faults need no ten builds, and the rules themselves run as they are shipped.

/// What is wrong in this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The caps of the scripts: `<=` for `<`.
    OneTooMany,
    /// A server that lost its data is trusted (`is_warm` without the epoch).
    WarmAfterFlush,
    /// `open.lua` does not wait for all nodes, nor is told what the database has.
    OpensTooEarly,
    /// The fence is missing: `coalesce(owner_incarnation, 0) = $12` of `calls::store::finish`.
    NoFence,
    /// `ended_at is null` is missing there, and the unique index beside it.
    EndsTwice,
    /// `spent_at is null` and `owner_incarnation is null` are missing of consume and take.
    TwoWinners,
    /// `call.ended` is inserted after the transaction that ends the call.
    EventApart,
    /// `claim_token = $7 and status = '{claimed}'` are missing of `jobs::store::finish`.
    StaleFinish,
    /// A claim does not run out.
    ClaimForEver,
    /// The body is made at each attempt.
    BodyMadeAnew,
    /// An event is given up one attempt early.
    ExhaustsEarly,
    /// A slot is given back before the end of its call is written down.
    ReleasesBeforeEnd,
    /// What the database does not take is not kept on the disk.
    NoJournal,
    /// A node is taken for dead after a second and a half.
    Impatient,
    /// Leases without a call are not freed.
    NoReconciler,
    /// A call whose slot was refused keeps its seat on the node.
    SeatLeaks,
    /// A failed connect leaves its lease in the node's ledger, to be told again.
    LedgerLeaks,
}

impl Mutant {
    pub(crate) const ALL: [Self; 17] = [
        Self::OneTooMany,
        Self::WarmAfterFlush,
        Self::OpensTooEarly,
        Self::NoFence,
        Self::EndsTwice,
        Self::TwoWinners,
        Self::EventApart,
        Self::StaleFinish,
        Self::ClaimForEver,
        Self::BodyMadeAnew,
        Self::ExhaustsEarly,
        Self::ReleasesBeforeEnd,
        Self::NoJournal,
        Self::Impatient,
        Self::NoReconciler,
        Self::SeatLeaks,
        Self::LedgerLeaks,
    ];
}
