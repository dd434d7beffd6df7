//! A stranger on the network: it sends every process frames that are well-formed and mean nothing.
//!
//! Some frames are random bytes. Others were overheard, and then cut, lengthened or changed by a few bits. They have
//! right checksums, as anybody's frames can have. A frame that still has a meaning after the change is not sent, since
//! a process that may speak as a member can of course lie. Nothing may panic, and everything else goes on.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use kasha_machine::{Effect, Effects, Endpoint, Gate, Input, Machine, Rng};
use kasha_types::{LogSlice, Tick};
use kasha_wire::frame::{self, Kind};
use kasha_wire::{AnswerView, AnyMessage, AppendView, Body, Message, ReadAnswerView, RequestView, hot};

use crate::clock::{SimTime, micros, millis};
use crate::process::Actor;
use crate::world::{Sent, View, Watch};

/// Frames that are remembered.
const OVERHEARD_MAX: usize = 64;
/// Bytes of a random frame.
const RANDOM_BYTES_MAX: u64 = 300;

/// Frames that went by; shared by [`Ear`], which collects them, and [`Stranger`], which sends them.
pub type Overheard = Rc<RefCell<VecDeque<(u8, Vec<u8>)>>>;

/// Remembers the last frames that went by.
pub struct Ear(pub Overheard);

impl Watch for Ear {
    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        let mut overheard = self.0.borrow_mut();
        if overheard.len() == OVERHEARD_MAX {
            overheard.pop_front();
        }
        overheard.push_back((sent.kind, sent.payload.to_vec()));
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// The program that sends the frames.
pub struct Stranger {
    rng: Rng,
    overheard: Overheard,
    targets: u16,
    next_at: SimTime,
}

/// Whether a frame still says something that only an entitled sender may say.
fn has_meaning(kind: u8, payload: &[u8]) -> bool {
    match Kind::from_number(kind) {
        None => false,
        // A body that cannot be decoded is refused, whatever is around it.
        Some(Kind::Request | Kind::Record | Kind::Cancel) => {
            RequestView::decode(payload).is_ok_and(|view| Body::decode(view.body).is_ok())
        }
        // Anybody may ask.
        Some(Kind::Read) => false,
        Some(Kind::Append) => AppendView::decode(payload).is_ok(),
        Some(Kind::Answer) => AnswerView::decode(payload).is_ok(),
        Some(Kind::ReadAnswer) => ReadAnswerView::decode(payload).is_ok(),
        Some(Kind::Appended) => hot::decode_small::<kasha_wire::Appended>(payload).is_ok(),
        Some(Kind::Recorded) => hot::decode_small::<kasha_wire::Recorded>(payload).is_ok(),
        Some(Kind::Sync) => false,
        Some(Kind::Synced) => hot::decode_small::<kasha_wire::Synced>(payload).is_ok(),
        Some(Kind::Refuse) => hot::decode_small::<kasha_wire::Refused>(payload).is_ok(),
        Some(Kind::ReadRefuse) => hot::decode_small::<kasha_wire::ReadRefused>(payload).is_ok(),
        Some(Kind::Message) => !matches!(
            AnyMessage::decode(payload),
            Err(_) | Ok(AnyMessage::GetConfiguration(_) | AnyMessage::GetStatus(_) | AnyMessage::OpenSession(_))
        ),
    }
}

fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    match rng.below(4) {
        0 => bytes.truncate(usize::try_from(rng.below(bytes.len() as u64 + 1)).expect("small")),
        1 => (0..rng.between(1, 40)).for_each(|_| bytes.push(rng.next_u64() as u8)),
        _ if !bytes.is_empty() => {
            for _ in 0..rng.between(1, 4) {
                let at = usize::try_from(rng.below(bytes.len() as u64)).expect("small");
                bytes[at] ^= 1 << rng.below(8);
            }
        }
        _ => {}
    }
}

