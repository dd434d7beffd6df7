//! One run: a safety phase in which anything may fail, and then a phase in which everything is healed and must
//! converge.
//!
//! A run is a function of its [`SimOptions`] alone.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Once;

use kasha_machine::Rng;
use kasha_types::probe::{self, Probe};

use crate::bad_links::{BadLinks, CutRun};
use crate::checkers::ends_exact::EndsExact;
use crate::checkers::time_goes_on::TimeGoesOn;
use crate::checkers::{
    convergence, executed_once, flushed_in_time, linearizable_keys, listed_once, oldest_first, redis_serializable,
    sent_again, strictly_serializable, tables,
};
use crate::clients::Stage;
use crate::clock::{SimTime, millis};
use crate::cluster::{self, BOOT_MAX, Cluster};
use crate::coordinator_cut::CoordinatorCut;
use crate::digest::Digest;
use crate::faults::{self, Nemesis};
use crate::front::Fronts;
use crate::history::History;
use crate::intensity::Intensity;
use crate::network::HostId;
use crate::planted::{self, Bug};
use crate::probes::Probes;
use crate::redis::Redis;
use crate::scenario::{Scenario, Shape, plan};
use crate::shared_session::SharedSession;
use crate::trace::Trace;
use crate::workload::Mix;
use crate::world::World;

/// How long a healed cluster may take until every call is over and every shard is whole.
const CONVERGE_MAX: u64 = millis(60_000);

/// Leases that a shard may be without an update while only the coordinator is away.
const LEASES_WITHOUT_UPDATE_MAX: u64 = 10;

/// How often that is checked.
const LOOK_EVERY: u64 = millis(50);

/// The options of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// The scenario of the run.
    pub scenario: Scenario,
    /// The seed of all draws.
    pub seed: u64,
    /// Whether to print what happens.
    pub trace: bool,
    /// The rule to break, to see that a checker notices. Needs the feature `planted-bugs`.
    pub planted: Option<Bug>,
}

impl SimOptions {
    /// An honest run, without a trace.
    #[must_use]
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        Self { scenario, seed, trace: false, planted: None }
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// The options of the run.
    pub options: SimOptions,
    /// Hash of all that happened.
    pub digest: Digest,
    /// The violations that were found; without any, the run is good.
    pub violations: Vec<String>,
    /// Counts of what was reached.
    pub probes: Probes,
    /// Number of operations that clients asked for.
    pub operations: usize,
    /// The moment at which the run ended, in the world's time.
    pub ended: SimTime,
}

impl RunReport {
    /// The command that repeats the run.
    #[must_use]
    pub fn line(&self) -> String {
        let SimOptions { scenario, seed, trace: _, planted } = self.options;
        let planted = planted.map_or(String::new(), |bug| format!(" --planted {}", bug.name()));
        format!("kasha-lab sim --scenario {} --seed {seed}{planted}", scenario.name())
    }
}

