//! The processes of a round, and the faults that they suffer. Every phase ends with a healed, healthy cluster.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kasha_machine::Rng;
use serde_json::Value as Json;

use super::alone::Loss;
use super::damage::{damage, lose};
use super::machine::Machine;
use super::net::Net;
use super::plan::{Event, Fault, Harm, Plan, Shape, Who};
use super::{Failure, broken};
use crate::place::SmallDisk;
use crate::process::{bare_command, health, list};

/// How long a healed cluster may take until it is whole. A node that was lost repeatedly is taken back after eight
/// leases, and into a shard that avoids it after ten more.
const WHOLE: Duration = Duration::from_secs(120);
/// Pauses between two questions whether it is whole: the longer that takes, the longer.
const ASK_LEAST: Duration = Duration::from_millis(100);
const ASK_MOST: Duration = Duration::from_secs(1);
/// How often the campaign says why a cluster is not whole yet.
const TELL: Duration = Duration::from_secs(15);
/// Room on a small disk, in MiB.
const SMALL_MIB: u32 = 384;

/// A cluster under test.
#[derive(Debug)]
pub struct Field {
    // Dropped before the network and the disk: the children end before these are removed.
    machines: Vec<Machine>,
    whom: Vec<Who>,
    shape: Shape,
    net: Net,
    folder: PathBuf,
    rng: Rng,
    disk: Option<SmallDisk>,
    /// When the last fault began, and when it ended.
    moments: Option<(Instant, Instant)>,
}

impl Field {
    /// A cluster of which no process runs yet.
    ///
    /// # Errors
    /// If there can be no network.
    pub fn new(plan: &Plan, folder: &Path, with_lab: bool) -> Result<Self, Failure> {
        let (shape, net) = (plan.shape.clone(), Net::new(plan, with_lab)?);
        let whom = shape.everybody();
        let mut machines: Vec<_> = whom.iter().map(|who| Machine::new(*who, folder)).collect();
        let mut disk = None;
        if let Some(node) = shape.small_disk {
            let machine = &mut machines[usize::from(node) - 1];
            // The room for the journal is not part of this test.
            machine.is_recorded = false;
            disk = SmallDisk::mount(machine.data(), SMALL_MIB);
        }
        let rng = Rng::new(plan.seed ^ 0xF1E1D);
        Ok(Self { machines, whom, shape, net, folder: folder.to_owned(), rng, disk, moments: None })
    }

    /// The network of the round.
    #[must_use]
    pub fn net(&self) -> &Net {
        &self.net
    }

    fn machine(&mut self, who: Who) -> &mut Machine {
        let index = self.whom.iter().position(|other| *other == who).expect("a process of this cluster");
        &mut self.machines[index]
    }

