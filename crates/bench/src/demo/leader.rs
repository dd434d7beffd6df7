//! The demonstration with `--kill coordinator`: the process that leads the coordinator's group is killed under load, twice. Who
//! leads then, and who noticed.
//!
//! Three of six nodes host a member of the group. So the process that is killed is also a node: it leads a shard, has a copy of another one,
//! and is the witness of a third. Whoever uses one of the other shards notices nothing.

use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use kasha_runtime::{Clock, say};
use kasha_types::limits::NODE_LEASE;
use kasha_types::{NodeId, ShardId, Tick};
use kasha_wire::{Configuration, ShardConfig};

use super::faults::{Director, away};
use super::load::Tally;
use super::{DemoOptions, Plan, introduce, run, show};
use crate::client::open_session;
use crate::group::Group;
use crate::limits;

/// Nodes, and as many shards: so a node has no part in half of them.
const NODES: u16 = 6;
/// The nodes that host members. The first one begins the cluster, and leads at first.
pub(super) const MEMBERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
/// The leader is killed so often.
const KILLS: u32 = 2;
/// How long a killed leader's process stays away.
const AWAY: Duration = Duration::from_secs(3);
/// Shards are looked at for so long after a kill, and as long before it.
const LOOKED_AT: Duration = Duration::from_secs(2);

/// A shorter silence is not told from none: a lost message costs as much, and more if it is lost twice.
const NOTICED: Duration = Duration::from_millis(200);

/// The part that a node has in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Leads,
    Copy,
    Witness,
    Nothing,
}

impl Part {
    fn of(node: NodeId, shard: &ShardConfig) -> Self {
        if shard.primary == node {
            Self::Leads
        } else if shard.member(node).is_some() {
            Self::Copy
        } else if shard.witnesses.contains(&node) {
            Self::Witness
        } else {
            Self::Nothing
        }
    }

    /// What it was to the shard, until it was killed.
    fn was(self) -> &'static str {
        match self {
            Self::Leads => "was its primary",
            Self::Copy => "held a copy",
            Self::Witness => "was its witness",
            Self::Nothing => "had no part",
        }
    }
}

/// What became of one leader. Times are counted from its kill.
#[derive(Debug)]
pub(super) struct Succession {
    /// The node whose process led, and when it was killed.
    node: NodeId,
    at: Tick,
    /// The node whose process led then, and when it said so.
    next: NodeId,
    elected: Duration,
    /// A client that had started with the kill could write.
    opened: Duration,
    parts: Vec<(ShardId, Part)>,
}

/// Shows that connected clients go on, and that no update is lost or doubled. Returns whether that is so.
pub(super) fn demo(options: &DemoOptions) -> anyhow::Result<bool> {
    introduce(options, NODES);
    let [first, second, third] = MEMBERS;
    say!(
        "{first}, {second} and {third} also host the three members of the coordinator's group. The one that leads is killed,"
    );
    say!("twice. The lease of nodes is {NODE_LEASE:?}.\n");
    let plan = Plan { nodes: NODES, lease: NODE_LEASE, members: MEMBERS.into(), faults: &[], kills_of_leader: KILLS };
    let outcome = run(options, "coordinator", true, options.seconds, &plan)
        .with_context(|| format!("the logs are in {}", options.data.display()))?;
    show::show(&outcome);
    ensure!(outcome.successions.len() == KILLS as usize, "the leader was not killed {KILLS} times");
    for succession in &outcome.successions {
        tell(succession, &outcome.tally);
    }
    let is_right = outcome.is_right();
    if is_right {
        say!(
            "{} updates, nothing lost, nothing doubled; {} transfers, of which nobody saw a half.",
            outcome.tally.updates,
            outcome.tally.transfers
        );
    } else {
        say!("WRONG: see the figures above. Keep {} and report it.", options.data.display());
    }
    Ok(is_right)
}

