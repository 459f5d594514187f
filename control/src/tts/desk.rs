//! What all syntheses of this process may hold together, and the previews that were already made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};
use uuid::Uuid;

/// Sound is counted in pieces of this many bytes.
const UNIT: usize = 1024;

/// Previews kept at most: one a voice, about 200 KiB each. Beyond it all are forgotten.
const MAX_PREVIEWS: usize = 64;

/// Bounds the sound that is in memory on its way to clients.
#[derive(Debug)]
pub struct Desk {
    room: Arc<Semaphore>,
    units: u32,
    active: watch::Sender<usize>,
    previews: Mutex<BTreeMap<Uuid, Arc<OnceCell<Bytes>>>>,
}

/// Room for some sound, given back when dropped. It travels with the bytes it stands for.
#[derive(Debug)]
pub struct Room(OwnedSemaphorePermit);

/// One synthesis that is under way.
#[derive(Debug)]
pub struct Active(Arc<Desk>);

impl Desk {
    /// `mebibytes` of sound at most.
    pub fn new(mebibytes: u32) -> Arc<Self> {
        let units = mebibytes.saturating_mul(1024);
        Arc::new(Self {
            room: Arc::new(Semaphore::new(units as usize)),
            units,
            active: watch::Sender::new(0),
            previews: Mutex::default(),
        })
    }

    /// Room for this many bytes, as soon as others gave it back. More than there is at all is taken
    /// to be all there is.
    pub async fn room(&self, bytes: usize) -> Room {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let units = units.clamp(1, self.units);
        loop {
            // The semaphore is never closed.
            if let Ok(permit) = Arc::clone(&self.room).acquire_many_owned(units).await {
                return Room(permit);
            }
        }
    }

    /// As [`room`](Self::room), for a request that can still be told to come back: `None` when there
    /// is none within `patience`.
    pub async fn first_room(&self, bytes: usize, patience: Duration) -> Option<Room> {
        tokio::time::timeout(patience, self.room(bytes)).await.ok()
    }

    /// Counts a synthesis until what is returned is dropped.
    pub fn begin(self: &Arc<Self>) -> Active {
        self.active.send_modify(|active| *active += 1);
        Active(Arc::clone(self))
    }

    /// Syntheses under way.
    pub fn active(&self) -> usize {
        *self.active.borrow()
    }

    /// Waits until none is under way, at most `patience`. `false`: some are.
    pub async fn idle(&self, patience: Duration) -> bool {
        let mut active = self.active.subscribe();
        let none = tokio::time::timeout(patience, active.wait_for(|active| *active == 0)).await;
        none.is_ok_and(|none| none.is_ok())
    }

    /// The place of a voice's preview, made once however many ask for it.
    pub fn preview(&self, voice: Uuid) -> Arc<OnceCell<Bytes>> {
        // The map is whole after any panic: each use is one operation.
        let mut previews = self.previews.lock().unwrap_or_else(PoisonError::into_inner);
        if previews.len() >= MAX_PREVIEWS && !previews.contains_key(&voice) {
            previews.clear();
        }
        Arc::clone(previews.entry(voice).or_default())
    }
}

impl Room {
    /// Room for `bytes` of what is here, on its own.
    pub fn part(&mut self, bytes: usize) -> Option<Self> {
        let units = bytes.div_ceil(UNIT).min(self.0.num_permits());
        self.0.split(units).map(Self)
    }
}

/// Bytes that hold their room until the last copy of them is sent.
pub fn held(bytes: Vec<u8>, room: Option<Room>) -> Bytes {
    struct Held {
        bytes: Vec<u8>,
        _room: Option<Room>,
    }
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    Bytes::from_owner(Held { bytes, _room: room })
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.send_modify(|active| *active -= 1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use super::*;

    #[tokio::test]
    async fn bytes_hold_their_room_until_they_are_gone() {
        let desk = Desk::new(1);
        let mut room = desk.room(512 * 1024).await;
        let part = room.part(100 * 1024);
        let bytes = held(vec![0; 100 * 1024], part);
        drop(room);
        assert!(desk.first_room(1000 * 1024, Duration::ZERO).await.is_none());
        let copy = bytes.clone();
        drop(bytes);
        assert!(desk.first_room(1000 * 1024, Duration::ZERO).await.is_none());
        drop(copy);
        assert!(desk.first_room(1000 * 1024, Duration::ZERO).await.is_some());
        assert!(
            desk.first_room(usize::MAX, Duration::ZERO).await.is_some(),
            "all there is"
        );
    }

    #[tokio::test]
    async fn what_is_under_way_is_counted_and_waited_for() {
        let desk = Desk::new(1);
        let (one, two) = (desk.begin(), desk.begin());
        drop(one);
        assert_eq!(desk.active(), 1);
        assert!(!desk.idle(Duration::ZERO).await);
        drop(two);
        assert!(desk.idle(Duration::ZERO).await);
    }

    #[tokio::test]
    async fn a_preview_is_made_once_and_not_too_many_are_kept() {
        let desk = Desk::new(1);
        let id = Uuid::from_u128(1);
        let made = desk.preview(id);
        made.get_or_init(|| async { Bytes::from_static(b"a") })
            .await;
        assert!(desk.preview(id).initialized());
        for other in 2..=MAX_PREVIEWS as u128 + 1 {
            drop(desk.preview(Uuid::from_u128(other)));
        }
        assert!(!desk.preview(id).initialized());
    }
}
