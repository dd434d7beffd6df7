//! What servers log for their operator while they run: which node was lost, which node is primary now. Machines log
//! nothing; this module looks at them between turns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use kasha_coordinator::{Coordinator, Loss};
use kasha_machine::Effects;
use kasha_node::Node;
use kasha_runtime::{Application, Control, DataDir};
use kasha_types::{ConfigVersion, Epoch, NodeId, ShardId, Tick};
use kasha_wire::{MemberState, ShardConfig, ShardPhase};

/// How a loop ended: its name, and its error if there was one.
pub type Ended = (String, Result<(), String>);

/// How often it is said that the coordinator has lost its memory.
const LOSS_TOLD_EVERY: Duration = Duration::from_secs(60);

/// A member may know of no leader for so long before that is told: an election takes less.
const NO_LEADER_TOLD: Duration = Duration::from_secs(5);

/// Logs what the coordinator commits.
#[derive(Debug)]
pub struct TellCommits {
    /// The node's folder.
    folder: Arc<Mutex<DataDir>>,
    /// Set as soon as this process is a member of a group of several.
    is_member: Arc<AtomicBool>,
    /// Whether the folder says that the coordinator's files are in it.
    is_noted: bool,
    /// Told, once, that the coordinator has lost its memory: where all nodes run in this process, nobody needs it then.
    gives_up: Option<mpsc::Sender<Ended>>,
    loss_told: Option<Tick>,
    trouble_told: bool,
    /// Since when there is no leader, and whether that was told.
    leaderless: Option<(Tick, bool)>,
    seen: ConfigVersion,
    alive: BTreeMap<NodeId, bool>,
    shards: BTreeMap<ShardId, ShardConfig>,
    /// Shards of which it was told that a node has promised more than the coordinator knows.
    overtaken: BTreeSet<ShardId>,
    /// Whether it was told that the clock on the wall is far away.
    far_wall_told: bool,
}

impl TellCommits {
    /// For a node with this folder. `gives_up` gets the reason if the coordinator has lost its memory.
    pub fn new(folder: Arc<Mutex<DataDir>>, is_member: Arc<AtomicBool>, gives_up: Option<mpsc::Sender<Ended>>) -> Self {
        Self {
            folder,
            is_member,
            is_noted: false,
            gives_up,
            loss_told: None,
            trouble_told: false,
            leaderless: None,
            seen: ConfigVersion(0),
            alive: BTreeMap::new(),
            shards: BTreeMap::new(),
            overtaken: BTreeSet::new(),
            far_wall_told: false,
        }
    }

    /// Once the files of the coordinator are there, the folder says so: never before, or a start that was killed early would
    /// forbid the next one.
    fn note_member(&mut self, machine: &Coordinator) {
        self.is_member.store(machine.members().len() > 1, Ordering::Release);
        if self.is_noted || !machine.has_files() {
            return;
        }
        self.is_noted = true;
        if let Err(error) = self.folder.lock().expect("nobody panics with it").note_coordinator() {
            tracing::error!("the folder does not say that the coordinator's files are in it: {error}");
        }
    }

    /// A member that waits for a majority says for whom.
    fn tell_lack(&mut self, now: Tick, machine: &Coordinator) {
        let lacking = machine.lacks(now, NO_LEADER_TOLD);
        if lacking.is_empty() {
            if let Some((since, true)) = self.leaderless.take() {
                let seconds = now.since(since).as_secs_f32();
                tracing::warn!("the coordinator's group has a leader again, after {seconds:.1} s");
            }
            return;
        }
        let (since, told) = *self.leaderless.get_or_insert((now, false));
        if !told && now.since(since) >= NO_LEADER_TOLD {
            self.leaderless = Some((since, true));
            let names: Vec<_> = lacking.iter().map(|of| format!("{} at {}", of.node, of.address)).collect();
            tracing::warn!(
                "the coordinator's group has no leader, and does not hear {}: start a majority of its members (K0512)",
                names.join(", ")
            );
        }
    }

