//! A session on a thread of its own that keeps asking for the configuration and for the status of all cores.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use kasha_client::session::{CallId, Completion, CoreAnswer, CoreQuestion, Session};
use kasha_machine::Effects;
use kasha_runtime::{Application, Clock, Control, LoopHandle, spawn_loop};
use kasha_types::{CoreId, Epoch, Incarnation, NodeId, ShardId, Tick};
use kasha_wire::Configuration;
use kasha_wire::status::CoreStatus;

use crate::client::Connect;
use crate::limits;

/// How long a core may take to answer one status question.
const STATUS_DEADLINE: Duration = Duration::from_secs(1);

/// The term of a primary in one process. Its counters begin at zero.
type Term = (NodeId, Incarnation, ShardId, Epoch);

/// The state that was seen last.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The newest configuration.
    pub configuration: Option<Configuration>,
    /// Duplicates suppressed, by term. Counters die with their process, so the last sample of each term is kept.
    suppressed: BTreeMap<Term, u64>,
    /// How often a node was alive in one configuration and lost in the next that was seen.
    losses: u64,
}

impl Seen {
    /// A lower bound for the duplicates suppressed so far, in all terms: what happened after the last sample of a
    /// killed process is not included.
    #[must_use]
    pub fn duplicates_suppressed(&self) -> u64 {
        self.suppressed.values().sum()
    }

    /// How often a node was called lost that was alive before. A node that is lost stays so for a lease at least, so that none is missed.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.losses
    }

    fn on_configuration(&mut self, newest: &Configuration) {
        if let Some(before) = &self.configuration {
            let was_alive = |node| before.node(node).is_some_and(|info| info.alive);
            self.losses += newest.nodes.iter().filter(|info| !info.alive && was_alive(info.node)).count() as u64;
        }
        self.configuration = Some(newest.clone());
    }

    fn on_status(&mut self, status: &CoreStatus) {
        for replica in status.replicas.iter().filter(|replica| replica.primary) {
            let term = (status.core.node, status.incarnation, replica.shard, replica.epoch);
            let known = self.suppressed.entry(term).or_default();
            *known = replica.duplicates_suppressed.max(*known);
        }
    }
}

/// The running watch; ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    handle: LoopHandle,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to watch.
    ///
    /// # Errors
    /// If the system has no thread or descriptors left.
    pub fn start(seeds: Vec<SocketAddr>) -> anyhow::Result<Self> {
        let mut connect = Connect::new("watch", seeds);
        connect.session.deadline = STATUS_DEADLINE;
        let mut event_loop = connect.open()?;
        let handle = event_loop.handle();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut watching = Watching { seen: Arc::clone(&seen), ..Watching::default() };
        let thread = spawn_loop("watch", None, move || {
            if let Err(error) = event_loop.run(&mut watching) {
                eprintln!("nobody watches the cluster any more: {error}");
            }
        });
        Ok(Self { seen, handle, thread: Some(thread.context("cannot start a thread")?) })
    }

    /// The state that was seen last.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the newest configuration is as wanted, calling `meanwhile` between checks. Returns whether it came.
    ///
    /// # Errors
    /// Those of `meanwhile`.
    pub fn wait(
        &self,
        patience: Duration,
        wanted: impl Fn(&Configuration) -> bool,
        mut meanwhile: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        let deadline = Clock::now().after(patience);
        loop {
            if self.seen().configuration.as_ref().is_some_and(&wanted) {
                return Ok(true);
            }
            if Clock::now() >= deadline {
                return Ok(false);
            }
            meanwhile()?;
            std::thread::sleep(limits::LOOK);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            // If it panicked, its panic was printed there.
            let _ = thread.join();
        }
    }
}

#[derive(Debug, Default)]
struct Watching {
    seen: Arc<Mutex<Seen>>,
    asked: BTreeMap<CoreId, CallId>,
    refresh: Option<CallId>,
    ask_at: Tick,
    refresh_at: Tick,
}

impl Watching {
    fn ask(&mut self, now: Tick, session: &mut Session, out: &mut Effects) {
        let Some(configuration) = session.configuration() else { return };
        let mut cores = Vec::new();
        for node in configuration.nodes.iter().filter(|node| node.alive) {
            cores.extend((0..node.cores.len()).map(|core| CoreId { node: node.node, core: core as u8 }));
        }
        for core in cores {
            self.asked.entry(core).or_insert_with(|| session.ask_core(now, core, CoreQuestion::Status, out));
        }
    }
}

impl Application<Session> for Watching {
    fn turn(&mut self, now: Tick, session: &mut Session, out: &mut Effects) -> Control {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((call, completion)) = session.poll_completed() {
            self.asked.retain(|_, asked| *asked != call);
            if self.refresh == Some(call) {
                self.refresh = None;
            }
            if let Completion::Status(CoreAnswer::Status(status)) = completion {
                seen.on_status(&status);
            }
        }
        let known = seen.configuration.as_ref().map(|seen| seen.version);
        if let Some(newest) = session.configuration().filter(|newest| Some(newest.version) != known) {
            seen.on_configuration(newest);
        }
        drop(seen);
        if now >= self.ask_at {
            self.ask_at = now.after(limits::STATUS_INTERVAL);
            self.ask(now, session, out);
        }
        if now >= self.refresh_at && session.configuration().is_some() {
            self.refresh_at = now.after(limits::LOOK);
            if self.refresh.is_none() {
                self.refresh = Some(session.refresh(now, out));
            }
        }
        Control::Continue
    }

    fn next_wake(&self) -> Option<Tick> {
        Some(self.ask_at.min(self.refresh_at))
    }
}
