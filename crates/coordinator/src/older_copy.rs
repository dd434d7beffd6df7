//! A node's folder that is an older copy: its starts are counted in the folder, so a copy counts a start twice.

use kasha_types::{ConfigVersion, Tick};
use kasha_wire::message::Heartbeat;

use crate::Coordinator;

impl Coordinator {
    /// Whether another process than the known one says that it is the same start of the same folder. A process forgets no
    /// configuration, and outlives no boot; frames may come late, and are told by when they were sent.
    pub(crate) fn is_of_older_copy(&self, index: usize, heartbeat: &Heartbeat) -> bool {
        let forgot = |&(sent, have): &(Tick, ConfigVersion)| sent < heartbeat.sent && heartbeat.have < have;
        let boot = self.state.nodes[index].boot;
        boot != heartbeat.boot || self.said.get(&heartbeat.core).is_some_and(forgot)
    }
}
