//! File descriptors: how many this process has, and what of them each loop may use for what.
//!
//! A process that has none left can open no segment and must stop. So descriptors for files and for peers are kept back,
//! and accepted connections get the rest ([`Limits::within`]).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::{Limits, OPEN_FILES_MAX};

/// What a process needs beside its loops: standard streams, a lock, signals, a little room.
const OTHERS: usize = 16;

/// What a loop needs beside files and connections: its poll, that poll's copy, waker, timer and listener; two for a file
/// that is being replaced, one to list a folder; and two of a client in the same process (`kasha start`).
const OWN: usize = 10;

/// What a loop can do with less than this is not worth its start: eight files, a few peers, a few clients.
const SHARE_MIN: usize = 40;

/// Nobody needs more, and some programs that inherit the limit visit each descriptor below it.
const LIMIT_MAX: u64 = 1 << 20;

/// The limit of open files is too low.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process may open {has} files and connections, and needs {needs} at least: raise the hard limit of open files \
     (ulimit -Hn, or LimitNOFILE of a service); 65536 are plenty (K0408)"
)]
pub struct TooFewDescriptors {
    /// Descriptors that this process may have.
    pub has: usize,
    /// Descriptors that its loops need.
    pub needs: usize,
}

/// Raises this process's limit of open files as far as it may without asking anybody, and says how many there are now.
pub fn raise_descriptor_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(LIMIT_MAX).min(LIMIT_MAX).max(current.unwrap_or(0));
    let mut limit = current.unwrap_or(wanted);
    if limit < wanted && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok() {
        limit = wanted;
    }
    usize::try_from(limit).expect("64 bits")
}

impl Limits {
    /// The limits of each of `loops` loops in a process that has so many descriptors.
    ///
    /// # Errors
    /// If that is not enough for what a loop needs.
    ///
    /// # Panics
    /// If there is no loop.
    pub fn within(descriptors: usize, loops: usize) -> Result<Self, TooFewDescriptors> {
        let usual = Self::default();
        let share = descriptors.saturating_sub(OTHERS) / loops;
        if share < SHARE_MIN {
            return Err(TooFewDescriptors { has: descriptors, needs: OTHERS + SHARE_MIN * loops });
        }
        // Half for open files, half for written ones: two batches, each of up to twice `dirty_files`.
        let files = (share / 4).max(16);
        let (open_files, dirty_files) = ((files / 2).min(OPEN_FILES_MAX), (files / 8).min(usual.dirty_files));
        let dialled = (share / 8).clamp(6, usual.dialled);
        let rest = share - OWN - open_files - 4 * dirty_files - dialled;
        let told = (rest / 8).clamp(1, usual.told);
        let connections = (rest - told).min(usual.connections);
        let has_descriptors = connections == usual.connections;
        let requesters = (rest - told - connections).min(usual.requesters);
        Ok(Self { connections, requesters, has_descriptors, told, dialled, open_files, dirty_files, ..usual })
    }

    /// The same for loops that serve the Redis protocol, too: where descriptors are scarce, half of the connections are for that.
    #[must_use]
    pub fn with_requesters(self) -> Self {
        let half = self.connections / 2;
        if self.requesters >= half {
            return self;
        }
        Self { connections: self.connections - half, requesters: self.requesters + half, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn no_loop_may_use_what_others_need_and_each_has_some_of_all() {
        for loops in 1..=300 {
            for descriptors in (0..2000).chain([4096, 20_000, 65_536, 1 << 20]) {
                let Ok(limits) = Limits::within(descriptors, loops) else {
                    assert!(descriptors < OTHERS + SHARE_MIN * loops, "{descriptors} for {loops}");
                    continue;
                };
                for limits in [limits, limits.with_requesters()] {
                    let Limits { connections, requesters, told, dialled, open_files, dirty_files, .. } = limits;
                    let used = OWN + connections + requesters + told + dialled + open_files + 4 * dirty_files;
                    assert!(OTHERS + used * loops <= descriptors, "{descriptors} for {loops}: {limits:?}");
                    assert!(connections >= 3 && told >= 1 && dialled >= 6 && open_files >= 8 && dirty_files >= 2);
                }
                assert!(limits.connections >= 5 && limits.with_requesters().requesters >= 2);
            }
        }
        let (plenty, usual) = (Limits::within(65_536, 4).unwrap(), Limits::default());
        assert_eq!((plenty.connections, plenty.told, plenty.has_descriptors), (usual.connections, usual.told, true));
        assert_eq!((plenty.open_files, plenty.dirty_files), (usual.open_files, usual.dirty_files));
        let told = Limits::within(80, 2).unwrap_err().to_string();
        assert!(told.contains("may open 80") && told.contains("needs 96") && told.contains("K0408"), "{told}");
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one_and_no_further() {
        const CHILD: &str = "KASHA_TEST_DESCRIPTORS";
        if let Some(hard) = std::env::var_os(CHILD) {
            assert_eq!(raise_descriptor_limit().to_string(), hard.to_str().unwrap());
            assert_eq!(getrlimit(Resource::Nofile).current.unwrap().to_string(), hard.to_str().unwrap());
            return;
        }
        let name = "descriptors::tests::the_soft_limit_is_raised_to_the_hard_one_and_no_further";
        let test = std::env::current_exe().unwrap();
        for (soft, hard) in [(64, 512), (512, 512)] {
            let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec {test:?} --exact {name} --nocapture");
            let output = Command::new("sh").args(["-c", &script]).env(CHILD, hard.to_string()).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
