//! What all syntheses of this process may hold together, and the previews that were already made.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};
use uuid::Uuid;

use crate::ids::AccountId;

/// Sound is counted in pieces of this many bytes.
const UNIT: usize = 1024;

/// Previews kept at most: one a voice, about 200 KiB each. Beyond it all are forgotten.
const MAX_PREVIEWS: usize = 64;

/// Bounds the sound that is in memory on its way to clients.
#[derive(Debug)]
pub struct SoundBudget {
    room: Arc<Semaphore>,
    units: u32,
    /// Of accounts that hold any.
    shares: Mutex<HashMap<AccountId, Weak<Semaphore>>>,
    active: watch::Sender<usize>,
    previews: Mutex<BTreeMap<Uuid, Arc<OnceCell<Bytes>>>>,
}

/// What one account may hold: half of all, so that who does not read what was asked for leaves room to others.
#[derive(Clone, Debug)]
pub struct Share {
    desk: Arc<SoundBudget>,
    own: Arc<Semaphore>,
    units: u32,
}

/// Room for some sound, given back when dropped. It travels with the bytes it stands for.
#[derive(Debug)]
pub struct Room {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

/// One synthesis that is under way.
#[derive(Debug)]
pub struct Active(Arc<SoundBudget>);

impl SoundBudget {
    /// `mebibytes` of sound at most.
    pub fn new(mebibytes: u32) -> Arc<Self> {
        let units = mebibytes.saturating_mul(1024);
        Arc::new(Self {
            room: Arc::new(Semaphore::new(units as usize)),
            units,
            shares: Mutex::default(),
            active: watch::Sender::new(0),
            previews: Mutex::default(),
        })
    }

    /// The share of an account.
    pub fn share(self: &Arc<Self>, account: AccountId) -> Share {
        // The map is whole after any panic: each use is one operation.
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.retain(|_, own| own.strong_count() > 0);
        let units = (self.units / 2).max(1);
        let held = shares.get(&account).and_then(Weak::upgrade);
        let own = held.unwrap_or_else(|| {
            let own = Arc::new(Semaphore::new(units as usize));
            shares.insert(account, Arc::downgrade(&own));
            own
        });
        Share {
            desk: Arc::clone(self),
            own,
            units,
        }
    }

    /// All there is, for what is made once for everybody.
    pub fn whole(self: &Arc<Self>) -> Share {
        Share {
            desk: Arc::clone(self),
            own: Arc::new(Semaphore::new(self.units as usize)),
            units: self.units,
        }
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

impl Share {
    /// Room for this many bytes, as soon as others gave it back. More than the whole share is taken to be
    /// the share.
    pub async fn room(&self, bytes: usize) -> Room {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let units = units.clamp(1, self.units);
        // The account's own first: who waits for that keeps nothing from others.
        let own = acquire(&self.own, units).await;
        let all = acquire(&self.desk.room, units).await;
        Room { own, all }
    }

    /// As [`room`](Self::room), for a request that can still be told to come back: `None` when there
    /// is none within `patience`.
    pub async fn first_room(&self, bytes: usize, patience: Duration) -> Option<Room> {
        tokio::time::timeout(patience, self.room(bytes)).await.ok()
    }

    /// Counts a synthesis until what is returned is dropped.
    pub fn begin(&self) -> Active {
        self.desk.begin()
    }
}

async fn acquire(semaphore: &Arc<Semaphore>, units: u32) -> OwnedSemaphorePermit {
    loop {
        // It is never closed.
        if let Ok(permit) = Arc::clone(semaphore).acquire_many_owned(units).await {
            return permit;
        }
    }
}

impl Room {
    /// Room for `bytes` of what is here, on its own.
    pub fn part(&mut self, bytes: usize) -> Option<Self> {
        let units = bytes.div_ceil(UNIT).min(self.all.num_permits());
        Some(Self {
            own: self.own.split(units)?,
            all: self.all.split(units)?,
        })
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
        let desk = SoundBudget::new(1).whole();
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
    async fn an_account_that_gives_nothing_back_leaves_half_of_the_room() {
        let desk = SoundBudget::new(1);
        let [one, other] = [1, 2].map(|id| desk.share(AccountId(Uuid::from_u128(id))));
        let all = one.room(usize::MAX).await;
        assert!(one.first_room(1, Duration::ZERO).await.is_none());
        // Asked for anew it is the same share.
        let again = desk.share(AccountId(Uuid::from_u128(1)));
        assert!(again.first_room(1, Duration::ZERO).await.is_none());
        assert!(other.first_room(512 * 1024, Duration::ZERO).await.is_some());
        drop(all);
        assert!(one.first_room(512 * 1024, Duration::ZERO).await.is_some());
    }

    #[tokio::test]
    async fn what_is_under_way_is_counted_and_waited_for() {
        let desk = SoundBudget::new(1);
        let (one, two) = (desk.begin(), desk.begin());
        drop(one);
        assert_eq!(desk.active(), 1);
        assert!(!desk.idle(Duration::ZERO).await);
        drop(two);
        assert!(desk.idle(Duration::ZERO).await);
    }

    #[tokio::test]
    async fn a_preview_is_made_once_and_not_too_many_are_kept() {
        let desk = SoundBudget::new(1);
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
