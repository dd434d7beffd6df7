//! A client of the cluster and a node in one core, as one machine (REDIS 1).
//!
//! The client (a front over its session) reaches the node of its own core over a pipe in the process: a frame for it
//! comes back as [`Input::Frame`] within the same turn, without a socket, and nobody looks at its checksum. The node does
//! not know of that: to it, the pipe is one more accepted connection, [`PIPE`].
//!
//! Kept here: **D3** what the node sends into the pipe behind a gate waits in [`Held`], in order, until the node says
//! that the gate is open, and is dropped with its role (**R3.1**). Client and node dial over connections of their own: the
//! client's peers stand in a list, and the shell knows each as a seed behind those of the node ([`FIRST_PEER`]), and whom it must meet there.
//!
//! However often frames go back and forth in a turn, the turn of the node ends once. The node counts on that: at the first
//! input after its turn it uses memory again that effects of this turn may name. A turn goes a limited number of rounds
//! through the pipe, with a limited number of bytes; what is left goes on in the next one.

use std::collections::VecDeque;

use kasha_types::planted::{self, Bug};
use kasha_types::{ConnId, CoreId, LogSlice, Tick};

use crate::{Effect, Effects, Endpoint, Gate, Held, Input, Machine};

/// The pipe, as the node knows it. No shell gives this number to a connection.
pub const PIPE: ConnId = ConnId(0);

/// The number of the client's first peer: the node has seeds of its own, which are fewer.
pub const FIRST_PEER: u16 = 1 << 15;

/// Rounds through the pipe in one turn: one for a request and its answer, and some for what the answers let the client do.
const TURN_ROUNDS: usize = 8;

/// Bytes that the frames of one turn have, and what is sent because of them. A shell bounds its own input and output alike.
const TURN_BYTES: usize = 4 * 1024 * 1024;

/// A frame counts as so many bytes at least: a short one is work, too.
const FRAME_LEAST: usize = 1024;

/// Bytes that may wait in the pipe for gates. Above, frames are dropped, as on any connection: the client asks again.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How a whole frame comes apart: kind and payload. (The layout of frames is not known here.)
pub type Split = fn(&[u8]) -> (u8, &[u8]);

/// Whole frames that go one way through the pipe.
#[derive(Debug, Default)]
struct Pipe {
    bytes: Vec<u8>,
    /// Bytes of frames that have left.
    first: usize,
    lens: VecDeque<usize>,
}

impl Pipe {
    fn push(&mut self, head: &[u8], tail: &[u8]) {
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(tail);
        self.lens.push_back(head.len() + tail.len());
    }

    fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Gives `machine` the frames, in order, as long as `left` of the turn's bytes are left. Says whether there was one.
    fn hand_out<M: Machine>(
        &mut self,
        (now, from): (Tick, Endpoint),
        (split, left): (Split, &mut usize),
        machine: &mut M,
        out: &mut Effects,
    ) -> bool {
        const KEPT_BYTES: usize = 1024 * 1024;
        let mut any = false;
        while *left > 0
            && let Some(len) = self.lens.pop_front()
        {
            let (kind, payload) = split(&self.bytes[self.first..self.first + len]);
            let (effects, mark) = (out.queue().len(), out.mark());
            machine.step(now, Input::Frame { from, kind, payload }, out);
            let tails = out.queue()[effects..].iter().map(|effect| match effect {
                Effect::Send { tail: Some(slice), .. } => slice.len as usize,
                _ => 0,
            });
            let work = len + (out.mark() - mark) + tails.sum::<usize>();
            *left = left.saturating_sub(work.max(FRAME_LEAST));
            self.first += len;
            any = true;
        }
        if self.first > self.bytes.len() / 2 {
            self.bytes.drain(..self.first);
            self.bytes.shrink_to(KEPT_BYTES);
            self.first = 0;
        }
        any
    }
}

/// A client `C` and a node `N` of one core.
#[derive(Debug)]
pub struct Colocated<C, N> {
    client: C,
    node: N,
    own: CoreId,
    split: Split,
    /// Whom the client dials; the shell knows the one at place `n` as `Seed(FIRST_PEER + n)`.
    peers: Vec<Endpoint>,
    to_node: Pipe,
    to_client: Pipe,
    held: Held,
    /// Bytes of what `held` holds, those in the log included.
    held_bytes: usize,
    /// The node has closed the pipe, and is not told yet that this is done.
    is_cut: bool,
}

