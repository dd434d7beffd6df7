//! Ends the programs of all stages when one stage has failed.

use std::process::Command;
use std::sync::{Mutex, MutexGuard};

/// The programs that run, and whether they still may.
#[derive(Debug, Default)]
pub(crate) struct Stop(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failed: bool,
    /// Process groups of programs that run.
    groups: Vec<u32>,
}

impl Stop {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics with it")
    }

    /// A program has started. It is ended at once if a stage has failed.
    pub(crate) fn begin(&self, group: u32) {
        let mut state = self.state();
        state.groups.push(group);
        if state.failed {
            kill(group);
        }
    }

    /// A program has ended.
    pub(crate) fn end(&self, group: u32) {
        self.state().groups.retain(|&running| running != group);
    }

    /// A stage has failed. Returns whether it is the first one; the others may have failed because their programs were ended.
    pub(crate) fn fail(&self) -> bool {
        let mut state = self.state();
        state.groups.iter().copied().for_each(kill);
        !std::mem::replace(&mut state.failed, true)
    }

    /// Whether a stage has failed, so that no other may begin.
    pub(crate) fn has_failed(&self) -> bool {
        self.state().failed
    }
}

/// Kills a process group.
pub(crate) fn kill(group: u32) {
    let _ = Command::new("sh").args(["-c", &format!("kill -s KILL -- -{group}")]).status();
}
