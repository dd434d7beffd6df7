//! Drivers count while nodes die. After each round every counter must agree with what its driver was told.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::cluster::{Cluster, NODES};
use super::installing::Driver;
use super::judging::{Counted, Tally, Verdict};
use super::process::{Interrupt, Spoken};
use super::relay::Relay;

/// Connections of all drivers together.
const CONNECTIONS: usize = 50;

/// Programs that start side by side may take long, and so may a last reply.
const SAYS_WITHIN: Duration = Duration::from_secs(60);

/// How long is counted before and after what happens in a round.
const QUIET: Duration = Duration::from_millis(400);

/// A node that is away for less than its lease is not replaced.
const AWAY: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(1500)];

/// All nodes are away for so long that drivers hear `-UNKNOWN` (R10.2) and what follows it (R10.18).
const OUTAGE: Duration = Duration::from_secs(5);

/// Replies that are kept back from each driver.
const BREAKS: u32 = 3;

/// Whether a driver may repeat commands by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeats {
    /// As the driver does without options.
    Default,
    /// The driver's options say that it must not.
    Off,
}

impl Repeats {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Off => "off",
        }
    }
}

/// A driver's program, installed.
pub(crate) struct Program {
    pub(crate) driver: Driver,
    pub(crate) command: Vec<OsString>,
}

impl Program {
    /// Starts it with these words.
    pub(crate) fn start(&self, mode: &str, address: SocketAddr, words: &[&str], folder: &Path) -> Result<Spoken> {
        let name = self.driver.name();
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).args([mode, &address.ip().to_string(), &address.port().to_string()]);
        Spoken::start(command.args(words), &folder.join(format!("{name}-{mode}.log"))).context(name)
    }

    fn count(&self, address: SocketAddr, connections: usize, repeats: Repeats, folder: &Path) -> Result<Spoken> {
        self.start("incr", address, &[&connections.to_string(), repeats.word()], folder)
    }
}

/// What a driver was told in all rounds, and how far its counters are from that.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) told: Tally,
    pub(crate) verdict: Verdict,
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Sum {
    /// What is wrong.
    pub(crate) fn problem(&self) -> Option<String> {
        let (Verdict { lost, doubled }, astray) = (self.verdict, self.told.astray);
        let is_wrong = lost + doubled + astray > 0;
        is_wrong.then(|| format!("{lost} INCR lost, {doubled} doubled, {astray} numbers that cannot be right"))
    }
}

/// What happens in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    /// This node is killed, and started again.
    Node(u16, Duration),
    /// All nodes are killed, and started again.
    All(Duration),
    /// The proxy is killed, and started again: all connections break.
    Proxy(Duration),
}

impl Fault {
    /// The rounds of a run: each node in turn, away for a moment and for long, and in the end all nodes.
    pub(crate) fn of_run(kills: u32) -> Vec<Self> {
        let node = |round: u32| {
            let away = AWAY[usize::from(!(round / u32::from(NODES)).is_multiple_of(2))];
            Self::Node(u16::try_from(round % u32::from(NODES)).expect("a node's number"), away)
        };
        match kills {
            0 => vec![Self::Nothing],
            _ => (0..kills).map(node).chain([Self::All(OUTAGE)]).collect(),
        }
    }

    /// The rounds in which connections break.
    pub(crate) fn of_broken_run(kills: u32) -> Vec<Self> {
        const MOST: usize = 4;
        AWAY.into_iter().cycle().map(Self::Proxy).take(MOST.min(kills as usize)).collect()
    }

    fn text(self) -> String {
        match self {
            Self::Nothing => "nothing killed".to_owned(),
            Self::Node(node, away) => format!("node {} killed, for {away:?}", node + 1),
            Self::All(away) => format!("all nodes killed, for {away:?}"),
            Self::Proxy(away) => format!("the proxy killed, for {away:?}"),
        }
    }

    fn happen(self, cluster: &mut Cluster<'_>, interrupt: &Interrupt) -> Result<()> {
        let (nodes, away) = match self {
            Self::Nothing => return interrupt.sleep(QUIET),
            Self::Node(node, away) => (node..node + 1, away),
            Self::All(away) => (0..NODES, away),
            Self::Proxy(away) => {
                cluster.kill_proxy();
                interrupt.sleep(away)?;
                return cluster.start_proxy();
            }
        };
        nodes.clone().for_each(|node| cluster.kill(node));
        interrupt.sleep(away)?;
        nodes.into_iter().try_for_each(|node| cluster.start_node(node))?;
        cluster.wait_until_whole()
    }
}

/// All drivers at one target.
pub(crate) struct Counting<'a> {
    drivers: Vec<(Driver, usize, Spoken)>,
    interrupt: &'a Interrupt,
    pub(crate) sums: Vec<Sum>,
    /// The counter of all drivers.
    pub(crate) shared: Sum,
}

impl<'a> Counting<'a> {
    /// Starts all programs, and waits until they are connected. They share the addresses.
    pub(crate) fn start(
        programs: &[Program],
        addresses: &[SocketAddr],
        repeats: Repeats,
        folder: &Path,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let mut drivers = Vec::new();
        for (index, program) in programs.iter().enumerate() {
            let connections = CONNECTIONS / programs.len() + usize::from(index < CONNECTIONS % programs.len());
            let address = addresses[index % addresses.len()];
            drivers.push((program.driver, connections, program.count(address, connections, repeats, folder)?));
        }
        for (driver, _, program) in &mut drivers {
            program.hear(interrupt, SAYS_WITHIN).context(driver.name())?;
        }
        let sums = programs.iter().map(|_| Sum::default()).collect();
        Ok(Self { drivers, interrupt, sums, shared: Sum::default() })
    }

