//! What the Redis port of a node does: each of its cores counts for itself, and whoever is asked tells what the core, or the node, has counted.
//!
//! A core writes its own numbers only, and plainly: what is counted for each command is kept elsewhere, and noted here once a turn.

use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a port does, and has done since its process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortUse {
    /// Connections that are open.
    pub connections: u64,
    /// Connections that there have been, those that were refused excepted.
    pub accepted: u64,
    /// Connections that were refused, because there were as many as may be.
    pub refused: u64,
    /// Commands that were answered, or would have been if their connections had wanted that.
    pub commands: u64,
    /// Bytes of whole requests.
    pub bytes_in: u64,
    /// Bytes of replies.
    pub bytes_out: u64,
}

impl AddAssign for PortUse {
    fn add_assign(&mut self, other: Self) {
        self.connections += other.connections;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.commands += other.commands;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

/// The numbers of one core, which it alone writes: cores must not share a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OfCore {
    connections: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    commands: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// What one core counts of the port of its node.
#[derive(Clone, Debug)]
pub struct CorePort {
    cores: Arc<[OfCore]>,
    own: usize,
}

impl CorePort {
    /// For each of so many cores that accept at one port.
    #[must_use]
    pub fn of_cores(cores: usize) -> Vec<Self> {
        let all: Arc<[OfCore]> = (0..cores).map(|_| OfCore::default()).collect();
        (0..cores).map(|own| Self { cores: Arc::clone(&all), own }).collect()
    }

    /// Notes what this core has counted of connections.
    pub fn note_connections(&self, open: u64, accepted: u64, refused: u64) {
        let own = &self.cores[self.own];
        own.connections.store(open, Ordering::Relaxed);
        own.accepted.store(accepted, Ordering::Relaxed);
        own.refused.store(refused, Ordering::Relaxed);
    }

    /// Notes what this core has counted of commands.
    pub fn note_commands(&self, commands: u64, bytes_in: u64, bytes_out: u64) {
        let own = &self.cores[self.own];
        own.commands.store(commands, Ordering::Relaxed);
        own.bytes_in.store(bytes_in, Ordering::Relaxed);
        own.bytes_out.store(bytes_out, Ordering::Relaxed);
    }

    /// What this core has noted.
    #[must_use]
    pub fn of_core(&self) -> PortUse {
        read(&self.cores[self.own])
    }

    /// What all cores of the port have noted.
    #[must_use]
    pub fn of_node(&self) -> PortUse {
        let mut sum = PortUse::default();
        self.cores.iter().for_each(|core| sum += read(core));
        sum
    }
}

fn read(core: &OfCore) -> PortUse {
    PortUse {
        connections: core.connections.load(Ordering::Relaxed),
        accepted: core.accepted.load(Ordering::Relaxed),
        refused: core.refused.load(Ordering::Relaxed),
        commands: core.commands.load(Ordering::Relaxed),
        bytes_in: core.bytes_in.load(Ordering::Relaxed),
        bytes_out: core.bytes_out.load(Ordering::Relaxed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_core_tells_its_own_and_all_tell_the_sum() {
        let cores = CorePort::of_cores(2);
        cores[0].note_connections(1, 2, 3);
        cores[0].note_commands(4, 5, 6);
        cores[1].note_connections(10, 20, 30);
        cores[1].note_commands(40, 50, 60);
        cores[1].note_commands(41, 51, 61);
        let told = |used: PortUse| {
            [used.connections, used.accepted, used.refused, used.commands, used.bytes_in, used.bytes_out]
        };
        assert_eq!(told(cores[0].of_core()), [1, 2, 3, 4, 5, 6]);
        assert_eq!(told(cores[1].of_core()), [10, 20, 30, 41, 51, 61]);
        assert!(cores.iter().all(|core| told(core.of_node()) == [11, 22, 33, 45, 56, 67]));
    }
}
