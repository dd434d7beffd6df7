//! One simulated event loop: a machine, its files, its connections, and the shell that performs its effects.
//!
//! The shell implements [`kasha_machine::turn::Shell`] as the runtime does. **D3** A checker sees each frame when it
//! leaves.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

use kasha_machine::turn::Shell;
use kasha_machine::{Effects, Endpoint, FileName, Gate, Held, Input, Machine, RequestsEnd, Rng};
use kasha_types::{BootId, ConnId, LocalPosition, LogSlice, ShardId, Tick};
use kasha_wire::status::CoreStatus;

use crate::checkers::records::{EPOCH_START_ENTRY, groups_in};
use crate::clock::SimTime;
use crate::disk::{Mark, SimDisk};
use crate::network::{ConnectionId, HostId};

/// The content of a process: a machine, and for clients the program that uses it.
pub trait Actor {
    /// The machine, to look at.
    fn machine(&self) -> &dyn Machine;

    /// The machine, for its next input.
    fn machine_mut(&mut self) -> &mut dyn Machine;

    /// The program's part of a turn: collect what has completed, ask for more.
    fn drive(&mut self, _now: Tick, _at: SimTime, _out: &mut Effects) {}

    /// When the program wants its next turn.
    fn wake(&self) -> Option<SimTime> {
        None
    }

    /// The status, if it is a core.
    fn status(&self) -> Option<CoreStatus> {
        None
    }

    /// Compares what a core derived from its logs with a replay of them: how many logs, or what differs.
    fn replay_equals_state(&self) -> Result<u64, String> {
        Ok(0)
    }

    /// The operator asks it to stop.
    fn begin_stop(&mut self) {}

    /// Whether it has done everything that it must do before it stops.
    fn has_stopped(&self) -> bool {
        true
    }

    /// The last turns of the process begin.
    fn begin_end(&mut self) {}

    /// Whether the last turns are over.
    fn has_ended(&self) -> bool {
        true
    }
}

/// An actor of any kind, seen as a machine.
pub(crate) struct Running(pub(crate) Box<dyn Actor>);

impl Machine for Running {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        self.0.machine_mut().step(now, input, out);
    }
    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        self.0.machine_mut().end_turn(now, out);
    }
    fn next_deadline(&self) -> Option<Tick> {
        self.0.machine().next_deadline()
    }
    fn is_open(&self, gate: Gate) -> bool {
        crate::planted::is_on(crate::planted::Bug::GatesIgnored) || self.0.machine().is_open(gate)
    }
    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        self.0.machine().log_bytes(slice)
    }
    fn assert_invariants(&self) {
        self.0.machine().assert_invariants();
    }
}

/// Used in an [`Actor`] that is a client program: its machine is its session with the cluster.
macro_rules! machine_is_session {
    () => {
        fn machine(&self) -> &dyn kasha_machine::Machine {
            &self.session
        }
        fn machine_mut(&mut self) -> &mut dyn kasha_machine::Machine {
            &mut self.session
        }
    };
}
pub(crate) use machine_is_session;

/// What a process gets when it starts.
pub struct Spawn<'a> {
    /// The number of this start of the process, from 1.
    pub life: u64,
    /// The boot id of the machine.
    pub boot: BootId,
    /// What the host's clock shows.
    pub now: Tick,
    /// The files of the process.
    pub disk: &'a SimDisk,
    /// A seed for the process's own draws.
    pub seed: u64,
}

/// Makes a process's actor at each of its starts; the text of an error is for the report.
pub type Factory = Box<dyn FnMut(Spawn<'_>, &mut Effects) -> Result<Box<dyn Actor>, String>>;

/// An input that waits for the next turn.
#[derive(Clone, Debug)]
pub(crate) enum Inbound {
    Frame {
        from: Endpoint,
        bytes: Rc<[u8]>,
    },
    /// A piece of a stream, for the one who dialled it.
    Bytes {
        from: Endpoint,
        bytes: Rc<[u8]>,
    },
    Request {
        from: ConnId,
        bytes: Rc<[u8]>,
        is_whole: bool,
    },
    /// Why what came is no request; nothing: the other side has ended its side.
    RequestsEnd {
        from: ConnId,
        why: Option<Rc<str>>,
    },
    Closed(ConnId),
    Unreachable(Endpoint),
    Durable(LocalPosition),
    LogsFlushed,
}

impl Inbound {
    /// As the machine gets it.
    pub(crate) fn input(&self) -> Input<'_> {
        match self {
            Self::Frame { from, bytes } => {
                let (kind, payload) = kind_and_payload(bytes);
                Input::Frame { from: *from, kind, payload }
            }
            Self::Bytes { from, bytes } => Input::Frame { from: *from, kind: 0, payload: bytes },
            Self::Request { from, bytes, is_whole } => Input::Request { from: *from, bytes, is_whole: *is_whole },
            Self::RequestsEnd { from, why } => {
                let why = why.as_deref().map_or(RequestsEnd::HalfClosed, RequestsEnd::Bad);
                Input::RequestsEnd { from: *from, why }
            }
            Self::Closed(conn) => Input::Closed(*conn),
            Self::Unreachable(endpoint) => Input::Unreachable(*endpoint),
            Self::Durable(to) => Input::Durable(*to),
            Self::LogsFlushed => Input::LogsFlushed,
        }
    }
}

