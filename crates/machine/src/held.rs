//! The gated queue: frames that wait for their gate (D3).
//!
//! There is one lane for each kind of gate and each shard. Within a lane, frames leave in the order of their arrival. A
//! frame whose gate is already open waits at most for the sync that the frame in front of it waits for. So opening a
//! gate costs time for the released frames only, and no frame is looked at twice.

use std::collections::VecDeque;

use kasha_types::{LogSlice, ShardId};

use crate::{Endpoint, Gate};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneKey {
    Synced(ShardId),
    Flushed(ShardId),
    Confirmed(ShardId),
    DurableAs(ShardId),
    Durable,
    Committed,
}

#[derive(Debug)]
struct Frame {
    gate: Gate,
    to: Endpoint,
    head_len: usize,
    tail: Option<LogSlice>,
}

impl Frame {
    /// Bytes of the frame on the wire.
    fn len(&self) -> usize {
        self.head_len + self.tail.map_or(0, |slice| slice.len as usize)
    }
}

#[derive(Debug)]
struct Lane {
    key: LaneKey,
    frames: VecDeque<Frame>,
    /// The heads of the frames, one behind the other. The bytes before `first` belong to frames that have left.
    heads: Vec<u8>,
    first: usize,
}

impl Lane {
    fn bytes(&self) -> usize {
        self.heads.len() - self.first
    }

    /// Frees the room of frames that have left, once it is the greater part. So each byte is moved once at most, on
    /// average.
    fn compact(&mut self) {
        if self.first > self.heads.len() / 2 {
            self.heads.drain(..self.first);
            self.first = 0;
        }
    }
}

/// Frames that may not leave yet.
#[derive(Debug, Default)]
pub struct Held {
    lanes: Vec<Lane>,
}

fn lane_of(gate: Gate) -> LaneKey {
    match gate {
        Gate::Now => unreachable!("an open gate holds nothing"),
        Gate::Synced { shard, .. } => LaneKey::Synced(shard),
        Gate::Flushed { shard, .. } => LaneKey::Flushed(shard),
        Gate::Confirmed { shard, .. } => LaneKey::Confirmed(shard),
        Gate::DurableAs { shard, .. } => LaneKey::DurableAs(shard),
        Gate::Durable(_) => LaneKey::Durable,
        Gate::Committed { .. } => LaneKey::Committed,
    }
}

impl Held {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps a frame until its gate opens.
    ///
    /// # Panics
    /// If it names the log behind a gate that may be closed for longer than the log keeps that ([`Gate::may_name_log`]).
    pub fn hold(&mut self, gate: Gate, to: Endpoint, head: &[u8], tail: Option<LogSlice>) {
        assert!(tail.is_none() || gate.may_name_log(), "a frame names the log behind {gate:?}");
        let key = lane_of(gate);
        let lane = match self.lanes.iter().position(|lane| lane.key == key) {
            Some(index) => &mut self.lanes[index],
            None => {
                self.lanes.push(Lane { key, frames: VecDeque::new(), heads: Vec::new(), first: 0 });
                self.lanes.last_mut().expect("just pushed")
            }
        };
        lane.frames.push_back(Frame { gate, to, head_len: head.len(), tail });
        lane.heads.extend_from_slice(head);
    }

    /// Hands out every frame whose gate is open, in order.
    pub fn release(&mut self, is_open: impl Fn(Gate) -> bool, mut send: impl FnMut(Endpoint, &[u8], Option<LogSlice>)) {
        for lane in &mut self.lanes {
            let opened = lane.frames.iter().take_while(|frame| is_open(frame.gate)).count();
            if opened == 0 {
                continue;
            }
            for frame in lane.frames.drain(..opened) {
                let head = lane.first..lane.first + frame.head_len;
                lane.first = head.end;
                send(frame.to, &lane.heads[head], frame.tail);
            }
            lane.compact();
        }
    }

    /// Drops the frames of a shard whose role was lost (R3.1), and reports for each receiver how many bytes it will not
    /// get. Frames that wait for our own files only ([`Gate::Durable`]) stay.
    pub fn drop_shard(&mut self, shard: ShardId, let_go: impl FnMut(Endpoint, usize)) {
        let of_shard = [LaneKey::Synced, LaneKey::Flushed, LaneKey::Confirmed, LaneKey::DurableAs];
        self.drop_lanes(&of_shard.map(|lane| lane(shard)), let_go);
    }

    /// Drops the frames that wait for operations of a lead that was lost (R9.1), and reports them in the same way.
    pub fn drop_committed(&mut self, let_go: impl FnMut(Endpoint, usize)) {
        self.drop_lanes(&[LaneKey::Committed], let_go);
    }

    fn drop_lanes(&mut self, gone: &[LaneKey], mut let_go: impl FnMut(Endpoint, usize)) {
        for lane in self.lanes.extract_if(.., |lane| gone.contains(&lane.key)) {
            lane.frames.iter().for_each(|frame| let_go(frame.to, frame.len()));
        }
    }

    /// Drops the frames for endpoints that are gone: closed connections. Looks at every frame.
    pub fn forget(&mut self, is_gone: impl Fn(Endpoint) -> bool) {
        for lane in &mut self.lanes {
            let (mut start, mut kept) = (lane.first, Vec::new());
            lane.frames.retain(|frame| {
                let head = &lane.heads[start..start + frame.head_len];
                start += frame.head_len;
                let stays = !is_gone(frame.to);
                if stays {
                    kept.extend_from_slice(head);
                }
                stays
            });
            (lane.heads, lane.first) = (kept, 0);
        }
    }

