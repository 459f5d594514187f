//! A bounded queue between call threads and workers: pushing never waits, taking does.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// First in, first out, at most `bound` items.
pub struct Queue<T> {
    items: Mutex<State<T>>,
    ready: Condvar,
    bound: usize,
}

struct State<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

impl<T> Queue<T> {
    pub fn new(bound: usize) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            closed: false,
        };
        Self {
            items: Mutex::new(state),
            ready: Condvar::new(),
            bound,
        }
    }

    /// Hands the item back when the queue is full or closed.
    pub fn push(&self, item: T) -> Result<(), T> {
        let mut state = lock(&self.items);
        if state.closed || state.waiting.len() >= self.bound {
            return Err(item);
        }
        state.waiting.push_back(item);
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    /// Waits for an item; `None` once the queue is closed.
    pub fn take(&self) -> Option<T> {
        let mut state = lock(&self.items);
        loop {
            if state.closed {
                return None;
            }
            if let Some(item) = state.waiting.pop_front() {
                return Some(item);
            }
            state = self
                .ready
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sends the workers home; what waits is dropped.
    pub fn close(&self) {
        let mut state = lock(&self.items);
        state.closed = true;
        state.waiting.clear();
        drop(state);
        self.ready.notify_all();
    }
}

/// Locks, whether or not another holder panicked: the state behind these locks is valid after every
/// single statement.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_refuses_beyond_the_bound() {
        let queue = Queue::new(2);
        assert_eq!(queue.push(1), Ok(()));
        assert_eq!(queue.push(2), Ok(()));
        assert_eq!(queue.push(3), Err(3));
        assert_eq!(queue.take(), Some(1));
        assert_eq!(queue.take(), Some(2));
        queue.close();
        assert_eq!(queue.take(), None);
        assert_eq!(queue.push(4), Err(4));
    }
}
