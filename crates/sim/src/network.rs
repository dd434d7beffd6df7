//! Frames between processes: lost, doubled, late, out of order, cut off.
//!
//! A connection is made by the first frame that a process sends to an endpoint to which it has a route. It binds to the
//! life (process start) of both sides. When either life ends, the other side is told after a while, or never. A frame
//! is a whole message: faults of the byte stream are the transport's business, and are tested there.

use std::collections::BTreeMap;
use std::rc::Rc;

use kasha_machine::{Endpoint, Rng};
use kasha_types::ConnId;

use crate::clock::{SimTime, millis};
use crate::intensity::Intensity;

/// When a stream sends again what was lost.
const SENT_AGAIN: u64 = millis(200);

/// Index of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub usize);

/// Index of a host. The processes of a host fail, are paused and are cut off together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub usize);

/// A process, and one of its starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life {
    /// The process.
    pub process: ProcessId,
    /// The number of the start.
    pub life: u64,
}

/// Index of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub usize);

/// One connection between two processes.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The life that dialled.
    pub dialer: Life,
    /// The endpoint that it dialled.
    pub endpoint: Endpoint,
    /// The process that listens there.
    pub acceptor: ProcessId,
    /// The accepting life, bound by the first frame that arrives.
    pub accepted: Option<(Life, ConnId)>,
    /// The connection is closed, and carries nothing any more.
    pub closed: bool,
    last_arrival: [SimTime; 2],
}

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the side that dialled.
    ToAcceptor,
    /// To the side that dialled.
    ToDialer,
}

/// The moments at which copies of a frame arrive.
pub type Arrivals = [Option<SimTime>; 2];

/// All connections and cuts.
#[derive(Debug)]
pub struct Network {
    rng: Rng,
    connections: Vec<Connection>,
    cuts: BTreeMap<(HostId, HostId), u32>,
    /// Frames that were lost by chance or at a cut.
    pub lost: u64,
    /// Frames that arrived twice.
    pub doubled: u64,
}

impl Network {
    /// A network without connections.
    #[must_use]
    pub fn new(rng: Rng) -> Self {
        Self { rng, connections: Vec::new(), cuts: BTreeMap::new(), lost: 0, doubled: 0 }
    }

    /// Opens a connection.
    pub fn dial(&mut self, dialer: Life, endpoint: Endpoint, acceptor: ProcessId) -> ConnectionId {
        self.connections.push(Connection {
            dialer,
            endpoint,
            acceptor,
            accepted: None,
            closed: false,
            last_arrival: [SimTime(0); 2],
        });
        ConnectionId(self.connections.len() - 1)
    }

    /// Nothing arrives on this connection before this moment, unless frames may overtake each other.
    pub fn hold(&mut self, id: ConnectionId, until: SimTime) {
        self.connections[id.0].last_arrival = [until; 2];
    }

    /// The connection with this id.
    #[must_use]
    pub fn connection(&self, id: ConnectionId) -> &Connection {
        &self.connections[id.0]
    }

    /// The connection with this id, to change it.
    pub fn connection_mut(&mut self, id: ConnectionId) -> &mut Connection {
        &mut self.connections[id.0]
    }

    /// The open connections of a process.
    #[must_use]
    pub fn open_of(&self, process: ProcessId) -> Vec<ConnectionId> {
        let concerns = |c: &Connection| !c.closed && (c.dialer.process == process || c.acceptor == process);
        (0..self.connections.len()).map(ConnectionId).filter(|&id| concerns(self.connection(id))).collect()
    }

    /// Cuts one direction. Cuts of the same direction are counted.
    pub fn cut(&mut self, from: HostId, to: HostId) {
        *self.cuts.entry((from, to)).or_default() += 1;
    }

    /// Takes one cut back.
    pub fn join(&mut self, from: HostId, to: HostId) {
        if let Some(count) = self.cuts.get_mut(&(from, to)) {
            *count = count.saturating_sub(1);
        }
    }

    /// Takes all cuts back.
    pub fn join_all(&mut self) {
        self.cuts.clear();
    }

    /// Whether nothing gets from one host to the other.
    #[must_use]
    pub fn is_cut(&self, from: HostId, to: HostId) -> bool {
        self.cuts.get(&(from, to)).is_some_and(|&count| count > 0)
    }

    /// Sends a frame. Returns when its copies arrive.
    pub fn carry(
        &mut self,
        now: SimTime,
        id: ConnectionId,
        way: Way,
        hosts: (HostId, HostId),
        intensity: &Intensity,
    ) -> Arrivals {
        if self.is_cut(hosts.0, hosts.1) || self.rng.chance(intensity.loss, 1_000_000) {
            self.lost += 1;
            return [None, None];
        }
        let mut arrivals = [Some(self.arrival(now, id, way, intensity)), None];
        if self.rng.chance(intensity.duplication, 1_000_000) {
            self.doubled += 1;
            // A duplicate may come much later than the original: after a fail-over, a restart, an acknowledgement.
            let late = if self.rng.chance(1, 4) { self.rng.below(intensity.stray_delay + 1) } else { 0 };
            arrivals[1] = Some(self.arrival(now, id, way, intensity).after(late));
        }
        arrivals
    }