impl Stranger {
    /// A stranger that knows these addresses.
    pub fn new(seed: u64, overheard: Overheard, targets: &[SocketAddr], out: &mut Effects) -> Self {
        for (index, &address) in (0..).zip(targets) {
            out.push(Effect::Route { to: Endpoint::Seed(index), address });
        }
        let targets = u16::try_from(targets.len()).expect("few");
        Self { rng: Rng::new(seed), overheard, targets, next_at: SimTime(0) }
    }

    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let overheard = self.overheard.borrow();
        let (mut kind, mut payload) = if overheard.is_empty() || self.rng.chance(1, 3) {
            let len = self.rng.below(RANDOM_BYTES_MAX);
            (self.rng.next_u64() as u8 % 32, (0..len).map(|_| self.rng.next_u64() as u8).collect())
        } else {
            let index = usize::try_from(self.rng.below(overheard.len() as u64)).expect("few");
            overheard[index].clone()
        };
        damage(&mut self.rng, &mut payload);
        if self.rng.chance(1, 20) {
            kind = self.rng.next_u64() as u8;
        }
        (!has_meaning(kind, &payload)).then_some((kind, payload))
    }
}

/// A frame of any kind, also of one that does not exist.
fn encode(kind: u8, payload: &[u8], bytes: &mut Vec<u8>) {
    let start = frame::begin(bytes, Kind::Message);
    bytes[start + KIND_AT] = kind;
    bytes.extend_from_slice(payload);
    frame::end(bytes, start, &[]);
}

/// The position of the kind in a frame's header.
const KIND_AT: usize = 12;

impl Machine for Stranger {
    fn step(&mut self, _now: Tick, _input: Input<'_>, _out: &mut Effects) {}
    fn end_turn(&mut self, _now: Tick, _out: &mut Effects) {}
    fn next_deadline(&self) -> Option<Tick> {
        None
    }
    fn is_open(&self, _gate: Gate) -> bool {
        true
    }
    fn log_bytes(&self, _slice: LogSlice) -> &[u8] {
        unreachable!("a stranger has no log")
    }
}

impl Actor for Stranger {
    fn machine(&self) -> &dyn Machine {
        self
    }
    fn machine_mut(&mut self) -> &mut dyn Machine {
        self
    }

    fn drive(&mut self, _now: Tick, at: SimTime, out: &mut Effects) {
        if at < self.next_at {
            return;
        }
        for _ in 0..self.rng.between(1, 3) {
            let to = Endpoint::Seed(u16::try_from(self.rng.below(u64::from(self.targets))).expect("few"));
            if let Some((kind, payload)) = self.frame() {
                let mark = out.mark();
                encode(kind, &payload, out.arena());
                let head = out.span_from(mark);
                out.push(Effect::Send { to, head, tail: None, gate: Gate::Now });
            }
        }
        self.next_at = at.after(self.rng.between(micros(200), millis(4)));
    }

    fn wake(&self) -> Option<SimTime> {
        Some(self.next_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_whole_and_mean_nothing() {
        let message = kasha_wire::message::GetConfiguration { have: kasha_types::ConfigVersion(7) };
        let mut real = Vec::new();
        kasha_wire::Wire::put(&message, &mut real);
        let overheard: Overheard = Rc::new(RefCell::new(VecDeque::from([(Kind::Message as u8, real)])));
        let mut stranger = Stranger::new(1, overheard, &[], &mut Effects::new());
        let mut sent = 0;
        for _ in 0..1000 {
            let Some((kind, payload)) = stranger.frame() else { continue };
            let mut bytes = Vec::new();
            encode(kind, &payload, &mut bytes);
            let header = frame::FrameHeader::parse(&bytes).expect("a header").expect("a whole one");
            assert_eq!((header.kind, header.check(&bytes).expect("its checksum")), (kind, &payload[..]));
            sent += 1;
        }
        assert!(sent > 900, "{sent}");
    }
}
