//! The world: hosts, their processes, and one queue of events in virtual time.
//!
//! Everything that happens is an event at a moment. Events of one moment happen in the order in which they were made.
//! All draws come from one seed. The world does not know what frames mean; watchers do ([`Watch`]).

use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::rc::Rc;

use kasha_machine::{Endpoint, FileName, Machine, Rng};
use kasha_types::{BootId, ConnId, ShardId};
use kasha_wire::Message;

use crate::clock::{Clock, SimTime, millis};
use crate::digest::Digest;
use crate::disk::{Mark, SimDisk};
use crate::intensity::Intensity;
use crate::network::{ConnectionId, Frame, HostId, Life, Network, ProcessId, Way};
use crate::planted::{self, Bug};
use crate::probes::Probes;
use crate::process::{Factory, Inbound, Process, Running, Spawn, TermTear, kind_and_payload};
use crate::streams::Streams;

/// The first pause before a process dials again, if there are pauses.
const DIAL_PAUSE: u64 = millis(1);

/// A watcher: it sees frames as they arrive and leave, and writes as they are made. What a process does is reported
/// when its turn has ended.
pub trait Watch {
    /// A frame has arrived at a process, which handles it in its next turn, unless it dies first. That is never a
    /// violation.
    fn arrived(&mut self, _arrived: &Arrived<'_>, _view: &View<'_>) {}
    /// A frame left a process.
    fn sent(&mut self, _sent: &Sent<'_>, _view: &View<'_>) {}
    /// A process wrote to a file, or changed it in another way (`len` 0).
    fn wrote(&mut self, _by: ProcessId, _file: FileName, _offset: u64, _len: usize, _view: &View<'_>) {}
    /// A process has started, from these files.
    fn started(&mut self, _process: ProcessId, _view: &View<'_>) {}
    /// Every machine is about to lose power at once.
    fn blackout(&mut self, _view: &View<'_>) {}
    /// The violations that were found since the last call.
    fn take_violations(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// Adds the watcher's counts.
    fn report(&self, _probes: &mut Probes) {}
    /// For finding a checker again at the end.
    fn as_any(&mut self) -> &mut dyn std::any::Any;
}

/// A frame that arrived at a process.
pub struct Arrived<'a> {
    /// The process.
    pub at: ProcessId,
    /// The sender, by the receiver's name for it.
    pub from: Endpoint,
    /// The frame's kind.
    pub kind: u8,
    /// The payload of the frame.
    pub payload: &'a [u8],
}

/// A frame that left a process.
pub struct Sent<'a> {
    /// The process that sent it.
    pub from: ProcessId,
    /// The receiver, by the sender's name for it.
    pub to: Endpoint,
    /// The process that this name stands for; `None`: no process any more.
    pub target: Option<ProcessId>,
    /// The frame's kind.
    pub kind: u8,
    /// The payload of the frame.
    pub payload: &'a [u8],
}

impl Sent<'_> {
    /// Whether the frame has a message of this link.
    #[must_use]
    pub fn is<M: Message>(&self) -> bool {
        M::is_in(self.kind, self.payload)
    }

    /// The message of this link that the frame has.
    #[must_use]
    pub fn message<M: Message>(&self) -> Option<M> {
        M::from_frame(self.kind, self.payload)
    }
}

/// The part of the world that a watcher may look at.
pub struct View<'a> {
    /// The present moment.
    pub now: SimTime,
    /// All processes, by id.
    pub processes: &'a [Process],
    /// All hosts, by id.
    pub hosts: &'a [Host],
}

/// A machine with its clock and power.
pub struct Host {
    /// The name of the host in reports.
    pub name: String,
    /// The processes that run on it.
    pub processes: Vec<ProcessId>,
    /// The host's clock.
    pub clock: Clock,
    /// Changes with each loss of power.
    pub boot: BootId,
    /// The host is paused: nothing runs, and nothing is lost.
    pub paused: bool,
    /// How many times slower than usual the host is.
    pub slowness: u64,
    pub(crate) paused_at: SimTime,
    pub(crate) resumed_at: SimTime,
}

#[derive(Debug)]
pub(crate) enum What {
    Arrive(Frame),
    Inform(Life, Inbound, ConnectionId),
    Turn(Life),
    Committed(Life),
    Flushed(Life, Mark),
    LogsFlushed(Life, Mark),
    Start(HostId),
}

