//! The commands that move the network, the clock and the machines, and what they print. `docs/testing.md` has the list
//! of commands. Commands of clients are in `clients.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use kasha_types::limits;
use kasha_wire::{Configuration, Durability, Kind, MemberState, ShardPhase};

use super::clients::Clients;
use super::cluster::{Cluster, Letter, Shape};
use super::host::{Party, Running};
use super::telling::{DEEPER, Telling, is_idle_talk};

/// Frames that one command may move; more would be a storm.
const DELIVERED_MAX: usize = 20_000;

/// Selects frames: `1>2`, `*>co`, and words that must all be in the frame's text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Filter {
    from: Option<Party>,
    to: Option<Party>,
    words: Vec<String>,
}

pub struct Script {
    pub cluster: Cluster,
    pub clients: Clients,
    pub committed: Option<Configuration>,
    holds: Vec<Filter>,
    cuts: Vec<Filter>,
    pub out: Vec<String>,
    /// Number of arrived frames that were worth printing.
    arrived: usize,
}

pub fn party(word: &str) -> Option<Party> {
    match word {
        "*" => None,
        "co" => Some(Party::Coordinator),
        _ => Some(match word.strip_prefix('c') {
            Some(client) => Party::Client(client.parse().expect("a client, like c1")),
            None => Party::Node(word.parse().unwrap_or_else(|_| panic!("{word} is no node"))),
        }),
    }
}

fn one(words: &[&str]) -> Party {
    words.first().and_then(|word| party(word)).expect("a machine, like 1 or co")
}

fn millis(word: &str) -> Duration {
    Duration::from_millis(word.strip_suffix("ms").and_then(|n| n.parse().ok()).expect("a time, like 300ms"))
}

impl Filter {
    fn parse(words: &[&str]) -> Self {
        match words.first() {
            None | Some(&"all") => Self { from: None, to: None, words: Vec::new() },
            Some(ends) => {
                let (from, to) = ends.split_once('>').unwrap_or_else(|| panic!("{ends}: from>to is wanted"));
                let words = words[1..].iter().map(|word| word.to_string()).collect();
                Self { from: party(from), to: party(to), words }
            }
        }
    }

    fn matches(&self, letter: &Letter, text: &str) -> bool {
        self.from.is_none_or(|from| from == letter.from)
            && self.to.is_none_or(|to| to == letter.to)
            && self.words.iter().all(|word| text.split(' ').any(|part| part == word))
    }
}

impl Script {
    /// `cluster nodes=3 f=1 …`: the first command of each transcript.
    pub fn new(words: &[&str]) -> Self {
        assert_eq!(words.first(), Some(&"cluster"), "a transcript begins with `cluster`");
        let options: BTreeMap<_, _> = words[1..].iter().filter_map(|word| word.split_once('=')).collect();
        let number = |name, default: u64| options.get(name).map_or(default, |n| n.parse().expect("a number"));
        let mut shape = Shape::new(number("nodes", 3) as u16, number("f", 1) as u8);
        shape.segment_bytes = number("segment", 1 << 16) as u32;
        shape.coordinator.client_lease_millis = number("client-lease", limits::CLIENT_LEASE_MILLIS);
        if options.get("durability") == Some(&"fsync") {
            shape.coordinator.durability = Durability::Fsync;
        }
        shape.coordinator.min_backups = number("min-backups", number("f", 1)) as u8;
        let mut script = Self {
            cluster: Cluster::new(shape),
            clients: Clients::default(),
            committed: None,
            holds: Vec::new(),
            cuts: Vec::new(),
            out: Vec::new(),
            arrived: 0,
        };
        for party in script.cluster.hosts.keys().copied().collect::<Vec<_>>() {
            script.cluster.start(party).expect("an empty disk");
        }
        script.settle();
        script
    }

    /// Runs one command.
    pub fn run(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let rest = &words[1..];
        match words[0] {
            "settle" => self.settle(),
            "run" => self.pass(millis(rest[0]), Telling::Arrivals),
            "advance" => {
                let until = self.cluster.after(millis(rest[0]));
                while self.cluster.now < until {
                    let turns = self.cluster.pass(until);
                    turns.iter().for_each(|(party, turn)| self.tell_turn(*party, turn, "", Telling::Effects));
                }
            }
            "deliver" if rest == ["all"] => self.deliver_all(Telling::Arrivals),
            "deliver" if rest.first() == Some(&"first") => self.deliver(&Filter::parse(&rest[1..]), 1),
            "deliver" => self.deliver(&Filter::parse(rest), usize::MAX),
            "drop" => {
                let filter = Filter::parse(rest);
                for letter in self.take(&filter) {
                    let text = self.describe(&letter);
                    self.tell(format!("lost: {}>{} {text}", letter.from, letter.to));
                }
            }
            "duplicate" => {
                let filter = Filter::parse(rest);
                for letter in self.take(&filter) {
                    self.cluster.network.extend([letter.clone(), letter]);
                }
            }
            "hold" => self.holds.push(Filter::parse(rest)),
            "release" if rest.is_empty() => self.holds.clear(),
            "release" => self.holds.retain(|hold| *hold != Filter::parse(rest)),
            "cut" => {
                let (one, other) = rest[0].split_once('-').expect("cut 1-2");
                for (from, to) in [(one, other), (other, one)] {
                    self.cuts.push(Filter { from: party(from), to: party(to), words: Vec::new() });
                }
            }
            "heal" => self.cuts.clear(),
            "freeze" => self.cluster.host(one(rest)).frozen = true,
            "thaw" => self.cluster.host(one(rest)).frozen = false,
            "kill" => rest.iter().for_each(|&word| self.cluster.kill(one(&[word]))),
            "power" => rest.iter().for_each(|&word| self.cluster.lose_power(one(&[word]))),
            "restart" => rest.iter().for_each(|&word| match self.cluster.start(one(&[word])) {
                Ok(turn) => self.tell_turn(one(&[word]), &turn, "", Telling::Arrivals),
                Err(why) => self.tell(format!("{word} does not start: {why}")),
            }),
            "slow-disk" => self.cluster.host(one(rest)).slow_disk = true,
            "fsync" => {
                self.cluster.host(one(rest)).slow_disk = false;
                let turn = self.cluster.fsync(one(rest));
                self.tell_turn(one(rest), &turn, "", Telling::Effects);
            }
            "show" => self.show(),
            "status" => rest.iter().for_each(|word| self.status(one(&[word]))),
            "log" => self.log(one(rest)),
            "committed" => self.tell_committed(),
            _ => self.client(words[0], rest),
        }
        self.learn_committed();
    }

