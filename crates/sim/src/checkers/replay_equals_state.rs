//! Replay equals state: a replay of the segments that a member holds comes to the state that the member has. So the
//! cleaner, and whatever frees segments, takes nothing that a replay needs, and brings nothing back (R5.7 to R5.12).
//!
//! This checker asks the core itself: a replay is the core's, and what is compared is known to the core only.

use crate::clock::{SimTime, millis};
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// How often all members are compared. A comparison reads all of a log.
const EVERY: u64 = millis(200);

/// Compares now and then.
#[derive(Debug, Default)]
pub struct ReplayEqualsState {
    next: SimTime,
    violations: Vec<String>,
    compared: u64,
}

impl ReplayEqualsState {
    /// Compares every core's replicas.
    pub fn compare(&mut self, view: &View<'_>) {
        for process in view.processes {
            match process.replay_equals_state() {
                Ok(compared) => self.compared += compared,
                Err(what) => self.violations.push(format!("replay_equals_state: {}: {what}", process.name)),
            }
        }
    }
}

impl Watch for ReplayEqualsState {
    fn sent(&mut self, _sent: &Sent<'_>, view: &View<'_>) {
        if view.now >= self.next {
            self.next = view.now.after(EVERY);
            self.compare(view);
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: replays", self.compared);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}