impl<C: Machine, N: Machine> Colocated<C, N> {
    /// The node of the core `own`, and a client that `make` makes beside it.
    pub fn new(own: CoreId, split: Split, node: N, out: &mut Effects, make: impl FnOnce(&mut Effects) -> C) -> Self {
        let first = out.queue().len();
        let mut both = Self {
            client: make(out),
            node,
            own,
            split,
            peers: Vec::new(),
            to_node: Pipe::default(),
            to_client: Pipe::default(),
            held: Held::new(),
            held_bytes: 0,
            is_cut: false,
        };
        both.sort_clients(first, out);
        both
    }

    /// The client.
    pub fn client(&self) -> &C {
        &self.client
    }

    /// The node.
    pub fn node(&self) -> &N {
        &self.node
    }

    /// The node, to ask it to stop.
    pub fn node_mut(&mut self) -> &mut N {
        &mut self.node
    }

    /// The client acts, and what it wants done from then on gets its own connections, or goes into the pipe.
    pub fn with_client(&mut self, out: &mut Effects, act: impl FnOnce(&mut C, &mut Effects)) {
        let first = out.queue().len();
        act(&mut self.client, out);
        self.sort_clients(first, out);
    }

    fn sort_clients(&mut self, first: usize, out: &mut Effects) {
        let Self { own, peers, to_node, .. } = self;
        let is_own = |to| to == Endpoint::Core(*own);
        let mut dialled = |to| match to {
            Endpoint::Conn(_) => to,
            Endpoint::Core(_) | Endpoint::Coordinator | Endpoint::Member(_) | Endpoint::Seed(_) => {
                let place = peers.iter().position(|&peer| peer == to).unwrap_or_else(|| {
                    peers.push(to);
                    peers.len() - 1
                });
                Endpoint::Seed(FIRST_PEER + u16::try_from(place).expect("a cluster has fewer cores"))
            }
        };
        out.sift(first, |effect, arena| match effect {
            Effect::Send { to, head, tail: None, gate: Gate::Now } if is_own(to) => {
                to_node.push(&arena[head.range()], &[]);
                None
            }
            Effect::Send { to, head, tail: None, gate: Gate::Now } => {
                Some(Effect::Send { to: dialled(to), head, tail: None, gate: Gate::Now })
            }
            Effect::Route { to, .. } | Effect::Disconnect(to) if is_own(to) => None,
            Effect::Route { to: to @ Endpoint::Seed(_), address } => Some(Effect::Route { to: dialled(to), address }),
            Effect::Route { to, address } => Some(Effect::RouteAs { to: dialled(to), who: to, address }),
            Effect::Disconnect(to) => Some(Effect::Disconnect(dialled(to))),
            Effect::Hear { .. } | Effect::Stop(_) => Some(effect),
            Effect::Send { .. }
            | Effect::Write { .. }
            | Effect::Replace { .. }
            | Effect::Truncate { .. }
            | Effect::Remove { .. }
            | Effect::Commit { .. }
            | Effect::Flush
            | Effect::FlushLogs
            | Effect::ReadClock
            | Effect::DropHeld(_)
            | Effect::DropCommitted
            | Effect::RouteAs { .. } => unreachable!("a client has no files, no log and no gates: {effect:?}"),
        });
    }

    /// Takes what the node sends to the client out of the effects from `first` on, in their order, so that a lost role drops what was
    /// held before and nothing else. Returns how many effects there are.
    fn sort_nodes(&mut self, first: usize, out: &mut Effects) -> usize {
        let Self { node, to_client, held, held_bytes, is_cut, .. } = self;
        out.sift(first, |effect, arena| match effect {
            Effect::Send { to: Endpoint::Conn(PIPE), head, tail, gate } => {
                let head = &arena[head.range()];
                if gate == Gate::Now || planted::is_on(Bug::PipeUngated) {
                    to_client.push(head, tail.map_or(&[][..], |slice| node.log_bytes(slice)));
                } else if *held_bytes < HELD_BYTES_MAX {
                    *held_bytes += head.len() + tail.map_or(0, |slice| slice.len as usize);
                    held.hold(gate, Endpoint::Conn(PIPE), head, tail);
                }
                None
            }
            Effect::Disconnect(Endpoint::Conn(PIPE)) => {
                *is_cut = true;
                None
            }
            Effect::DropHeld(shard) => {
                held.drop_shard(shard, |_, bytes| *held_bytes -= bytes);
                Some(effect)
            }
            Effect::DropCommitted => {
                held.drop_committed(|_, bytes| *held_bytes -= bytes);
                Some(effect)
            }
            Effect::Send { .. }
            | Effect::Disconnect(_)
            | Effect::Hear { .. }
            | Effect::Write { .. }
            | Effect::Replace { .. }
            | Effect::Truncate { .. }
            | Effect::Remove { .. }
            | Effect::Commit { .. }
            | Effect::Flush
            | Effect::FlushLogs
            | Effect::ReadClock
            | Effect::Route { .. }
            | Effect::RouteAs { .. }
            | Effect::Stop(_) => Some(effect),
        });
        out.queue().len()
    }

