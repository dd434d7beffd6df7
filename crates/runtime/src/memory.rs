//! Memory that is touched before it is needed.
//!
//! The system gives memory at its first touch, page by page, and clears it: of a primary's time on fresh memory a sixth
//! goes there. A thread of its own does it one buffer ahead, so that the loop finds what it takes warm. The thread allocates
//! the buffer, too: an allocator notes its free blocks in the first bytes of new memory, which may be a page of 2 MiB.

use std::cell::Cell;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};

use crate::log_thread::lock;

thread_local! {
    /// Bytes that other threads allocated and this one took.
    static ADOPTED: Cell<u64> = const { Cell::new(0) };
}

/// Bytes of buffers that the present thread took from [`WarmBuffers`] and did not allocate. The allocator has counted them
/// for another thread.
pub(crate) fn adopted_bytes() -> u64 {
    ADOPTED.get()
}

/// Buffers of one loop. Takes one more than was asked for, once anything was.
#[derive(Debug)]
pub struct WarmBuffers {
    spare: Mutex<Spare>,
}

#[derive(Debug)]
struct Spare {
    orders: Sender<usize>,
    warm: Receiver<Vec<u8>>,
    /// A buffer is with the thread, or on its way back.
    is_ordered: bool,
}

impl WarmBuffers {
    /// Starts the thread, which ends when this is dropped.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub fn start(name: &str) -> io::Result<Self> {
        let ((orders, ordered), (warmed, warm)) = (mpsc::channel::<usize>(), mpsc::channel());
        std::thread::Builder::new().name(format!("{name}-mem")).spawn(move || {
            for bytes in ordered {
                let mut buffer = Vec::new();
                buffer.reserve_exact(bytes);
                buffer.resize(bytes, 0); // unlike `vec!`, which leaves new memory as it is
                if warmed.send(buffer).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { spare: Mutex::new(Spare { orders, warm, is_ordered: false }) })
    }

    /// A buffer of so many bytes: a warm one if it is ready, and of this size. Does not wait.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Vec<u8> {
        let mut spare = lock(&self.spare);
        let ready = spare.warm.try_recv().ok();
        spare.is_ordered &= ready.is_none();
        if !spare.is_ordered {
            // Without its thread, which can only have panicked, there are no warm ones.
            spare.is_ordered = spare.orders.send(bytes).is_ok();
        }
        ready.filter(|buffer| buffer.len() >= bytes).map_or_else(
            || vec![0; bytes],
            |mut buffer| {
                ADOPTED.set(ADOPTED.get() + buffer.capacity() as u64);
                buffer.truncate(bytes);
                buffer
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_buffer_is_taken_if_it_is_ready_and_large_enough() {
        let ((orders, ordered), (warmed, warm)) = (mpsc::channel(), mpsc::channel());
        let buffers = WarmBuffers { spare: Mutex::new(Spare { orders, warm, is_ordered: false }) };
        let is_ordered = || ordered.try_recv().is_ok_and(|bytes| bytes == 8);
        assert_eq!((buffers.take(8), is_ordered()), (vec![0; 8], true), "nothing is ready; one is ordered");
        assert_eq!((buffers.take(8), is_ordered()), (vec![0; 8], false), "it is not ready yet");
        for (ready, taken) in [(8, vec![7; 8]), (16, vec![7; 8]), (4, vec![0; 8])] {
            warmed.send(vec![7; ready]).unwrap();
            assert_eq!((buffers.take(8), is_ordered()), (taken, true), "{ready} bytes are ready, the next is ordered");
        }
    }

    #[test]
    fn the_thread_touches_the_whole_buffer() {
        let buffers = WarmBuffers::start("test").unwrap();
        assert_eq!(buffers.take(4096).len(), 4096);
        let warm = lock(&buffers.spare).warm.recv().unwrap();
        assert!(warm.len() == 4096 && warm.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn what_another_thread_allocated_is_counted_for_the_one_that_took_it() {
        let buffers = WarmBuffers::start("test").unwrap();
        let before = adopted_bytes();
        let _ = buffers.take(4096);
        assert_eq!(adopted_bytes(), before, "the present thread allocated this one");
        let mut spare = lock(&buffers.spare);
        let ready = spare.warm.recv().unwrap();
        let ((warmed, warm), capacity) = (mpsc::channel(), ready.capacity() as u64);
        warmed.send(ready).unwrap();
        spare.warm = warm;
        drop(spare);
        let _ = buffers.take(4096);
        assert_eq!(adopted_bytes(), before + capacity);
    }

    #[test]
    fn the_thread_ends_with_its_owner() {
        let buffers = WarmBuffers::start("test").unwrap();
        let _ = buffers.take(1 << 20);
        let Spare { orders, warm, .. } = buffers.spare.into_inner().unwrap();
        drop(orders);
        assert!(warm.recv().is_ok(), "what was ordered");
        assert!(warm.recv().is_err(), "then nothing");
    }
}
