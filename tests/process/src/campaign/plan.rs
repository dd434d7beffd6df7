//! The plan of a round, drawn from its seed alone: the cluster, and faults in phases.
//!
//! Faults stay within what docs/guarantees.md promises. Machines that lose something, at most f in a phase, lose it at
//! the beginning of the phase, while the cluster is whole: later, a set may have shrunk to them. Under `fsync` any
//! machine may lose power at any time. Processes are killed and frozen, and links cut, without limit. Each round has a
//! phase with one fault of `alone`, whose seconds until service are measured. Some damage has a phase of its own, too. If the
//! coordinator is a group, its leader may be struck, whoever that is by then, and no node has a part that another one has not.
//!
//! Two faults are limited. If the only witness is gone for good and its primary is deposed before the list has changed,
//! the shard waits for the witness's files. And a log whose end is cut off looks like one that a crash cut, so it is
//! cut at backups only. Every phase ends with a whole cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use kasha_machine::Rng;

use super::alone::{Kind, Loss};

/// A process, and its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A node, by its number from 1.
    Node(u16),
    /// The coordinator, if it has a process of its own.
    Coordinator,
    /// The node whose process leads the coordinator's group when the phase begins.
    Leader,
    /// The node behind that one, by its number; behind the last one is the first one.
    NextToLeader,
}

/// Where the keys are that programs of Redis use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Databases {
    /// Each database is in one shard.
    OneShard,
    /// Each is in all shards.
    Spread,
}

/// The size and the settings of a cluster.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Number of nodes.
    pub nodes: u16,
    /// `f`, the number of crashes that each shard survives.
    pub faults: u16,
    /// Number of shards.
    pub shards: u16,
    /// Cores of each node.
    pub cores: u16,
    /// Whether durability is `fsync`; otherwise it is `replicated`.
    pub fsync: bool,
    /// The nodes' lease.
    pub lease: Duration,
    /// How long written bytes may wait under `replicated`.
    pub flush_interval: Duration,
    /// Whether the coordinator has a process of its own. Otherwise node 1 hosts it.
    pub own_coordinator: bool,
    /// Whether the coordinator is a group, in the processes of nodes.
    pub group: bool,
    /// The node whose data is on a small disk of its own.
    pub small_disk: Option<u16>,
    /// Whether most of the memory is filled with data that is overwritten all the time.
    pub has_ballast: bool,
    /// The delay of each link.
    pub delay: Duration,
    /// Whether there are programs of Redis, too, at the nodes' ports and at a proxy.
    pub redis: Option<Databases>,
}

/// Which of the changes that no fsync covered are on the platter after a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// None of the changes.
    Nothing,
    /// Each sector of each file as it was at some moment since its last fsync, and any of the new names.
    Some,
    /// All of the changes.
    Everything,
}

/// The file that is damaged while its node is down, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Bits of a segment are flipped, with good ones behind them.
    SegmentFlipped,
    /// A segment of a backup ends too early.
    SegmentCut,
    /// A segment is gone.
    SegmentGone,
    /// Bits of a replica's meta file are flipped.
    MetaFlipped,
    /// Bits of a witness's slots are flipped.
    SlotsFlipped,
    /// A witness's slots end too early.
    SlotsCut,
    /// Bits of a witness's mode are flipped.
    ModeFlipped,
    /// Bits of the ledger of witnesses are flipped.
    LedgerFlipped,
}

