//! What servers log for their operator while they run: which node was lost, which node is primary now. Machines log
//! nothing; this module looks at them between turns.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use kasha_coordinator::{Coordinator, Loss};
use kasha_machine::Effects;
use kasha_node::Node;
use kasha_runtime::{Application, Control};
use kasha_types::{ConfigVersion, Epoch, NodeId, ShardId, Tick};
use kasha_wire::{MemberState, ShardConfig, ShardPhase};

use crate::host::Ended;

/// How often it is said that the coordinator has lost its memory.
const LOSS_TOLD_EVERY: Duration = Duration::from_secs(60);

/// Logs what the coordinator commits.
#[derive(Debug)]
pub struct TellCommits {
    /// The folder of the coordinator's files.
    folder: PathBuf,
    /// Told, once, that the coordinator has lost its memory: where all nodes run in this process, nobody needs it then.
    gives_up: Option<mpsc::Sender<Ended>>,
    loss_told: Option<Tick>,
    seen: ConfigVersion,
    alive: BTreeMap<NodeId, bool>,
    shards: BTreeMap<ShardId, ShardConfig>,
    /// Shards of which it was told that a node has promised more than the coordinator knows.
    overtaken: BTreeSet<ShardId>,
}

impl TellCommits {
    /// For a coordinator with this folder. `gives_up` gets the reason if it has lost its memory.
    pub fn new(folder: PathBuf, gives_up: Option<mpsc::Sender<Ended>>) -> Self {
        let (alive, shards) = (BTreeMap::new(), BTreeMap::new());
        Self { folder, gives_up, loss_told: None, seen: ConfigVersion(0), alive, shards, overtaken: BTreeSet::new() }
    }

    fn tell_loss(&mut self, now: Tick, loss: Loss) {
        if self.loss_told.is_some_and(|told| now.since(told) < LOSS_TOLD_EVERY) {
            return;
        }
        self.loss_told = Some(now);
        let text = format!(
            "the coordinator has lost its memory: {loss}. It decides nothing, so that no data is lost. Stop this process, put \
             back the newest {}, and start it again (K0508)",
            self.folder.display()
        );
        match self.gives_up.take() {
            Some(gives_up) => {
                let _ = gives_up.send(("coordinator".to_owned(), Err(text)));
            }
            None => tracing::error!("{text}"),
        }
    }
}

impl Application<Coordinator> for TellCommits {
    fn turn(&mut self, now: Tick, machine: &mut Coordinator, _: &mut Effects) -> Control {
        if let Some(loss) = machine.memory_loss() {
            self.tell_loss(now, loss);
        }
        for (shard, overtaken) in machine.overtaken() {
            if self.overtaken.insert(shard) {
                tracing::error!("{shard}: {overtaken}");
            }
        }
        let configuration = machine.configuration();
        if configuration.version == self.seen {
            return Control::Continue;
        }
        for info in &configuration.nodes {
            match (self.alive.insert(info.node, info.alive), info.alive) {
                (Some(true) | None, false) => tracing::warn!("{} is lost", info.node),
                (Some(false), true) => tracing::warn!("{} is back", info.node),
                (None, true) => tracing::info!("{} is there", info.node),
                (Some(_), _) => {}
            }
        }
        for config in &configuration.shards {
            let before = self.shards.insert(config.shard, config.clone());
            // Changes that an earlier process committed are not news.
            if self.seen != ConfigVersion(0) {
                tell_shard(before.as_ref(), config);
            }
        }
        self.seen = configuration.version;
        Control::Continue
    }
}