#[derive(Debug)]
struct Event {
    at: SimTime,
    number: u64,
    what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// The simulated world.
pub struct World {
    /// The present moment.
    pub now: SimTime,
    /// The strength of the faults at present.
    pub intensity: Intensity,
    /// Counts of what was reached.
    pub probes: Probes,
    /// Hash of all that happened.
    pub digest: Digest,
    /// The violations that were found, each with its moment.
    pub violations: Vec<(SimTime, String)>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) processes: Vec<Process>,
    pub(crate) by_address: BTreeMap<SocketAddr, ProcessId>,
    /// All connections and cuts.
    pub network: Network,
    pub(crate) streams: Streams,
    watchers: Vec<Box<dyn Watch>>,
    queue: BinaryHeap<Event>,
    events: u64,
    /// Hosts that died in the write with which a term began.
    pub(crate) torn_terms: Vec<HostId>,
    pub(crate) rng: Rng,
}

impl World {
    /// An empty world.
    #[must_use]
    pub fn new(mut rng: Rng, intensity: Intensity) -> Self {
        Self {
            now: SimTime(0),
            intensity,
            probes: Probes::default(),
            digest: Digest::default(),
            violations: Vec::new(),
            hosts: Vec::new(),
            processes: Vec::new(),
            by_address: BTreeMap::new(),
            network: Network::new(rng.fork()),
            streams: Streams::default(),
            watchers: Vec::new(),
            queue: BinaryHeap::new(),
            events: 0,
            torn_terms: Vec::new(),
            rng,
        }
    }

    /// A new host, with a random clock.
    pub fn add_host(&mut self, name: &str) -> HostId {
        let clock = Clock::drawn(&mut self.rng);
        self.hosts.push(Host {
            name: name.to_owned(),
            processes: Vec::new(),
            clock,
            boot: BootId(u128::from(self.rng.next_u64())),
            paused: false,
            slowness: 1,
            paused_at: SimTime(0),
            resumed_at: SimTime(0),
        });
        HostId(self.hosts.len() - 1)
    }

    /// A new process on a host; [`World::start`] starts it.
    pub fn add_process(&mut self, host: HostId, name: &str, address: SocketAddr, factory: Factory) -> ProcessId {
        let id = ProcessId(self.processes.len());
        self.processes.push(Process::new(host, name.to_owned(), address, factory));
        self.hosts[host.0].processes.push(id);
        assert!(self.by_address.insert(address, id).is_none(), "{address} is taken");
        id
    }

    /// Adds a watcher.
    pub fn add_watcher(&mut self, watcher: Box<dyn Watch>) {
        self.watchers.push(watcher);
    }

