//! "No allocation per request in steady state" (DESIGN, section 12): what a primary's machine and the turn around it
//! allocate for an update. A ratchet: the numbers may only go down.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::cluster::{Cluster, LIST};
use crate::common::{Core, Shell};
use kasha_machine::{Endpoint, FileName, Input, Machine, turn};
use kasha_types::{ConnId, CoreId, ListVersion, LocalPosition, LogEnd, NodeId};
use kasha_wire::frame::{FRAME_HEADER_BYTES, Kind};
use kasha_wire::hot::{self, AppendView, Appended, Envelope, RequestView};
use kasha_wire::{AnyMessage, Message, Update, message};

const UPDATES: u64 = 10_000;
const KEYS: u64 = 100;
/// Allocations in so many updates by a primary alone: those of one heartbeat.
const ALONE_MAX: usize = 3;
/// The same with two backups that are also its witnesses, and smaller segments: four more for each segment begun (the
/// log's order and digest, the replica's marks) or looked at (tombstones).
const REPLICATED_MAX: usize = 15;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts what the thread allocates while it is to.
struct Counting;

// SAFETY: forwards to the system's allocator, and counting touches no allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.get() {
            ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        }
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs what is not the machine's.
fn uncounted<T>(what: impl FnOnce() -> T) -> T {
    let counts = COUNTS.replace(false);
    let result = what();
    COUNTS.set(counts);
    result
}

/// A shell whose own memory does not count.
struct Uncounted<'a>(&'a mut Shell);

impl turn::Shell for Uncounted<'_> {
    fn send(&mut self, to: Endpoint, head: &[u8], tail: &[u8]) {
        uncounted(|| self.0.send(to, head, tail));
    }
    fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]) {
        uncounted(|| self.0.write(file, offset, bytes));
    }
    fn replace(&mut self, file: FileName, bytes: &[u8]) {
        uncounted(|| self.0.replace(file, bytes));
    }
    fn truncate(&mut self, file: FileName, len: u64) {
        uncounted(|| self.0.truncate(file, len));
    }
    fn remove(&mut self, file: FileName) {
        uncounted(|| self.0.remove(file));
    }
    fn commit(&mut self, to: LocalPosition, fsync: bool) {
        uncounted(|| self.0.commit(to, fsync));
    }
    fn flush(&mut self) {}
    fn flush_logs(&mut self) {}
    fn route(&mut self, _: Endpoint, _: SocketAddr) {}
    fn disconnect(&mut self, _: Endpoint) {}
    fn stop(&mut self, why: &str) {
        uncounted(|| self.0.stop(why));
    }
}

/// A turn with one input, counted.
fn turn_with(core: &mut Core, input: Input<'_>) {
    let Core { node, shell, now, effects, held, .. } = core;
    COUNTS.set(true);
    node.step(*now, input, effects);
    turn::finish(*now, node, effects, held, &mut Uncounted(shell));
    COUNTS.set(false);
}

fn frame_turn(core: &mut Core, from: Endpoint, frame: &[u8]) {
    turn_with(core, Input::Frame { from, kind: frame[12], payload: &frame[FRAME_HEADER_BYTES..] });
}

/// What a backup and witness answers to a frame, if anything.
fn scripted_answer(node: NodeId, frame: &[u8]) -> Option<Vec<u8>> {
    let (payload, mut answer) = (&frame[FRAME_HEADER_BYTES..], Vec::new());
    match Kind::from_number(frame[12]) {
        Some(Kind::Append) => {
            let append = AppendView::decode(payload).expect("an append");
            let AppendView { shard, epoch, attach, from, round, bytes, .. } = append;
            let end = LogEnd(from.0 + bytes.len() as u64);
            hot::encode_small(Kind::Appended, &Appended { shard, epoch, node, attach, end, round }, &mut answer);
        }
        Some(Kind::Message) => match AnyMessage::decode(payload) {
            Ok(AnyMessage::Gc(message::Gc { shard, list, round, .. })) => {
                message::GcDone { shard, list, round, node, suspects: Vec::new() }.encode(&mut answer);
            }
            Ok(AnyMessage::Ping(message::Ping { sent })) => message::Pong { sent, node }.encode(&mut answer),
            _ => return None,
        },
        _ => return None,
    }
    Some(answer)
}

/// Allocations of so many updates, each answered before the next. Answers that clients heard are counted too.
fn run(core: &mut Core, sequences: std::ops::Range<u64>, list: ListVersion) -> (usize, u64) {
    let client = Endpoint::Conn(ConnId(1));
    let mut answers = 0;
    ALLOCATIONS.set(0);
    for sequence in sequences {
        core.now = core.now.after(Duration::from_micros(5));
        let key = format!("key {}", sequence % KEYS);
        let body = Core::body((1, sequence), sequence, None, &Update::put(key.as_bytes(), &[7; 100]));
        let cluster_time = kasha_types::ClusterTime(0);
        let envelope =
            Envelope { shard: crate::common::SHARD, epoch: core.epoch, list, cluster_time, attempt: 1, turn: None };
        let mut frame = Vec::new();
        RequestView::encode(Kind::Request, &envelope, &body, &mut frame);
        frame_turn(core, client, &frame);
        loop {
            let (commits, sent) = (std::mem::take(&mut core.shell.commits), std::mem::take(&mut core.shell.sent));
            if commits.is_empty() && sent.is_empty() {
                break;
            }
            for commit in commits {
                turn_with(core, Input::Durable(commit));
            }
            for (to, frame) in sent {
                match to {
                    Endpoint::Core(CoreId { node, .. }) => {
                        if let Some(answer) = scripted_answer(node, &frame) {
                            frame_turn(core, to, &answer);
                        }
                    }
                    to => answers += u64::from(to == client),
                }
            }
        }
    }
    (ALLOCATIONS.get(), answers)
}

fn steady_state(core: &mut Core, list: ListVersion) -> usize {
    run(core, 1..2 * UPDATES, list);
    let (allocations, answers) = run(core, 2 * UPDATES..3 * UPDATES, list);
    assert_eq!(answers, UPDATES);
    println!("{allocations} allocations in {UPDATES} updates");
    allocations
}

#[test]
fn an_update_at_a_primary_alone() {
    let allocations = steady_state(&mut Core::serving(), ListVersion::NONE);
    assert!(allocations <= ALONE_MAX, "{allocations}");
}

#[test]
fn an_update_at_a_primary_with_two_backups() {
    let mut cluster = Cluster::serving();
    let allocations = steady_state(&mut cluster.cores[0], LIST);
    assert!(allocations <= REPLICATED_MAX, "{allocations}");
}
