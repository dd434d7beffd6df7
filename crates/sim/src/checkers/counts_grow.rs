//! Counts grow (F2, R4.7): the coordinator grants each client id once, and after a restart it tells no ClusterTime
//! below one that was told before. (Within one life, frames may leave in another order than they were made, because
//! some wait for the file.)

use std::collections::BTreeSet;

use kasha_types::{ClientId, ClusterTime};
use kasha_wire::message::{HeartbeatAnswer, LeaseRenewed, LeaseVerdict, SessionOpened};

use crate::world::{Sent, View, Watch};

/// Watches the numbers that the coordinator hands out.
#[derive(Debug, Default)]
pub struct CountsGrow {
    /// The greatest time told in this life, and in all earlier lives.
    time: ClusterTime,
    before: ClusterTime,
    life: u64,
    granted: BTreeSet<ClientId>,
    violations: Vec<String>,
}

impl CountsGrow {
    fn on_granted(&mut self, client: ClientId) {
        if !self.granted.insert(client) {
            self.violations.push(format!("counts_grow: {client} was granted twice (R4.7, F2)"));
        }
    }

    fn on_time(&mut self, life: u64, time: ClusterTime) {
        if life != self.life {
            (self.life, self.before) = (life, self.time);
        }
        if time < self.before {
            let before = self.before;
            self.violations.push(format!("counts_grow: the ClusterTime was {before:?}, then {time:?} (R4.7, F2)"));
        }
        self.time = self.time.max(time);
    }
}

impl Watch for CountsGrow {
    fn sent(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        let sender = &view.processes[sent.from.0];
        if sender.name != "coordinator" {
            return;
        }
        if let Some(SessionOpened { client, cluster_time, .. }) = sent.message() {
            self.on_time(sender.life, cluster_time);
            self.on_granted(client);
        } else if let Some(HeartbeatAnswer { cluster_time, .. }) = sent.message() {
            // A coordinator that only listens tells no time (R9.13).
            if cluster_time > ClusterTime(0) {
                self.on_time(sender.life, cluster_time);
            }
        } else if let Some(LeaseRenewed { cluster_time, .. }) = sent.message() {
            self.on_time(sender.life, cluster_time);
        } else if let Some(LeaseVerdict { cluster_time, .. }) = sent.message() {
            self.on_time(sender.life, cluster_time);
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_granted_once_and_time_does_not_go_back() {
        let mut watch = CountsGrow::default();
        let mut opened = |life, client, time| {
            watch.on_time(life, ClusterTime(time));
            watch.on_granted(ClientId(client));
            watch.take_violations().len()
        };
        assert_eq!((opened(1, 1, 5), opened(1, 2, 4)), (0, 0));
        assert_eq!(opened(1, 2, 6), 1);
        assert_eq!(opened(2, 3, 5), 1);
    }
}