/// A commit that is not yet reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit {
    pub(crate) to: LocalPosition,
    pub(crate) mark: Option<Mark>,
    pub(crate) ready_at: SimTime,
}

/// One process on a host.
pub struct Process {
    /// The host that it runs on.
    pub host: HostId,
    /// The name of the process in reports.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// The files of the process.
    pub disk: SimDisk,
    /// The number of its starts.
    pub life: u64,
    pub(crate) factory: Factory,
    pub(crate) actor: Option<Running>,
    pub(crate) effects: Effects,
    pub(crate) held: Held,
    pub(crate) inbox: VecDeque<Inbound>,
    pub(crate) commits: VecDeque<Commit>,
    pub(crate) routes: BTreeMap<Endpoint, SocketAddr>,
    pub(crate) dialed: BTreeMap<Endpoint, ConnectionId>,
    /// Since when nobody answers at an endpoint: when it may be dialled again, and the pause before that.
    pub(crate) failures: BTreeMap<Endpoint, (SimTime, u64)>,
    pub(crate) accepted: BTreeMap<ConnId, ConnectionId>,
    pub(crate) next_conn: u64,
    pub(crate) turn_at: Option<SimTime>,
    pub(crate) busy_until: SimTime,
    /// The nemesis kills it after this many more effects.
    pub(crate) dies_after_effects: Option<u64>,
    /// The nemesis kills it in the write with which a term begins in its log.
    pub(crate) tears: Option<TermTear>,
}

/// A process dies in the write with which a term of this shard begins. The term's first group is on its file. Of what
/// the same write has behind that group, a part is on file, or nothing. (`kill -9` ends a long write after any of its
/// pages.)
#[derive(Clone, Copy, Debug)]
pub(crate) struct TermTear {
    pub(crate) shard: ShardId,
    /// A draw that decides how much of the write is kept.
    pub(crate) draw: u64,
}

impl TermTear {
    /// How many of these bytes are on file, and how many of them are whole groups, if this is such a write.
    fn kept(self, file: FileName, bytes: &[u8]) -> Option<(usize, usize)> {
        let FileName::Segment { shard, .. } = file else { return None };
        let (mut begun, mut ends) = (None, Vec::new());
        groups_in(bytes, |group| {
            ends.push(group.end);
            if shard == self.shard && group.entries.iter().any(|&(kind, _)| kind == EPOCH_START_ENTRY) {
                begun = Some(group.end);
            }
        });
        let len = bytes.len() as u64;
        let begun = begun.filter(|&begun| begun < len)?;
        let mut rng = Rng::new(self.draw);
        let kept = if rng.chance(1, 4) { rng.between(begun, len - 1) } else { begun };
        let whole = ends.into_iter().take_while(|&end| end <= kept).last()?;
        Some((usize::try_from(kept).expect("in memory"), usize::try_from(whole).expect("in memory")))
    }
}

impl Process {
    pub(crate) fn new(host: HostId, name: String, address: SocketAddr, factory: Factory) -> Self {
        Self {
            host,
            name,
            address,
            disk: SimDisk::new(),
            life: 0,
            factory,
            actor: None,
            effects: Effects::new(),
            held: Held::new(),
            inbox: VecDeque::new(),
            commits: VecDeque::new(),
            routes: BTreeMap::new(),
            dialed: BTreeMap::new(),
            failures: BTreeMap::new(),
            accepted: BTreeMap::new(),
            next_conn: 1,
            turn_at: None,
            busy_until: SimTime(0),
            dies_after_effects: None,
            tears: None,
        }
    }

    /// Whether the process runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.actor.is_some()
    }

    /// The status of the process, if it runs and is a core.
    #[must_use]
    pub fn status(&self) -> Option<CoreStatus> {
        self.actor.as_ref().and_then(|actor| actor.0.status())
    }

    /// Compares what the process derived from its logs with a replay of them, if it runs and is a core.
    pub(crate) fn replay_equals_state(&self) -> Result<u64, String> {
        self.actor.as_ref().map_or(Ok(0), |actor| actor.0.replay_equals_state())
    }

    /// Drops everything that was in memory. Files stay as the page cache has them.
    pub(crate) fn die(&mut self) {
        self.actor = None;
        self.effects = Effects::new();
        self.held = Held::new();
        self.inbox.clear();
        self.commits.clear();
        self.routes.clear();
        self.dialed.clear();
        self.failures.clear();
        self.accepted.clear();
        self.turn_at = None;
        (self.dies_after_effects, self.tears) = (None, None);
    }
}

/// The kind in a frame's header, and the payload.
pub(crate) fn kind_and_payload(frame: &[u8]) -> (u8, &[u8]) {
    kasha_wire::frame::split(frame)
}

