//! A thread for an event loop.

use std::io;
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Runs `body` on a thread of this name (at most 15 bytes are shown by the system), pinned to a processor if one is
/// given. A processor that this process may not use is logged and ignored: pinning is a matter of speed only.
///
/// # Errors
/// If the system has no more threads.
pub fn spawn_loop<T: Send + 'static>(
    name: &str,
    processor: Option<usize>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let name = name.to_owned();
    thread.spawn(move || {
        if let Some(processor) = processor {
            pin(&name, processor);
        }
        body()
    })
}

fn pin(name: &str, processor: usize) {
    let mut set = CpuSet::new();
    if processor >= CpuSet::MAX_CPU {
        tracing::warn!(name, processor, "there is no such processor: not pinned");
        return;
    }
    set.set(processor);
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!(name, processor, %error, "not pinned");
    }
}
