//! What the benches and the allocation tests share: an allocator that counts and tells where it is asked
//! ([`places`]), and calls to measure ([`session`], [`providers`]). Whoever links this crate has the allocator as the process's own.

pub mod places;
pub mod providers;
pub mod session;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

pub use self::places::{places, watch};

#[global_allocator]
static COUNTING: Counting = Counting;

/// How often the current thread allocates (or grows an allocation) while `work` runs.
pub fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

/// How often the current thread has allocated so far: for code that other threads run.
pub fn allocated() -> u64 {
    COUNT.get()
}

/// The most memory, bytes, that the current thread asks for at once while `work` runs.
pub fn largest(work: impl FnOnce()) -> usize {
    LARGEST.set(0);
    work();
    LARGEST.get()
}

fn counted(size: usize) {
    LARGEST.with(|largest| largest.set(largest.get().max(size)));
    COUNT.with(|count| {
        count.set(count.get() + 1);
        places::note(count);
    });
}

struct Counting;

thread_local! {
    // Without a destructor and set before it is first read: reading it allocates nothing.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is handed to the system's allocator as it came, and its answer handed back; the
// counter beside it is a plain cell of the same thread and does not allocate; what notes a place turns itself
// off while it allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        counted(layout.size());
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from `System`, since all do.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        counted(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        counted(size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_piece_is_known() {
        let pieces = || {
            for length in [7, 1_000, 20] {
                drop(std::hint::black_box(vec![1_u8; length]));
            }
        };
        assert_eq!(largest(pieces), 1_000);
        assert_eq!(largest(|| {}), 0);
    }

    #[test]
    fn allocations_of_this_thread_are_counted() {
        assert_eq!(allocations(|| drop(std::hint::black_box(vec![1_u8]))), 1);
        assert_eq!(
            allocations(|| assert_eq!(std::hint::black_box([1_u8]), [1])),
            0
        );
    }
}