    /// Sends a piece of a byte stream. Returns when it arrives, behind everything that was sent before: what is lost is sent again.
    pub fn carry_text(&mut self, now: SimTime, id: ConnectionId, way: Way, intensity: &Intensity) -> SimTime {
        let Intensity { delay: (low, high), loss, stray, stray_delay, .. } = *intensity;
        let mut at = now.after(self.rng.between(low, high.max(low)));
        while self.rng.chance(loss.min(500_000), 1_000_000) {
            self.lost += 1;
            at = at.after(SENT_AGAIN);
        }
        if self.rng.chance(stray, 1_000_000) {
            at = at.after(self.rng.below(stray_delay + 1));
        }
        let last = &mut self.connections[id.0].last_arrival[way as usize];
        *last = at.max(last.after(1));
        *last
    }

    fn arrival(&mut self, now: SimTime, id: ConnectionId, way: Way, intensity: &Intensity) -> SimTime {
        let (low, high) = intensity.delay;
        let mut at = now.after(self.rng.between(low, high.max(low)));
        if self.rng.chance(intensity.stray, 1_000_000) {
            at = at.after(self.rng.below(intensity.stray_delay + 1));
        }
        let last = &mut self.connections[id.0].last_arrival[way as usize];
        if !intensity.reordering {
            at = at.max(last.after(1));
        }
        *last = at.max(*last);
        at
    }

    /// When the other side learns that a connection is closed, after everything that was sent on it; `None`: never.
    pub fn close_arrival(&mut self, now: SimTime, id: ConnectionId, intensity: &Intensity) -> Option<SimTime> {
        if self.rng.chance(intensity.silent_close, 1_000_000) {
            return None;
        }
        let last = self.connections[id.0].last_arrival;
        Some(now.max(last[0]).max(last[1]).after(self.rng.between(intensity.delay.0, intensity.delay.1)))
    }
}

/// A frame that is under way.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The connection that carries it.
    pub connection: ConnectionId,
    /// Its direction on that connection.
    pub way: Way,
    /// Header and payload.
    pub bytes: Rc<[u8]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> (Network, ConnectionId) {
        let mut network = Network::new(Rng::new(1));
        let life = Life { process: ProcessId(0), life: 1 };
        let id = network.dial(life, Endpoint::Coordinator, ProcessId(1));
        (network, id)
    }

    fn arrivals(network: &mut Network, id: ConnectionId, intensity: &Intensity) -> Vec<SimTime> {
        let hosts = (HostId(0), HostId(1));
        (0..1000).flat_map(|_| network.carry(SimTime(0), id, Way::ToAcceptor, hosts, intensity)).flatten().collect()
    }

    #[test]
    fn a_calm_network_carries_all_in_order() {
        let (mut network, id) = network();
        let times = arrivals(&mut network, id, &Intensity::calm());
        assert_eq!(times.len(), 1000);
        assert!(times.is_sorted());
    }

    #[test]
    fn an_unkind_one_loses_doubles_and_reorders() {
        let (mut network, id) = network();
        let unkind =
            Intensity { loss: 100_000, duplication: 100_000, reordering: true, stray_delay: 99, ..Intensity::calm() };
        let times = arrivals(&mut network, id, &unkind);
        assert!(network.lost > 0 && network.doubled > 0);
        assert!(!times.is_sorted());
    }

    #[test]
    fn a_stream_is_late_and_never_out_of_order() {
        let (mut network, id) = network();
        let unkind =
            Intensity { loss: 100_000, stray: 100_000, reordering: true, stray_delay: 99, ..Intensity::calm() };
        let times: Vec<_> = (0..1000).map(|now| network.carry_text(SimTime(now), id, Way::ToDialer, &unkind)).collect();
        assert!(times.is_sorted_by(|a, b| a < b) && network.lost > 0);
    }

    #[test]
    fn cuts_have_a_direction_and_are_counted() {
        let (mut network, id) = network();
        let (a, b) = (HostId(0), HostId(1));
        network.cut(a, b);
        network.cut(a, b);
        network.join(a, b);
        let calm = Intensity::calm();
        assert_eq!(network.carry(SimTime(0), id, Way::ToAcceptor, (a, b), &calm), [None, None]);
        assert!(network.carry(SimTime(0), id, Way::ToDialer, (b, a), &calm)[0].is_some());
        network.join(a, b);
        assert!(!network.is_cut(a, b));
    }
}