    /// Number of frames that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.frames.len()).sum()
    }

    /// Whether no frame waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of held frames, without the parts that lie in the log.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lanes.iter().map(Lane::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{ConnId, Epoch, LocalPosition, LogEnd, LogPosition};

    use super::*;

    fn synced(end: u64) -> Gate {
        Gate::Synced { shard: ShardId(1), position: LogPosition { epoch: Epoch(1), offset: LogEnd(end) } }
    }

    fn released(held: &mut Held, open_to: u64) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let is_open = |gate| match gate {
            Gate::Synced { position, .. } => position.offset <= LogEnd(open_to),
            _ => false,
        };
        held.release(is_open, |_, head, _| out.push(head.to_vec()));
        out
    }

    #[test]
    fn nothing_leaves_before_its_gate() {
        let mut held = Held::new();
        let to = Endpoint::Conn(ConnId(1));
        held.hold(synced(10), to, b"ten", None);
        held.hold(synced(20), to, b"twenty", None);
        held.hold(Gate::Durable(LocalPosition(1)), to, b"file", None);
        assert_eq!(released(&mut held, 9), Vec::<Vec<u8>>::new());
        assert_eq!(released(&mut held, 10), vec![b"ten".to_vec()]);
        held.hold(synced(20), to, b"again", None);
        assert_eq!(released(&mut held, 20), vec![b"twenty".to_vec(), b"again".to_vec()]);
        assert_eq!(held.len(), 1);
    }

    #[test]
    fn a_lost_role_drops_its_frames_only() {
        let mut held = Held::new();
        let to = Endpoint::Conn(ConnId(1));
        held.hold(synced(10), to, b"ten", None);
        held.hold(Gate::Durable(LocalPosition(1)), to, b"file", None);
        let mut let_go = Vec::new();
        held.drop_shard(ShardId(1), |to, bytes| let_go.push((to, bytes)));
        assert_eq!(let_go, [(to, 3)]);
        assert_eq!(released(&mut held, 99), Vec::<Vec<u8>>::new());
        assert_eq!(held.len(), 1);
    }

    #[test]
    fn r9_1_a_lost_lead_drops_what_waits_for_its_operations_only() {
        let mut held = Held::new();
        let to = Endpoint::Conn(ConnId(1));
        held.hold(Gate::Committed { view: 1, op: 7, round: 1 }, to, b"seven", None);
        held.hold(Gate::Durable(LocalPosition(1)), to, b"file", None);
        let mut let_go = Vec::new();
        held.drop_committed(|to, bytes| let_go.push((to, bytes)));
        assert_eq!((let_go, held.len()), (vec![(to, 5)], 1));
    }

    #[test]
    fn what_goes_to_a_closed_connection_is_forgotten() {
        let mut held = Held::new();
        let (stays, goes) = (Endpoint::Conn(ConnId(1)), Endpoint::Conn(ConnId(2)));
        for (to, head) in [(stays, "a"), (goes, "bb"), (stays, "ccc"), (goes, "dddd")] {
            held.hold(synced(10), to, head.as_bytes(), None);
        }
        held.forget(|to| to == goes);
        assert_eq!((held.len(), held.bytes()), (2, 4));
        assert_eq!(released(&mut held, 10), vec![b"a".to_vec(), b"ccc".to_vec()]);
    }

    proptest::proptest! {
        /// The queue behaves like a list: the same frames leave, to the same receivers, in the same order.
        #[test]
        fn it_is_a_list_with_gates(steps in proptest::collection::vec((0u8..6, 0u64..40, 0usize..9), 0..200)) {
            let (mut held, mut list) = (Held::new(), Vec::<(u64, Endpoint, Vec<u8>)>::new());
            let mut opened = 0;
            for (number, (step, offset, len)) in steps.into_iter().enumerate() {
                let to = Endpoint::Conn(ConnId(u64::from(step)));
                match step {
                    0..=2 => {
                        // Positions only grow, as in a log.
                        let gate = list.last().map_or(0, |&(gate, ..)| gate).max(opened) + offset;
                        let head = vec![number as u8; len];
                        held.hold(synced(gate), to, &head, None);
                        list.push((gate, to, head));
                    }
                    3 => {
                        opened += offset;
                        let left: Vec<_> = list.extract_if(.., |(gate, ..)| *gate <= opened).map(|(.., head)| head).collect();
                        proptest::prop_assert_eq!(released(&mut held, opened), left);
                    }
                    4 => {
                        let gone = Endpoint::Conn(ConnId(offset % 3));
                        held.forget(|to| to == gone);
                        list.retain(|(_, to, _)| *to != gone);
                    }
                    _ => {
                        let mut let_go = Vec::new();
                        held.drop_shard(ShardId(1), |to, bytes| let_go.push((to, bytes)));
                        let all: Vec<_> = list.drain(..).map(|(_, to, head)| (to, head.len())).collect();
                        proptest::prop_assert_eq!(let_go, all);
                    }
                }
                proptest::prop_assert_eq!(held.len(), list.len());
                proptest::prop_assert_eq!(held.bytes(), list.iter().map(|(.., head)| head.len()).sum::<usize>());
            }
        }
    }
}