/// A fault of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9`; started again later.
    Kill(Vec<Who>),
    /// SIGSTOP, and SIGCONT.
    Freeze(Who),
    /// Machines lose power: data that was not fsynced may be lost, and the boot id changes.
    PowerLoss(Vec<Who>, Kept),
    /// A node is killed and a file of it damaged.
    Damage(u16, Harm, u64),
    /// A node's clock jumps ahead by this.
    Jump(u16, Duration),
    /// A clock runs fast or slow by this many millionths.
    Drift(Who, i64),
    /// Nothing gets from the first to the second process; nor back, if the flag is set.
    Cut(Who, Who, bool),
    /// These processes are cut off from all others, clients included.
    CutOff(Vec<Who>),
    /// All links lose and double this many packets of a thousand, and delay each by up to this time more.
    Rough(u16, u16, Duration),
    /// A node's small disk runs full.
    FullDisk(u16),
    /// Every process is stopped, orderly or not, and before the start machines lose something, each as its seed says.
    Down {
        /// Whether the processes get SIGTERM; otherwise `kill -9`.
        orderly: bool,
        /// For each loss the node, the loss and a seed.
        losses: Vec<(u16, Loss, u64)>,
    },
    /// A node is stopped if the flag is set, or else killed, and its folder lost; later another node takes its place.
    Replace(Who, bool),
    /// A primary and a witness of its shard are killed; the witness starts again at once, without its files.
    WitnessLost(u64),
}

/// A fault with its time in the phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When the fault begins, from the beginning of the phase.
    pub at: Duration,
    /// How long the fault lasts, if it can be undone.
    pub lasts: Duration,
    /// The fault to cause.
    pub fault: Fault,
}

/// The plan of one round.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed from which the plan was drawn.
    pub seed: u64,
    /// The cluster of the round.
    pub shape: Shape,
    /// The faults of each phase; everything heals after each.
    pub phases: Vec<Vec<Event>>,
    /// The phases in which seconds are measured, by index, and the kind of their fault.
    pub measured: BTreeMap<usize, Kind>,
    /// Clocks differ by more than the bound. Then a read need not show the newest value (F1), but updates must be
    /// exact.
    pub reads_unjudged: bool,
}

/// Two clocks may drift apart by a twentieth of a lease in one lease (`drift_bound`). Each of the two stays below that.
const DRIFT_WITHIN_PPM: u64 = 45_000;
/// A drift far beyond what the design assumes.
const DRIFT_BEYOND_PPM: u64 = 400_000;
/// The beginning of a phase, in which machines lose data for good.
const LOSSES_MS: u64 = 100;
/// The part of a phase after that, in which faults begin; three times as long in long rounds.
const WINDOW_MS: u64 = 3000;
/// The outage that sessions must survive.
const MINUTE: Duration = Duration::from_secs(60);

impl Plan {
    /// The plan of a seed. A long plan has more and fuller phases, and at last a minute without the coordinator, or without the node of
    /// its leader.
    #[must_use]
    pub fn draw(seed: u64, long: bool) -> Self {
        let mut rng = Rng::new(seed);
        let mut shape = Shape::draw(&mut rng);
        // From a stream of its own, which moves no other draw.
        let mut of_redis = Rng::new(seed ^ 0x4E5B);
        let databases = *of_redis.pick(&[Databases::OneShard, Databases::Spread]);
        shape.redis = of_redis.chance(1, 2).then_some(databases);
        let count = if long { 5 } else { 3 };
        let mut drawing = Drawing { beyond: rng.chance(1, 8), shape: &shape, rng: rng.fork(), long };
        // The measured phases come first: later, some nodes are taken back more slowly because of earlier faults.
        let (mut phases, mut measured) = (Vec::new(), BTreeMap::new());
        for _ in 0..if long { 2 } else { 1 } {
            let kind = *drawing.rng.pick(&Kind::of(&shape));
            measured.insert(phases.len(), kind);
            phases.push(vec![kind.draw(&shape, &mut drawing.rng)]);
        }
        phases.extend((0..count).map(|_| drawing.phase()));
        if long {
            phases.push(drawing.minute());
        }
        let is_beyond =
            |event: &Event| matches!(event.fault, Fault::Drift(_, ppm) if ppm.unsigned_abs() > DRIFT_WITHIN_PPM);
        let reads_unjudged = phases.iter().flatten().any(is_beyond);
        Self { seed, shape, phases, measured, reads_unjudged }
    }

