//! One turn of a process: its inputs, its machine, and what happens to the effects.
//!
//! This is the simulator's shell. It steps the machine with everything that has arrived, calls the same
//! `kasha_machine::turn::finish` as the event loop of `runtime`, and carries the performed effects into the world:
//! frames onto the network, writes into the simulated page cache, commits that hold after a drawn time or never.
//!
//! Which faults strike is drawn elsewhere (`intensity`, `faults`). Watchers see each frame as it is sent and each write
//! as it is made.

use std::rc::Rc;

use kasha_machine::{Endpoint, FileName, Input, Machine, turn};
use kasha_types::LocalPosition;
use kasha_wire::frame::{FRAME_HEADER_BYTES, FrameHeader};

use crate::clock::{micros, millis};
use crate::front;
use crate::network::{ConnectionId, Frame, Life, ProcessId, Way};
use crate::planted::{self, Bug};
use crate::process::{Commit, Inbound, Performed, SimShell};
use crate::world::{Sent, What, World};

/// The longest time until a process is started again after its disk has failed.
const FAILED_AWAY: u64 = millis(1500);

/// Rounds of one turn in which commits are reported and their frames released. A machine that needs more spins.
const TURN_ROUNDS_MAX: usize = 1000;

impl World {
    pub(crate) fn turn(&mut self, id: ProcessId) {
        let host = &self.hosts[self.processes[id.0].host.0];
        let (clock, slowness) = (host.clock, host.slowness);
        let is_stale = host.resumed_at == self.now && planted::is_on(Bug::StaleNow);
        let now = clock.read(if is_stale { host.paused_at } else { self.now });
        let process = &mut self.processes[id.0];
        let mut actor = process.actor.take().expect("runs");
        let mut effects = std::mem::take(&mut process.effects);
        let mut held = std::mem::take(&mut process.held);
        let mut shell = SimShell::new(&mut process.disk, process.dies_after_effects, process.tears);
        for inbound in std::mem::take(&mut process.inbox) {
            actor.step(now, inbound.input(), &mut effects);
        }
        if actor.next_deadline().is_some_and(|deadline| deadline <= now) {
            actor.step(now, Input::Tick, &mut effects);
        }
        actor.0.drive(now, self.now, &mut effects);
        let mut seen = 0;
        for round in 0.. {
            assert!(round < TURN_ROUNDS_MAX, "{}: a turn that does not end", process.name);
            turn::finish(now, &mut actor, &mut effects, &mut held, &mut shell);
            let new = &shell.performed[seen..];
            seen = shell.performed.len();
            let mut reported = false;
            for performed in new {
                if let Performed::Commit { to, fsync, mark } = *performed {
                    let late = self.rng.chance(self.intensity.late_commit, 1_000_000);
                    if !fsync && !late && process.commits.is_empty() {
                        actor.step(now, Input::Durable(to), &mut effects);
                        reported = true;
                    } else {
                        let took = if fsync {
                            self.rng.between(self.intensity.fsync.0, self.intensity.fsync.1)
                        } else {
                            self.rng.below(micros(500))
                        };
                        let before = process.commits.back().map_or(self.now, |commit| commit.ready_at);
                        let ready_at = self.now.after(took).max(before);
                        process.commits.push_back(Commit { to, mark: fsync.then_some(mark), ready_at });
                    }
                }
            }
            if !reported {
                break;
            }
        }
        actor.assert_invariants();
        let SimShell { performed, left, has_torn, wants_clock, .. } = shell;
        if wants_clock {
            actor.step(now, Input::UnixTime(clock.wall(self.now)), &mut effects);
        }
        process.effects = effects;
        process.held = held;
        process.actor = Some(actor);
        process.dies_after_effects = left;
        let took = self.rng.between(self.intensity.turn.0, self.intensity.turn.1) * slowness;
        process.busy_until = self.now.after(took);
        self.after_turn(id, &performed);
        if left == Some(0) {
            // The loop died in the middle of its turn, and the other loops of its process with it.
            self.probes.hit("turns torn");
            let host = self.processes[id.0].host;
            self.torn_terms.extend(has_torn.then_some(host));
            self.kill(host);
        } else {
            self.plan_turn(id);
        }
    }

