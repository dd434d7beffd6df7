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
    /// One is with the thread, or comes from it.
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
    fn every_buffer_has_its_size_and_one_is_ordered_ahead() {
        let buffers = WarmBuffers::start("test").unwrap();
        assert_eq!(buffers.take(4096).len(), 4096);
        let mut spare = lock(&buffers.spare);
        assert!(spare.is_ordered);
        let warm = spare.warm.recv().unwrap();
        assert!(warm.len() >= 4096 && warm.iter().all(|&byte| byte == 0));
        spare.is_ordered = false;
        drop(spare);
        for bytes in [8, 1 << 20, 4096, 1 << 20] {
            assert_eq!(buffers.take(bytes).len(), bytes);
        }
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
