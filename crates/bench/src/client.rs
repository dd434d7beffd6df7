//! Client sessions on event loops of this process: to wait for a cluster, make a call and create a table.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use kasha_client::session::{CallId, Completion, Session, SessionOptions};
use kasha_machine::Effects;
use kasha_runtime::{Application, Clock, Control, EventLoop, FrameFaults, LoopOptions, random_u64};
use kasha_types::{TableId, Tick};
use kasha_wire::message::TableOutcome;
use kasha_wire::{Configuration, MemberState, ShardPhase};

use crate::limits;

/// What a session needs to reach a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Connect {
    pub(crate) name: String,
    pub(crate) session: SessionOptions,
    pub(crate) link_delay: Duration,
    pub(crate) faults: Option<FrameFaults>,
    pub(crate) spin: Duration,
}

impl Connect {
    pub(crate) fn new(name: &str, seeds: Vec<SocketAddr>) -> Self {
        Self {
            name: name.to_owned(),
            session: SessionOptions::new(seeds, random_u64()),
            link_delay: Duration::ZERO,
            faults: None,
            spin: Duration::ZERO,
        }
    }

    pub(crate) fn open(self) -> anyhow::Result<EventLoop<Session>> {
        let Self { name, session, link_delay, faults, spin } = self;
        let options = LoopOptions { name, link_delay, faults, spin, ..LoopOptions::default() };
        EventLoop::new(options, |_, now, out| Ok(Session::new(session, now, out))).context("cannot start a client")
    }
}

/// Whether all shards serve with every member complete and, where there are to be witnesses, a full list of them.
#[must_use]
pub fn is_whole(configuration: &Configuration) -> bool {
    let replicas = usize::from(configuration.faults) + 1;
    configuration.nodes.iter().all(|node| node.alive)
        && !configuration.shards.is_empty()
        && configuration.shards.iter().all(|shard| {
            shard.phase == ShardPhase::Serving
                && shard.members.len() == replicas
                && shard.members.iter().all(|member| member.state == MemberState::Complete)
                && (configuration.faults == 0 || shard.has_fast_path(configuration.faults))
        })
}

/// Runs a session for a while, asking for the newest configuration.
pub(crate) fn look(event_loop: &mut EventLoop<Session>, time: Duration) -> anyhow::Result<()> {
    struct Look(Tick, bool);
    impl Application<Session> for Look {
        fn turn(&mut self, now: Tick, session: &mut Session, out: &mut Effects) -> Control {
            while session.poll_completed().is_some() {}
            if !std::mem::replace(&mut self.1, true) && session.configuration().is_some() {
                session.refresh(now, out);
            }
            if now >= self.0 { Control::Exit } else { Control::Continue }
        }
        fn next_wake(&self) -> Option<Tick> {
            Some(self.0)
        }
    }
    event_loop.run(&mut Look(Clock::now().after(time), false))?;
    Ok(())
}

/// Begins a session, and waits until it can send.
pub(crate) fn open_session(
    name: &str,
    seeds: Vec<SocketAddr>,
    patience: Duration,
) -> anyhow::Result<EventLoop<Session>> {
    struct Opening(Tick);
    impl Application<Session> for Opening {
        fn turn(&mut self, now: Tick, session: &mut Session, _: &mut Effects) -> Control {
            if session.is_open() || now >= self.0 { Control::Exit } else { Control::Continue }
        }
        fn next_wake(&self) -> Option<Tick> {
            Some(self.0)
        }
    }
    let mut event_loop = Connect::new(name, seeds).open()?;
    event_loop.run(&mut Opening(Clock::now().after(patience)))?;
    if !event_loop.machine().is_open() {
        bail!("a new session is not open within {patience:?}");
    }
    Ok(event_loop)
}

/// Makes one call and waits for its end.
pub(crate) fn call(
    event_loop: &mut EventLoop<Session>,
    start: impl FnOnce(&mut Session, Tick, &mut Effects) -> CallId,
) -> anyhow::Result<Completion> {
    struct Once<F> {
        start: Option<F>,
        call: Option<CallId>,
        completion: Option<Completion>,
        deadline: Tick,
    }
    impl<F: FnOnce(&mut Session, Tick, &mut Effects) -> CallId> Application<Session> for Once<F> {
        fn turn(&mut self, now: Tick, session: &mut Session, out: &mut Effects) -> Control {
            if let Some(start) = self.start.take() {
                self.call = Some(start(session, now, out));
            }
            while let Some((call, completion)) = session.poll_completed() {
                if Some(call) == self.call {
                    self.completion = Some(completion);
                }
            }
            if self.completion.is_some() || now >= self.deadline { Control::Exit } else { Control::Continue }
        }
        fn next_wake(&self) -> Option<Tick> {
            Some(self.deadline)
        }
    }
    let deadline = Clock::now().after(limits::DRAIN);
    let mut once = Once { start: Some(start), call: None, completion: None, deadline };
    event_loop.run(&mut once)?;
    once.completion.with_context(|| format!("the cluster does not answer within {:?}", limits::DRAIN))
}

/// Creates a table, or finds it if it exists.
pub(crate) fn create_table(event_loop: &mut EventLoop<Session>, name: &str) -> anyhow::Result<TableId> {
    match call(event_loop, |session, now, out| session.create_table(now, name, out))? {
        Completion::Table(TableOutcome::Created(table) | TableOutcome::Exists(table)) => Ok(table),
        other => bail!("cannot create the table {name}: {other:?}"),
    }
}
