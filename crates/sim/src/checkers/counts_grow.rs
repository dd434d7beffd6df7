//! Counts grow (F2, R4.7): the coordinator grants each client id once, and after a restart it tells no ClusterTime
//! below one that was told before. (Within one life, frames may leave in another order than they were made, because
//! some wait for the file.)

use std::collections::BTreeSet;

use kasha_types::{ClientId, ClusterTime};
use kasha_wire::Message;
use kasha_wire::frame::Kind;

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
    fn on_message(&mut self, life: u64, message: &Message) {
        if life != self.life {
            (self.life, self.before) = (life, self.time);
        }
        let time = match message {
            Message::SessionOpened { client, cluster_time, .. } => {
                if !self.granted.insert(*client) {
                    self.violations.push(format!("counts_grow: {client} was granted twice (R4.7, F2)"));
                }
                *cluster_time
            }
            Message::HeartbeatAnswer { cluster_time, .. }
            | Message::LeaseRenewed { cluster_time, .. }
            | Message::LeaseVerdict { cluster_time, .. } => *cluster_time,
            _ => return,
        };
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
        if sent.kind == Kind::Message as u8
            && sender.name == "coordinator"
            && let Ok(message) = Message::decode(sent.payload)
        {
            self.on_message(sender.life, &message);
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
        let opened = |client, time| Message::SessionOpened {
            nonce: 1,
            client: ClientId(client),
            lease_expiry: ClusterTime(99),
            cluster_time: ClusterTime(time),
        };
        let mut watch = CountsGrow::default();
        watch.on_message(1, &opened(1, 5));
        watch.on_message(1, &opened(2, 4));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        watch.on_message(1, &opened(2, 6));
        assert_eq!(watch.take_violations().len(), 1);
        watch.on_message(2, &opened(3, 5));
        assert_eq!(watch.take_violations().len(), 1);
    }
}