    /// Gives the node what the client has sent.
    fn ask_node(&mut self, now: Tick, left: &mut usize, out: &mut Effects) {
        if std::mem::take(&mut self.is_cut) {
            self.node.step(now, Input::Closed(PIPE), out);
        }
        self.to_node.hand_out((now, Endpoint::Conn(PIPE)), (self.split, left), &mut self.node, out);
    }

    /// Gives the client what the node has sent. Says whether there was anything.
    fn answer_client(&mut self, now: Tick, left: &mut usize, out: &mut Effects) -> bool {
        let (from, split) = (Endpoint::Core(self.own), self.split);
        let (mut frames, is_cut) = (std::mem::take(&mut self.to_client), self.is_cut);
        let mut any = is_cut;
        self.with_client(out, |client, out| {
            any |= frames.hand_out((now, from), (split, left), client, out);
            if is_cut {
                client.step(now, Input::Unreachable(from), out);
            }
            if any {
                client.end_turn(now, out);
            }
        });
        self.to_client = frames;
        if is_cut {
            self.held.forget(|_| true);
            self.held_bytes = 0;
        }
        any
    }

    /// What waited for gates that are open now goes to the client.
    fn release(&mut self) {
        let Self { node, held, held_bytes, to_client, .. } = self;
        held.release(
            |gate| node.is_open(gate),
            |_, head, tail| {
                let tail = tail.map_or(&[][..], |slice| node.log_bytes(slice));
                *held_bytes -= head.len() + tail.len();
                to_client.push(head, tail);
            },
        );
    }
}

fn is_due<M: Machine>(machine: &M, now: Tick) -> bool {
    machine.next_deadline().is_some_and(|deadline| deadline <= now)
}

impl<C: Machine, N: Machine> Machine for Colocated<C, N> {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        let dialled = |seed: u16| self.peers[usize::from(seed - FIRST_PEER)];
        match input {
            Input::Frame { from: Endpoint::Seed(seed @ FIRST_PEER..), kind, payload } => {
                let from = dialled(seed);
                self.with_client(out, |client, out| client.step(now, Input::Frame { from, kind, payload }, out));
            }
            Input::Unreachable(Endpoint::Seed(seed @ FIRST_PEER..)) => {
                let peer = dialled(seed);
                self.with_client(out, |client, out| client.step(now, Input::Unreachable(peer), out));
            }
            Input::Request { .. } | Input::RequestsEnd { .. } | Input::Backlog { .. } => {
                self.with_client(out, |client, out| client.step(now, input, out));
            }
            // Numbers of connections are unique, so that whoever does not know this one has nothing to forget.
            Input::Closed(_) => {
                self.node.step(now, input, out);
                self.with_client(out, |client, out| client.step(now, input, out));
            }
            Input::Tick => {
                if is_due(&self.node, now) {
                    self.node.step(now, input, out);
                }
                if is_due(&self.client, now) {
                    self.with_client(out, |client, out| client.step(now, input, out));
                }
            }
            Input::Frame { .. }
            | Input::Unreachable(_)
            | Input::Durable(_)
            | Input::LogsFlushed
            | Input::UnixTime(_) => {
                self.node.step(now, input, out);
            }
        }
    }

    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        let (mut left, mut sorted) = (TURN_BYTES, 0);
        self.with_client(out, |client, out| client.end_turn(now, out));
        for _ in 0..TURN_ROUNDS {
            self.ask_node(now, &mut left, out);
            sorted = self.sort_nodes(sorted, out);
            if !self.answer_client(now, &mut left, out) {
                break;
            }
        }
        self.node.end_turn(now, out);
        self.sort_nodes(sorted, out);
        self.release();
        // What the client sends now goes to the node in the next turn, which comes at once.
        self.answer_client(now, &mut left, out);
    }

    fn next_deadline(&self) -> Option<Tick> {
        if !self.to_node.is_empty() || !self.to_client.is_empty() || self.is_cut {
            return Some(Tick(0));
        }
        self.client.next_deadline().into_iter().chain(self.node.next_deadline()).min()
    }

    fn is_open(&self, gate: Gate) -> bool {
        self.node.is_open(gate)
    }

    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        self.node.log_bytes(slice)
    }

    fn assert_invariants(&self) {
        self.client.assert_invariants();
        self.node.assert_invariants();
        assert_eq!(self.held.is_empty(), self.held_bytes == 0, "each byte that is held is counted once");
    }
}

#[cfg(test)]
mod tests;
