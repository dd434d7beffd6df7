//! Reading: from socket to machine, through the handshake.
//!
//! Each connection with input is read for its share of a turn, so that a busy connection starves no other. Bytes are
//! cut into frames; a damaged frame ends its connection. The first frame must be a `Hello` or its answer (`handshake`).
//! After that, frames go to the machine in order, except questions to the event loop (`GetUsage`, `GetTurns`), which
//! are answered here. Requests of the Redis protocol go to the machine as they are, without a handshake. `now` is read after the input that
//! it goes with was received (section 7).

use std::io::{ErrorKind, Read};

use kasha_machine::{Endpoint, Input, RequestsEnd};
use kasha_types::{ConnId, Tick};
use kasha_wire::cutter::{Fed, Verdict};
use kasha_wire::link::{Handshake, ToLoop};
use kasha_wire::message::{GetTurns, GetUsage, Goodbye, TurnsAre, UsageIs};
use kasha_wire::{Kind, Message, requests};

use super::Network;
use crate::Clock;
use crate::connection::{Phase, Role};
use crate::framing::Cutting;
use crate::handshake;
use crate::limits::{TURN_CONNECTION_BYTES, TURN_INPUT_BYTES};
use crate::usage;

/// Whether a connection may have more to read without another event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    More,
    Nothing,
}

enum Got {
    Bytes(usize),
    Nothing,
    /// The other side says no more. It may listen still.
    End,
    Lost,
}

