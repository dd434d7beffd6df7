//! Memory that is touched before it is needed.
//!
//! The system gives memory at its first touch, page by page, and clears it: of a primary's time on fresh memory a sixth
//! goes there. A thread of its own does it one buffer ahead, so that the loop finds what it takes warm.

use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};

use crate::log_thread::lock;

/// Buffers of one loop. Takes one more than was asked for, once anything was.
#[derive(Debug)]
pub struct WarmBuffers {
    spare: Mutex<Spare>,
}

#[derive(Debug)]
struct Spare {
    cold: Sender<Vec<u8>>,
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
        let ((cold, to_warm), (warmed, warm)) = (mpsc::channel::<Vec<u8>>(), mpsc::channel());
        std::thread::Builder::new().name(format!("{name}-mem")).spawn(move || {
            for mut buffer in to_warm {
                buffer.resize(buffer.capacity(), 0);
                if warmed.send(buffer).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { spare: Mutex::new(Spare { cold, warm, is_ordered: false }) })
    }

    /// A buffer of so many bytes: a warm one if it is ready, and of this size. Does not wait. The caller's thread is the
    /// one that allocates, so that what each thread holds stays countable.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Vec<u8> {
        let mut spare = lock(&self.spare);
        let ready = spare.warm.try_recv().ok();
        spare.is_ordered &= ready.is_none();
        if !spare.is_ordered {
            // Without its thread, which can only have panicked, there are no warm ones.
            spare.is_ordered = spare.cold.send(Vec::with_capacity(bytes)).is_ok();
        }
        ready.filter(|buffer| buffer.len() >= bytes).map_or_else(
            || vec![0; bytes],
            |mut buffer| {
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
        let ((cold, orders), (warmed, warm)) = (mpsc::channel(), mpsc::channel());
        let buffers = WarmBuffers { spare: Mutex::new(Spare { cold, warm, is_ordered: false }) };
        let is_ordered = || orders.try_recv().is_ok_and(|cold: Vec<u8>| cold.is_empty() && cold.capacity() >= 8);
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
        assert!(warm.len() >= 4096 && warm.len() == warm.capacity() && warm.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn the_thread_ends_with_its_owner() {
        let buffers = WarmBuffers::start("test").unwrap();
        let _ = buffers.take(1 << 20);
        let Spare { cold, warm, .. } = buffers.spare.into_inner().unwrap();
        drop(cold);
        assert!(warm.recv().is_ok(), "what was ordered");
        assert!(warm.recv().is_err(), "then nothing");
    }
}