    /// Whether bytes between hosts may be lost: then a side of a connection may not hear for long that the other one has ended it.
    #[must_use]
    pub fn loses_bytes(&self) -> bool {
        let loses = |event: &Event| {
            matches!(event.fault, Fault::Cut(..) | Fault::CutOff(_) | Fault::Rough(..) | Fault::Jump(..))
        };
        self.phases.iter().flatten().any(loses)
    }

    /// Whether every shard serves during this phase, and not only behind it: in its minute one node of a group is away, the leader's, and
    /// nobody helps.
    #[must_use]
    pub fn is_served_throughout(&self, phase: usize) -> bool {
        self.shape.group && self.phases[phase].iter().any(|event| event.lasts == MINUTE)
    }

    /// A plan with this fault alone, twice.
    #[must_use]
    pub fn only(seed: u64, kind: Kind) -> Self {
        let mut rng = Rng::new(seed);
        let mut shape = Shape::draw(&mut rng);
        kind.prepare(&mut shape);
        let phases: Vec<_> = (0..2).map(|_| vec![kind.draw(&shape, &mut rng)]).collect();
        let measured = (0..phases.len()).map(|phase| (phase, kind)).collect();
        Self { seed, shape, phases, measured, reads_unjudged: false }
    }

    /// Every machine loses power under `replicated`, several times, with flushes that are too rare. That is more than Kasha
    /// survives, so that the judges must say that something is lost; but no transaction may be lost by half.
    #[must_use]
    pub fn beyond_promise(seed: u64) -> Self {
        let mut shape = Shape::draw(&mut Rng::new(seed));
        (shape.fsync, shape.own_coordinator, shape.group, shape.small_disk) = (false, true, false, None);
        shape.flush_interval = Duration::from_secs(3600);
        let phase = |kept| {
            let fault = Fault::PowerLoss((1..=shape.nodes).map(Who::Node).collect(), kept);
            vec![Event { at: Duration::from_secs(2), lasts: Duration::from_millis(500), fault }]
        };
        let phases = [Kept::Nothing, Kept::Some, Kept::Nothing, Kept::Some, Kept::Nothing].map(phase).into();
        Self { seed, shape, phases, measured: BTreeMap::new(), reads_unjudged: false }
    }
}

impl Shape {
    fn draw(rng: &mut Rng) -> Self {
        let faults = if rng.chance(1, 3) { 2 } else { 1 };
        let nodes = rng.between(faults + 2, 5);
        let own_coordinator = rng.chance(1, 2);
        let group = !own_coordinator && rng.fork().chance(3, 4);
        // The first node leads a group at first.
        let first = if group { 1 } else { 2 };
        let small_disk = rng.chance(1, 3).then(|| if rng.chance(1, 2) { first } else { rng.between(first, nodes) });
        let has_ballast = small_disk.is_none() && rng.fork().chance(3, 4);
        let number = |number: u64| u16::try_from(number).expect("small");
        Self {
            has_ballast,
            nodes: number(nodes),
            faults: number(faults),
            shards: number(rng.between(nodes, nodes + 4)),
            cores: if rng.chance(1, 4) { 2 } else { 1 },
            fsync: rng.chance(1, 2),
            lease: Duration::from_millis(*rng.pick(&[500, 1000, 2000])),
            flush_interval: Duration::from_millis(*rng.pick(&[20, 100, 100])),
            own_coordinator,
            group,
            small_disk: small_disk.map(number),
            delay: Duration::from_micros(*rng.pick(&[0, 200, 1000])),
            redis: None,
        }
    }

    /// All processes of the cluster.
    #[must_use]
    pub fn everybody(&self) -> Vec<Who> {
        let coordinator = self.own_coordinator.then_some(Who::Coordinator);
        (1..=self.nodes).map(Who::Node).chain(coordinator).collect()
    }