impl Network {
    /// Reads from every connection that has input, each for its share, until the machine has had enough. `deliver`
    /// says whether it has.
    pub(crate) fn receive(&mut self, deliver: &mut impl FnMut(Tick, Input<'_>) -> bool) {
        let mut budget = TURN_INPUT_BYTES;
        let mut enough = false;
        for _ in 0..self.ready.len() {
            if enough || budget == 0 || self.inbound.is_full() {
                return;
            }
            let id = self.ready.pop_front().expect("as many as counted");
            let Some(connection) = self.table.get(id) else { continue };
            connection.queued = false;
            if (connection.paused || connection.unheard) && connection.phase == Phase::Up {
                continue;
            }
            let left = self.receive_from(id, &mut budget, &mut |now, input| {
                enough |= deliver(now, input);
                enough
            });
            if left == Left::More {
                self.mark_ready(id);
            }
        }
    }

    fn receive_from(
        &mut self,
        id: ConnId,
        budget: &mut usize,
        deliver: &mut impl FnMut(Tick, Input<'_>) -> bool,
    ) -> Left {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut left = self.feed(id, Clock::now(), &[], deliver);
        let mut share = TURN_CONNECTION_BYTES;
        while left == Left::Nothing {
            if share == 0 || *budget == 0 {
                left = Left::More;
                break;
            }
            let Some(connection) = self.table.get(id) else { break };
            let got = match connection.stream.read(&mut scratch) {
                Ok(0) => Got::End,
                Ok(len) => Got::Bytes(len),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Got::Nothing,
                Err(error) => {
                    tracing::debug!(%id, %error, "lost while reading");
                    Got::Lost
                }
            };
            let (ending, is_closing) = (connection.ending, matches!(connection.phase, Phase::Closing { .. }));
            // After the read (section 7): a process that was stopped in between must see the time that has passed.
            let now = Clock::now();
            match got {
                Got::End if self.is_half_closed(id, now, deliver) => break,
                Got::End | Got::Lost => {
                    if is_closing {
                        // Frames from before the end may still be queued.
                        self.flush_one(now, id);
                    }
                    self.drop_connection(now, id);
                    break;
                }
                Got::Nothing => break,
                Got::Bytes(len) => {
                    left = self.feed(id, now, &scratch[..len], deliver);
                    share = share.saturating_sub(len);
                    *budget = budget.saturating_sub(len);
                    // A short read has emptied the socket: what comes later comes with an event.
                    if len < scratch.len() && !ending {
                        break;
                    }
                }
            }
        }
        self.scratch = scratch;
        left
    }

    /// Whoever sends requests may end its side behind the last one, and waits for replies: the machine closes behind these. Half a
    /// request is none.
    fn is_half_closed(&mut self, id: ConnId, now: Tick, deliver: &mut impl FnMut(Tick, Input<'_>) -> bool) -> bool {
        let Some(connection) = self.table.get(id).filter(|connection| connection.phase == Phase::Up) else {
            return false;
        };
        match connection.cutter {
            Cutting::Frames(_) => return false,
            Cutting::Over => return true,
            Cutting::Requests(_) => connection.cutter = Cutting::Over,
        }
        self.count_half(now, id);
        self.inbound.requests_end(now, id, RequestsEnd::HalfClosed, deliver);
        true
    }

    /// Handles the frames that `bytes` complete.
    fn feed(&mut self, id: ConnId, now: Tick, bytes: &[u8], deliver: &mut impl FnMut(Tick, Input<'_>) -> bool) -> Left {
        let Some(connection) = self.table.get(id) else { return Left::Nothing };
        if matches!(connection.phase, Phase::Closing { .. }) {
            return Left::Nothing;
        }
        if bytes.is_empty() && !connection.cutter.holds_bytes() {
            return Left::Nothing;
        }
        if connection.phase == Phase::Greeting && self.is_text(id, now, bytes) {
            return Left::Nothing;
        }
        let Some(connection) = self.table.get(id) else { return Left::Nothing };
        if !bytes.is_empty() && connection.phase == Phase::Up {
            connection.moved = now;
        }
        let mut cutter = std::mem::take(&mut connection.cutter);
        let fed = match &mut cutter {
            Cutting::Frames(cutter) => {
                cutter.feed(bytes, |kind, payload| self.on_frame(id, now, kind, payload, deliver))
            }
            Cutting::Requests(cutter) => Ok(cutter.feed(bytes, |cut| match cut {
                requests::Cut::Request(request) => self.on_request(id, now, (request.bytes(), true), deliver),
                requests::Cut::TooLarge(request) => self.on_request(id, now, (request.bytes(), false), deliver),
                requests::Cut::Bad(why) => self.on_no_request(id, now, &why.to_string(), deliver),
            })),
            Cutting::Over => unreachable!("nothing comes behind the end"),
        };
        let half = cutter.holds_bytes();
        if let Some(connection) = self.table.get(id) {
            if let (Cutting::Frames(cutter), Phase::Up, Some(version)) =
                (&mut cutter, connection.phase, connection.version)
            {
                cutter.speak(version);
            }
            let is_requester = connection.is_requester;
            connection.cutter = cutter;
            if is_requester {
                self.count_half(now, id);
            }
        }
        match fed {
            Ok(Fed::Paused) => Left::More,
            Ok(Fed::Drained) => {
                if half {
                    self.supervise(now);
                }
                Left::Nothing
            }
            Ok(Fed::Stopped) => Left::Nothing,
            Err(error) => {
                self.stats.bad_frames += 1;
                let reason = format!(
                    "{error}, so this connection's stream cannot be trusted any more: connect again, with the same \
                     version of Kasha on both sides (K0206)"
                );
                self.goodbye(now, id, &reason);
                Left::Nothing
            }
        }
    }

    fn on_frame(
        &mut self,
        id: ConnId,
        now: Tick,
        kind: u8,
        payload: &[u8],
        deliver: &mut impl FnMut(Tick, Input<'_>) -> bool,
    ) -> Verdict {
        let Some(connection) = self.table.get(id) else { return Verdict::Stop };
        match (connection.phase, connection.role) {
            (Phase::Up, _) if !Handshake::is_in(kind, payload) => {
                let from = connection.endpoint();
                if Kind::from_number(kind).is_none() {
                    self.stats.bad_frames += 1;
                    let reason = format!(
                        "a frame of kind {kind}, which this version does not know: run the same version of Kasha on \
                         both sides (K0206)"
                    );
                    self.goodbye(now, id, &reason);
                    return Verdict::Stop;
                }
                if let Some(question) = ToLoop::from_frame(kind, payload) {
                    self.answer_for_the_loop(id, now, question);
                    return Verdict::Continue;
                }
                self.stats.frames_received += 1;
                if self.refusals.2 == Some(from) {
                    self.refusals.0 = 0;
                }
                if self.inbound.frame(now, from, kind, payload, deliver) { Verdict::Pause } else { Verdict::Continue }
            }
            (Phase::Up, role) => {
                match Handshake::decode(payload) {
                    // The reason is written for the operator of this side.
                    Ok(Handshake::Goodbye(Goodbye { reason })) => {
                        tracing::warn!(%id, reason, "the other side closes");
                        if let Role::Dialled(from @ (Endpoint::Coordinator | Endpoint::Member(_))) = role {
                            self.refusals = (self.refusals.0.saturating_add(1), reason, Some(from));
                        }
                    }
                    Ok(Handshake::Hello(_) | Handshake::Welcome(_)) | Err(_) => {
                        tracing::warn!(%id, "a second handshake: closed")
                    }
                }
                self.drop_connection(now, id);
                Verdict::Stop
            }
            (Phase::Greeting, Role::Accepted) => self.greet(id, now, kind, payload),
            (Phase::Greeting, Role::Dialled(peer)) => self.welcomed(id, now, peer, (kind, payload)),
            (Phase::Closing { .. }, _) => Verdict::Stop,
        }
    }

    /// A request of another protocol goes to the machine as it is.
    fn on_request(
        &mut self,
        id: ConnId,
        now: Tick,
        request: (&[u8], bool),
        deliver: &mut impl FnMut(Tick, Input<'_>) -> bool,
    ) -> Verdict {
        self.stats.frames_received += 1;
        if self.inbound.request(now, id, request, deliver) { Verdict::Pause } else { Verdict::Continue }
    }

    /// What came is no request, and nothing more comes.
    fn on_no_request(
        &mut self,
        id: ConnId,
        now: Tick,
        why: &str,
        deliver: &mut impl FnMut(Tick, Input<'_>) -> bool,
    ) -> Verdict {
        self.stats.frames_received += 1;
        self.stats.bad_frames += 1;
        self.inbound.requests_end(now, id, RequestsEnd::Bad(why), deliver);
        Verdict::Stop
    }

    fn answer_for_the_loop(&mut self, conn: ConnId, now: Tick, question: ToLoop) {
        match question {
            ToLoop::GetUsage(GetUsage { id }) => {
                let usage = usage::now(&self.stats, self.turns.count(), self.heap);
                self.answer(conn, &UsageIs { id, usage });
            }
            ToLoop::GetTurns(GetTurns { id }) => {
                let turns = Box::new(self.turns.tell(now));
                self.answer(conn, &TurnsAre { id, turns });
            }
        }
    }

    fn answer(&mut self, id: ConnId, message: &impl Message) {
        let connection = self.table.get(id).expect("its frame is being handled");
        connection.say(message);
        self.mark_dirty(id);
    }

    /// The first frame from a peer that we dialled. Pauses: what comes behind it is of the version that it names.
    fn welcomed(&mut self, id: ConnId, now: Tick, peer: Endpoint, (kind, payload): (u8, &[u8])) -> Verdict {
        match handshake::judge_welcome(&self.identity, self.wanted(peer), kind, payload) {
            Ok(version) => {
                let connection = self.table.get(id).expect("its frame is being handled");
                (connection.phase, connection.version) = (Phase::Up, Some(version));
                connection.output.release(version);
                self.mark_dirty(id);
                self.reached(peer);
                Verdict::Pause
            }
            Err(why) => {
                self.tell_wrong_peer(peer, &why);
                self.stats.refused += 1;
                self.drop_connection(now, id);
                Verdict::Stop
            }
        }
    }

    fn greet(&mut self, id: ConnId, now: Tick, kind: u8, payload: &[u8]) -> Verdict {
        match handshake::answer_hello(&self.identity, kind, payload) {
            Ok(welcome) => {
                self.answer(id, &welcome);
                let connection = self.table.get(id).expect("its frame is being handled");
                (connection.phase, connection.version) = (Phase::Up, Some(welcome.version));
                connection.moved = now;
                Verdict::Pause
            }
            Err(reason) => {
                self.stats.refused += 1;
                self.goodbye(now, id, &reason);
                Verdict::Stop
            }
        }
    }
}
