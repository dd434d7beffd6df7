//! The faults of the demo, and how long the shards of a node that was struck were away.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use kasha_runtime::Clock;
use kasha_types::{Epoch, NodeId, ShardId, Tick};
use kasha_wire::{Configuration, ShardPhase};

use crate::children::{COORDINATOR, Children};
use crate::client::is_whole;
use crate::limits;
use crate::watch::Watch;
use kasha_runtime::say;

/// How long a killed node stays away if another one is to take over.
const AWAY: Duration = Duration::from_secs(3);

/// A fault that the demo causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// `kill -9`; the node comes back long after another node has taken over.
    Kill,
    /// `kill -9`, and a new process at once, before the lease has run out.
    KillAndRestart,
    /// SIGSTOP for longer than the lease, then SIGCONT: a primary that does not know that it is not primary any more.
    Freeze,
}

/// The effect of a fault.
#[derive(Clone, Debug)]
pub(super) struct Injury {
    pub(super) fault: Fault,
    pub(super) node: NodeId,
    pub(super) at: Tick,
    /// The shards of which the node was primary.
    pub(super) shards: Vec<ShardId>,
}

/// Prints a line with the time since the run began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrator {
    pub(super) start: Tick,
}

impl Narrator {
    pub(super) fn say(self, what: &str) {
        say!("  {:5.1} s  {what}", Clock::now().since(self.start).as_secs_f64());
    }
}

/// Causes faults in a cluster.
#[derive(Debug)]
pub(super) struct Director<'a> {
    pub(super) children: &'a mut Children,
    pub(super) watch: &'a Watch,
    pub(super) narrator: Narrator,
}

impl Director<'_> {
    /// Causes one fault, and waits until the cluster is whole again. `None`: there is no primary that may be struck.
    pub(super) fn inflict(&mut self, fault: Fault) -> anyhow::Result<Option<Injury>> {
        let before = self.watch.seen().configuration.context("nobody has seen a configuration yet")?;
        let Some(node) = choose(&before) else {
            self.narrator.say("every primary is on node-1 by now, which hosts the coordinator: left in peace");
            return Ok(None);
        };
        let led: BTreeMap<ShardId, Epoch> = before
            .shards
            .iter()
            .filter(|shard| shard.primary == node)
            .map(|shard| (shard.shard, shard.epoch))
            .collect();
        let shards: Vec<ShardId> = led.keys().copied().collect();
        let names = shards.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        let at = Clock::now();
        match fault {
            Fault::Kill => {
                self.narrator.say(&format!("kill -9 {node}, the primary of {names}"));
                self.children.kill(node)?;
                self.wait_for_new_terms(&led)?;
                self.sleep_until(at.after(AWAY))?;
                self.narrator.say(&format!("{node} starts again"));
                self.children.restart(node)?;
            }
            Fault::KillAndRestart => {
                self.narrator.say(&format!("kill -9 {node}, the primary of {names}, and start it again at once"));
                self.children.kill(node)?;
                self.children.restart(node)?;
                self.wait_for_new_terms(&led)?;
            }
            Fault::Freeze => {
                let lease = self.children.spec().lease;
                self.narrator.say(&format!("freeze {node}, the primary of {names}, for longer than its lease"));
                self.children.stop(node)?;
                self.wait_for_new_terms(&led)?;
                self.sleep_until(at.after(lease * 2 + lease / 2))?;
                self.narrator.say(&format!("{node} goes on, and still believes to be primary"));
                self.children.cont(node)?;
            }
        }
        self.wait_until_whole()?;
        self.narrator.say("every shard has its replicas and witnesses again");
        Ok(Some(Injury { fault, node, at, shards }))
    }

    pub(super) fn sleep_until(&mut self, moment: Tick) -> anyhow::Result<()> {
        loop {
            self.children.check()?;
            let left = moment.since(Clock::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(limits::LOOK));
        }
    }

    pub(super) fn wait_for_new_terms(&mut self, led: &BTreeMap<ShardId, Epoch>) -> anyhow::Result<()> {
        let wanted = |configuration: &Configuration| {
            led.iter().all(|(&shard, &epoch)| {
                configuration
                    .shard(shard)
                    .is_some_and(|shard| shard.epoch > epoch && shard.phase == ShardPhase::Serving)
            })
        };
        let children = &mut *self.children;
        if !self.watch.wait(limits::REPAIR, wanted, || children.check())? {
            bail!("no new primary after {:?}: {}", limits::REPAIR, self.shards());
        }
        let configuration = self.watch.seen().configuration.expect("it was looked at");
        let mut now = Vec::new();
        for shard in led.keys().filter_map(|&shard| configuration.shard(shard)) {
            now.push(format!("{} by {} (term {})", shard.shard, shard.primary, shard.epoch.0));
        }
        self.narrator.say(&format!("served again: {}", now.join(", ")));
        Ok(())
    }

    /// Waits until every lost copy is replaced.
    pub(super) fn wait_until_whole(&mut self) -> anyhow::Result<()> {
        let children = &mut *self.children;
        if !self.watch.wait(limits::REPAIR, is_whole, || children.check())? {
            bail!("redundancy was not restored after {:?}: {}", limits::REPAIR, self.shards());
        }
        Ok(())
    }

    fn shards(&self) -> String {
        let seen = self.watch.seen();
        seen.configuration
            .map_or_else(String::new, |configuration| format!("{:?} {:?}", configuration.nodes, configuration.shards))
    }
}

/// The node that is primary of most shards and does not host the coordinator.
fn choose(configuration: &Configuration) -> Option<NodeId> {
    let led = |node: NodeId| configuration.shards.iter().filter(|shard| shard.primary == node).count();
    let nodes = configuration.nodes.iter().map(|info| info.node).filter(|&node| node != COORDINATOR);
    nodes.filter(|&node| led(node) > 0).min_by_key(|&node| (std::cmp::Reverse(led(node)), node))
}

/// How long the shard was away: from the last answer before the fault was felt to the first answer after it. `None`: it
/// did not answer before `until`, when the next fault came.
pub(super) fn away(answers: &[Tick], at: Tick, until: Tick) -> Option<Duration> {
    // Answers that had left before the fault still arrive. So the gap begins with an answer from before the fault or
    // soon after it.
    let after = answers.partition_point(|&answer| answer <= at);
    let last = answers.partition_point(|&answer| answer < until);
    let window = &answers[after.saturating_sub(1)..last.max(after)];
    window.windows(2).map(|pair| pair[1].since(pair[0])).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silence_after_a_fault_is_found() {
        let answers: Vec<Tick> = [0, 300, 310, 320, 1500, 1510, 5000].map(Tick).to_vec();
        let away = |at, until| away(&answers, Tick(at), Tick(until)).map(|away| away.as_nanos());
        assert_eq!(away(305, 2000), Some(1180));
        assert_eq!(away(305, 6000), Some(3490), "without the next fault's limit the longest");
        assert_eq!(away(5000, 6000), None);
        assert_eq!(away(6000, 7000), None);
    }
}