    /// A leader whose machine's clock on the wall is far away says so, once.
    fn tell_far_wall(&mut self, machine: &Coordinator) {
        let far = machine.far_wall();
        if let Some(ahead) = far.filter(|_| !self.far_wall_told) {
            let direction = if ahead > 0 { "ahead of" } else { "behind" };
            #[expect(clippy::cast_precision_loss, reason = "it is shown")]
            let seconds = ahead.unsigned_abs() as f64 / 1_000.0;
            tracing::warn!(
                "the clock of this machine is {seconds:.1} s {direction} ClusterTime: look which of the two is wrong (K0513)"
            );
        }
        if far.is_none() && self.far_wall_told && machine.leads() {
            tracing::warn!("the clock of this machine is less than ten seconds away from ClusterTime again");
        }
        self.far_wall_told = far.is_some() || (self.far_wall_told && !machine.leads());
    }

    /// In a group a majority has forgotten that. The newest folder of one member alone does not help: the others have this leader's log.
    fn tell_loss(&mut self, now: Tick, loss: Loss, is_group: bool) {
        if self.loss_told.is_some_and(|told| now.since(told) < LOSS_TOLD_EVERY) {
            return;
        }
        self.loss_told = Some(now);
        let folder = self.folder.lock().expect("nobody panics with it").coordinator();
        let folder = folder.display();
        let text = match is_group {
            false => format!(
                "the coordinator has lost its memory: {loss}. It decides nothing, so that no data is lost. Stop this process, put \
                 back the newest {folder}, and start it again (K0508)"
            ),
            true => format!(
                "a majority of the coordinator's group has lost its memory: {loss}. It decides nothing, so that no data is lost. Remove no \
                 folder. Stop the members that run, and start those instead that were down, if these are a majority; if not, first put back \
                 the newest copies of the older folders, such as {folder} (K0508)"
            ),
        };
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
        self.note_member(machine);
        if let Some(trouble) = machine.trouble().filter(|_| !std::mem::replace(&mut self.trouble_told, true)) {
            tracing::error!(
                "the coordinator's member in this process takes no part in its group any more: {trouble}. If another member says K0508, keep \
                 this folder, which may be the right one. Else stop this process, and start a node with a new number and an empty folder in \
                 its place (K0509)"
            );
        }
        self.tell_lack(now, machine);
        self.tell_far_wall(machine);
        if let Some(loss) = machine.memory_loss() {
            self.tell_loss(now, loss, machine.members().len() > 1);
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
        let leads = machine.leads();
        for info in &configuration.nodes {
            let before = self.alive.insert(info.node, info.alive);
            match (before, info.alive) {
                // The leader tells it: followers hear the same.
                _ if !leads => {}
                (Some(true) | None, false) => tracing::warn!("{} is lost", info.node),
                (Some(false), true) => tracing::warn!("{} is back", info.node),
                (None, true) => tracing::info!("{} is there", info.node),
                (Some(_), _) => {}
            }
        }
        for config in &configuration.shards {
            let before = self.shards.insert(config.shard, config.clone());
            // Changes that an earlier process committed are not news.
            if self.seen != ConfigVersion(0) && leads {
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

/// The coordinator may be silent for so long before that is told: a busy machine makes it late now and then.
const SILENCE_TOLD: Duration = Duration::from_secs(2);

/// Logs for how long the coordinator did not answer a node's core, and ends the core's loop in good order when it is asked to.
#[derive(Debug)]
pub struct TellLease {
    /// Whether this core tells of the coordinator: one of a node does.
    tells: bool,
    heard: Heard,
    /// Set by another thread, which then wakes the loop.
    stop: Arc<AtomicBool>,
    stopping_since: Option<Tick>,
    looks_again: Option<Tick>,
    /// The last turns of the core have begun.
    ends: bool,
}

/// Whether the coordinator answers. Each of its silences is one episode, which is told once: when it has lasted for
/// [`SILENCE_TOLD`], or if shards were given to others because of it.
#[derive(Debug)]
enum Heard {
    /// It has never answered: nothing was lost.
    Never,
    Answers,
    /// Since then it does not. The node led these shards.
    Silent {
        since: Tick,
        led: Vec<ShardId>,
        told: bool,
    },
    /// It did not for so long, which was not told. Until then it is looked at whether somebody else leads the shards now.
    Again {
        lasted: Duration,
        led: Vec<ShardId>,
        until: Tick,
    },
}

impl Heard {
    /// What follows from whether there is a lease now. `leads` says which shards the node leads.
    fn step(self, now: Tick, has_lease: bool, leads: impl Fn() -> Vec<ShardId>) -> (Self, Option<String>) {
        match self {
            Self::Never if has_lease => (Self::Answers, None),
            Self::Never => (Self::Never, None),
            Self::Answers if has_lease => (Self::Answers, None),
            Self::Again { lasted, led, until } if has_lease => {
                let now_led = leads();
                if led.iter().any(|shard| !now_led.contains(shard)) {
                    let lasted = lasted.as_secs_f32();
                    let told = format!(
                        "the coordinator did not answer for {lasted:.1} s, and shards were given to other nodes"
                    );
                    (Self::Answers, Some(told))
                } else if now >= until {
                    (Self::Answers, None)
                } else {
                    (Self::Again { lasted, led, until }, None)
                }
            }
            Self::Answers | Self::Again { .. } => (Self::Silent { since: now, led: leads(), told: false }, None),
            Self::Silent { since, led, told } => {
                let lasted = now.since(since);
                let seconds = lasted.as_secs_f32();
                match (has_lease, told) {
                    (true, true) => {
                        (Self::Answers, Some(format!("the coordinator answers again, after {seconds:.1} s")))
                    }
                    (true, false) => (Self::Again { lasted, led, until: now.after(SILENCE_TOLD) }, None),
                    (false, false) if lasted >= SILENCE_TOLD => {
                        let told = format!(
                            "the coordinator has not answered for {seconds:.1} s: no fail-over, no new clients; reads are slower"
                        );
                        (Self::Silent { since, led, told: true }, Some(told))
                    }
                    (false, told) => (Self::Silent { since, led, told }, None),
                }
            }
        }
    }
}

impl TellLease {
    /// For a core that ends once `stop` is set. `tells`: it logs whether the coordinator answers.
    pub fn new(stop: Arc<AtomicBool>, tells: bool) -> Self {
        Self { tells, heard: Heard::Never, stop, stopping_since: None, looks_again: None, ends: false }
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
        if self.tells {
            let heard = std::mem::replace(&mut self.heard, Heard::Never);
            let (heard, told) = heard.step(now, machine.has_lease(now), || machine.leads());
            self.heard = heard;
            if let Some(told) = told {
                tracing::warn!("{told}");
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes through what was seen, in milliseconds. Returns what was told.
    fn told(seen: &[(u64, bool, &[u16])]) -> Vec<String> {
        let (mut heard, mut all) = (Heard::Never, Vec::new());
        for &(millis, has_lease, leads) in seen {
            let now = Tick(0).after(Duration::from_millis(millis));
            let (next, told) = heard.step(now, has_lease, || leads.iter().copied().map(ShardId).collect());
            heard = next;
            all.extend(told);
        }
        all
    }

    #[test]
    fn a_lost_coordinator_is_told_once_with_its_length() {
        let silence =
            told(&[(0, true, &[1]), (100, false, &[1]), (2000, false, &[1]), (2200, false, &[1]), (9000, false, &[1])]);
        assert_eq!(silence.len(), 1, "{silence:?}");
        assert!(silence[0].contains("has not answered for 2.1 s"), "{silence:?}");
        let whole =
            told(&[(0, true, &[1]), (100, false, &[1]), (2200, false, &[1]), (7400, true, &[1]), (9999, true, &[])]);
        assert_eq!(whole.len(), 2, "{whole:?}");
        assert!(whole[1].contains("answers again, after 7.3 s"), "{whole:?}");
    }

    /// Found from outside: several lines in six seconds on a busy machine, without a fault.
    #[test]
    fn what_is_short_and_takes_nothing_away_is_not_told() {
        let busy: Vec<(u64, bool, &[u16])> = (0..60).map(|nth| (nth * 100, nth % 5 != 4, &[1][..])).collect();
        assert_eq!(told(&busy), Vec::<String>::new());
        assert_eq!(told(&[(0, false, &[]), (60_000, false, &[])]), Vec::<String>::new(), "it was never there");
        let lost = told(&[
            (0, true, &[1, 2]),
            (100, false, &[1, 2]),
            (900, true, &[1, 2]),
            (950, true, &[1]),
            (990, true, &[]),
        ]);
        assert_eq!(lost.len(), 1, "{lost:?}");
        assert!(lost[0].contains("0.8 s") && lost[0].contains("given to other nodes"), "{lost:?}");
    }
}
