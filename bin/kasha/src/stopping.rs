//! The operator's wish that this process stops: SIGTERM, or SIGINT (Ctrl-C).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Whether the operator has asked this process to stop.
#[derive(Debug)]
pub struct StopRequest(Arc<AtomicBool>);

impl StopRequest {
    /// From this call on the signals no longer end the process: the caller asks [`Self::came`], and ends in good order.
    ///
    /// Call this before anybody is told that the process runs: who was told so may send the signal at once.
    ///
    /// # Errors
    /// If the system refuses the handlers.
    pub fn listen() -> Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&came))
                .context("cannot handle the signals to stop (K0408)")?;
        }
        Ok(Self(came))
    }

    /// The same, for another thread.
    #[must_use]
    pub fn again(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
