//! Counts grow (F2, R4.7, R9.4): the coordinator grants each client id once, and in a later view it tells no ClusterTime
//! below one that was told before. (Within one view, frames may leave in another order than they were made, because
//! some wait for a file or a round. And a leader that stood still may tell what it was permitted to tell when another one leads.)

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::{ClientId, ClusterTime, ViewNumber};
use kasha_wire::message::{HeartbeatAnswer, LeaseRenewed, LeaseVerdict, SessionOpened};

use crate::network::ProcessId;
use crate::world::{Sent, View, Watch};

/// Watches the numbers that coordinators hand out.
#[derive(Debug, Default)]
pub struct CountsGrow {
    /// The greatest time told in each view.
    times: BTreeMap<ViewNumber, ClusterTime>,
    /// The view of each coordinator, as it said last.
    views: BTreeMap<ProcessId, ViewNumber>,
    /// The life of each coordinator, and the greatest time told in it and in all earlier lives of it: an older copy of its files has lower
    /// views, too.
    lives: BTreeMap<ProcessId, (u64, ClusterTime, ClusterTime)>,
    granted: BTreeSet<ClientId>,
    violations: Vec<String>,
}

impl CountsGrow {
    fn on_granted(&mut self, client: ClientId) {
        if !self.granted.insert(client) {
            self.violations.push(format!("counts_grow: {client} was granted twice (R4.7, F2)"));
        }
    }

    fn on_life(&mut self, process: ProcessId, life: u64, time: ClusterTime) {
        let (known, before, told) = self.lives.entry(process).or_insert((life, ClusterTime(0), ClusterTime(0)));
        if *known != life {
            (*known, *before) = (life, *told);
        }
        if time < *before {
            let before = *before;
            self.violations.push(format!("counts_grow: the ClusterTime was {before:?}, then {time:?} (R4.7, F2)"));
        }
        *told = (*told).max(time);
    }

    fn on_time(&mut self, view: ViewNumber, time: ClusterTime) {
        let before = self.times.range(..view).map(|(_, time)| *time).max().unwrap_or_default();
        if time < before {
            self.violations.push(format!("counts_grow: the ClusterTime was {before:?}, then {time:?} (R4.7, F2)"));
        }
        let told = self.times.entry(view).or_default();
        *told = (*told).max(time);
    }
}

impl Watch for CountsGrow {
    fn sent(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        if !view.processes[sent.from.0].name.starts_with("coordinator") {
            return;
        }
        let known = self.views.get(&sent.from).copied();
        let told = None
            .or_else(|| sent.message().map(|SessionOpened { cluster_time, .. }| cluster_time))
            .or_else(|| sent.message().map(|HeartbeatAnswer { cluster_time, .. }| cluster_time))
            .or_else(|| sent.message().map(|LeaseRenewed { cluster_time, .. }| cluster_time))
            .or_else(|| sent.message().map(|LeaseVerdict { cluster_time, .. }| cluster_time));
        if let Some(time) = told.filter(|&time| time > ClusterTime(0)) {
            self.on_life(sent.from, view.processes[sent.from.0].life, time);
        }
        if let Some(SessionOpened { client, cluster_time, .. }) = sent.message() {
            self.on_granted(client);
            known.into_iter().for_each(|view| self.on_time(view, cluster_time));
        } else if let Some(HeartbeatAnswer { cluster_time, view, .. }) = sent.message() {
            self.views.insert(sent.from, view);
            // A coordinator that only listens tells no time (R9.13).
            if cluster_time > ClusterTime(0) {
                self.on_time(view, cluster_time);
            }
        } else if let Some(LeaseRenewed { cluster_time, .. }) = sent.message() {
            known.into_iter().for_each(|view| self.on_time(view, cluster_time));
        } else if let Some(LeaseVerdict { cluster_time, view, .. }) = sent.message() {
            self.on_time(view, cluster_time);
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
        let mut opened = |view, client, time| {
            watch.on_time(ViewNumber(view), ClusterTime(time));
            watch.on_granted(ClientId(client));
            watch.take_violations().len()
        };
        assert_eq!((opened(1, 1, 5), opened(1, 2, 4)), (0, 0));
        assert_eq!(opened(1, 2, 6), 1);
        assert_eq!(opened(2, 3, 5), 1);
        assert_eq!((opened(2, 4, 7), opened(1, 5, 3)), (0, 0), "a late word of the first leader");
    }
}
