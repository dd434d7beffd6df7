//! What stands between the sockets and the machine: injected delay and faults, and news of lost connections.
//!
//! With a delay, everything passes through one queue, lost connections too: a connection's end must not overtake its
//! frames. Constant delay keeps the queue in order of time.

use std::collections::VecDeque;
use std::time::Duration;

use kasha_machine::{Endpoint, Input, RequestsEnd, Rng};
use kasha_types::{ConnId, Tick};

use crate::limits::DELAYED_BYTES_MAX;
use crate::options::FrameFaults;

/// Emptied frame buffers that are kept for reuse, and the greatest that is.
const SPARE_MAX: usize = 1024;
const SPARE_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
enum Item {
    Frame {
        from: Endpoint,
        kind: u8,
        payload: Vec<u8>,
    },
    Request {
        from: ConnId,
        bytes: Vec<u8>,
        is_whole: bool,
    },
    /// Why what came is no request; nothing: the other side has ended its side.
    RequestsEnd {
        from: ConnId,
        why: Option<String>,
    },
    Backlog {
        of: ConnId,
        is_full: bool,
    },
    Closed(ConnId),
    Unreachable(Endpoint),
}

#[derive(Debug)]
struct Faults {
    options: FrameFaults,
    rng: Rng,
}

/// Frames that wait for the end of their delay.
#[derive(Debug)]
pub(crate) struct Inbound {
    delay: Duration,
    faults: Option<Faults>,
    queue: VecDeque<(Tick, Item)>,
    bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl Inbound {
    pub(crate) fn new(delay: Duration, faults: Option<FrameFaults>) -> Self {
        let faults = faults.map(|options| Faults { options, rng: Rng::new(options.seed) });
        Self { delay, faults, queue: VecDeque::new(), bytes: 0, spare: Vec::new() }
    }

    /// A frame was received at `now`: gives it to `deliver` as often as it is to arrive now. Says whether the machine
    /// has had enough for this turn.
    pub(crate) fn frame(
        &mut self,
        now: Tick,
        from: Endpoint,
        kind: u8,
        payload: &[u8],
        deliver: &mut impl FnMut(Tick, Input<'_>) -> bool,
    ) -> bool {
        let mut enough = false;
        for _ in 0..self.copies() {
            if self.delay.is_zero() {
                enough |= deliver(now, Input::Frame { from, kind, payload });
            } else {
                let mut copy = self.spare.pop().unwrap_or_default();
                copy.extend_from_slice(payload);
                self.bytes += payload.len();
                self.queue.push_back((now.after(self.delay), Item::Frame { from, kind, payload: copy }));
            }
        }
        enough
    }

    /// A request of another protocol was received at `now`. No faults strike it: whoever speaks such a protocol relies on the stream.
    pub(crate) fn request(
        &mut self,
        now: Tick,
        from: ConnId,
        (bytes, is_whole): (&[u8], bool),
        deliver: &mut impl FnMut(Tick, Input<'_>) -> bool,
    ) -> bool {
        if self.delay.is_zero() {
            return deliver(now, Input::Request { from, bytes, is_whole });
        }
        self.bytes += bytes.len();
        self.queue.push_back((now.after(self.delay), Item::Request { from, bytes: bytes.to_vec(), is_whole }));
        false
    }

    /// No more requests come on a connection that is open.
    pub(crate) fn requests_end(
        &mut self,
        now: Tick,
        from: ConnId,
        why: RequestsEnd<'_>,
        deliver: &mut impl FnMut(Tick, Input<'_>) -> bool,
    ) -> bool {
        if self.delay.is_zero() {
            return deliver(now, Input::RequestsEnd { from, why });
        }
        let why = match why {
            RequestsEnd::Bad(text) => Some(text.to_owned()),
            RequestsEnd::HalfClosed => None,
        };
        self.queue.push_back((now.after(self.delay), Item::RequestsEnd { from, why }));
        false
    }

    /// The same, found out where nothing is delivered.
    pub(crate) fn requests_are_over(&mut self, now: Tick, from: ConnId, why: &str) {
        self.queue.push_back((now.after(self.delay), Item::RequestsEnd { from, why: Some(why.to_owned()) }));
    }

    /// What was sent on a connection is too much, or little again.
    pub(crate) fn backlog(&mut self, now: Tick, of: ConnId, is_full: bool) {
        self.queue.push_back((now.after(self.delay), Item::Backlog { of, is_full }));
    }

    pub(crate) fn closed(&mut self, now: Tick, conn: ConnId) {
        self.queue.push_back((now.after(self.delay), Item::Closed(conn)));
    }

    pub(crate) fn unreachable(&mut self, now: Tick, peer: Endpoint) {
        self.queue.push_back((now.after(self.delay), Item::Unreachable(peer)));
    }

    pub(crate) fn next_due(&self) -> Option<Tick> {
        self.queue.front().map(|(due, _)| *due)
    }

    /// Whether nothing more may be read until it has drained.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes > DELAYED_BYTES_MAX
    }

    /// Delivers what is due, until the machine has had enough.
    pub(crate) fn deliver_due(&mut self, now: Tick, deliver: &mut impl FnMut(Tick, Input<'_>) -> bool) {
        while self.next_due().is_some_and(|due| due <= now) {
            let (_, item) = self.queue.pop_front().expect("there is a first");
            let enough = match item {
                Item::Frame { from, kind, mut payload } => {
                    let enough = deliver(now, Input::Frame { from, kind, payload: &payload });
                    self.bytes -= payload.len();
                    if self.spare.len() < SPARE_MAX && payload.capacity() <= SPARE_BYTES_MAX {
                        payload.clear();
                        self.spare.push(payload);
                    }
                    enough
                }
                Item::Request { from, bytes, is_whole } => {
                    self.bytes -= bytes.len();
                    deliver(now, Input::Request { from, bytes: &bytes, is_whole })
                }
                Item::RequestsEnd { from, why } => {
                    let why = why.as_deref().map_or(RequestsEnd::HalfClosed, RequestsEnd::Bad);
                    deliver(now, Input::RequestsEnd { from, why })
                }
                Item::Backlog { of, is_full } => deliver(now, Input::Backlog { of, is_full }),
                Item::Closed(conn) => deliver(now, Input::Closed(conn)),
                Item::Unreachable(peer) => deliver(now, Input::Unreachable(peer)),
            };
            if enough {
                return;
            }
        }
    }

    fn copies(&mut self) -> usize {
        let Some(Faults { options, rng }) = &mut self.faults else { return 1 };
        let (dropped, doubled) = (u64::from(options.drop_per_mille), u64::from(options.duplicate_per_mille));
        match rng.below(1000) {
            drawn if drawn < dropped => 0,
            drawn if drawn < dropped + doubled => 2,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delayed_frames_keep_their_order_and_a_connections_end_comes_last() {
        let mut inbound = Inbound::new(Duration::from_nanos(100), None);
        let conn = ConnId(1);
        let mut got = Vec::new();
        for at in 0..10u64 {
            let enough = inbound.frame(Tick(at), Endpoint::Conn(conn), 1, &[at as u8], &mut |_, _| panic!("too early"));
            assert!(!enough);
        }
        inbound.closed(Tick(10), conn);
        assert_eq!(inbound.next_due(), Some(Tick(100)));
        for now in [99, 100, 105, 110] {
            inbound.deliver_due(Tick(now), &mut |_, input| {
                got.push(match input {
                    Input::Frame { payload, .. } => payload[0],
                    _ => 255,
                });
                false
            });
            assert_eq!(got.len() as u64, (now + 1).saturating_sub(100).min(11));
        }
        assert_eq!(got, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 255]);
    }

    #[test]
    fn faults_come_at_their_rate_and_by_their_seed() {
        let faults = FrameFaults { drop_per_mille: 100, duplicate_per_mille: 200, seed: 5 };
        let run = || {
            let mut inbound = Inbound::new(Duration::ZERO, Some(faults));
            let mut counts = Vec::new();
            for _ in 0..2000 {
                let mut count = 0;
                inbound.frame(Tick(0), Endpoint::Coordinator, 1, &[], &mut |_, _| {
                    count += 1;
                    false
                });
                counts.push(count);
            }
            counts
        };
        let counts = run();
        assert_eq!(counts, run());
        let of = |wanted| counts.iter().filter(|count| **count == wanted).count();
        assert!((120..280).contains(&of(0)) && (300..500).contains(&of(2)));
    }
}
