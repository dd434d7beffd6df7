//! One host of a transcript: a machine, its disk, and the shell that performs the machine's effects.

use std::collections::VecDeque;

use kasha_coordinator::Coordinator;
use kasha_machine::turn::Shell;
use kasha_machine::{Effect, Effects, Endpoint, FileName, Gate, Held, Input, Machine};
use kasha_node::Node;
use kasha_sim::disk::{Mark, SimDisk};
use kasha_types::{LocalPosition, LogSlice, Tick};

/// A machine or a client of the script: `co`, `1`, `c1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    Coordinator,
    Node(u16),
    Client(u16),
}

impl std::fmt::Display for Party {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Coordinator => write!(f, "co"),
            Self::Node(node) => write!(f, "{node}"),
            Self::Client(client) => write!(f, "c{client}"),
        }
    }
}

/// The machine that runs on a host.
pub enum Running {
    Coordinator(Box<Coordinator>),
    Node(Box<Node>),
}

impl Running {
    pub fn machine(&mut self) -> &mut dyn Machine {
        match self {
            Self::Coordinator(coordinator) => &mut **coordinator,
            Self::Node(node) => &mut **node,
        }
    }

    pub fn next_deadline(&self) -> Option<Tick> {
        match self {
            Self::Coordinator(coordinator) => coordinator.next_deadline(),
            Self::Node(node) => node.next_deadline(),
        }
    }
}

/// A machine that is watched at the end of a turn, to see which frames wait for which gates.
pub struct Watched<'m> {
    pub machine: &'m mut dyn Machine,
    pub gated: Vec<(Endpoint, Gate, Vec<u8>)>,
    pub loses_role: bool,
}

impl Machine for Watched<'_> {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        self.machine.step(now, input, out);
    }
    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        self.machine.end_turn(now, out);
        for &effect in out.queue() {
            match effect {
                Effect::Send { to, head, tail, gate } if gate != Gate::Now => {
                    let tail = tail.map_or(&[][..], |slice| self.machine.log_bytes(slice));
                    self.gated.push((to, gate, [out.bytes(head), tail].concat()));
                }
                Effect::DropHeld(_) | Effect::DropCommitted => self.loses_role = true,
                _ => {}
            }
        }
    }
    fn next_deadline(&self) -> Option<Tick> {
        self.machine.next_deadline()
    }
    fn is_open(&self, gate: Gate) -> bool {
        self.machine.is_open(gate)
    }
    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        self.machine.log_bytes(slice)
    }
}

pub struct HostShell<'d> {
    pub disk: &'d mut SimDisk,
    pub sent: Vec<(Endpoint, Vec<u8>)>,
    pub files: Vec<(FileName, bool)>,
    pub commits: Vec<Commit>,
    pub flushes: bool,
    /// Log segments are to be flushed up to here.
    pub flushes_logs: Option<Mark>,
    pub stopped: Option<String>,
}

impl HostShell<'_> {
    /// `whole`: the file was replaced, cut or removed as a whole.
    fn changed(&mut self, file: FileName, whole: bool) {
        if !self.files.contains(&(file, whole)) {
            self.files.push((file, whole));
        }
    }
}

impl Shell for HostShell<'_> {
    fn send(&mut self, to: Endpoint, head: &[u8], tail: &[u8]) {
        self.sent.push((to, [head, tail].concat()));
    }
    fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]) {
        self.disk.write(file, offset, bytes);
        self.changed(file, false);
    }
    fn replace(&mut self, file: FileName, bytes: &[u8]) {
        self.disk.replace(file, bytes);
        self.changed(file, true);
    }
    fn truncate(&mut self, file: FileName, len: u64) {
        self.disk.truncate(file, len);
        self.changed(file, true);
    }
    fn remove(&mut self, file: FileName) {
        self.disk.remove(file);
        self.changed(file, true);
    }
    fn commit(&mut self, to: LocalPosition, fsync: bool) {
        self.commits.push(Commit { to, fsync, mark: self.disk.mark() });
    }
    fn flush(&mut self) {
        self.flushes = true;
    }
    fn flush_logs(&mut self) {
        self.flushes_logs = Some(self.disk.mark());
    }
    fn route(&mut self, _: Endpoint, _: std::net::SocketAddr) {}
    fn disconnect(&mut self, _: Endpoint) {}
    fn stop(&mut self, why: &str) {
        self.stopped = Some(why.to_owned());
    }
}

/// A commit that is not reported yet.
#[derive(Clone, Copy)]
pub struct Commit {
    to: LocalPosition,
    fsync: bool,
    mark: Mark,
}

impl Host {
    /// An empty disk.
    pub fn new() -> Self {
        Self {
            running: None,
            disk: SimDisk::new(),
            life: 0,
            boot: 1,
            frozen: false,
            slow_disk: false,
            held: Held::new(),
            commits: VecDeque::new(),
            flushing_logs: None,
        }
    }

    /// Reports, in order, the commits that are complete now, and a flush of logs: all of them, or those that need no fsync.
    /// Returns whether there was one.
    pub fn report_commits(&mut self, running: &mut Running, now: Tick, slow: bool, out: &mut Effects) -> bool {
        let mut reported = false;
        while let Some(commit) = self.commits.front().copied().filter(|commit| !(commit.fsync && slow)) {
            if commit.fsync {
                self.disk.synced(commit.mark);
            }
            self.commits.pop_front();
            running.machine().step(now, Input::Durable(commit.to), out);
            reported = true;
        }
        if let Some(mark) = self.flushing_logs.take_if(|_| !slow) {
            self.disk.synced_logs(mark);
            running.machine().step(now, Input::LogsFlushed, out);
            reported = true;
        }
        reported
    }
}

/// One machine with its disk.
pub struct Host {
    pub running: Option<Running>,
    pub disk: SimDisk,
    pub life: u64,
    pub boot: u128,
    pub frozen: bool,
    /// Fsyncs wait until the script says that they are done.
    pub slow_disk: bool,
    pub held: Held,
    pub commits: VecDeque<Commit>,
    /// A flush of log segments that is under way.
    pub flushing_logs: Option<Mark>,
}
