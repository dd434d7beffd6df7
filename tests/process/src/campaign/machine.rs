//! One process of a round and its simulated machine: a disk, a boot id and a clock that no other process shares.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use kasha_machine::Rng;
use rustix::process::{Pid, Signal, kill_process};

use super::ballast;
use super::net::Net;
use super::plan::{Databases, Kept, Shape, Who};
use super::power::{Lost, forget, lose_power};
use super::{Failure, broken};
use crate::process::bare_command;

/// The coordinator's node number, if it has a process of its own.
const COORDINATOR: u16 = 127;
/// The difference between the number of a node and that of the node that replaces it.
const NUMBERS: u16 = 6;

/// How long an orderly end may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// One process.
#[derive(Debug)]
pub struct Machine {
    who: Who,
    folder: PathBuf,
    child: Option<Child>,
    is_frozen: bool,
    boots: u64,
    /// How often another node took its place.
    replaced: u16,
    jumped: Duration,
    ppm: i64,
    /// The position in the log at which this start begins.
    log_from: usize,
    /// Whether a journal of changes is kept, so that the machine can lose power.
    pub is_recorded: bool,
    /// The machine's disk is full, so its process may stop and say so.
    pub may_end: bool,
}

impl Machine {
    /// A machine whose process does not run.
    #[must_use]
    pub fn new(who: Who, folder: &Path) -> Self {
        let (child, is_frozen, boots, replaced, jumped, ppm, log_from) = (None, false, 0, 0, Duration::ZERO, 0, 0);
        let folder = folder.to_owned();
        Self {
            who,
            folder,
            child,
            is_frozen,
            boots,
            replaced,
            jumped,
            ppm,
            log_from,
            is_recorded: true,
            may_end: false,
        }
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}{ending}", self.who))
    }

    /// The data folder of the node.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.path("")
    }

    /// The output of the process since its last start.
    #[must_use]
    pub fn said(&self) -> String {
        let said = fs::read(self.path(".log")).unwrap_or_default();
        String::from_utf8_lossy(&said[self.log_from.min(said.len())..]).into_owned()
    }

    /// Whether the process runs, frozen or not.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.child.is_some()
    }

    /// Starts the process, if it does not run.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&mut self, shape: &Shape, net: &Net) -> Result<(), Failure> {
        if self.is_up() {
            return Ok(());
        }
        self.tell_clock()?;
        let mut command = bare_command(&self.arguments(shape, net));
        if self.is_recorded {
            command.env("KASHA_TEST_JOURNAL", self.path(".journal"));
        }
        let boot = Rng::new(self.boots << 16 | u64::from(self.number())).next_u64();
        command.env("KASHA_TEST_BOOT_ID", format!("{boot:032x}"));
        command.env("KASHA_TEST_CLOCK", self.path(".clock")).env("KASHA_LOG", "info");
        let log = File::options().create(true).append(true).open(self.path(".log")).map_err(broken("a log"))?;
        self.log_from = usize::try_from(log.metadata().map_err(broken("a log"))?.len()).expect("small");
        command.stdout(log.try_clone().map_err(broken("a log"))?).stderr(log);
        self.child = Some(net.spawn(self.who, command).map_err(broken("the binary does not start"))?);
        self.is_frozen = false;
        Ok(())
    }

    /// The number of the node that runs here now.
    #[must_use]
    pub fn number(&self) -> u16 {
        match self.who {
            Who::Node(node) => node + NUMBERS * self.replaced,
            Who::Coordinator => COORDINATOR,
            Who::Leader | Who::NextToLeader => unreachable!("no machine has this name"),
        }
    }

    fn arguments(&self, shape: &Shape, net: &Net) -> Vec<String> {
        let mut words = vec!["server".to_owned()];
        let mut say = |flag: &str, value: String| words.extend([format!("--{flag}"), value]);
        say("node", self.number().to_string());
        say("data", self.data().to_string_lossy().into_owned());
        let members: Vec<String> = (1..=shape.nodes).map(|node| net.control(node).to_string()).collect();
        say("coordinator", if shape.group { members.join(",") } else { net.coordinator().to_string() });
        say("lease", format!("{}ms", shape.lease.as_millis()));
        say("flush-interval", format!("{}ms", shape.flush_interval.as_millis()));
        say("memory-mib", if shape.has_ballast { ballast::MEMORY_MIB } else { 256 }.to_string());
        if let Who::Node(node) = self.who {
            let cores: Vec<String> = (0..shape.cores).map(|core| net.core(node, core).to_string()).collect();
            say("listen", cores.join(","));
            if shape.group {
                say("control", net.control(node).to_string());
            }
            if shape.redis.is_some() {
                say("redis", net.redis(node).to_string());
            }
        }
        // A folder in place of one that is lost begins no cluster, whoever is up when it starts.
        if self.who == shape.hub() && self.replaced == 0 {
            say("nodes", shape.nodes.to_string());
            say("shards", shape.shards.to_string());
            say("faults", shape.faults.to_string());
            // By default there would be a group.
            say("group", shape.members().to_string());
            say("durability", if shape.fsync { "fsync" } else { "replicated" }.to_owned());
            words.push("--host-coordinator".to_owned());
        }
        if shape.redis == Some(Databases::Spread) {
            words.push("--redis-spread".to_owned());
        }
        words
    }

    /// Kills the process with `kill -9`. Returns whether it ran.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> Result<bool, Failure> {
        let Some(mut child) = self.child.take() else { return Ok(false) };
        child.kill().and_then(|()| child.wait()).map_err(broken("a process cannot be killed"))?;
        self.is_frozen = false;
        Ok(true)
    }

    /// Sends SIGTERM, unless the process does not run. [`Machine::ends_well`] waits for the end.
    pub fn terminate(&mut self) {
        self.thaw();
        self.signal(Signal::TERM);
    }

    /// Waits for the end of a process that was asked to end.
    ///
    /// # Errors
    /// If it does not end, or not well.
    pub fn ends_well(&mut self) -> Result<(), Failure> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let began = Instant::now();
        loop {
            match child.try_wait().map_err(broken("a process is not waited for"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Failure::Crashed(format!("{} ended ({status}) at SIGTERM", self.who))),
                None if began.elapsed() > PATIENCE => {
                    self.child = Some(child);
                    return Err(Failure::Stuck(format!("{} does not end at SIGTERM", self.who)));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Removes the folder. The next start is another node, with a number of its own.
    ///
    /// # Errors
    /// If the journal stays.
    pub fn replace(&mut self) -> Result<(), Failure> {
        self.replaced += 1;
        self.forget_journal()
    }

    /// Sends SIGSTOP. Returns whether the process was running.
    pub fn freeze(&mut self) -> bool {
        let can = self.is_up() && !self.is_frozen;
        self.is_frozen |= can;
        can && self.signal(Signal::STOP)
    }

    /// Sends SIGCONT, if the process was stopped.
    pub fn thaw(&mut self) -> bool {
        std::mem::take(&mut self.is_frozen) && self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> bool {
        // A process that has just ended is found by the next look.
        self.child.as_ref().is_some_and(|child| kill_process(Pid::from_child(child), signal).is_ok())
    }

    /// The machine loses power: its process was killed, its disk becomes what a loss of power leaves, and it gets
    /// another boot id.
    ///
    /// # Errors
    /// If the disk's image cannot be made.
    pub fn lose_power(&mut self, kept: Kept, rng: &mut Rng) -> Result<Lost, Failure> {
        self.kill()?;
        self.boots += 1;
        lose_power(&self.data(), &self.path(".journal"), kept, rng).map_err(broken("no image of a disk"))
    }

    /// The test has changed its files; from now on they are what the disk holds.
    ///
    /// # Errors
    /// If that cannot be noted.
    pub fn forget_journal(&self) -> Result<(), Failure> {
        forget(&self.path(".journal")).map_err(broken("a journal stays"))
    }

    /// The clock jumps ahead.
    ///
    /// # Errors
    /// If it cannot be told.
    pub fn jump(&mut self, by: Duration) -> Result<(), Failure> {
        self.jumped += by;
        self.tell_clock()
    }

    /// From now on the clock runs fast or slow.
    ///
    /// # Errors
    /// If it cannot be told.
    pub fn drift(&mut self, ppm: i64) -> Result<(), Failure> {
        self.ppm = ppm;
        self.tell_clock()
    }

    fn tell_clock(&self) -> Result<(), Failure> {
        let (file, new) = (self.path(".clock"), self.path(".clock.new"));
        let text = format!("{} {}", self.jumped.as_nanos(), self.ppm);
        fs::write(&new, text).and_then(|()| fs::rename(&new, &file)).map_err(broken("a clock is not told"))
    }

    /// Checks that the process has not ended by itself without permission.
    ///
    /// # Errors
    /// [`Failure::Crashed`], with what it said at last.
    pub fn look(&mut self) -> Result<(), Failure> {
        let Some(child) = &mut self.child else { return Ok(()) };
        let Some(status) = child.try_wait().map_err(broken("a process is not waited for"))? else { return Ok(()) };
        (self.child, self.is_frozen) = (None, false);
        let said = self.said();
        if self.may_end && said.contains("(K0106)") && !said.contains("K0409") {
            return Ok(());
        }
        let last: Vec<&str> = said.lines().rev().take(12).collect();
        let last: String = last.iter().rev().map(|line| format!("\n    {line}")).collect();
        Err(Failure::Crashed(format!("{} ended by itself ({status}):{last}", self.who)))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _: io::Result<_> = child.kill().and_then(|()| child.wait());
        }
    }
}