fn tell_shard(before: Option<&ShardConfig>, now: &ShardConfig) {
    let shard = now.shard;
    let (epoch, phase) = before.map_or((Epoch(0), ShardPhase::Recovering), |before| (before.epoch, before.phase));
    let (begins, serves) = (now.epoch != epoch, now.phase == ShardPhase::Serving);
    match (begins, serves && (begins || phase != now.phase)) {
        // The first terms of a new cluster do not mean that anything was lost.
        (_, true) if now.epoch == Epoch(1) => tracing::info!("{shard}: {} serves", now.primary),
        (true, false) if now.epoch == Epoch(1) => {}
        (true, false) => tracing::warn!("{shard}: {} is to be primary ({})", now.primary, now.epoch),
        (_, true) => tracing::warn!("{shard}: {} serves ({})", now.primary, now.epoch),
        (false, false) => {}
    }
    let members = |config: &ShardConfig| -> String {
        let name = |member: &kasha_wire::Member| match member.state {
            MemberState::Complete => member.node.to_string(),
            MemberState::Joining => format!("{} (joining)", member.node),
        };
        config.members.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    if before.is_none_or(|before| members(before) != members(now)) {
        tracing::info!("{shard}: members are {}", members(now));
    }
    if before.is_none_or(|before| before.list != now.list) {
        let witnesses: Vec<_> = now.witnesses.iter().map(ToString::to_string).collect();
        tracing::info!("{shard}: witnesses are {} ({})", witnesses.join(", "), now.list);
    }
}

/// A core that was asked to stop runs at least this long: other nodes that stop with it may need its acknowledgements.
const STOP_AT_LEAST: Duration = Duration::from_millis(50);
/// How often the core checks whether it may end.
const STOP_LOOKS_EVERY: Duration = Duration::from_millis(10);
/// A core that was asked to stop runs at most this long, whatever it waits for. Everything that it answered is on its
/// own file (R7.7).
const STOP_AT_MOST: Duration = Duration::from_secs(2);

/// Then the core puts everything on the disk. If even that takes longer than this, it ends without it.
const END_AT_MOST: Duration = Duration::from_millis(3500);

/// Logs whether the coordinator hears a node's core, and ends the core's loop in good order when it is asked to.
#[derive(Debug)]
pub struct TellLease {
    had: Option<bool>,
    /// Set by another thread, which then wakes the loop.
    stop: Arc<AtomicBool>,
    stopping_since: Option<Tick>,
    looks_again: Option<Tick>,
    /// The last turns of the core have begun.
    ends: bool,
}

impl TellLease {
    /// For a core that ends once `stop` is set.
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        Self { had: None, stop, stopping_since: None, looks_again: None, ends: false }
    }

    fn stop_in_order(&mut self, now: Tick, machine: &mut Node) -> Control {
        let since = *self.stopping_since.get_or_insert_with(|| {
            machine.begin_stop();
            now
        });
        self.looks_again = Some(now.after(STOP_LOOKS_EVERY));
        let lasted = now.since(since);
        let has_stopped = machine.has_stopped();
        if !self.ends && (lasted >= STOP_AT_MOST || (lasted >= STOP_AT_LEAST && has_stopped)) {
            if !has_stopped {
                tracing::warn!("stops although the coordinator has not emptied every witness list");
            }
            self.ends = true;
            machine.begin_end();
        }
        let has_ended = machine.has_ended();
        if !has_ended && lasted >= END_AT_MOST {
            tracing::warn!("the disk is slow: the files do not say that this process ended in good order");
        }
        match has_ended || lasted >= END_AT_MOST {
            true => Control::Exit,
            false => Control::Continue,
        }
    }
}

impl Application<Node> for TellLease {
    fn turn(&mut self, now: Tick, machine: &mut Node, _: &mut Effects) -> Control {
        let has = machine.has_lease(now);
        if self.had.is_some_and(|had| had != has) {
            if has {
                tracing::warn!("the coordinator answers again");
            } else {
                tracing::warn!("the coordinator does not answer: no fail-over, no new clients; reads are slower");
            }
        }
        // The first lease is not news. A lease that was never there was not lost.
        if has || self.had.is_some() {
            self.had = Some(has);
        }
        match self.stop.load(Ordering::Acquire) {
            true => self.stop_in_order(now, machine),
            false => Control::Continue,
        }
    }

    fn next_wake(&self) -> Option<Tick> {
        self.looks_again
    }
}
