//! The demo: nodes of a small cluster under load are killed and frozen, and messages are lost and doubled. Then
//! everything is counted.
//!
//! The counters and accounts must hold what their clients were told, no more and no less (E1, E2), and all accounts together
//! must hold nothing at every moment, since money only moves (T3). The same load from clients
//! without exactly-once shows what the numbers would be otherwise. Another demonstration kills the leader of the coordinator's group
//! (`leader`), and another one nodes under drivers of Redis (`redis`).

mod faults;
mod leader;
mod load;
mod pace;
mod redis;
mod show;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kasha_client::session::{Completion, Session};
use kasha_machine::Rng;
use kasha_runtime::{Clock, EventLoop, FrameFaults, say, spawn_loop};
use kasha_types::{NodeId, TableId};
use kasha_wire::Read;
use kasha_wire::operation::ItemsBuffer;
use kasha_wire::outcome::{Outcome as Answer, Shape};

use crate::children::{COORDINATOR, Children, ClusterSpec};
use crate::client::{Connect, call, create_table};
use crate::watch::Watch;
use faults::{Director, Fault, Injury, Narrator};
use leader::Succession;
use load::{ACCOUNTS, GROUP_COUNTERS, GROUP_PUTS, GROUPS, Load, Tally, account_key, counter_key, number_in, put_key};

/// Nodes, and as many shards. One is spared, and three are struck, one after the other. The last of these keeps what it leads until then.
const NODES: u16 = 4;
const FAULTS: u8 = 1;
const LEASE: Duration = Duration::from_secs(1);
const DROP_PER_MILLE: u16 = 10;
const DUPLICATE_PER_MILLE: u16 = 10;

/// Time between two updates of one client. That is far below what the cluster can do, so that heartbeats are not
/// starved.
const INTERVAL: Duration = Duration::from_millis(2);

/// Quiet seconds before the first fault, and between faults.
const QUIET: Duration = Duration::from_secs(2);

/// What the demo kills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kill {
    /// Nodes that lead shards. The coordinator is alone, and spared.
    #[default]
    Nodes,
    /// The process that hosts the leader of the coordinator's group of three.
    Coordinator,
    /// Every node in turn, while drivers of Redis count through the proxy.
    NodesUnderDrivers,
}

/// The options of the demo.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The `kasha-lab` binary.
    pub exe: PathBuf,
    /// Folder for the cluster's data; must be empty or missing.
    pub data: PathBuf,
    /// How long the load runs at least; it goes on until all faults are done.
    pub seconds: u64,
    /// Number of clients.
    pub clients: u32,
    /// Seeds load and message faults.
    pub seed: u64,
    /// What is killed.
    pub kill: Kill,
}

impl DemoOptions {
    /// 20 seconds with 4 clients.
    #[must_use]
    pub fn new(exe: PathBuf, data: PathBuf) -> Self {
        Self { exe, data, seconds: 20, clients: 4, seed: 1, kill: Kill::Nodes }
    }
}

/// Shows that no update is lost or doubled. Returns whether that is so.
///
/// # Errors
/// If the cluster cannot be started, or does not recover: what happened, and where its logs are.
pub fn demo(options: DemoOptions) -> anyhow::Result<bool> {
    ensure!(options.clients > 0, "at least one client is needed");
    refuse_used_folder(&options.data)?;
    match options.kill {
        Kill::Nodes => nodes(&options),
        Kill::Coordinator => leader::demo(&options),
        Kill::NodesUnderDrivers => redis::demo(&options),
    }
}

/// What runs.
fn introduce(options: &DemoOptions, nodes: u16) {
    say!(
        "{nodes} processes, {nodes} shards, each with {FAULTS} backup and {FAULTS} witness; {} % of all messages are \
         lost, {} % come twice.\n{} clients increment counters, put several keys at once, and move money between accounts of all shards (seed \
         {}).\n",
        DROP_PER_MILLE / 10,
        DUPLICATE_PER_MILLE / 10,
        options.clients,
        options.seed
    );
}

