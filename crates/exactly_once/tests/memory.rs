//! Pitfall 6: an idle client takes at most 116 bytes, whatever the number of clients.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use kasha_exactly_once::{Place, Request, Tracker};
use kasha_types::{AckedBelow, BodyHash, ClientId, ClusterTime, RpcId, Sequence};

const BYTES_PER_CLIENT_MAX: usize = 116;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts what the thread holds; tests run on threads of their own.
struct Counting;

// SAFETY: forwards to the system's allocator, and counting touches no allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get().wrapping_add(layout.size()));
        PEAK.set(PEAK.get().max(HELD.get()));
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.set(HELD.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn update(client: u64, sequence: u64, acknowledgement: u64) -> Request {
    Request {
        rpc: RpcId { client: ClientId(client), sequence: Sequence(sequence) },
        body_hash: BodyHash(sequence),
        acknowledgement: AckedBelow(acknowledgement),
        lease_expiry: ClusterTime(1),
    }
}

fn complete(tracker: &mut Tracker, client: u64, sequence: u64, acknowledgement: u64) {
    tracker.complete(&update(client, sequence, acknowledgement), Place(client << 32 | sequence), |_| ());
}

#[test]
fn pitfall_6_an_idle_client_takes_at_most_116_bytes_at_any_number_of_clients() {
    let before = HELD.get();
    let mut tracker = Tracker::new();
    let (mut at_100_000, mut worst, mut worst_growing) = (0, 0, 0);
    for client in 1..=240_000 {
        PEAK.set(HELD.get());
        tracker.prove(ClientId(client), ClusterTime(1));
        complete(&mut tracker, client, 1, 1);
        let (held, peak) = (HELD.get() - before, PEAK.get() - before);
        assert_eq!(held, tracker.stats().bytes as usize, "the exported number is the true one");
        // Below these, the last chunk's unused part shows. It is 14 KiB at most.
        if client >= 1024 {
            let each = held.div_ceil(client as usize);
            assert!(each <= BYTES_PER_CLIENT_MAX, "{each} bytes each at {client} clients");
            worst = worst.max(each);
        }
        if client >= 16_384 {
            let each = peak.div_ceil(client as usize);
            assert!(each <= BYTES_PER_CLIENT_MAX, "{each} bytes each at {client} clients, while growing");
            worst_growing = worst_growing.max(each);
        }
        if client == 100_000 {
            at_100_000 = held.div_ceil(100_000);
        }
    }
    println!("bytes each: {at_100_000} at 100000 clients, {worst} at worst, {worst_growing} while growing");
}

#[test]
fn pitfall_6_a_client_that_was_busy_goes_back_to_rest() {
    let before = HELD.get();
    let mut tracker = Tracker::new();
    for client in 1..=100_000 {
        tracker.prove(ClientId(client), ClusterTime(1));
        for sequence in 1..=16 {
            complete(&mut tracker, client, sequence, 1);
        }
        complete(&mut tracker, client, 17, 17);
    }
    assert_eq!(tracker.stats().records, 100_000);
    let each = (HELD.get() - before).div_ceil(100_000);
    assert!(each <= BYTES_PER_CLIENT_MAX, "{each} bytes each");
}

#[test]
fn a_request_allocates_nothing_in_steady_state() {
    let mut tracker = Tracker::new();
    let depths = [(1, 1), (2, 8), (3, 512)];
    for (client, _) in depths {
        tracker.prove(ClientId(client), ClusterTime(1));
    }
    let mut before = 0;
    for sequence in 1..=4096_u64 {
        if sequence == 1024 {
            before = ALLOCATIONS.get();
        }
        for (client, depth) in depths {
            // The whole window drains now and then: the queue is given back and taken again.
            let drained = (sequence - 1) / depth * depth + 1;
            let _new = tracker.look_up(&update(client, sequence, drained));
            complete(&mut tracker, client, sequence, drained);
        }
    }
    assert_eq!(ALLOCATIONS.get(), before);
}

#[test]
fn forgotten_clients_make_room_for_new_ones() {
    let mut tracker = Tracker::new();
    let mut bytes = 0;
    for round in 0..10_u64 {
        let clients = || (1..=5000).map(|client| ClientId(round * 10_000 + client));
        for client in clients() {
            tracker.prove(client, ClusterTime(round + 1));
            complete(&mut tracker, client.0, 1, 1);
        }
        if round == 0 {
            bytes = tracker.stats().bytes;
        }
        assert!(tracker.stats().bytes <= bytes);
        clients().for_each(|client| tracker.forget_before(client, Place(u64::MAX), |_| ()));
        tracker.raise_floor(ClusterTime(round + 1));
    }
    assert_eq!(tracker.stats().clients, 0);
}