/// Who led, who leads now, and what each shard noticed.
fn tell(of: &Succession, tally: &Tally) {
    say!(
        "  {} led, and was killed. {} ms later {} led, and answered; {} ms after the kill a new client could write.",
        of.node,
        of.elected.as_millis(),
        of.next,
        of.opened.as_millis()
    );
    let end = of.at.after(of.elected);
    let meanwhile: usize = tally.answers.values().map(|answers| between(answers, of.at, end).len()).sum();
    say!(
        "  Until then, without a coordinator, connected clients had {meanwhile} updates done. Longest silence of each shard:"
    );
    let before = Tick(of.at.0.saturating_sub(Tick(0).after(LOOKED_AT).0));
    let mut unnoticed = Vec::new();
    for &(shard, part) in &of.parts {
        let answers = tally.answers.get(&shard).map_or(&[][..], Vec::as_slice);
        let silence = |from: Tick| away(answers, from, from.after(LOOKED_AT));
        if silence(of.at).is_some_and(|silence| silence < NOTICED) {
            unnoticed.push(shard.to_string());
        }
        let what = format!("  {shard}, where {} {}", of.node, part.was());
        show::line(&what, format!("{} (before: {})", millis(silence(of.at)), millis(silence(before))));
    }
    if !unnoticed.is_empty() {
        say!("  So {} went on without a pause of {NOTICED:?}.", unnoticed.join(", "));
    }
    say!("");
}

fn millis(silence: Option<Duration>) -> String {
    silence.map_or_else(|| "no answer".to_owned(), |silence| format!("{} ms", silence.as_millis()))
}

/// The answers from one moment to another. (They are in order.)
fn between(answers: &[Tick], from: Tick, to: Tick) -> &[Tick] {
    let first = answers.partition_point(|&answer| answer < from);
    let end = answers.partition_point(|&answer| answer < to);
    &answers[first..end.max(first)]
}

impl Director<'_> {
    /// Kills the process of the group's leader, waits for what follows, and starts it again.
    pub(super) fn kill_leader(&mut self) -> anyhow::Result<Succession> {
        let group = Group::of(self.children);
        group.wait_until_all_follow(limits::REPAIR)?;
        let (node, _) = group.wait_for_leader(limits::REPAIR)?;
        let before = self.watch.seen().configuration.context("nobody has seen a configuration yet")?;
        let parts: Vec<_> = before.shards.iter().map(|shard| (shard.shard, Part::of(node, shard))).collect();
        self.narrator.say(&format!("kill -9 {node}, which leads the coordinator's group{}", also(node, &before)));
        let (seeds, others) = (self.children.seeds(), group.without(node));
        let at = Clock::now();
        self.children.kill(node)?;
        let (elected, opened) = thread::scope(|scope| {
            let elected = scope.spawn(|| others.wait_for_leader(limits::REPAIR));
            let opened = open_session("newcomer", seeds, limits::REPAIR).map(|_| Clock::now());
            (elected.join(), opened)
        });
        let (next, elected) = elected.map_err(|_| anyhow!("the thread that asks who leads has panicked"))??;
        let (elected, opened) = (elected.since(at), opened?.since(at));
        self.narrator.say(&format!("{next} leads the group: it answered {} ms after the kill", elected.as_millis()));
        self.narrator.say(&format!("a client that began with the kill could write {} ms after it", opened.as_millis()));
        self.wait_for_new_terms(&before.shards.iter().filter(|shard| shard.primary == node).map(led).collect())?;
        self.sleep_until(at.after(AWAY))?;
        self.narrator.say(&format!("{node} starts again"));
        self.children.restart(node)?;
        self.wait_until_whole()?;
        self.narrator.say("every shard has its replicas and witnesses again");
        Ok(Succession { node, at, next, elected, opened, parts })
    }
}

fn led(shard: &ShardConfig) -> (ShardId, kasha_types::Epoch) {
    (shard.shard, shard.epoch)
}

/// What else the node is.
fn also(node: NodeId, configuration: &Configuration) -> String {
    let led = configuration.shards.iter().filter(|shard| shard.primary == node).map(|shard| shard.shard.to_string());
    let led: Vec<_> = led.collect();
    if led.is_empty() { String::new() } else { format!(", and is the primary of {}", led.join(" and ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_between_two_moments_are_counted_once() {
        let answers = [1, 5, 5, 7, 9].map(Tick);
        assert_eq!(between(&answers, Tick(5), Tick(9)).len(), 3);
        assert!(between(&answers, Tick(10), Tick(12)).is_empty() && between(&answers, Tick(7), Tick(5)).is_empty());
    }
}