    /// Members of the coordinator.
    #[must_use]
    pub fn members(&self) -> u16 {
        match self.group {
            true if self.faults > 1 && self.nodes >= 5 => 5,
            true => 3,
            false => 1,
        }
    }

    /// So many nodes may lose their folders at once: a majority of the coordinator's members is left.
    #[must_use]
    pub fn losable(&self) -> u16 {
        if self.group { self.faults.min(self.members() / 2) } else { self.faults }
    }

    /// Whether any node may lose all that it has: in none is the coordinator alone.
    #[must_use]
    pub fn is_any_node_losable(&self) -> bool {
        self.own_coordinator || self.group
    }

    /// Whether the process may be the coordinator, or lead its group.
    #[must_use]
    pub fn may_lead(&self, who: Who) -> bool {
        who == self.hub() || self.group
    }

    /// The process in which the coordinator runs, or began.
    #[must_use]
    pub fn hub(&self) -> Who {
        if self.own_coordinator { Who::Coordinator } else { Who::Node(1) }
    }
}

struct Drawing<'a> {
    rng: Rng,
    shape: &'a Shape,
    /// Clocks may differ by more than the design assumes.
    beyond: bool,
    /// Whether the phases are fuller.
    long: bool,
}

impl Drawing<'_> {
    fn phase(&mut self) -> Vec<Event> {
        if self.rng.chance(1, 6) {
            return vec![self.damage_alone()];
        }
        let mut events = self.losses();
        let count = if self.long { self.rng.between(4, 14) } else { self.rng.between(2, 6) };
        events.extend((0..count).map(|_| self.event()));
        events.sort_by_key(|event| event.at);
        events
    }

    /// Data that machines lose for good, before anything else happens.
    fn losses(&mut self) -> Vec<Event> {
        let mut nodes: Vec<u16> = (1..=self.shape.nodes).filter(|node| self.shape.small_disk != Some(*node)).collect();
        let mut events = Vec::new();
        for _ in 0..self.rng.below(u64::from(self.shape.faults) + 1) {
            let node = nodes.remove(usize::try_from(self.rng.below(nodes.len() as u64)).expect("few"));
            let fault = match self.rng.chance(1, 2) || self.shape.fsync {
                true => self.damage(node),
                false => Fault::PowerLoss(vec![Who::Node(node)], self.kept()),
            };
            events.push(Event { at: Duration::from_millis(self.rng.below(LOSSES_MS)), lasts: self.lasts(), fault });
        }
        events
    }

    fn minute(&mut self) -> Vec<Event> {
        let fault = match self.shape.group {
            true if self.rng.chance(1, 2) => Fault::Freeze(Who::Leader),
            true => Fault::Kill(vec![Who::Leader]),
            false => Fault::Kill(vec![self.shape.hub()]),
        };
        let mut events = vec![Event { at: Duration::ZERO, lasts: MINUTE, fault }];
        let other = if self.shape.group { Who::NextToLeader } else { Who::Node(self.node()) };
        if self.rng.chance(1, 2) && other != self.shape.hub() {
            let fault = Fault::Kill(vec![other]);
            let at = Duration::from_millis(self.rng.between(1000, 40_000));
            events.push(Event { at, lasts: Duration::from_millis(500), fault });
        }
        events
    }

    fn damage_alone(&mut self) -> Event {
        let nodes = (1..=self.shape.nodes).filter(|node| self.shape.small_disk != Some(*node));
        let node = *self.rng.pick(&nodes.collect::<Vec<_>>());
        let harm = *self.rng.pick(&[
            Harm::SegmentCut,
            Harm::SlotsFlipped,
            Harm::SlotsCut,
            Harm::ModeFlipped,
            Harm::LedgerFlipped,
        ]);
        let fault = Fault::Damage(node, harm, self.rng.next_u64());
        let lasts = *self.rng.pick(&[Duration::from_millis(50), self.shape.lease * 3]);
        Event { at: Duration::from_millis(500), lasts, fault }
    }

    fn event(&mut self) -> Event {
        let window = if self.long { 3 * WINDOW_MS } else { WINDOW_MS };
        let at = Duration::from_millis(LOSSES_MS + self.rng.below(window));
        Event { at, lasts: self.lasts(), fault: self.fault() }
    }

    /// A duration from a moment to far beyond a lease.
    fn lasts(&mut self) -> Duration {
        let lease = u64::try_from(self.shape.lease.as_millis()).expect("a lease is short");
        let most = *self.rng.pick(&[lease / 4, lease, 2 * lease, 8 * lease]);
        Duration::from_millis(self.rng.between(most / 2, most))
    }

    fn fault(&mut self) -> Fault {
        match self.rng.below(29) {
            0..5 => Fault::Kill(vec![self.who()]),
            5..7 => Fault::Kill(self.some()),
            7 => Fault::Kill(self.shape.everybody()),
            8..12 => Fault::Freeze(self.who()),
            12..17 => self.power_loss(),
            17 => self.jump(),
            18..20 => self.drift(),
            20..23 => self.cut(),
            23..26 => Fault::CutOff(self.some()),
            26 => Fault::Rough(self.small(80), self.small(80), Duration::from_millis(self.rng.below(20))),
            _ => match self.shape.small_disk {
                Some(node) => Fault::FullDisk(node),
                None => Fault::Freeze(self.who()),
            },
        }
    }

    fn kept(&mut self) -> Kept {
        *self.rng.pick(&[Kept::Nothing, Kept::Some, Kept::Some, Kept::Some, Kept::Everything])
    }

    /// A loss of power of machines that lose nothing by it: everything that counts is fsynced there.
    fn power_loss(&mut self) -> Fault {
        let all = self.rng.chance(1, 2);
        let wanted = if all { self.shape.everybody() } else { self.some() };
        // A small disk has no room for the journal.
        let is_recorded = |who: &Who| self.shape.small_disk.is_none_or(|node| *who != Who::Node(node));
        let is_fsynced = |who: &Who| self.shape.fsync || *who == Who::Coordinator;
        let struck: Vec<Who> = wanted.into_iter().filter(|who| is_recorded(who) && is_fsynced(who)).collect();
        if struck.is_empty() { Fault::Freeze(self.who()) } else { Fault::PowerLoss(struck, self.kept()) }
    }

    fn damage(&mut self, node: u16) -> Fault {
        let harm = *self.rng.pick(&[Harm::SegmentFlipped, Harm::SegmentGone, Harm::MetaFlipped]);
        Fault::Damage(node, harm, self.rng.next_u64())
    }

    /// A jump is what a suspended machine sees. If the coordinator's own clock jumps, that is a time in which nothing
    /// happened.
    fn jump(&mut self) -> Fault {
        let node = self.node();
        match self.shape.may_lead(Who::Node(node)) {
            true => Fault::Freeze(Who::Node(node)),
            false => Fault::Jump(node, Duration::from_millis(*self.rng.pick(&[200, 1000, 5000, 60_000]))),
        }
    }

    fn drift(&mut self) -> Fault {
        let most = if self.beyond { DRIFT_BEYOND_PPM } else { DRIFT_WITHIN_PPM };
        let ppm = i64::try_from(self.rng.between(most / 2, most)).expect("small");
        let who = self.who();
        Fault::Drift(who, if self.rng.chance(1, 2) { ppm } else { -ppm })
    }

    fn cut(&mut self) -> Fault {
        let (one, mut other) = (self.who(), self.who());
        while one == other {
            other = self.who();
        }
        Fault::Cut(one, other, self.rng.chance(1, 2))
    }

    fn node(&mut self) -> u16 {
        u16::try_from(self.rng.between(1, u64::from(self.shape.nodes))).expect("small")
    }

    fn who(&mut self) -> Who {
        match self.shape.group && self.rng.chance(1, 4) {
            true => Who::Leader,
            false => *self.rng.pick(&self.shape.everybody()),
        }
    }

    /// Some processes: at least one, and not all.
    fn some(&mut self) -> Vec<Who> {
        let mut all = self.shape.everybody();
        let keep = self.rng.between(1, all.len() as u64 - 1);
        while all.len() as u64 > keep {
            let gone = self.rng.below(all.len() as u64);
            all.remove(usize::try_from(gone).expect("small"));
        }
        all
    }

    fn small(&mut self, most: u64) -> u16 {
        u16::try_from(self.rng.below(most)).expect("small")
    }
}