    fn after_turn(&mut self, id: ProcessId, performed: &[Performed]) {
        let life = self.life(id);
        if let Some(at) = self.processes[id.0].commits.back().map(|commit| commit.ready_at) {
            self.push(at, What::Committed(life));
            if let Some(front) = self.processes[id.0].commits.front().map(|commit| commit.ready_at) {
                self.push(front, What::Committed(life));
            }
        }
        for effect in performed {
            match effect {
                Performed::Send { to: front::PIPED, bytes } => self.piped(id, bytes),
                Performed::Send { to, bytes } => self.send(id, *to, bytes),
                Performed::Write { file, offset, len } => {
                    self.digest.mix(*offset ^ ((*len as u64) << 40));
                    self.notify(|watcher, view| watcher.wrote(id, *file, *offset, *len, view));
                }
                Performed::Changed { file } | Performed::Truncated { file } | Performed::Removed { file } => {
                    match (effect, file) {
                        (Performed::Truncated { .. }, FileName::Segment { .. }) => self.probes.hit("logs cut short"),
                        (Performed::Removed { .. }, FileName::Segment { .. }) => self.probes.hit("segments freed"),
                        _ => {}
                    }
                    self.digest.mix(id.0 as u64);
                    self.notify(|watcher, view| watcher.wrote(id, *file, 0, 0, view));
                }
                Performed::Commit { to, .. } => self.digest.mix(to.0),
                Performed::Flush { mark } => {
                    let took = self.rng.between(self.intensity.fsync.0, self.intensity.fsync.1);
                    self.push(self.now.after(took), What::Flushed(life, *mark));
                }
                Performed::FlushLogs { mark } => {
                    let took = self.rng.between(self.intensity.fsync.0, self.intensity.fsync.1);
                    self.push(self.now.after(took), What::LogsFlushed(life, *mark));
                }
                Performed::Route { to, address } => {
                    let process = &mut self.processes[id.0];
                    process.failures.remove(to);
                    if process.routes.insert(*to, *address).is_some_and(|old| old != *address)
                        && let Some(connection) = process.dialed.remove(to)
                    {
                        self.close(connection, id);
                    }
                }
                Performed::Disconnect(to) => {
                    let process = &mut self.processes[id.0];
                    let connection = match to {
                        Endpoint::Conn(conn) => process.accepted.remove(conn),
                        other => process.dialed.remove(other),
                    };
                    if let Some(connection) = connection {
                        self.close_stream(connection, id);
                        self.close(connection, id);
                        if let Endpoint::Conn(conn) = to
                            && self.streams.has(connection)
                        {
                            // The runtime tells whoever closes, too.
                            self.deliver(id, Inbound::Closed(*conn));
                        }
                    }
                }
                Performed::Stop(why) => {
                    let text = format!("{} stopped: {why}", self.processes[id.0].name);
                    self.violation(text);
                    self.kill_process(id);
                    return;
                }
            }
        }
    }

    pub(crate) fn committed(&mut self, life: Life) {
        if !self.lives(life) {
            return;
        }
        if self.fsync_fails(life) && !planted::is_on(Bug::FailedFsyncWorked) {
            // A loop that ends takes its process with it (R5.4). The process is started again later.
            let host = self.processes[life.process.0].host;
            self.kill(host);
            let away = self.rng.below(FAILED_AWAY);
            return self.push(self.now.after(away), What::Start(host));
        }
        let process = &mut self.processes[life.process.0];
        let mut reached: Option<LocalPosition> = None;
        while let Some(commit) = process.commits.front().copied().filter(|commit| commit.ready_at <= self.now) {
            if let Some(mark) = commit.mark.filter(|_| !planted::is_on(Bug::FsyncLies)) {
                process.disk.synced(mark);
            }
            process.commits.pop_front();
            reached = Some(commit.to);
        }
        if let Some(to) = reached {
            self.deliver(life.process, Inbound::Durable(to));
        }
        if let Some(at) = self.processes[life.process.0].commits.front().map(|commit| commit.ready_at) {
            self.push(at, What::Committed(life));
        }
    }

