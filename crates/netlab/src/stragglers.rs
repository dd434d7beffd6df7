//! Kills processes that are still in a namespace. They are found in `/proc` and killed through a descriptor, so that
//! another process which got the same id in the meantime is never hit.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// A namespace's identity: device and inode of its descriptor.
pub(crate) type Identity = (u64, u64);

pub(crate) fn identity(namespace: &OwnedFd) -> Option<Identity> {
    let stat = rustix::fs::fstat(namespace).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Rounds of searching: a process may start another one while it is being killed.
const ROUNDS: u32 = 20;

/// Kills every process in the namespace but this one. Best effort: it runs while a network is dropped.
pub(crate) fn kill_all(namespace: Identity) {
    for _ in 0..ROUNDS {
        if kill_once(namespace) == 0 {
            return;
        }
    }
}

fn kill_once(namespace: Identity) -> u32 {
    let mut killed = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|pid| *pid != getpid()) else { continue };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // A process that has ended has no namespace any more.
        let Ok(stat) = rustix::fs::stat(entry.path().join("ns/net")) else { continue };
        if (stat.st_dev, stat.st_ino) == namespace && pidfd_send_signal(&process, Signal::KILL).is_ok() {
            killed += 1;
        }
    }
    killed
}