/// A performed effect, for the watchers.
#[derive(Clone, Debug)]
pub(crate) enum Performed {
    Send { to: Endpoint, bytes: Rc<[u8]> },
    Write { file: FileName, offset: u64, len: usize },
    Changed { file: FileName },
    Truncated { file: FileName },
    Removed { file: FileName },
    Commit { to: LocalPosition, fsync: bool, mark: Mark },
    Flush { mark: Mark },
    FlushLogs { mark: Mark },
    Route { to: Endpoint, address: SocketAddr },
    Disconnect(Endpoint),
    Stop(String),
}

/// Performs effects: files at once, the rest when the turn has ended.
pub(crate) struct SimShell<'a> {
    pub(crate) disk: &'a mut SimDisk,
    pub(crate) performed: Vec<Performed>,
    /// The number of effects after which the process dies.
    pub(crate) left: Option<u64>,
    /// The write in which it dies, whatever the number of effects.
    pub(crate) tears: Option<TermTear>,
    /// The process has died in that write.
    pub(crate) has_torn: bool,
    /// The machine asks what the clock on the wall shows.
    pub(crate) wants_clock: bool,
}

impl<'a> SimShell<'a> {
    pub(crate) fn new(disk: &'a mut SimDisk, left: Option<u64>, tears: Option<TermTear>) -> Self {
        Self { disk, performed: Vec::new(), left, tears, has_torn: false, wants_clock: false }
    }

    /// Whether the process still lives for one more effect.
    fn lives(&mut self) -> bool {
        match &mut self.left {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// How much of a write of so many bytes is done. A witness's file is mapped (decision 0017), and `kill -9` may come between
    /// two stores. A lap of the coordinator's journal is one long write, which the kernel may cut short between two pages.
    /// Everything else is written by system calls that end before the process does.
    fn stored(&self, file: FileName, offset: u64, len: usize) -> usize {
        const PARTS: usize = 8;
        match file {
            FileName::Witness { .. } if self.left == Some(0) => {
                // Each slot, a page, has its own part.
                let part = usize::try_from(offset / 4096).expect("a small file") % PARTS;
                len * part / PARTS
            }
            FileName::Journal(_) if self.left == Some(0) => {
                // Each write of a turn has its own part.
                len * ((len + self.performed.len()) % (PARTS + 1)) / PARTS
            }
            FileName::Witness { .. }
            | FileName::Segment { .. }
            | FileName::Replica(_)
            | FileName::WitnessMode { .. }
            | FileName::Core
            | FileName::Told
            | FileName::Coordinator(_)
            | FileName::Journal(_) => len,
        }
    }
}

impl Shell for SimShell<'_> {
    fn send(&mut self, to: Endpoint, head: &[u8], tail: &[u8]) {
        if self.lives() {
            let bytes = if tail.is_empty() { head.into() } else { [head, tail].concat().into() };
            self.performed.push(Performed::Send { to, bytes });
        }
    }

    fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]) {
        if self.lives() {
            let kept = self.tears.and_then(|tear| tear.kept(file, bytes));
            if kept.is_some() {
                (self.left, self.has_torn) = (Some(0), true);
            }
            let (kept, len) = kept.unwrap_or_else(|| (self.stored(file, offset, bytes.len()), bytes.len()));
            self.disk.write(file, offset, &bytes[..kept]);
            self.performed.push(Performed::Write { file, offset, len });
        }
    }

    fn replace(&mut self, file: FileName, bytes: &[u8]) {
        if self.lives() {
            self.disk.replace(file, bytes);
            self.performed.push(Performed::Changed { file });
        }
    }

    fn truncate(&mut self, file: FileName, len: u64) {
        if self.lives() {
            self.disk.truncate(file, len);
            self.performed.push(Performed::Truncated { file });
        }
    }

    fn remove(&mut self, file: FileName) {
        if self.lives() {
            self.disk.remove(file);
            self.performed.push(Performed::Removed { file });
        }
    }

    fn commit(&mut self, to: LocalPosition, fsync: bool) {
        if self.lives() {
            let mark = self.disk.mark();
            self.performed.push(Performed::Commit { to, fsync, mark });
        }
    }

    fn flush(&mut self) {
        if self.lives() {
            let mark = self.disk.mark();
            self.performed.push(Performed::Flush { mark });
        }
    }

    fn flush_logs(&mut self) {
        if self.lives() {
            let mark = self.disk.mark();
            self.performed.push(Performed::FlushLogs { mark });
        }
    }

    fn read_clock(&mut self) {
        self.wants_clock = true;
    }

    fn route(&mut self, to: Endpoint, address: SocketAddr) {
        if self.lives() {
            self.performed.push(Performed::Route { to, address });
        }
    }

    fn disconnect(&mut self, to: Endpoint) {
        if self.lives() {
            self.performed.push(Performed::Disconnect(to));
        }
    }

    fn stop(&mut self, why: &str) {
        if self.lives() {
            self.performed.push(Performed::Stop(why.to_owned()));
        }
    }
}