/// Nodes that lead shards are killed and frozen.
fn nodes(options: &DemoOptions) -> anyhow::Result<bool> {
    introduce(options, NODES);
    let logs = || format!("the logs are in {}", options.data.display());
    say!("Exactly once:");
    let faults = [Fault::Kill, Fault::KillAndRestart, Fault::Freeze];
    let plan = |faults| Plan { nodes: NODES, lease: LEASE, members: vec![COORDINATOR], faults, kills_of_leader: 0 };
    let with = run(options, "exactly-once", true, options.seconds, &plan(&faults)).with_context(logs)?;
    show::show(&with);
    ensure!(
        with.injuries.len() == faults.len(),
        "only {} of {} faults could be done to a primary: run it again, with another --seed",
        with.injuries.len(),
        faults.len()
    );

    say!("The same with clients that send a new request when they hear nothing (no exactly-once):");
    let seconds = (options.seconds / 3).max(3);
    let without = run(options, "at-least-once", false, seconds, &plan(&[Fault::Kill])).with_context(logs)?;
    show::show(&without);

    let is_right = with.is_right();
    if is_right {
        say!(
            "Exactly once: {} updates, nothing lost, nothing doubled; {} transfers, of which nobody saw a half.",
            with.tally.updates,
            with.tally.transfers
        );
    } else {
        say!("Exactly once: WRONG. Keep {} and report it.", options.data.display());
    }
    let without = &without.verdict;
    say!(
        "Without: {} of {} counters are wrong, {} too much in all; {} of {ACCOUNTS} accounts are wrong.",
        without.too_small + without.too_great,
        without.too_small + without.too_great + without.equal,
        without.held - without.told,
        without.accounts_wrong
    );
    Ok(is_right)
}

fn refuse_used_folder(folder: &Path) -> anyhow::Result<()> {
    match std::fs::read_dir(folder).map(Iterator::count) {
        Ok(0) => Ok(()),
        Ok(_) => bail!("{} is not empty; give a new folder, the demo begins with a new cluster", folder.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot read the folder {}", folder.display())),
    }
}

/// The counters compared with what clients were told.
#[derive(Clone, Copy, Debug, Default)]
struct Verdict {
    equal: u64,
    too_small: u64,
    too_great: u64,
    held: i64,
    told: i64,
    repeated_numbers: usize,
    torn_groups: u32,
    /// Accounts that hold what acknowledged transfers moved, and other accounts.
    accounts_right: u64,
    accounts_wrong: u64,
    /// What all accounts hold.
    money: i64,
}

/// What is done to the cluster of a run.
#[derive(Debug)]
struct Plan<'a> {
    /// Nodes, and as many shards.
    nodes: u16,
    lease: Duration,
    /// The nodes that host the coordinator's members.
    members: Vec<NodeId>,
    faults: &'a [Fault],
    /// How often the leader of the coordinator's group is killed.
    kills_of_leader: u32,
}

/// The result of a run.
#[derive(Debug)]
struct Outcome {
    tally: Tally,
    injuries: Vec<Injury>,
    successions: Vec<Succession>,
    duplicates_suppressed: u64,
    lease: Duration,
    verdict: Verdict,
}

impl Outcome {
    /// No update was lost or doubled, and the outcome of every update is known.
    fn is_right(&self) -> bool {
        let Verdict { too_small, too_great, repeated_numbers, torn_groups, accounts_wrong, money, .. } = self.verdict;
        let counted = too_small + too_great + repeated_numbers as u64 + u64::from(torn_groups);
        let moved = accounts_wrong + self.tally.wrong_sums + money.unsigned_abs();
        // Without transfers and looks, nothing would be shown.
        let is_shown = self.tally.transfers_over_shards > 0 && self.tally.looks > 0;
        is_shown && counted + moved + self.tally.unresolved == 0 && self.tally.absurd.is_empty()
    }
}

fn run(
    options: &DemoOptions,
    folder: &str,
    exactly_once: bool,
    seconds: u64,
    plan: &Plan<'_>,
) -> anyhow::Result<Outcome> {
    let spec = ClusterSpec {
        nodes: plan.nodes,
        shards: plan.nodes,
        lease: plan.lease,
        drop_per_mille: DROP_PER_MILLE,
        duplicate_per_mille: DUPLICATE_PER_MILLE,
        fault_seed: options.seed,
        members: plan.members.clone(),
        ..ClusterSpec::new(options.exe.clone(), options.data.join(folder), FAULTS)
    };
    let narrator = Narrator { start: Clock::now() };
    let mut children = Children::start(spec)?;
    narrator.say("the cluster serves");
    let seeds = children.seeds();
    let mut reader = Connect::new("reader", seeds.clone()).open()?;
    let table = create_table(&mut reader, "demo")?;
    let watch = Watch::start(seeds)?;
    let mut director = Director { children: &mut children, watch: &watch, narrator };
    director.wait_until_whole()?;
    let clients = Clients::start(options, director.children, table, exactly_once)?;
    let (injuries, successions) = disturb(&mut director, seconds, plan)?;
    narrator.say("the load ends; waiting for every outcome");
    let tally = clients.finish()?;
    narrator.say("counting");
    let verdict = read_back(&mut reader, table, &tally)?;
    let duplicates_suppressed = watch.seen().duplicates_suppressed();
    Ok(Outcome { tally, injuries, successions, duplicates_suppressed, lease: plan.lease, verdict })
}

