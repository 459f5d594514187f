//! Faults that tests plant, to see that the simulation would find them. In the product each question
//! is the constant `false`, and nothing is left of it.

/// What can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A refusal that comes again is not acknowledged again.
    AckOnlyOnce,
    /// A refusal is not sent again when no ACK comes.
    RefusalSentOnce,
    /// A 2xx is not sent again when no ACK comes.
    AnswerSentOnce,
    /// A 2xx that comes again is not acknowledged again.
    AnswerAckedOnce,
    /// A CANCEL that crosses the 2xx leaves the call up.
    CrossedCancelForgotten,
    /// A request that is no INVITE is not sent again when no answer comes.
    RequestSentOnce,
}

#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn mutant(_: Mutant) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn mutant(asked: Mutant) -> bool {
    PLANTED.get() == Some(asked)
}

/// Plants a fault for the rest of this thread's test.
#[cfg(test)]
pub(crate) fn plant(fault: Option<Mutant>) {
    PLANTED.set(fault);
}
