//! A count that was made up reserves no memory: what a decoder allocates is bounded by what was sent.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::encoded;
use crate::common::messages::described;
use kasha_wire::{AnyMessage, Message, Outcome, outcome::Shape};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn note(change: isize) {
    let live = LIVE.get() + change;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches only cells of this thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes held while `run` ran, beyond those held before.
fn peak_of<T>(run: impl FnOnce() -> T) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    drop(run());
    (PEAK.get() - before) as usize
}

/// Items in memory are at most this many times their encoding, growing lists included.
const FACTOR: usize = 24;
/// Room reserved for the first items of the lists that are open at once.
const BASE: usize = 512 * 1024;

#[test]
fn made_up_counts_reserve_nothing() {
    let mut runner = TestRunner::deterministic();
    for message in described() {
        for _ in 0..4 {
            let bytes = encoded(&message.any.new_tree(&mut runner).unwrap().current());
            for at in 0..bytes.len() {
                for count in [u32::MAX, 1 << 24, 4096] {
                    let mut bytes = bytes.clone();
                    let end = bytes.len().min(at + 4);
                    bytes[at..end].copy_from_slice(&count.to_le_bytes()[..end - at]);
                    let peak = peak_of(|| AnyMessage::decode(&bytes));
                    assert!(peak <= FACTOR * bytes.len() + 1024, "{}: {peak} for {}", message.name, bytes.len());
                    bytes.resize(bytes.len() + (1 << 15), 0);
                    let peak = peak_of(|| AnyMessage::decode(&bytes));
                    assert!(peak <= FACTOR * bytes.len() + BASE, "{}: {peak} for {}", message.name, bytes.len());
                }
            }
        }
    }
}

#[test]
fn results_take_what_they_hold() {
    for shape in [Shape::Versions, Shape::Flags, Shape::Numbers, Shape::Values, Shape::Observed, Shape::Parts] {
        for count in [0, 1000, 1 << 16, u32::MAX] {
            for len in [0, 4, 100, 1 << 16] {
                let mut bytes = vec![0];
                bytes.extend(u32::to_le_bytes(count));
                bytes.resize(bytes.len() + len, 0);
                let peak = peak_of(|| Outcome::decode(shape, &bytes));
                assert!(peak <= FACTOR * bytes.len() + 1024, "{shape:?}: {peak} for {}", bytes.len());
            }
        }
    }
}
