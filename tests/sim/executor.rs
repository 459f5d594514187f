//! Virtual time: tasks that wait for it and for one another, in an order that the seed alone decides.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Microseconds since the beginning of the simulation.
pub(crate) type Time = u64;

/// One life of one process: its tasks stop while it sleeps and vanish with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) node: usize,
    pub(crate) number: u32,
}

#[derive(Default)]
pub(crate) struct Executor {
    now: Cell<Time>,
    sequence: Cell<u64>,
    queue: RefCell<BinaryHeap<Reverse<Timer>>>,
    tasks: RefCell<Vec<Entry>>,
    free: RefCell<Vec<usize>>,
    current: Cell<Task>,
    /// Until when each node sleeps.
    asleep: RefCell<Vec<Time>>,
    pub(crate) steps: Cell<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Task {
    place: usize,
    generation: u32,
}

#[derive(Default)]
struct Entry {
    generation: u32,
    life: Option<Life>,
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

struct Timer {
    at: Time,
    sequence: u64,
    what: What,
}

enum What {
    Wake(Task),
    Do(Box<dyn FnOnce()>),
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl Executor {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            asleep: RefCell::new(vec![0; nodes]),
            ..Self::default()
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.now.get()
    }

    /// Begins a task; one of a process ends with its life.
    pub(crate) fn spawn(&self, life: Option<Life>, future: impl Future<Output = ()> + 'static) {
        let place = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut tasks = self.tasks.borrow_mut();
            tasks.push(Entry::default());
            tasks.len() - 1
        });
        let mut tasks = self.tasks.borrow_mut();
        let entry = &mut tasks[place];
        entry.generation += 1;
        entry.life = life;
        entry.future = Some(Box::pin(future));
        let task = Task {
            place,
            generation: entry.generation,
        };
        drop(tasks);
        self.push(self.now(), What::Wake(task));
    }

    /// Does something at a time, whoever lives then.
    pub(crate) fn at(&self, at: Time, what: impl FnOnce() + 'static) {
        self.push(at.max(self.now()), What::Do(Box::new(what)));
    }

    /// Ends all tasks of a life.
    pub(crate) fn kill(&self, life: Life) {
        let mut dead = Vec::new();
        for (place, entry) in self.tasks.borrow_mut().iter_mut().enumerate() {
            if entry.life == Some(life) && entry.future.is_some() {
                dead.push(entry.future.take());
                entry.generation += 1;
                self.free.borrow_mut().push(place);
            }
        }
        // What they held is let go of without a borrow.
        drop(dead);
    }

    /// Stops a node's tasks until then.
    pub(crate) fn put_to_sleep(&self, node: usize, until: Time) {
        self.asleep.borrow_mut()[node] = until;
    }

    pub(crate) fn sleep(&self, time: Time) -> Sleep<'_> {
        Sleep {
            executor: self,
            until: self.now() + time,
            armed: false,
        }
    }

    /// Runs everything that happens up to then.
    pub(crate) fn run_until(&self, end: Time) {
        loop {
            let next = {
                let mut queue = self.queue.borrow_mut();
                match queue.peek() {
                    Some(Reverse(timer)) if timer.at <= end => queue.pop(),
                    _ => None,
                }
            };
            let Some(Reverse(timer)) = next else { break };
            self.now.set(timer.at);
            self.steps.set(self.steps.get() + 1);
            match timer.what {
                What::Do(what) => what(),
                What::Wake(task) => self.wake(task),
            }
        }
        self.now.set(end);
    }

    fn wake(&self, task: Task) {
        let mut future = {
            let mut tasks = self.tasks.borrow_mut();
            let entry = &mut tasks[task.place];
            if entry.generation != task.generation {
                return;
            }
            if let Some(life) = entry.life {
                let until = self.asleep.borrow()[life.node];
                if until > self.now() {
                    drop(tasks);
                    return self.push(until, What::Wake(task));
                }
            }
            let Some(future) = entry.future.take() else {
                return;
            };
            future
        };
        self.current.set(task);
        let polled = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let mut tasks = self.tasks.borrow_mut();
        let entry = &mut tasks[task.place];
        // It may have ended its own life.
        if entry.generation != task.generation {
            drop(tasks);
            return drop(future);
        }
        match polled {
            Poll::Pending => entry.future = Some(future),
            Poll::Ready(()) => {
                entry.generation += 1;
                self.free.borrow_mut().push(task.place);
                drop(tasks);
                drop(future);
            }
        }
    }

    fn push(&self, at: Time, what: What) {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        let timer = Timer { at, sequence, what };
        self.queue.borrow_mut().push(Reverse(timer));
    }
}

/// Time that passes.
pub(crate) struct Sleep<'a> {
    executor: &'a Executor,
    until: Time,
    armed: bool,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.executor.now() >= self.until {
            return Poll::Ready(());
        }
        if !self.armed {
            self.armed = true;
            let task = self.executor.current.get();
            self.executor.push(self.until, What::Wake(task));
        }
        Poll::Pending
    }
}

/// A value that somebody waits for.
pub(crate) struct Slot<T>(Rc<RefCell<Inner<T>>>);

struct Inner<T> {
    value: Option<T>,
    waiter: Option<Task>,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Rc::new(RefCell::new(Inner {
            value: None,
            waiter: None,
        })))
    }
}

impl<T> Slot<T> {
    pub(crate) fn fill(&self, executor: &Executor, value: T) {
        let mut inner = self.0.borrow_mut();
        inner.value = Some(value);
        if let Some(task) = inner.waiter.take() {
            executor.push(executor.now(), What::Wake(task));
        }
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.0.borrow_mut().value.take()
    }

    /// The value, or `None` when it does not come within that time.
    pub(crate) fn within<'a>(&'a self, executor: &'a Executor, time: Time) -> Within<'a, T> {
        Within {
            slot: self,
            sleep: executor.sleep(time),
        }
    }
}

pub(crate) struct Within<'a, T> {
    slot: &'a Slot<T>,
    sleep: Sleep<'a>,
}

impl<T> Future for Within<'_, T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let task = self.sleep.executor.current.get();
        let value = {
            let mut inner = self.slot.0.borrow_mut();
            inner.waiter = Some(task);
            inner.value.take()
        };
        let over = Pin::new(&mut self.sleep).poll(context).is_ready();
        if value.is_some() || over {
            self.slot.0.borrow_mut().waiter = None;
            return Poll::Ready(value);
        }
        Poll::Pending
    }
}

/// Numbers that only look random (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}
