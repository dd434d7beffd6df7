//! Packets under way, by the time when they are due; those due at the same time in the order in which they came.
//!
//! The buffers are one slab, made at the start; memory that was never used costs nothing. Free ones are reused last
//! in, first out, so a quiet network stays in the cache.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::link::Nanos;

/// Packets that can be under way at once: 128 MiB of 9000 bytes each, several times what TCP has in flight on the
/// longest delays that are of use here.
pub(crate) const PACKETS_MAX: usize = 16_384;

/// A packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Underway {
    pub(crate) due: Nanos,
    /// Which one it is, over all links.
    number: u64,
    pub(crate) from: usize,
    pub(crate) to: usize,
    slot: usize,
    length: usize,
}

/// The packets and their buffers.
#[derive(Debug)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Underway>>,
    slab: Vec<u8>,
    packet_bytes: usize,
    free: Vec<usize>,
    pushed: u64,
}

impl Queue {
    pub(crate) fn new(packet_bytes: usize) -> Self {
        Self {
            heap: BinaryHeap::with_capacity(PACKETS_MAX),
            slab: vec![0; PACKETS_MAX * packet_bytes],
            packet_bytes,
            free: (0..PACKETS_MAX).rev().collect(),
            pushed: 0,
        }
    }

    /// Keeps a copy of the packet until it is due. False if there is no room.
    pub(crate) fn push(&mut self, due: Nanos, from: usize, to: usize, packet: &[u8]) -> bool {
        let Some(slot) = self.free.pop() else { return false };
        let start = slot * self.packet_bytes;
        self.slab[start..start + packet.len()].copy_from_slice(packet);
        self.pushed += 1;
        self.heap.push(Reverse(Underway { due, number: self.pushed, from, to, slot, length: packet.len() }));
        true
    }

    /// When the next one is due.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse(next)| next.due)
    }

    /// Hands the next packet out, if it is due by now.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<(Underway, &[u8])> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(next) = self.heap.pop()?;
        // It is read before anything can be pushed: the borrow sees to that.
        self.free.push(next.slot);
        let start = next.slot * self.packet_bytes;
        Some((next, &self.slab[start..start + next.length]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_when_due_in_order_and_unharmed() {
        let mut queue = Queue::new(16);
        let packets = [(30, b"late"), (10, b"one."), (10, b"two."), (20, b"mid.")];
        for (due, packet) in packets {
            assert!(queue.push(due, 0, 1, packet));
        }
        assert!(queue.pop_due(9).is_none());
        let mut popped = Vec::new();
        while let Some((_, packet)) = queue.pop_due(20) {
            popped.push(packet.to_vec());
        }
        assert_eq!(popped, [b"one.", b"two.", b"mid."]);
        assert_eq!(queue.next_due(), Some(30));
    }

    #[test]
    fn a_full_queue_refuses_and_recovers() {
        let mut queue = Queue::new(1);
        (0..PACKETS_MAX).for_each(|n| assert!(queue.push(n as u64, 0, 1, &[1])));
        assert!(!queue.push(0, 0, 1, &[1]));
        assert!(queue.pop_due(0).is_some());
        assert!(queue.push(0, 0, 1, &[1]));
    }
}