    /// The watcher of this type.
    pub fn watcher<W: Watch + 'static>(&mut self) -> Option<&mut W> {
        self.watchers.iter_mut().find_map(|watcher| watcher.as_any().downcast_mut())
    }

    /// The host with this id.
    #[must_use]
    pub fn host(&self, host: HostId) -> &Host {
        &self.hosts[host.0]
    }

    /// All processes, by id.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Whether all processes of a host run.
    #[must_use]
    pub fn is_up(&self, host: HostId) -> bool {
        self.hosts[host.0].processes.iter().all(|&process| self.processes[process.0].is_running())
    }

    /// Writes down a violation.
    pub fn violation(&mut self, what: String) {
        self.violations.push((self.now, what));
    }

    pub(crate) fn push(&mut self, at: SimTime, what: What) {
        self.events += 1;
        self.queue.push(Event { at: at.max(self.now), number: self.events, what });
    }

    pub(crate) fn life(&self, process: ProcessId) -> Life {
        Life { process, life: self.processes[process.0].life }
    }

    pub(crate) fn lives(&self, life: Life) -> bool {
        let process = &self.processes[life.process.0];
        process.is_running() && process.life == life.life
    }

    /// Starts every process of a host that does not run.
    pub fn start(&mut self, host: HostId) {
        for id in self.hosts[host.0].processes.clone() {
            if !self.processes[id.0].is_running() {
                self.start_process(id);
            }
        }
    }

    fn start_process(&mut self, id: ProcessId) {
        let seed = self.rng.next_u64();
        let host = &self.hosts[self.processes[id.0].host.0];
        let (now, boot) = (host.clock.read(self.now), host.boot);
        let process = &mut self.processes[id.0];
        process.life += 1;
        process.disk.settle();
        let mut effects = std::mem::take(&mut process.effects);
        let spawn = Spawn { life: process.life, boot, now, disk: &process.disk, seed };
        match (process.factory)(spawn, &mut effects) {
            Ok(actor) => {
                process.actor = Some(Running(actor));
                process.effects = effects;
                process.busy_until = self.now;
                self.digest.mix(id.0 as u64);
                self.notify(|watcher, view| watcher.started(id, view));
                self.turn(id);
            }
            Err(why) => {
                let text = format!("{} does not start: {why}", process.name);
                self.violation(text);
            }
        }
    }

    /// Kills every process of a host; its files stay as the page cache has them.
    pub fn kill(&mut self, host: HostId) {
        for id in self.hosts[host.0].processes.clone() {
            self.kill_process(id);
        }
    }

    pub(crate) fn kill_process(&mut self, id: ProcessId) {
        if !self.processes[id.0].is_running() {
            return;
        }
        for connection in self.network.open_of(id) {
            self.close(connection, id);
        }
        self.processes[id.0].die();
    }

    /// Kills a host's processes in the middle of the next turn that has this many effects.
    pub fn kill_after_effects(&mut self, host: HostId, effects: u64) {
        for &id in &self.hosts[host.0].processes {
            self.processes[id.0].dies_after_effects = Some(effects);
        }
    }

    /// Kills a host's processes in the write with which a term of this shard begins in their log.
    pub fn tear_term(&mut self, host: HostId, shard: ShardId) {
        for &id in &self.hosts[host.0].processes {
            self.processes[id.0].tears = Some(TermTear { shard, draw: self.rng.next_u64() });
        }
    }

    /// A host that has died by [`World::tear_term`] since the last call.
    pub fn take_torn_term(&mut self) -> Option<HostId> {
        self.torn_terms.pop()
    }

    /// Takes [`World::kill_after_effects`] and [`World::tear_term`] back.
    pub fn disarm(&mut self, host: HostId) {
        for &id in &self.hosts[host.0].processes {
            let process = &mut self.processes[id.0];
            (process.dies_after_effects, process.tears) = (None, None);
        }
    }

    /// The host's machine loses power.
    pub fn lose_power(&mut self, host: HostId) {
        self.kill(host);
        for &id in &self.hosts[host.0].processes {
            self.processes[id.0].disk.lose_power(&mut self.rng);
        }
        self.hosts[host.0].boot = BootId(u128::from(self.rng.next_u64()));
        self.hosts[host.0].clock = Clock::booted(self.now, &mut self.rng);
    }

    /// Damages a file of a dead host, if `is_one` accepts it and the loss can be distinguished from a crash (which is
    /// not so for a single slot of a witness). None: there is no such file yet. Nearly every file of a long log is a
    /// sealed segment, so every other time another file is damaged.
    pub fn damage(&mut self, host: HostId, is_one: impl Fn(&FileName) -> bool) -> Option<FileName> {
        let mut files: Vec<(ProcessId, FileName)> = Vec::new();
        for &id in &self.hosts[host.0].processes {
            let damageable = self.processes[id.0].disk.damageable().into_iter().filter(&is_one);
            files.extend(damageable.map(|file| (id, file)));
        }
        let is_sealed = |&(id, file): &(ProcessId, FileName)| match file {
            FileName::Segment { shard, segment } => self.processes[id.0].disk.is_sealed(shard, segment),
            _ => false,
        };
        if self.rng.chance(1, 2) && !files.iter().all(is_sealed) {
            files.retain(|file| !is_sealed(file));
        }
        if files.is_empty() {
            return None;
        }
        let &(id, file) = self.rng.pick(&files);
        self.processes[id.0].disk.damage(file, &mut self.rng);
        Some(file)
    }

    /// Damages the end of one log of a dead host. False: it has no log.
    pub fn damage_end(&mut self, host: HostId) -> bool {
        let processes = &self.hosts[host.0].processes;
        let id = *self.rng.pick(processes);
        self.processes[id.0].disk.damage_end(&mut self.rng)
    }

    /// Removes files of a host whose processes are down. Returns whether there were any.
    pub fn lose_files(&mut self, host: HostId, is_one: impl Fn(&FileName) -> bool) -> bool {
        let mut any = false;
        for &id in &self.hosts[host.0].processes {
            let disk = &mut self.processes[id.0].disk;
            for file in disk.damageable().into_iter().filter(&is_one) {
                disk.remove(file);
                any = true;
            }
            disk.settle();
        }
        any
    }

    /// A copy of what the disk of a host's first process surely holds.
    #[must_use]
    pub fn copy_of_disk(&self, host: HostId) -> SimDisk {
        self.processes[self.hosts[host.0].processes[0].0].disk.copy()
    }

    /// Puts another disk into the place of that of a dead host's first process. Returns the former one.
    pub fn put_disk(&mut self, host: HostId, mut disk: SimDisk) -> SimDisk {
        let process = &mut self.processes[self.hosts[host.0].processes[0].0];
        disk.settle();
        process.disk.settle();
        std::mem::replace(&mut process.disk, disk)
    }

    /// Asks a host's processes to stop.
    pub fn begin_stop(&mut self, host: HostId) {
        for id in self.hosts[host.0].processes.clone() {
            if let Some(actor) = &mut self.processes[id.0].actor {
                actor.0.begin_stop();
                self.turn(id);
            }
        }
    }

    /// The processes of a host that were asked to stop go on to their end, each as soon as it may. Returns how many are
    /// in their last turns, and whether all have ended.
    pub fn end_in_order(&mut self, host: HostId) -> (usize, bool) {
        let (mut ending, mut all) = (0, true);
        for id in self.hosts[host.0].processes.clone() {
            let Some(actor) = &mut self.processes[id.0].actor else { continue };
            if actor.0.has_stopped() && !actor.0.has_ended() {
                actor.0.begin_end();
                self.turn(id);
                ending += 1;
            }
            all &= self.processes[id.0].actor.as_ref().is_none_or(|actor| actor.0.has_ended());
        }
        (ending, all)
    }

    /// Tells the watchers that every machine is about to lose power, while they can still look at the disks.
    pub fn announce_blackout(&mut self) {
        self.notify(|watcher, view| watcher.blackout(view));
    }

    /// Pauses a host. Its clock goes on, and frames that are sent to it wait.
    pub fn pause(&mut self, host: HostId) {
        self.hosts[host.0].paused = true;
        self.hosts[host.0].paused_at = self.now;
    }

    /// Lets a paused host go on.
    pub fn resume(&mut self, host: HostId) {
        self.hosts[host.0].paused = false;
        self.hosts[host.0].resumed_at = self.now;
        for id in self.hosts[host.0].processes.clone() {
            self.processes[id.0].turn_at = None;
            self.plan_turn(id);
        }
    }

    /// Makes a host so many times slower than usual.
    pub fn set_slowness(&mut self, host: HostId, slowness: u64) {
        self.hosts[host.0].slowness = slowness.max(1);
    }

    /// Closes a connection on behalf of one side, and tells the other side after a while, perhaps.
    pub(crate) fn close(&mut self, id: ConnectionId, by: ProcessId) {
        let connection = self.network.connection_mut(id);
        if std::mem::replace(&mut connection.closed, true) {
            return;
        }
        let connection = connection.clone();
        let Some(at) = self.network.close_arrival(self.now, id, &self.intensity) else {
            self.probes.hit("connections closed silently");
            return;
        };
        if connection.dialer.process == by {
            if let Some((life, conn)) = connection.accepted {
                self.push(at, What::Inform(life, Inbound::Closed(conn), id));
            }
        } else {
            self.push(at, What::Inform(connection.dialer, Inbound::Unreachable(connection.endpoint), id));
        }
    }

    /// Runs until this moment, or until a violation is found.
    pub fn run_until(&mut self, until: SimTime) {
        while self.violations.is_empty() && self.queue.peek().is_some_and(|event| event.at <= until) {
            let event = self.queue.pop().expect("peeked");
            self.now = event.at;
            self.happen(event);
        }
        self.now = self.now.max(until);
    }

    fn happen(&mut self, event: Event) {
        match event.what {
            What::Arrive(frame) => self.arrive(frame),
            What::Inform(life, inbound, connection) => self.inform(life, inbound, connection),
            What::Turn(life) => {
                let process = &mut self.processes[life.process.0];
                if process.life == life.life && process.turn_at == Some(event.at) {
                    process.turn_at = None;
                    if process.is_running() && !self.hosts[process.host.0].paused {
                        self.turn(life.process);
                    }
                }
            }
            What::Committed(life) => self.committed(life),
            What::Start(host) => self.start(host),
            What::LogsFlushed(life, mark) => {
                let process = &mut self.processes[life.process.0];
                if process.life == life.life && process.disk.mark() >= mark && !planted::is_on(Bug::FsyncLies) {
                    process.disk.synced_logs(mark);
                }
                if self.lives(life) {
                    self.deliver(life.process, Inbound::LogsFlushed);
                }
            }
            What::Flushed(life, mark) => {
                // A flush that the process asked for goes on when the process dies. After a loss of power there is
                // nothing left to flush.
                let process = &mut self.processes[life.process.0];
                if process.life == life.life && process.disk.mark() >= mark && !planted::is_on(Bug::FsyncLies) {
                    process.disk.synced(mark);
                }
            }
        }
    }

    fn inform(&mut self, life: Life, inbound: Inbound, connection: ConnectionId) {
        if !self.lives(life) {
            return;
        }
        let process = &mut self.processes[life.process.0];
        match inbound {
            Inbound::Closed(conn) => drop(process.accepted.remove(&conn)),
            Inbound::Unreachable(endpoint) if process.dialed.get(&endpoint) == Some(&connection) => {
                process.dialed.remove(&endpoint);
                if self.intensity.dial_pause > 0 {
                    let pause = process.failures.get(&endpoint).map_or(DIAL_PAUSE, |&(_, pause)| pause * 2);
                    let pause = pause.min(self.intensity.dial_pause);
                    process.failures.insert(endpoint, (self.now.after(pause), pause));
                }
            }
            Inbound::Unreachable(_) => {}
            Inbound::Frame { .. }
            | Inbound::Bytes { .. }
            | Inbound::Request { .. }
            | Inbound::RequestsEnd { .. }
            | Inbound::Durable(_)
            | Inbound::LogsFlushed => unreachable!("nobody informs of these"),
        }
        self.deliver(life.process, inbound);
    }

    pub(crate) fn deliver(&mut self, to: ProcessId, inbound: Inbound) {
        self.processes[to.0].inbox.push_back(inbound);
        self.plan_turn(to);
    }

    fn arrive(&mut self, frame: Frame) {
        if self.streams.has(frame.connection) {
            return self.arrive_text(frame.connection, frame.way, &frame.bytes);
        }
        let connection = self.network.connection(frame.connection).clone();
        match frame.way {
            Way::ToAcceptor => {
                let id = connection.acceptor;
                let from = match connection.accepted {
                    Some((life, conn)) if self.lives(life) && !connection.closed => conn,
                    None if self.processes[id.0].is_running() && !connection.closed => self.accept(frame.connection),
                    Some(_) | None => {
                        self.close(frame.connection, id);
                        return;
                    }
                };
                self.take_in(id, Endpoint::Conn(from), frame.bytes);
            }
            Way::ToDialer => {
                if self.lives(connection.dialer) && !connection.closed {
                    self.processes[connection.dialer.process.0].failures.remove(&connection.endpoint);
                    self.take_in(connection.dialer.process, connection.endpoint, frame.bytes);
                }
            }
        }
    }

    /// The process that listens there accepts a connection.
    pub(crate) fn accept(&mut self, id: ConnectionId) -> ConnId {
        let connection = self.network.connection_mut(id);
        let process = &mut self.processes[connection.acceptor.0];
        let conn = ConnId(process.next_conn);
        process.next_conn += 1;
        process.accepted.insert(conn, id);
        connection.accepted = Some((Life { process: connection.acceptor, life: process.life }, conn));
        conn
    }

    fn take_in(&mut self, at: ProcessId, from: Endpoint, bytes: Rc<[u8]>) {
        self.digest.mix(at.0 as u64);
        self.digest.mix_bytes(&bytes);
        let (kind, payload) = kind_and_payload(&bytes);
        let arrived = Arrived { at, from, kind, payload };
        let view = View { now: self.now, processes: &self.processes, hosts: &self.hosts };
        self.watchers.iter_mut().for_each(|watcher| watcher.arrived(&arrived, &view));
        self.deliver(at, Inbound::Frame { from, bytes });
    }

    /// Makes sure that a process has its next turn in time.
    pub(crate) fn plan_turn(&mut self, id: ProcessId) {
        let process = &self.processes[id.0];
        let host = &self.hosts[process.host.0];
        let Some(actor) = process.actor.as_ref().filter(|_| !host.paused) else { return };
        let wanted = if process.inbox.is_empty() {
            let deadline = actor.next_deadline().map(|tick| host.clock.when(tick));
            let Some(at) = deadline.into_iter().chain(actor.0.wake()).min() else { return };
            at
        } else {
            self.now
        };
        let at = wanted.max(self.now).max(process.busy_until);
        if process.turn_at.is_none_or(|planned| at < planned) {
            self.processes[id.0].turn_at = Some(at);
            let life = self.life(id);
            self.push(at, What::Turn(life));
        }
    }

    pub(crate) fn notify(&mut self, mut call: impl FnMut(&mut dyn Watch, &View<'_>)) {
        let view = View { now: self.now, processes: &self.processes, hosts: &self.hosts };
        for watcher in &mut self.watchers {
            call(watcher.as_mut(), &view);
            let now = self.now;
            self.violations.extend(watcher.take_violations().into_iter().map(|text| (now, text)));
        }
    }

    /// Adds what the watchers counted to the probes.
    pub fn collect_reports(&mut self) {
        for watcher in &self.watchers {
            watcher.report(&mut self.probes);
        }
        self.probes.add("frames lost", self.network.lost);
        self.probes.add("frames doubled", self.network.doubled);
    }
}
