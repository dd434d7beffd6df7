//! The program's allocator: mimalloc, which is twice as fast here as the system's, with a count of each thread's use.
//!
//! The count shows that an update allocates nothing in steady state, and how many bytes a client's state takes
//! (`kasha-lab bench`). The counters are plain cells of the thread: counting costs an addition beside each allocation, and
//! nothing elsewhere. (Crates that count allocations keep process-wide atomics, or do not count live bytes.)

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

use kasha_runtime::HeapUse;
use mimalloc::MiMalloc;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Negative on a thread that frees memory of other threads.
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// What the present thread has allocated so far.
pub fn heap_use() -> HeapUse {
    HeapUse { allocations: ALLOCATIONS.get(), bytes: u64::try_from(BYTES.get()).unwrap_or(0) }
}

fn count(allocated: usize, freed: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + u64::from(allocated > 0));
    BYTES.set(BYTES.get().wrapping_add_unsigned(allocated as u64).wrapping_sub_unsigned(freed as u64));
}

/// Mimalloc, with a count of each thread's use.
pub struct Counting;

// SAFETY: every call is passed on unchanged. Counting calls no allocator, and cells without destructors live as long as
// their thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's obligations are passed on.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's obligations are passed on.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller's obligations are passed on.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller's obligations are passed on.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_and_live_bytes_of_this_thread_are_counted() {
        let before = heap_use();
        let mut bytes: Vec<u8> = std::hint::black_box(Vec::with_capacity(1000));
        bytes.reserve_exact(3000);
        let held = heap_use();
        assert_eq!((held.allocations, held.bytes), (before.allocations + 2, before.bytes + 3000));
        std::thread::spawn(|| vec![1u8; 5000].len()).join().unwrap();
        drop(bytes);
        assert!(heap_use().bytes < before.bytes + 3000);
    }
}