    /// Starts every process for the first time, the coordinator first.
    ///
    /// # Errors
    /// If somebody does not start.
    pub fn begin(&mut self) -> Result<(), Failure> {
        let hub = self.shape.hub();
        self.start(&[hub])?;
        let started = Instant::now();
        while !self.machine(hub).said().contains("listens at") {
            self.machine(hub).look()?;
            if started.elapsed() > WHOLE {
                return Err(Failure::Stuck(format!("{hub} does not listen")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.start(&self.whom.clone())?;
        self.becomes_whole()
    }

    fn start(&mut self, whom: &[Who]) -> Result<(), Failure> {
        let Self { machines, whom: all, shape, net, .. } = self;
        for (machine, who) in machines.iter_mut().zip(all) {
            if whom.contains(who) {
                machine.start(shape, net)?;
            }
        }
        Ok(())
    }

    /// The events of a phase that begins now, with the names of those whom they strike.
    ///
    /// # Errors
    /// If nobody says who leads.
    pub fn named(&self, phase: &[Event]) -> Result<Vec<Event>, Failure> {
        if !self.shape.group {
            return Ok(phase.to_vec());
        }
        let began = Instant::now();
        let leader = loop {
            match self.leader() {
                Ok(leader) => break leader,
                Err(why) if began.elapsed() > WHOLE => return Err(Failure::Stuck(why)),
                Err(_) => std::thread::sleep(ASK_LEAST),
            }
        };
        let name = |who| match who {
            Who::Leader => Who::Node(leader),
            Who::NextToLeader => Who::Node(leader % self.shape.nodes + 1),
            Who::Node(_) | Who::Coordinator => who,
        };
        println!("    node-{leader} leads");
        Ok(phase.iter().map(|event| Event { fault: event.fault.named(name), ..event.clone() }).collect())
    }

    /// The node whose process leads the coordinator's group.
    fn leader(&self) -> Result<u16, String> {
        let status = self.status()?;
        let leader = list(&status["group"]).iter().find(|member| member["leads"] == true);
        let node = leader.and_then(|leader| self.node_of(&leader["node"]));
        node.ok_or_else(|| format!("nobody leads: {}", status["group"]))
    }

    /// Causes the faults of a phase, and heals everything afterwards.
    ///
    /// # Errors
    /// If a process ends by itself.
    pub fn suffer(&mut self, phase: &[Event]) -> Result<(), Failure> {
        let mut moments: Vec<(Duration, bool, &Event)> = Vec::new();
        for event in phase {
            moments.push((event.at, true, event));
            moments.push((event.at + event.lasts, false, event));
        }
        moments.sort_by_key(|(at, ..)| *at);
        let began = Instant::now();
        for (at, begins, event) in moments {
            while began.elapsed() < at {
                self.look()?;
                std::thread::sleep((at - began.elapsed().min(at)).min(Duration::from_millis(20)));
            }
            let moment = Instant::now();
            let done = if begins { self.strike(&event.fault)? } else { self.relieve(&event.fault)? };
            self.moments = Some(match self.moments {
                Some((began, _)) if !begins => (began, moment),
                _ => (moment, moment),
            });
            let when = if begins { "begins" } else { "ends" };
            println!("    {:>6} ms {when}: {}{done}", began.elapsed().as_millis(), event.fault);
        }
        self.heal()
    }

    fn look(&mut self) -> Result<(), Failure> {
        self.machines.iter_mut().try_for_each(Machine::look)
    }

    /// Causes a fault. Returns what was done, as text.
    fn strike(&mut self, fault: &Fault) -> Result<String, Failure> {
        let skipped = if self.net.is_real() { "" } else { " (SKIPPED: no virtual network)" };
        match fault {
            Fault::Kill(whom) => {
                for who in whom {
                    self.machine(*who).kill()?;
                }
            }
            Fault::Freeze(who) => {
                if !self.machine(*who).freeze() {
                    return Ok(" (it does not run)".to_owned());
                }
            }
            Fault::PowerLoss(whom, kept) => {
                for who in whom {
                    self.machine(*who).kill()?;
                }
                let mut told = String::new();
                for who in whom {
                    let mut rng = self.rng.fork();
                    let lost = self.machine(*who).lose_power(*kept, &mut rng)?;
                    told += &format!(
                        "\n              {who}: not fsynced were {} changes of {} files and {} names, {} of these undone",
                        lost.changes, lost.files, lost.names, lost.names_undone
                    );
                }
                return Ok(told);
            }
            Fault::Damage(node, harm, seed) => {
                // Asking takes long where links are cut, except in a phase of its own.
                let led = if *harm == Harm::SegmentCut { self.led_by(*node) } else { Vec::new() };
                let machine = self.machine(Who::Node(*node));
                machine.kill()?;
                let done = damage(&machine.data(), *harm, *seed, &led).map_err(broken("no damage"))?;
                machine.forget_journal()?;
                return Ok(done.map_or_else(|| " (there is no such file)".to_owned(), |done| format!(" ({done})")));
            }
            Fault::Jump(node, by) => self.machine(Who::Node(*node)).jump(*by)?,
            Fault::Drift(who, ppm) => self.machine(*who).drift(*ppm)?,
            Fault::Cut(..) | Fault::CutOff(_) | Fault::Rough(..) => {
                self.disturb(fault, true);
                return Ok(skipped.to_owned());
            }
            Fault::FullDisk(node) => return self.fill(*node),
            Fault::Down { orderly, losses } => return self.take_down(*orderly, losses),
            Fault::Replace(who, orderly) => {
                let machine = self.machine(*who);
                if *orderly {
                    machine.terminate();
                    machine.ends_well()?;
                } else {
                    machine.kill()?;
                }
                return self.robbed(*who, Loss::Folder, 0);
            }
            Fault::WitnessLost(seed) => return self.lose_witness(*seed),
        }
        Ok(String::new())
    }

    /// Ends every process, and takes data from machines that are down.
    fn take_down(&mut self, orderly: bool, losses: &[(u16, Loss, u64)]) -> Result<String, Failure> {
        for machine in &mut self.machines {
            if orderly {
                machine.terminate();
            } else {
                machine.kill()?;
            }
        }
        self.machines.iter_mut().try_for_each(Machine::ends_well)?;
        let told = losses.iter().map(|(node, loss, seed)| self.robbed(Who::Node(*node), *loss, *seed));
        Ok(told.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn robbed(&mut self, who: Who, loss: Loss, seed: u64) -> Result<String, Failure> {
        let machine = self.machine(who);
        let told = lose(&machine.data(), loss, seed).map_err(broken("nothing is lost"))?;
        if loss == Loss::Folder {
            machine.replace()?
        } else {
            machine.forget_journal()?
        }
        Ok(format!("\n              {who}: {told}"))
    }

    /// Kills the primary of a shard and a witness of it. The witness loses its files, and is started.
    fn lose_witness(&mut self, seed: u64) -> Result<String, Failure> {
        let status = self.status().map_err(Failure::Stuck)?;
        let shards = list(&status["shards"]);
        let shard = &shards[usize::try_from(seed % shards.len() as u64).expect("few")];
        let (witness, primary) = (self.node_of(&list(&shard["witnesses"])[0]), self.node_of(&shard["primary"]));
        let (Some(witness), Some(primary)) = (witness, primary) else {
            return Err(Failure::Broken(format!("whose shard is this? {shard}")));
        };
        for node in [witness, primary] {
            self.machine(Who::Node(node)).kill()?;
        }
        let witness = Who::Node(witness);
        let told = self.robbed(witness, Loss::Files(".slots"), 0)? + &self.robbed(witness, Loss::Files(".mode"), 0)?;
        self.start(&[witness])?;
        Ok(format!(" (the primary of shard-{} is node-{primary}){told}", shard["shard"]))
    }

    /// The place of the node that has this number in a status.
    fn node_of(&self, number: &Json) -> Option<u16> {
        let is_its = |(who, machine): &(&Who, &Machine)| **who != Who::Coordinator && *number == machine.number();
        self.whom.iter().zip(&self.machines).find(is_its).and_then(|(who, _)| match who {
            Who::Node(node) => Some(*node),
            Who::Coordinator | Who::Leader | Who::NextToLeader => None,
        })
    }

    /// When the last fault of a phase began, and when it ended.
    #[must_use]
    pub fn moments(&self) -> Option<(Instant, Instant)> {
        self.moments
    }

    /// The shards whose primary is on a node that a fault strikes, and the shards that have any member or witness
    /// there.
    #[must_use]
    pub fn struck_by(&self, fault: &Fault, status: &Json) -> (Vec<u64>, Vec<u64>) {
        let is_struck = |node: &Json| match fault {
            Fault::Kill(whom) | Fault::CutOff(whom) | Fault::PowerLoss(whom, _) => {
                self.node_of(node).is_some_and(|node| whom.contains(&Who::Node(node)))
            }
            Fault::Freeze(who) => self.node_of(node).is_some_and(|node| *who == Who::Node(node)),
            Fault::Replace(lost, _) => self.node_of(node).is_some_and(|node| *lost == Who::Node(node)),
            Fault::Damage(..) | Fault::Jump(..) | Fault::Drift(..) | Fault::Cut(..) | Fault::Rough(..) => true,
            Fault::FullDisk(_) | Fault::Down { .. } | Fault::WitnessLost(_) => true,
        };
        let has_part = |shard: &&Json| {
            let members = list(&shard["members"]).iter().map(|member| &member["node"]);
            members.chain(list(&shard["witnesses"])).any(is_struck)
        };
        let shards = list(&status["shards"]).iter();
        let numbers = |shard: &Json| shard["shard"].as_u64();
        let led = shards.clone().filter(|shard| is_struck(&shard["primary"])).filter_map(numbers).collect();
        (led, shards.filter(has_part).filter_map(numbers).collect())
    }

    fn relieve(&mut self, fault: &Fault) -> Result<String, Failure> {
        match fault {
            Fault::Kill(whom) | Fault::PowerLoss(whom, _) => self.start(whom)?,
            Fault::Damage(node, ..) => self.start(&[Who::Node(*node)])?,
            Fault::Freeze(who) => drop(self.machine(*who).thaw()),
            Fault::Jump(..) => {}
            Fault::Drift(who, _) => self.machine(*who).drift(0)?,
            Fault::Cut(..) | Fault::CutOff(_) | Fault::Rough(..) => self.disturb(fault, false),
            Fault::FullDisk(node) => self.empty(*node)?,
            Fault::Down { .. } | Fault::WitnessLost(_) => self.start(&self.whom.clone())?,
            Fault::Replace(who, _) => self.start(&[*who])?,
        }
        Ok(String::new())
    }

    fn disturb(&self, fault: &Fault, begins: bool) {
        match fault {
            Fault::Cut(from, to, both) => {
                self.net.cut(*from, *to, begins);
                if *both {
                    self.net.cut(*to, *from, begins);
                }
            }
            Fault::CutOff(whom) => self.net.cut_off(whom, begins),
            Fault::Rough(loss, twice, late) if begins => self.net.rough(*loss, *twice, *late),
            Fault::Rough(..) => self.net.rough(0, 0, Duration::ZERO),
            Fault::Kill(_) | Fault::Freeze(_) | Fault::PowerLoss(..) | Fault::Damage(..) => {}
            Fault::Jump(..) | Fault::Drift(..) | Fault::FullDisk(_) => {}
            Fault::Down { .. } | Fault::Replace(..) | Fault::WitnessLost(_) => {}
        }
    }

    fn filler(&self) -> Option<PathBuf> {
        self.disk.as_ref().map(|disk| disk.path().join("filler"))
    }

    fn fill(&mut self, node: u16) -> Result<String, Failure> {
        let Some(filler) = self.filler() else { return Ok(" (SKIPPED: no small disk)".to_owned()) };
        self.machine(Who::Node(node)).may_end = true;
        let mut file = File::options().create(true).append(true).open(filler).map_err(broken("a filler"))?;
        for size in [1 << 20, 1 << 12] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
        Ok(String::new())
    }

    fn empty(&mut self, node: u16) -> Result<(), Failure> {
        if let Some(filler) = self.filler().filter(|filler| filler.exists()) {
            fs::remove_file(filler).map_err(broken("a filler stays"))?;
        }
        self.machine(Who::Node(node)).look()?;
        self.start(&[Who::Node(node)])
    }

    /// Ends all faults: every process runs, with good links and good clocks.
    fn heal(&mut self) -> Result<(), Failure> {
        self.net.heal();
        for machine in &mut self.machines {
            machine.look()?;
            machine.drift(0)?;
            machine.thaw();
        }
        if let Some(node) = self.shape.small_disk {
            self.empty(node)?;
        }
        self.start(&self.whom.clone())
    }

    /// The output of `kasha status --json`.
    ///
    /// # Errors
    /// The text that the command printed instead.
    pub fn status(&self) -> Result<Json, String> {
        let output = self.net.output(bare_command(&["status", "--json", "--address", &self.net.seeds().join(",")]));
        let output = output.map_err(|error| error.to_string())?;
        // 3: a shard is ill, and the output says which.
        if !matches!(output.status.code(), Some(0 | 3)) {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
    }

    /// The shards of which a node is primary, as far as that is known.
    fn led_by(&self, node: u16) -> Vec<u64> {
        let Ok(status) = self.status() else { return Vec::new() };
        let here = self.whom.iter().position(|who| *who == Who::Node(node)).expect("a node of this cluster");
        let node = self.machines[here].number();
        let led = list(&status["shards"]).iter().filter(|shard| shard["primary"] == node);
        led.filter_map(|shard| shard["shard"].as_u64()).collect()
    }

    /// Whether every member of the group is in a process of these. If the folder of one is lost, an operator says so, and another node
    /// takes its place.
    fn group_is_whole(&self, status: &Json) -> Result<(), String> {
        if !self.shape.group {
            return Ok(());
        }
        let members = list(&status["group"]);
        let Some(lost) = members.iter().find(|member| self.node_of(&member["node"]).is_none()) else {
            let (there, wanted) = (members.len(), usize::from(self.shape.members()));
            return if there == wanted { Ok(()) } else { Err(format!("{there} members instead of {wanted}")) };
        };
        let (lost, seeds) = (lost["node"].to_string(), self.net.seeds().join(","));
        let order = ["admin", "--address", &seeds, "coordinator", "remove", "--node", &lost];
        let output = self.net.output(bare_command(&order)).map_err(|error| error.to_string())?;
        let said = if output.status.success() { output.stdout } else { output.stderr };
        let said = String::from_utf8_lossy(&said).trim().replace('\n', " ");
        println!("    an operator removes the member of node-{lost}: {said}");
        Err(format!("the member of node-{lost} is lost"))
    }

    /// A member that takes no part any more, or a coordinator that says that it has lost its memory: nobody has lost what it needs.
    fn all_members_take_part(&self) -> Result<(), Failure> {
        for (who, machine) in self.whom.iter().zip(&self.machines) {
            let said = machine.said();
            if let Some(line) = said.lines().find(|line| line.contains("(K0508)") || line.contains("(K0509)")) {
                return Err(Failure::Stuck(format!("{who} says: {line}")));
            }
        }
        Ok(())
    }

    /// Waits until `kasha status` says that every node is alive and every shard healthy, and the coordinator's group has all its members.
    ///
    /// # Errors
    /// If that does not come, or a process ends by itself.
    pub fn becomes_whole(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        let mut tell_at = TELL;
        loop {
            self.look()?;
            // A node may have stopped only now because of its full disk.
            self.start(&self.whom.clone())?;
            let ill = match self.status() {
                Err(error) => error,
                Ok(status) if health(&status, usize::from(self.shape.nodes)).is_err() => ills(&status),
                Ok(status) => match self.group_is_whole(&status) {
                    Err(ill) => ill,
                    Ok(()) => break,
                },
            };
            if began.elapsed() > tell_at {
                tell_at += TELL;
                println!("    after {} ms not whole yet: {ill}", began.elapsed().as_millis());
            }
            if began.elapsed() > WHOLE {
                return Err(Failure::Stuck(format!("after {WHOLE:?} the cluster is not whole: {ill}")));
            }
            // Each question costs a process, and answers of all cores, which have enough to do.
            std::thread::sleep((began.elapsed() / 20).clamp(ASK_LEAST, ASK_MOST));
        }
        for machine in &mut self.machines {
            machine.may_end = false;
        }
        self.all_members_take_part()?;
        println!("    whole after {} ms", began.elapsed().as_millis());
        Ok(())
    }

    /// The folder of the round.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The parts of a status that are not healthy.
fn ills(status: &Json) -> String {
    let mut ills = vec![format!("coordinator reachable: {}", status["coordinator_reachable"])];
    for node in list(&status["nodes"]).iter().filter(|node| node["alive"] != true) {
        ills.push(format!("node-{} is lost", node["node"]));
    }
    for shard in list(&status["shards"]).iter().filter(|shard| shard["health"] != "healthy") {
        let Json::Object(fields) = shard else { continue };
        let field = |name: &str| fields.get(name).map(ToString::to_string).unwrap_or_default();
        let (number, health, primary) = (field("shard"), field("health"), field("primary"));
        let (members, witnesses, state) = (field("members"), field("witnesses"), shard["status"]["state"].to_string());
        ills.push(format!(
            "shard-{number} {health}: primary {primary}, members {members}, witnesses {witnesses}, {state}"
        ));
    }
    ills.join("\n    ")
}
