//! The gated queue: frames that wait for their gate (D3).
//!
//! One lane for each kind of gate and shard. Within a lane gates open in order of arrival: a frame whose gate is
//! already open waits at most for the sync that the frame in front of it waits for. So opening a gate costs what it
//! releases, and no frame is looked at twice.

use std::collections::VecDeque;

use kasha_types::{LogSlice, ShardId};

use crate::{Endpoint, Gate};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneKey {
    Synced(ShardId),
    Confirmed(ShardId),
    DurableAs(ShardId),
    Durable,
}

#[derive(Debug)]
struct Frame {
    gate: Gate,
    to: Endpoint,
    head_len: usize,
    tail: Option<LogSlice>,
}

#[derive(Debug)]
struct Lane {
    key: LaneKey,
    frames: VecDeque<Frame>,
    heads: VecDeque<u8>,
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
        Gate::Confirmed { shard, .. } => LaneKey::Confirmed(shard),
        Gate::DurableAs { shard, .. } => LaneKey::DurableAs(shard),
        Gate::Durable(_) => LaneKey::Durable,
    }
}

impl Held {
    /// Nothing held.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps a frame until its gate opens.
    pub fn hold(&mut self, gate: Gate, to: Endpoint, head: &[u8], tail: Option<LogSlice>) {
        let key = lane_of(gate);
        let lane = match self.lanes.iter().position(|lane| lane.key == key) {
            Some(index) => &mut self.lanes[index],
            None => {
                self.lanes.push(Lane { key, frames: VecDeque::new(), heads: VecDeque::new() });
                self.lanes.last_mut().expect("just pushed")
            }
        };
        lane.frames.push_back(Frame { gate, to, head_len: head.len(), tail });
        lane.heads.extend(head);
    }

    /// Hands out every frame whose gate is open, in order.
    pub fn release(&mut self, is_open: impl Fn(Gate) -> bool, mut send: impl FnMut(Endpoint, &[u8], Option<LogSlice>)) {
        for lane in &mut self.lanes {
            let opened = lane.frames.iter().take_while(|frame| is_open(frame.gate)).count();
            if opened == 0 {
                continue;
            }
            let heads = lane.heads.make_contiguous();
            let mut start = 0;
            for frame in lane.frames.drain(..opened) {
                send(frame.to, &heads[start..start + frame.head_len], frame.tail);
                start += frame.head_len;
            }
            lane.heads.drain(..start);
        }
    }

    /// A role was lost: forgets what was to be said in it (R3.1). Other frames that wait for our own files stay.
    pub fn drop_shard(&mut self, shard: ShardId) {
        let gone = [LaneKey::Synced(shard), LaneKey::Confirmed(shard), LaneKey::DurableAs(shard)];
        self.lanes.retain(|lane| !gone.contains(&lane.key));
    }

    /// How many frames wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.frames.len()).sum()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held beside the log's own.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.heads.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{ConnId, Epoch, LocalPosition, LogPosition};

    use super::*;

    fn synced(offset: u64) -> Gate {
        Gate::Synced { shard: ShardId(1), position: LogPosition { epoch: Epoch(1), offset } }
    }

    fn released(held: &mut Held, open_to: u64) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let is_open = |gate| match gate {
            Gate::Synced { position, .. } => position.offset <= open_to,
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
        held.drop_shard(ShardId(1));
        assert_eq!(released(&mut held, 99), Vec::<Vec<u8>>::new());
        assert_eq!(held.len(), 1);
    }
}