impl Fault {
    /// The same fault, with other names for those whom it strikes.
    #[must_use]
    pub fn named(&self, name: impl Fn(Who) -> Who) -> Self {
        let all = |whom: &[Who]| whom.iter().map(|who| name(*who)).collect();
        match self {
            Self::Kill(whom) => Self::Kill(all(whom)),
            Self::Freeze(who) => Self::Freeze(name(*who)),
            Self::PowerLoss(whom, kept) => Self::PowerLoss(all(whom), *kept),
            Self::Drift(who, ppm) => Self::Drift(name(*who), *ppm),
            Self::Cut(from, to, _) if name(*from) == name(*to) => Self::CutOff(vec![name(*from)]),
            Self::Cut(from, to, both) => Self::Cut(name(*from), name(*to), *both),
            Self::CutOff(whom) => Self::CutOff(all(whom)),
            Self::Replace(who, orderly) => Self::Replace(name(*who), *orderly),
            Self::Damage(..) | Self::Jump(..) | Self::Rough(..) | Self::FullDisk(_) => self.clone(),
            Self::Down { .. } | Self::WitnessLost(_) => self.clone(),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node-{node}"),
            Self::Coordinator => write!(f, "coordinator"),
            Self::Leader => write!(f, "the leader"),
            Self::NextToLeader => write!(f, "the node behind the leader's"),
        }
    }
}