    /// The script's clients learn what the coordinator decided last.
    pub fn learn_committed(&mut self) {
        if let Some(Running::Coordinator(coordinator)) = &self.cluster.host(Party::Coordinator).running {
            self.committed = Some(coordinator.configuration().clone());
        }
    }

    fn take(&mut self, filter: &Filter) -> Vec<Letter> {
        let waiting = std::mem::take(&mut self.cluster.network);
        let (taken, kept): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|letter| filter.matches(letter, &self.describe(letter)));
        self.cluster.network = kept.into();
        taken
    }

    /// Matching frames arrive, held ones too; the frames that they cause wait.
    fn deliver(&mut self, filter: &Filter, most: usize) {
        let mut letters = self.take(filter);
        let later = letters.split_off(letters.len().min(most));
        later.into_iter().rev().for_each(|letter| self.cluster.network.push_front(letter));
        assert!(!letters.is_empty(), "no such frame waits: {filter:?}");
        for letter in letters {
            self.arrive(letter, Telling::Effects);
        }
    }

    /// All frames that are not held arrive, and the frames that they cause, until none is left. No time passes.
    fn deliver_all(&mut self, telling: Telling) {
        for _ in 0..DELIVERED_MAX {
            let may_arrive = |letter: &Letter| {
                let text = self.describe(letter);
                let frozen = self.cluster.hosts.get(&letter.to).is_some_and(|host| host.frozen);
                !frozen && !self.holds.iter().any(|hold| hold.matches(letter, &text))
            };
            let Some(index) = self.cluster.network.iter().position(may_arrive) else { return };
            let letter = self.cluster.network.remove(index).expect("just found");
            self.arrive(letter, telling);
        }
        panic!("a storm of frames");
    }

    fn arrive(&mut self, letter: Letter, telling: Telling) {
        let text = self.describe(&letter);
        let telling = if is_idle_talk(&text) { Telling::Nothing } else { telling };
        let line = format!("{}>{} {text}", letter.from, letter.to);
        let is_cut = self.cuts.iter().any(|cut| cut.matches(&letter, &text));
        if is_cut || !self.cluster.reaches(&letter) {
            if telling == Telling::Effects {
                self.tell(format!("lost: {line}"));
            }
            return;
        }
        self.arrived += usize::from(!is_idle_talk(&text));
        // A frame that is only sent again as time passes is printed once.
        let again = telling == Telling::Arrivals && self.out.contains(&line);
        let telling = if again { Telling::Nothing } else { telling };
        if telling != Telling::Nothing {
            self.tell(line);
        }
        if let Party::Client(client) = letter.to {
            return self.clients.hear(client, &letter);
        }
        let turn = self.cluster.arrive(&letter);
        self.tell_turn(letter.to, &turn, DEEPER, telling);
        for (party, turn) in self.cluster.tick() {
            self.tell_turn(party, &turn, DEEPER, telling);
        }
        self.learn_committed();
    }

    /// Frames arrive and time passes.
    pub fn pass(&mut self, time: Duration, telling: Telling) {
        let until = self.cluster.after(time);
        loop {
            self.deliver_all(telling);
            if self.cluster.now >= until {
                return;
            }
            let quiet = if telling == Telling::Effects { Telling::Arrivals } else { telling };
            for (party, turn) in self.cluster.pass(until) {
                self.tell_turn(party, &turn, "", quiet);
            }
        }
    }

    /// Runs until the shard serves, every copy is complete, and nothing happens any more.
    fn settle(&mut self) {
        const STEPS_MAX: usize = 200;
        let mut quiet = 0;
        for _ in 0..STEPS_MAX {
            let before = self.arrived;
            self.pass(Duration::from_millis(250), Telling::Nothing);
            self.learn_committed();
            quiet = if self.is_well() && self.arrived == before { quiet + 1 } else { 0 };
            if quiet == 3 {
                return self.tell_committed();
            }
        }
        self.tell("does not settle".into());
        self.tell_committed();
    }

    /// Whether every loss and return is noticed, and repaired as far as possible.
    fn is_well(&self) -> bool {
        let Some(committed) = &self.committed else { return false };
        let noticed = committed.nodes.iter().all(|info| {
            let host = &self.cluster.hosts[&Party::Node(info.node.0)];
            let runs = host.running.is_some() && !host.frozen;
            info.alive == runs || !info.alive && !self.cuts.is_empty()
        });
        noticed
            && committed.shards.first().is_some_and(|shard| {
                let complete = shard.members.iter().all(|member| member.state == MemberState::Complete);
                shard.phase == ShardPhase::Serving && !shard.closing && complete
            })
    }
}

/// Whether a frame is of one of these kinds.
pub fn is_kind(letter: &Letter, kinds: &[Kind]) -> bool {
    kinds.iter().any(|&kind| kind as u8 == letter.kind)
}
