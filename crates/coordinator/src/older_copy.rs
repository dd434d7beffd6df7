//! Detects that a node's folder is an older copy of the folder. A folder counts the node's starts. So a process from a
//! copy has the start number of a process that was seen before, and is another process (K0507).

use kasha_types::{ConfigVersion, Tick};
use kasha_wire::message::Heartbeat;

use crate::Coordinator;

impl Coordinator {
    /// Whether another process than the known one claims to be the same start of the same folder. A process never
    /// forgets a configuration, and never outlives a boot of its machine. Frames may come late, so they are compared by
    /// the time at which they were sent.
    pub(crate) fn is_of_older_copy(&self, index: usize, heartbeat: &Heartbeat) -> bool {
        let forgot = |&(sent, have): &(Tick, ConfigVersion)| sent < heartbeat.sent && heartbeat.have < have;
        let boot = self.decided().nodes[index].boot;
        boot != heartbeat.boot || self.said.get(&heartbeat.core).is_some_and(forgot)
    }
}