fn list(whom: &[Who]) -> String {
    whom.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(whom) => write!(f, "kill -9 of {}", list(whom)),
            Self::Freeze(who) => write!(f, "SIGSTOP of {who}"),
            Self::PowerLoss(whom, kept) => {
                write!(f, "power loss of {}; kept of what was not fsynced: {kept:?}", list(whom))
            }
            Self::Damage(node, harm, _) => write!(f, "damage at node-{node}: {harm:?}"),
            Self::Jump(node, by) => write!(f, "the clock of node-{node} jumps {by:?}"),
            Self::Drift(who, ppm) => write!(f, "the clock of {who} drifts {ppm} ppm"),
            Self::Cut(from, to, true) => write!(f, "cut between {from} and {to}"),
            Self::Cut(from, to, false) => write!(f, "cut from {from} to {to}"),
            Self::CutOff(whom) => write!(f, "cut off: {}", list(whom)),
            Self::Rough(loss, twice, late) => {
                write!(f, "links lose {loss} ‰, double {twice} ‰, are up to {late:?} late")
            }
            Self::FullDisk(node) => write!(f, "the disk of node-{node} runs full"),
            Self::Down { orderly, losses } => {
                write!(f, "{} of everything", if *orderly { "SIGTERM" } else { "kill -9" })?;
                losses.iter().try_for_each(|(node, loss, _)| write!(f, "; at node-{node}: {loss}"))
            }
            Self::Replace(who, orderly) => {
                write!(f, "{} of {who}, which another replaces", if *orderly { "SIGTERM" } else { "kill -9" })
            }
            Self::WitnessLost(_) => write!(f, "a witness loses its files while the primary is away"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape {
            nodes,
            faults,
            shards,
            cores,
            fsync,
            lease,
            own_coordinator,
            group,
            small_disk,
            has_ballast,
            delay,
            redis,
            ..
        } = &self.shape;
        let durability = if *fsync { "fsync" } else { "replicated" };
        let coordinator = match (own_coordinator, group) {
            (true, _) => "a process of its own".to_owned(),
            (false, true) => format!("a group of {}", self.shape.members()),
            (false, false) => "at node-1".to_owned(),
        };
        write!(f, "{nodes} nodes of {cores} core(s), {shards} shards, f = {faults}, {durability}, lease {lease:?}, ")?;
        write!(f, "coordinator {coordinator}, links {delay:?}")?;
        if let Some(node) = small_disk {
            write!(f, ", small disk at node-{node}")?;
        }
        if *has_ballast {
            write!(f, ", most of the memory is filled and overwritten")?;
        }
        match redis {
            None => {}
            Some(Databases::OneShard) => write!(f, ", programs of Redis, databases in one shard")?,
            Some(Databases::Spread) => write!(f, ", programs of Redis, databases spread")?,
        }
        if self.reads_unjudged {
            write!(f, "; clocks beyond their bound: reads are not judged")?;
        }
        for (number, phase) in (1..).zip(&self.phases) {
            for Event { at, lasts, fault } in phase {
                write!(f, "\n  phase {number}  {:>6} ms, for {:>6} ms: {fault}", at.as_millis(), lasts.as_millis())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan_and_plans_keep_to_the_promise() {
        for seed in 0..2000 {
            let plan = Plan::draw(seed, seed % 5 == 0);
            assert_eq!(plan.to_string(), Plan::draw(seed, seed % 5 == 0).to_string());
            let is_alone = |node| !plan.shape.is_any_node_losable() && plan.shape.hub() == Who::Node(node);
            assert!(!plan.shape.small_disk.is_some_and(is_alone), "seed {seed}: {plan}");
            for phase in &plan.phases {
                let mut weak = std::collections::BTreeSet::new();
                for (index, event) in phase.iter().enumerate() {
                    let lost: Vec<Who> = match &event.fault {
                        Fault::PowerLoss(whom, _) if !plan.shape.fsync => whom.clone(),
                        Fault::Damage(node, ..) => vec![Who::Node(*node)],
                        Fault::Replace(who, _) => vec![*who],
                        Fault::Down { losses, .. } => losses.iter().map(|(node, ..)| Who::Node(*node)).collect(),
                        _ => Vec::new(),
                    };
                    if lost.iter().any(|who| *who != Who::Coordinator) {
                        assert!(index == weak.len(), "seed {seed}: something else came before: {plan}");
                        weak.extend(lost);
                    }
                    if let Fault::Jump(node, _) = event.fault {
                        assert!(!plan.shape.may_lead(Who::Node(node)));
                    }
                }
                assert!(weak.len() <= usize::from(plan.shape.faults), "seed {seed}: {plan}");
            }
        }
    }

    #[test]
    fn every_fault_is_drawn() {
        let plans: Vec<_> = (0..200).map(|seed| Plan::draw(seed, true)).collect();
        let faults = || plans.iter().flat_map(|plan| plan.phases.iter().flatten()).map(|event| &event.fault);
        let kinds: std::collections::BTreeSet<_> =
            faults().map(|fault| format!("{fault:?}").split('(').next().unwrap().to_owned()).collect();
        assert!(kinds.len() >= 12, "{kinds:?}");
        let with_ballast = plans.iter().filter(|plan| plan.shape.has_ballast).count();
        assert!((80..=120).contains(&with_ballast), "{with_ballast} of 200 plans have ballast");
        let with_redis = |wanted| plans.iter().filter(|plan| plan.shape.redis == wanted).count();
        let [without, one, spread] = [None, Some(Databases::OneShard), Some(Databases::Spread)].map(with_redis);
        assert!(
            (80..=120).contains(&without) && one >= 35 && spread >= 35,
            "{without}, {one} and {spread} of 200 plans"
        );
        assert!(plans.iter().any(|plan| plan.reads_unjudged) && plans.iter().any(|plan| !plan.reads_unjudged));
    }
}
