//! Who notices a task or a thread that dies.
//!
//! What lives as long as the process and dies before it is a [`Fault`]: `/readyz` names it from then on, and the
//! process drains as if it had been told to end, and ends with an error, for whoever started it to start it anew.
//! What carries one call ([`carry`]) takes that call along and nothing else. What has nothing to put right
//! ([`detached`]) is told in the log.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Instrument;

/// The watch over tasks and threads that live as long as this process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Supervisor(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// What died first: the others may have died of it.
    fault: watch::Sender<Option<Fault>>,
    ending: AtomicBool,
}

/// What died though it was to live as long as the process, and of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub name: String,
    pub why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} died: {}", self.name, self.why)
    }
}

impl std::error::Error for Fault {}

impl Supervisor {
    /// Runs a task that ends with the process, and not before.
    pub fn keep(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let supervisor = self.clone();
        let watched = async move {
            let ended = AssertUnwindSafe(task).catch_unwind().await;
            supervisor.ended(name, ended);
        };
        tokio::spawn(watched.in_current_span())
    }

    /// Runs a task that the process cannot do without, and that ends when it is done.
    pub fn once(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let supervisor = self.clone();
        let watched = async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                supervisor.died(name, panic_text(&*panic));
            }
        };
        tokio::spawn(watched.in_current_span());
    }

    /// Runs a thread that ends when its work does, or with the process.
    pub fn thread(&self, name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let (supervisor, builder) = (self.clone(), thread::Builder::new().name(name.clone()));
        builder.spawn(move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                supervisor.died(&format!("thread {name}"), panic_text(&*panic));
            }
        })?;
        Ok(())
    }

    /// Something is over. That is a fault unless the process is ending.
    pub fn ended(&self, name: &str, how: thread::Result<()>) {
        match how {
            Ok(()) if self.0.ending.load(Ordering::SeqCst) => {}
            Ok(()) => self.died(name, "it ended"),
            Err(panic) => self.died(name, panic_text(&*panic)),
        }
    }

    /// Something died that lives as long as the process.
    pub fn died(&self, name: &str, why: &str) {
        tracing::error!(name, why, "what lives as long as the process died");
        let new = Fault {
            name: name.to_owned(),
            why: why.to_owned(),
        };
        self.0.fault.send_if_modified(|fault| {
            let first = fault.is_none();
            fault.get_or_insert(new);
            first
        });
    }

    /// What died, if anything did.
    pub fn fault(&self) -> Option<Fault> {
        self.0.fault.borrow().clone()
    }

    /// Resolves when something has died.
    pub async fn failed(&self) {
        let mut fault = self.0.fault.subscribe();
        if fault.wait_for(Option::is_some).await.is_err() {
            // The sender lives as long as this.
            std::future::pending::<()>().await;
        }
    }

    /// The process ends: whatever is over from now on is so in order.
    pub fn ends(&self) {
        self.0.ending.store(true, Ordering::SeqCst);
    }
}

/// Runs a task that carries something of its own, a call for example. If it panics, `broken` puts right what it left,
/// and is told of what it panicked.
pub fn carry<B: Future<Output = ()> + Send + 'static>(
    what: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
    broken: impl FnOnce(String) -> B + Send + 'static,
) {
    let watched = async move {
        if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
            let why = panic_text(&*panic).to_owned();
            tracing::error!(what, why, "a task panicked");
            broken(why).await;
        }
    };
    tokio::spawn(watched.in_current_span());
}

/// Runs a task that nobody waits for and that leaves nothing behind.
pub fn detached(what: &'static str, task: impl Future<Output = ()> + Send + 'static) {
    carry(what, task, |_| std::future::ready(()));
}

/// What a panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("?")
}

/// Places at which a test has a task panic: each names what is to break, a call's account for example.
#[cfg(test)]
pub mod faults {
    use std::sync::Mutex;

    use crate::vendors::queue::lock;

    static ARMED: Mutex<Vec<(&str, String)>> = Mutex::new(Vec::new());

    /// Has whoever comes there next with this panic.
    pub fn arm(place: &'static str, with: impl ToString) {
        lock(&ARMED).push((place, with.to_string()));
    }

    pub fn reach(place: &'static str, with: impl ToString) {
        let here = (place, with.to_string());
        let mut armed = lock(&ARMED);
        let at = armed.iter().position(|fault| *fault == here);
        let fault = at.map(|at| armed.swap_remove(at));
        drop(armed);
        assert!(fault.is_none(), "a fault that was asked for: {place}");
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test may stop at a surprise"
    )]

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn the_first_that_dies_is_the_fault() {
        let supervisor = Supervisor::default();
        assert_eq!(supervisor.fault(), None);
        let kept = supervisor.keep("a loop", async { panic!("out of {}", "luck") });
        supervisor.failed().await;
        kept.await.unwrap();
        supervisor.died("another", "it ended");
        let fault = supervisor.fault().unwrap();
        assert_eq!(fault.to_string(), "a loop died: out of luck");
    }

    #[tokio::test]
    async fn a_loop_that_ends_before_the_process_is_a_fault_and_one_that_ends_with_it_is_not() {
        let supervisor = Supervisor::default();
        supervisor.once("a start", async {});
        supervisor.ends();
        supervisor.keep("a loop", async {}).await.unwrap();
        assert_eq!(supervisor.fault(), None);
        let supervisor = Supervisor::default();
        supervisor.keep("a loop", async {}).await.unwrap();
        assert_eq!(
            supervisor.fault().unwrap().to_string(),
            "a loop died: it ended"
        );
    }

    #[tokio::test]
    async fn a_thread_s_panic_is_a_fault_and_its_end_is_not() {
        let supervisor = Supervisor::default();
        let (done, over) = oneshot::channel();
        supervisor
            .thread("worker-0".to_owned(), move || done.send(()).unwrap())
            .unwrap();
        over.await.unwrap();
        assert_eq!(supervisor.fault(), None);
        supervisor
            .thread("worker-1".to_owned(), || panic!("no more"))
            .unwrap();
        supervisor.failed().await;
        assert_eq!(
            supervisor.fault().unwrap().to_string(),
            "thread worker-1 died: no more"
        );
    }

    #[tokio::test]
    async fn what_a_carrier_left_is_put_right_and_no_fault() {
        let (told, why) = oneshot::channel();
        let task = async { panic!("dropped it") };
        carry(
            "a carrier",
            task,
            |why| async move { told.send(why).unwrap() },
        );
        assert_eq!(why.await.unwrap(), "dropped it");
    }
}