    /// The fsync that ends now may fail. Then the changes that it covered are lost.
    fn fsync_fails(&mut self, life: Life) -> bool {
        let process = &mut self.processes[life.process.0];
        let ends = process.commits.front().is_some_and(|commit| commit.mark.is_some() && commit.ready_at <= self.now);
        let fails =
            ends && self.intensity.fsync_failure > 0 && self.rng.chance(self.intensity.fsync_failure, 1_000_000);
        if fails {
            self.probes.hit("fsyncs failed");
            process.disk.lose_unsynced();
        }
        fails
    }

    fn send(&mut self, id: ProcessId, to: Endpoint, bytes: &Rc<[u8]>) {
        let connection = self.connection_to(id, to);
        if let Some(stream) = connection.filter(|&connection| self.streams.has(connection)) {
            return self.send_text(id, stream, bytes);
        }
        let header = FrameHeader::parse(bytes).ok().flatten();
        let whole = header.filter(|header| header.payload_len + FRAME_HEADER_BYTES == bytes.len());
        let Some((header, payload)) = whole.and_then(|h| h.check(bytes).ok().map(|payload| (h, payload))) else {
            if connection.is_none() && self.streams.are_there() {
                // Text for somebody who has hung up.
                return self.probes.hit("frames to nobody");
            }
            let text = format!("whole_frames: {} sent {to:?} bytes that are no frame", self.processes[id.0].name);
            self.violation(text);
            return;
        };
        let target = connection.map(|connection| {
            let connection = self.network.connection(connection);
            if connection.dialer.process == id { connection.acceptor } else { connection.dialer.process }
        });
        let sent = Sent { from: id, to, target, kind: header.kind, payload };
        self.notify(|watcher, view| watcher.sent(&sent, view));
        let (Some(connection), Some(target)) = (connection, target) else {
            self.probes.hit("frames to nobody");
            return;
        };
        let state = self.network.connection(connection);
        let way = if state.dialer.process == id { Way::ToAcceptor } else { Way::ToDialer };
        if state.closed {
            // The transport notices: the next frame dials anew.
            if way == Way::ToAcceptor && self.processes[id.0].dialed.get(&to) == Some(&connection) {
                self.processes[id.0].dialed.remove(&to);
            }
            return;
        }
        let hosts = (self.processes[id.0].host, self.processes[target.0].host);
        let leaves = self.processes[id.0].busy_until;
        let arrivals = self.network.carry(leaves, connection, way, hosts, &self.intensity);
        for at in arrivals.into_iter().flatten() {
            self.push(at, What::Arrive(Frame { connection, way, bytes: bytes.clone() }));
        }
        if self.network.is_cut(hosts.0, hosts.1) && way == Way::ToAcceptor && self.rng.chance(1, 20) {
            // A dial or a keep-alive ran out of time.
            self.processes[id.0].dialed.remove(&to);
            self.network.connection_mut(connection).closed = true;
            let life = self.life(id);
            self.push(self.now.after(millis(20)), What::Inform(life, Inbound::Unreachable(to), connection));
        }
    }

    fn connection_to(&mut self, id: ProcessId, to: Endpoint) -> Option<ConnectionId> {
        let life = self.life(id);
        let process = &mut self.processes[id.0];
        match to {
            Endpoint::Conn(conn) => process.accepted.get(&conn).copied(),
            other => process.dialed.get(&other).copied().or_else(|| {
                let address = *process.routes.get(&other)?;
                let target = *self.by_address.get(&address)?;
                let not_before = process.failures.get(&other).map(|&(at, _)| at);
                let connection = self.network.dial(life, other, target);
                self.streams.dialled(connection, address);
                if let Some(at) = not_before {
                    self.network.hold(connection, at);
                }
                process.dialed.insert(other, connection);
                Some(connection)
            }),
        }
    }
}
