//! When calls must be examined: a heap with about one entry per slot of the slab, however many calls there were. A call
//! that ends leaves its entry in the heap; when the entry comes up, it is moved to the time of the slot's next call.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use kasha_types::Tick;

use super::call::NEVER;
use super::calls::Calls;

#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Tick, u32)>>,
}

impl Timers {
    /// Makes sure that the call comes up at the time it wants, or earlier.
    pub(super) fn arm(&mut self, calls: &mut Calls, slot: usize) {
        let wake = calls[slot].wake();
        if wake < calls.armed(slot) {
            calls.set_armed(slot, wake);
            self.heap.push(Reverse((wake, u32::try_from(slot).expect("far below 2^32 calls"))));
        }
    }

    pub(super) fn next(&self) -> Option<Tick> {
        self.heap.peek().map(|&Reverse((at, _))| at)
    }

    /// The next call whose time has come.
    pub(super) fn pop_due(&mut self, calls: &mut Calls, now: Tick) -> Option<usize> {
        while let Some(&Reverse((at, slot))) = self.heap.peek().filter(|Reverse((at, _))| *at <= now) {
            self.heap.pop();
            let slot = slot as usize;
            if calls.armed(slot) != at {
                continue;
            }
            calls.set_armed(slot, NEVER);
            match calls.get(slot).map(|call| call.wake()) {
                None => {}
                Some(wake) if wake <= now => return Some(slot),
                Some(_) => self.arm(calls, slot),
            }
        }
        None
    }
}