    /// One round. Returns a line that says how it went.
    pub(crate) fn round(&mut self, prefix: &str, fault: Fault, cluster: &mut Cluster<'_>) -> Result<String> {
        for (driver, _, program) in &mut self.drivers {
            program.tell(&format!("count {prefix}")).context(driver.name())?;
        }
        self.interrupt.sleep(QUIET)?;
        fault.happen(cluster, self.interrupt)?;
        self.interrupt.sleep(QUIET)?;
        for (driver, _, program) in &mut self.drivers {
            program.tell("stop").context(driver.name())?;
        }
        let (mut all, mut shared, mut wrong) = (Tally::default(), Tally::default(), Verdict::default());
        for ((driver, connections, program), sum) in self.drivers.iter_mut().zip(&mut self.sums) {
            let line = program.hear(self.interrupt, SAYS_WITHIN).context(driver.name())?;
            let counted = Counted::parse(&line, *connections).context(driver.name())?;
            all += counted.sum();
            shared += counted.shared;
            wrong += sum.add(*driver, prefix, counted, cluster)?;
        }
        let verdict = shared.judge(cluster.value(&format!("{prefix}:shared"))?);
        self.shared.told += shared;
        self.shared.verdict += verdict;
        wrong += verdict;
        let Tally { acknowledged, unknown, gave_up, refused, astray } = all;
        let is_exact = wrong == Verdict::default() && astray == 0;
        Ok(format!(
            "{}: {acknowledged} acknowledged, {unknown} unknown, {gave_up} given up, {refused} refused: {}",
            fault.text(),
            if is_exact {
                "exact".to_owned()
            } else {
                format!("WRONG: {} lost, {} doubled, {astray} astray", wrong.lost, wrong.doubled)
            }
        ))
    }
}

impl Sum {
    /// Compares the driver's own counters.
    fn add(&mut self, driver: Driver, prefix: &str, counted: Counted, cluster: &Cluster<'_>) -> Result<Verdict> {
        let mut wrong = Verdict::default();
        for (number, tally) in counted.own.iter().enumerate() {
            let key = format!("{prefix}:{}:{number}", driver.name());
            // A comparison of nothing with nothing shows nothing.
            ensure!(tally.acknowledged > 0, "{key}: nothing was acknowledged");
            wrong += tally.judge(cluster.value(&key)?);
        }
        self.told += counted.sum();
        self.verdict += wrong;
        for (text, count) in counted.errors {
            *self.errors.entry(text).or_insert(0) += count;
        }
        Ok(wrong)
    }
}

/// Keeps back replies of each driver, as a server does that dies, and counts the INCRs that the driver then sends again by itself.
pub(crate) fn repeated(
    programs: &[Program],
    repeats: Repeats,
    (cluster, address, prefix): (&Cluster<'_>, SocketAddr, &str),
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<Vec<u64>> {
    let mut drivers = Vec::new();
    for program in programs {
        let relay = Relay::to(address)?;
        drivers.push((program.driver, program.count(relay.address, 1, repeats, folder)?, relay));
    }
    let prefix = |driver: Driver| format!("{prefix}:{}", driver.name());
    for (driver, program, relay) in &mut drivers {
        program.hear(interrupt, SAYS_WITHIN).context(driver.name())?;
        relay.set_breaks(BREAKS);
        program.tell(&format!("count {}", prefix(*driver)))?;
    }
    let mut doubled = Vec::new();
    for (driver, mut program, relay) in drivers {
        let all_broken = || {
            ensure!(relay.breaks() == 0, "its connection does not break");
            Ok(())
        };
        interrupt.until(SAYS_WITHIN, all_broken).context(driver.name())?;
        interrupt.sleep(QUIET)?;
        program.tell("stop")?;
        let counted = Counted::parse(&program.hear(interrupt, SAYS_WITHIN).context(driver.name())?, 1)?;
        let prefix = prefix(driver);
        let mut wrong = counted.shared.judge(cluster.value(&format!("{prefix}:shared"))?);
        wrong += counted.own[0].judge(cluster.value(&format!("{prefix}:{}:0", driver.name()))?);
        ensure!(wrong.lost == 0, "{}: {} INCR lost at broken connections", driver.name(), wrong.lost);
        doubled.push(wrong.doubled);
    }
    Ok(doubled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_dies_for_a_moment_and_for_long() {
        let faults = Fault::of_run(6);
        assert_eq!(faults.len(), 7);
        for node in 0..NODES {
            assert!(AWAY.iter().all(|away| faults.contains(&Fault::Node(node, *away))));
        }
        assert_eq!(faults[6], Fault::All(OUTAGE));
        assert_eq!(Fault::of_run(0), [Fault::Nothing]);
        assert_eq!(Fault::of_broken_run(1), [Fault::Proxy(AWAY[0])]);
        assert_eq!((Fault::of_broken_run(0).len(), Fault::of_broken_run(100).len()), (0, 4));
    }

    #[test]
    fn a_wrong_count_is_a_problem() {
        let right = Sum { told: Tally { acknowledged: 3, unknown: 1, ..Tally::default() }, ..Sum::default() };
        assert_eq!(right.problem(), None);
        let lost = Sum { verdict: Verdict { lost: 1, doubled: 0 }, ..Sum::default() };
        let doubled = Sum { verdict: Verdict { lost: 0, doubled: 1 }, ..Sum::default() };
        let astray = Sum { told: Tally { astray: 1, ..Tally::default() }, ..Sum::default() };
        assert!([lost, doubled, astray].iter().all(|sum| sum.problem().is_some()));
    }
}