fn disturb(
    director: &mut Director<'_>,
    seconds: u64,
    plan: &Plan<'_>,
) -> anyhow::Result<(Vec<Injury>, Vec<Succession>)> {
    let end = Clock::now().after(Duration::from_secs(seconds));
    let (mut injuries, mut successions) = (Vec::new(), Vec::new());
    for &fault in plan.faults {
        director.sleep_until(Clock::now().after(QUIET))?;
        injuries.extend(director.inflict(fault)?);
    }
    for _ in 0..plan.kills_of_leader {
        director.sleep_until(Clock::now().after(QUIET))?;
        successions.push(director.kill_leader()?);
    }
    director.sleep_until(end.max(Clock::now().after(QUIET)))?;
    Ok((injuries, successions))
}

/// The clients' threads.
struct Clients {
    ending: Arc<AtomicBool>,
    threads: Vec<JoinHandle<anyhow::Result<Tally>>>,
}

impl Clients {
    fn start(options: &DemoOptions, children: &Children, table: TableId, exactly_once: bool) -> anyhow::Result<Self> {
        let ending = Arc::new(AtomicBool::new(false));
        let mut rng = Rng::new(options.seed);
        let mut clients = Self { ending: Arc::clone(&ending), threads: Vec::new() };
        for index in 0..options.clients {
            let name = format!("client-{index}");
            let mut connect = Connect::new(&name, children.seeds());
            connect.session.exactly_once = exactly_once;
            connect.faults = Some(FrameFaults {
                drop_per_mille: DROP_PER_MILLE,
                duplicate_per_mille: DUPLICATE_PER_MILLE,
                seed: rng.next_u64(),
            });
            let (seed, ending) = (rng.next_u64(), Arc::clone(&ending));
            let thread = spawn_loop(&name, None, move || {
                let mut event_loop = connect.open()?;
                let mut load = Load::new(table, seed, INTERVAL, ending);
                event_loop.run(&mut load).context("a client ended")?;
                Ok(load.tally)
            });
            clients.threads.push(thread.context("cannot start a client's thread")?);
        }
        Ok(clients)
    }

    fn finish(mut self) -> anyhow::Result<Tally> {
        self.ending.store(true, Ordering::Release);
        let mut tally = Tally::new();
        for thread in std::mem::take(&mut self.threads) {
            match thread.join() {
                Ok(seen) => tally.add(seen?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(tally)
    }
}

fn read_back(reader: &mut EventLoop<Session>, table: TableId, tally: &Tally) -> anyhow::Result<Verdict> {
    let mut verdict = Verdict { repeated_numbers: tally.repeated_numbers(), ..Verdict::default() };
    for group in 0..GROUPS {
        let counters = group * GROUP_COUNTERS..(group + 1) * GROUP_COUNTERS;
        let keys: Vec<String> = counters.clone().map(counter_key).collect();
        for (counter, value) in counters.zip(read(reader, table, &keys)?) {
            let told = tally.added[counter as usize];
            let held = number_in(value.as_deref());
            let held = held.with_context(|| format!("{} holds no number", counter_key(counter)))?;
            (verdict.held, verdict.told) = (verdict.held + held, verdict.told + told);
            *match held.cmp(&told) {
                std::cmp::Ordering::Less => &mut verdict.too_small,
                std::cmp::Ordering::Equal => &mut verdict.equal,
                std::cmp::Ordering::Greater => &mut verdict.too_great,
            } += 1;
        }
        let keys: Vec<String> = (0..GROUP_PUTS).map(|index| put_key(group, index)).collect();
        let values = read(reader, table, &keys)?;
        verdict.torn_groups += u32::from(values.iter().any(|value| *value != values[0]));
    }
    let accounts: Vec<String> = (0..ACCOUNTS).map(account_key).collect();
    for (account, value) in read(reader, table, &accounts)?.into_iter().enumerate() {
        let held = number_in(value.as_deref()).with_context(|| format!("{} holds no number", accounts[account]))?;
        verdict.money += held;
        let is_right = held == tally.moved[account];
        *if is_right { &mut verdict.accounts_right } else { &mut verdict.accounts_wrong } += 1;
    }
    Ok(verdict)
}

fn read(reader: &mut EventLoop<Session>, table: TableId, keys: &[String]) -> anyhow::Result<Vec<Option<Vec<u8>>>> {
    let items = ItemsBuffer::keys(keys.iter().map(String::as_bytes));
    let completion = call(reader, |session, now, out| {
        session.read(now, table, &Read::MultiGet { keys: items.as_items() }, None, out)
    })?;
    let Completion::Read { result } = completion else { bail!("cannot read {keys:?}: {completion:?}") };
    match Answer::decode(Shape::Values, &result) {
        Ok(Answer::Values(values)) if values.len() == keys.len() => {
            Ok(values.into_iter().map(|value| value.map(|(_, bytes)| bytes)).collect())
        }
        other => bail!("{keys:?} were read as {other:?}"),
    }
}
