//! Stopping and waking a loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::Waker;

/// Stops or wakes a loop from another thread.
#[derive(Clone, Debug)]
pub struct LoopHandle {
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) waker: Arc<Waker>,
}

impl LoopHandle {
    /// Ends the loop after its current turn.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Makes the loop take a turn now: its application has something to do.
    pub fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::warn!(%error, "cannot wake an event loop");
        }
    }
}