thread_local! {
    static PANIC: Cell<Option<String>> = const { Cell::new(None) };
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a simulation. A panic inside is reported like any other violation.
#[must_use]
pub fn run(options: SimOptions) -> RunReport {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                PANIC.set(Some(info.to_string()));
            } else {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    planted::plant(options.planted);
    probe::start();
    let report = catch_unwind(AssertUnwindSafe(|| run_unguarded(options)));
    let counts = probe::stop();
    planted::plant(None);
    QUIET.set(false);
    let mut report = report.unwrap_or_else(|_| RunReport {
        options,
        digest: Digest::default(),
        violations: vec![PANIC.take().unwrap_or_else(|| "panicked".into())],
        probes: Probes::default(),
        operations: 0,
        ended: SimTime(0),
    });
    for (&(_, name, _), &count) in Probe::TABLE.iter().zip(&counts) {
        report.probes.list(name, count);
    }
    report
}

/// A run under way.
struct Run {
    world: World,
    cluster: Cluster,
    stage: Rc<RefCell<Stage>>,
    nemesis: Nemesis,
    shape: Shape,
}

fn run_unguarded(options: SimOptions) -> RunReport {
    let mut rng = Rng::new(options.seed);
    let (shape, intensity) = plan(options.scenario, &mut rng);
    let stage = Rc::new(RefCell::new(Stage {
        history: History::default(),
        mix: Mix::drawn(rng.next_u64(), shape.kind, shape.load),
        rng: rng.fork(),
        stopped: false,
        to_read: VecDeque::new(),
        violations: Vec::new(),
        probes: Probes::default(),
        times_told: Vec::new(),
        redis: Redis::new(rng.fork()),
        unresolved: 0,
    }));
    let mut world = World::new(rng.fork(), Intensity::calm());
    if options.trace {
        eprintln!("{shape:?}\n{intensity:?}");
        world.add_watcher(Box::new(Trace));
    }
    let cluster = cluster::build(&mut world, &shape, intensity.fsync.1.max(Intensity::calm().fsync.1), &stage);
    let known = (cluster.configurations.clone(), cluster.cores.clone());
    let nemesis = faults::nemesis(rng.fork(), cluster.hosts.clone(), known, shape.durability, shape.lease);
    let mut run = Run { world, cluster, stage, nemesis, shape };
    run.phases(options.scenario, intensity);
    run.report(options)
}

/// What is wrong with what programs of Redis were told of ends (R10.12).
fn check_ends(world: &mut World, redis: &Redis, lease: u64, probes: &mut Probes) -> Vec<String> {
    let (checked, wrong) = world.watcher::<EndsExact>().expect("every run").check(&redis.history, lease);
    probes.add("claims checked: ends that were said", checked);
    wrong
}

impl Run {
    fn phases(&mut self, scenario: Scenario, intensity: Intensity) {
        for host in self
            .cluster
            .hosts
            .iter()
            .chain(self.cluster.stranger)
            .chain(self.cluster.rogue)
            .chain(self.cluster.operator)
            .chain(self.cluster.prober)
        {
            self.world.start(host);
        }
        if !self.wait("the new cluster does not serve", BOOT_MAX, |run| {
            run.cluster.configurations.is_whole().then_some(()).ok_or(String::new())
        }) {
            return;
        }
        self.world.intensity = intensity;
        self.nemesis.start_at(self.world.now.after(self.shape.quiet));
        if scenario == Scenario::BadLinks {
            self.cut_links();
        } else if scenario == Scenario::CoordinatorCut {
            self.cut_coordinator();
        } else if let Some(sharer) = self.cluster.sharer {
            self.share_a_session(sharer);
        } else if scenario == Scenario::CoordinatorOutage && self.shape.prober {
            self.go_on_without_coordinator();
        } else {
            let until = self.world.now.after(self.shape.duration);
            self.nemesis.run(&mut self.world, until);
        }
        self.world.intensity = Intensity::calm();
        self.nemesis.heal(&mut self.world);
        self.cluster.prober.into_iter().for_each(|prober| self.world.kill(prober));
        self.stage.borrow_mut().stopped = true;
        if !self.wait("convergence: after healing", CONVERGE_MAX, Self::converged) {
            return;
        }
        let keys = self.stage.borrow().history.keys();
        self.stage.borrow_mut().to_read = keys.into_iter().collect();
        if self.shape.fronts != Fronts::Nowhere {
            // It may have died last, as any client.
            self.cluster.front.into_iter().for_each(|front| self.world.start(front));
            let redis = &mut self.stage.borrow_mut().redis;
            redis.to_read = (0..redis.draw.groups()).collect();
        }
        self.world.start(self.cluster.auditor);
        let read_all = |run: &Self| {
            let stage = run.stage.borrow();
            let left = stage.to_read.len() + stage.redis.to_read.len() + stage.unresolved;
            if left == 0 { Ok(()) } else { Err(format!("{left} last reads are not answered")) }
        };
        if !self.wait("convergence: at the end", CONVERGE_MAX, read_all) {
            return;
        }
        if scenario == Scenario::FastPath {
            self.check_fast_path();
        }
    }

    fn cut_links(&mut self) {
        let Cluster { hosts, configurations, successes, .. } = &self.cluster;
        let rng = self.stage.borrow_mut().rng.fork();
        let links = BadLinks(CutRun { hosts, configurations, successes, shape: &self.shape, rng });
        links.run(&mut self.world);
    }

    fn cut_coordinator(&mut self) {
        let Cluster { hosts, configurations, successes, .. } = &self.cluster;
        let rng = self.stage.borrow_mut().rng.fork();
        let cut = CoordinatorCut(CutRun { hosts, configurations, successes, shape: &self.shape, rng });
        cut.run(&mut self.world);
    }

    fn share_a_session(&mut self, sharer: HostId) {
        for host in [sharer].into_iter().chain(self.cluster.loners.iter().copied()) {
            self.world.start(host);
        }
        let Cluster { hosts, configurations, away, .. } = &self.cluster;
        let rng = self.stage.borrow_mut().rng.fork();
        let session = SharedSession { hosts, sharer, configurations, away, shape: &self.shape, rng };
        session.run(&mut self.world);
    }

    /// While the coordinator is away, every shard takes updates, unless nodes crash too, and no session is lost.
    fn go_on_without_coordinator(&mut self) {
        let until = self.world.now.after(self.shape.duration);
        let first = self.world.now.after(self.shape.quiet + self.shape.lease * LEASES_WITHOUT_UPDATE_MAX);
        let crashes = self.world.intensity.acts.crash > 0;
        while self.world.now < until && self.world.violations.is_empty() {
            let next = self.world.now.after(self.shape.lease);
            self.nemesis.run(&mut self.world, next);
            let since = SimTime(self.world.now.0.saturating_sub(self.shape.lease * LEASES_WITHOUT_UPDATE_MAX));
            let successes = self.cluster.successes.borrow();
            let taken = successes.values().filter(|&&at| at >= since).count();
            if !crashes && self.world.now > first && taken < usize::from(self.shape.shards) {
                let text = format!("coordinator_outage: not every shard takes updates: {successes:?}");
                drop(successes);
                self.world.violation(text);
            }
        }
        let lost = self.stage.borrow().probes.get("unknown: LeaseLost");
        if lost > 0 {
            self.world.violation(format!("coordinator_outage: {lost} calls ended with a lost session"));
        }
    }

    /// Runs until `done`, or for `limit`.
    fn wait(&mut self, what: &str, limit: u64, done: impl Fn(&Self) -> Result<(), String>) -> bool {
        let until = self.world.now.after(limit);
        loop {
            if !self.world.violations.is_empty() || !self.stage.borrow().violations.is_empty() {
                return false;
            }
            match done(self) {
                Ok(()) => return true,
                Err(lacks) if self.world.now >= until => {
                    self.world.violation(format!("{what}, for {} s: {lacks}", limit / 1_000_000_000));
                    return false;
                }
                Err(_) => {
                    let next = self.world.now.after(LOOK_EVERY);
                    self.world.run_until(next);
                }
            }
        }
    }

    fn converged(&self) -> Result<(), String> {
        let unresolved = self.stage.borrow().unresolved;
        if unresolved > 0 {
            return Err(format!("{unresolved} calls are not over"));
        }
        let latest = self.cluster.configurations.latest();
        let processes = self.world.processes();
        match convergence::lacks(latest.as_deref(), &self.cluster.cores, processes, self.shape.segment_bytes) {
            None => Ok(()),
            Some(lacks) => Err(lacks),
        }
    }

    /// Pitfall 15: the fast path can be lost silently. The load of this scenario hardly touches anything unsynced.
    fn check_fast_path(&mut self) {
        let stage = self.stage.borrow();
        let (fast, synced) = (stage.probes.get("executed: Fast"), stage.probes.get("executed: Synced"));
        drop(stage);
        if fast * 100 < (fast + synced) * 95 {
            self.world
                .violation(format!("fast_path: {fast} updates were fast, {synced} were synced, without any fault"));
        }
    }

    fn report(mut self, options: SimOptions) -> RunReport {
        self.world.collect_reports();
        for (process, _) in self.cluster.cores.iter() {
            for replica in self.world.processes()[process.0].status().into_iter().flat_map(|status| status.replicas) {
                self.world.probes.add("duplicates suppressed (since last start)", replica.duplicates_suppressed);
                self.world.probes.add("fast answers (since last start)", replica.fast_answers);
                self.world.probes.add("gated answers (since last start)", replica.gated_answers);
            }
        }
        if options.scenario == Scenario::SlowAnswers
            && let Some(text) =
                sent_again::check(&self.world.probes, (self.shape.clients * self.shape.concurrency) as u64)
        {
            self.world.violation(text);
        }
        let mut violations: Vec<String> =
            self.world.violations.iter().map(|(at, text)| format!("{at}: {text}")).collect();
        let stage = self.stage.borrow();
        violations.extend(stage.violations.iter().cloned());
        let mut probes = self.world.probes.clone();
        probes.merge(&stage.probes);
        let whole = violations.is_empty();
        let (checked, wrong) = self.world.watcher::<TimeGoesOn>().expect("every run").check_told(&stage.times_told);
        probes.add("times to live checked", checked);
        violations.extend(wrong);
        let history = match &self.cluster.blackouts {
            Some((at, age_max)) => &flushed_in_time::weakened(&stage.history, &at.borrow(), *age_max),
            None => &stage.history,
        };
        // Its keys are used too often for a search.
        let searched = if options.scenario == Scenario::Wide { &History::default() } else { history };
        if options.scenario == Scenario::Wide {
            let (overtaken, looked_at) = oldest_first::check(history);
            probes.add("claims checked: nobody is overtaken for ever", looked_at);
            violations.extend(overtaken);
        }
        let checked = linearizable_keys::check(searched);
        probes.add("keys searched", checked.searched);
        probes.add("keys inconclusive", checked.inconclusive);
        violations.extend(checked.violations);
        let (listed, whole_listings) = listed_once::check(history, self.cluster.blackouts.is_none());
        probes.add("listings checked", whole_listings);
        violations.extend(listed);
        let checked = strictly_serializable::check(searched);
        probes.add("groups of keys searched", checked.searched);
        probes.add("groups of keys inconclusive", checked.inconclusive);
        violations.extend(checked.violations);
        let checked = redis_serializable::check(&stage.redis.history);
        probes.add("groups of Redis keys searched", checked.searched);
        probes.add("groups of Redis keys inconclusive", checked.inconclusive);
        violations.extend(checked.violations);
        violations.extend(check_ends(&mut self.world, &stage.redis, self.shape.lease, &mut probes));
        if whole {
            violations.extend(executed_once::check(history));
            let checked = tables::check(history);
            probes.add("table names searched", checked.searched);
            probes.add("table names inconclusive", checked.inconclusive);
            violations.extend(checked.violations);
        }
        RunReport {
            options,
            digest: self.world.digest,
            violations,
            probes,
            operations: stage.history.operations().len() + stage.redis.history.operations().len(),
            ended: self.world.now,
        }
    }
}
