//! A load that makes a cleaner copy one entry of each kind, and free the segments of the originals. All steps are noted.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::{BootId, ClientId, ClusterTime, Incarnation, ListVersion, NodeId};
use kasha_wire::operation::{ItemsBuffer, PartOperation, PartsBuffer};
use kasha_wire::{Durability, Outcome, ShardPhase, Update, message};

use super::cluster::{Cluster, member, node};
use super::crashes::{Kinds, Step};
use super::{Core, Files, Heard, TABLE, configuration};

const SEGMENT_BYTES: u32 = 4096;
/// Six segments of new data.
const MEMORY_BYTES: u64 = 8 * SEGMENT_BYTES as u64;
/// The load ends when so many segments are gone from every member.
pub const GONE: usize = 7;
const CALLS_MAX: usize = 400;

/// The client whose lease ends.
pub const EXPIRED: u64 = 1;
/// Two that acknowledge nothing, so that their records live.
const KEEPING: u64 = 2;
const DELETING: u64 = 3;
/// One that acknowledges all its earlier updates.
const FILLING: u64 = 9;
/// Those who come after the crash.
pub const LATER: u64 = 20;
pub const NOW: u64 = 600_000;

/// Keys, and their versions and values.
pub type State = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

/// An update that was answered.
pub struct Call {
    pub client: u64,
    pub sequence: u64,
    pub acknowledges: u64,
    pub body: Vec<u8>,
    pub result: Vec<u8>,
    /// Steps before it was sent.
    pub begun: usize,
    /// Steps until it was answered.
    pub answered: usize,
}

/// A load and its steps.
pub struct Run {
    pub cluster: Cluster,
    /// With the node, counted from 0.
    pub steps: Vec<(usize, Step)>,
    pub calls: Vec<Call>,
    /// The state after so many calls.
    pub states: Vec<State>,
    /// All keys that ever were there.
    pub keys: BTreeSet<Vec<u8>>,
    /// The call that has an operation key which still counts.
    pub order: usize,
    /// Where the state of a member that went on was not that of a replay.
    pub unlike_replays: Vec<String>,
}

pub fn start(node: usize, files: Files, process: u64, boot: u128) -> Core {
    Core::start_with(files, MEMORY_BYTES, |options| {
        options.core.node = NodeId(node as u16 + 1);
        options.segment_bytes = SEGMENT_BYTES;
        options.witness_slots = 16;
        (options.incarnation, options.boot) = (Incarnation((process << 32) | 1), BootId(boot));
    })
}

/// What an update that was answered did.
fn follow(state: &mut State, update: &Update<'_>, outcome: Outcome) {
    match (update, outcome) {
        (Update::Put { key, value, .. }, Outcome::Version(version) | Outcome::Replaced(version, _)) => {
            state.insert(key.to_vec(), (version, value.to_vec()));
        }
        (Update::Increment { key, .. }, Outcome::Number(number, version)) => {
            state.insert(key.to_vec(), (version, number.to_string().into_bytes()));
        }
        (Update::MultiPut { pairs }, Outcome::Versions(versions)) => {
            for (pair, version) in pairs.iter().zip(versions) {
                state.insert(pair.key.to_vec(), (version, pair.value.to_vec()));
            }
        }
        (Update::Delete { key, .. }, Outcome::Version(_)) => assert!(state.remove(*key).is_some()),
        (Update::Transaction { parts }, Outcome::Parts(outcomes)) => {
            for (part, outcome) in parts.iter().zip(outcomes) {
                let PartOperation::Update(update) = part.operation else { panic!("{part:?}") };
                follow(state, &update, outcome);
            }
        }
        (_, outcome) => panic!("{outcome:?}"),
    }
}

pub fn body((client, sequence): (u64, u64), acknowledges: u64, key: Option<&[u8]>, update: &Update<'_>) -> Vec<u8> {
    Core::body_with((client, sequence), acknowledges, key, update, |head| {
        // A lease must be granted at the time of its client's first update, and only one of them may look like ended.
        head.lease_expiry = ClusterTime(match client {
            EXPIRED => 150_000,
            KEEPING | FILLING => 400_000,
            _ => 800_000,
        });
        let ends = if key == Some(b"early") { 500_000 } else { 900_000 };
        head.not_after = ClusterTime(if key.is_some() { ends } else { 0 });
    })
}

/// All keys are in one slot, so that one read shows them.
pub fn key(name: &str) -> Vec<u8> {
    format!("{{k}}{name}").into_bytes()
}

/// Frames go their way, and time passes, until the client hears something. `each`: after each of them.
pub fn heard_by(cluster: &mut Cluster, client: u64, mut each: impl FnMut(&mut Cluster)) -> Option<Heard> {
    (0..200).find_map(|_| {
        let heard = cluster.heard(client).pop();
        if heard.is_none() {
            match cluster.on_the_way.pop_front() {
                Some(carried) => cluster.arrive(carried),
                None => cluster.tick(20),
            }
            each(cluster);
        }
        heard
    })
}

pub fn send(cluster: &mut Cluster, client: u64, body: &[u8]) -> Option<Heard> {
    let at_once = cluster.send(client, ListVersion::NONE, body).pop();
    at_once.or_else(|| heard_by(cluster, client, |_| ()))
}

fn note_steps(cluster: &mut Cluster, steps: &mut Vec<(usize, Step)>) {
    for (node, core) in cluster.cores.iter_mut().enumerate() {
        let journal = core.shell.journal.as_mut().expect("it is kept");
        steps.extend(journal.drain(..).map(|step| (node, step)));
    }
}

/// The load.
impl Run {
    pub fn of(members: u16, durability: Durability) -> Self {
        let mut config = configuration(0, 1, ShardPhase::Recovering);
        (config.faults, config.durability) = (members as u8 - 1, durability);
        config.nodes = (1..=3).map(node).collect();
        config.shards[0].members = (1..=members).map(member).collect();
        let mut cluster = Cluster::of((0..3).map(|node| start(node, Files::default(), 1, 1)).collect(), config);
        cluster.cores.iter_mut().for_each(|core| core.shell.journal = Some(Vec::new()));
        cluster.commit(|_| ());
        cluster.settle();
        cluster.commit(|config| {
            config.shards[0].phase = ShardPhase::Serving;
            config.shards[0].witnesses = (2..=members).map(NodeId).collect();
        });
        cluster.it_is(1000);
        cluster.settle();
        let (steps, calls, states, keys) = (Vec::new(), Vec::new(), vec![State::new()], BTreeSet::new());
        let mut run = Self { cluster, steps, calls, states, keys, order: 0, unlike_replays: Vec::new() };
        run.begin();
        run.fill(usize::from(members));
        assert_eq!(run.states.last().expect("the first")[&key("n")].1, b"8", "so many increments");
        run
    }

    fn call(&mut self, client: u64, operation_key: Option<&[u8]>, update: &Update<'_>) {
        let steps = &mut self.steps;
        note_steps(&mut self.cluster, steps);
        let begun = steps.len();
        let sequence = 1 + self.calls.iter().filter(|call| call.client == client).count() as u64;
        let acknowledges = if client == FILLING { sequence } else { 1 };
        let body = body((client, sequence), acknowledges, operation_key, update);
        let at_once = self.cluster.send(client, ListVersion::NONE, &body).pop();
        note_steps(&mut self.cluster, steps);
        let heard = at_once.or_else(|| heard_by(&mut self.cluster, client, |cluster| note_steps(cluster, steps)));
        let Some(Heard::Answer { synced: true, result }) = heard else { panic!("{client} {sequence}: {heard:?}") };
        let shape = update.shape();
        let mut state = self.states.last().expect("the first").clone();
        follow(&mut state, update, Outcome::decode(shape, &result).expect("a result"));
        self.keys.extend(state.keys().cloned());
        self.states.push(state);
        let is_told = |(_, step): &(usize, Step)| matches!(step, Step::Told { to, .. } if to.0 == client);
        let answered = begun + 1 + steps[begun..].iter().position(is_told).expect("it heard");
        self.calls.push(Call { client, sequence, acknowledges, body, result, begun, answered });
        let replays = self.cluster.cores.iter().map(|core| core.node.replay_equals_state());
        self.unlike_replays.extend(replays.filter_map(Result::err));
        self.cluster.tick(20);
    }

    /// One entry of each kind that lives, in the first segments.
    fn begin(&mut self) {
        let counter = key("n");
        let increment = Update::increment(&counter, 1);
        self.call(EXPIRED, None, &increment);
        // So little of their segment is dead that it stays, and the tombstones are needed for as long.
        for (names, bytes) in [(0..4, 550), (4..5, 700)] {
            let cold = names.map(|number| (key(&format!("cold {number}")), vec![b'c'; bytes]));
            let doomed = (0..4).filter(|_| bytes < 700).map(|number| (key(&format!("doomed {number}")), vec![b'd']));
            let all: Vec<_> = cold.chain(doomed).collect();
            let pairs = ItemsBuffer::pairs(all.iter().map(|(key, value)| (&key[..], &value[..])));
            self.call(FILLING, None, &Update::MultiPut { pairs: pairs.as_items() });
        }
        self.call(EXPIRED, None, &increment);
        self.call(KEEPING, Some(b"early"), &increment);
        self.cluster.it_is(NOW);
        self.cluster.settle();
        let (cluster_time, expired, alive) = (ClusterTime(NOW), vec![ClientId(EXPIRED)], Vec::new());
        self.cluster.on(1, |core| {
            core.message(message::LeaseVerdict { cluster_time, expired, alive, view: kasha_types::ViewNumber(1) })
        });
        self.cluster.settle();
        self.order = self.calls.len();
        self.call(KEEPING, Some(b"order"), &increment);
        for number in 0..4 {
            self.call(KEEPING, None, &increment);
            self.call(DELETING, None, &Update::delete(&key(&format!("doomed {number}"))));
            self.call(DELETING, None, &Update::get_and_put(&key("swapped"), &[number; 50]));
        }
        let (left, right) = (key("left"), key("right"));
        let mut parts = PartsBuffer::default();
        for key in [&left, &right] {
            parts.push(TABLE, &PartOperation::Update(Update::increment(key, 1)));
        }
        self.call(KEEPING, None, &Update::Transaction { parts: parts.as_parts() });
    }

    /// Every third value stays for a while, so that hardly a segment dies by itself.
    fn fill(&mut self, members: usize) {
        let is_clean = |run: &Self, node| {
            let removed = run.steps.iter().filter(|(of, step)| *of == node && Kinds::of(step).removed);
            removed.count() >= GONE
        };
        while !(0..members).all(|node| is_clean(self, node)) {
            let number = self.calls.len();
            let name = if number.is_multiple_of(3) { format!("own {}", number % 45) } else { "the same".to_owned() };
            self.call(FILLING, None, &Update::put(&key(&name), &[number as u8; 400]));
            assert!(number < CALLS_MAX, "no segment is cleaned");
        }
    }
}

/// What clients know.
impl Run {
    /// Calls that were sent before so many steps were done.
    pub fn begun(&self, steps: usize) -> usize {
        self.calls.iter().filter(|call| call.begun < steps).count()
    }

    /// Calls that were answered then.
    pub fn answered(&self, steps: usize) -> usize {
        self.calls.iter().filter(|call| call.answered <= steps).count()
    }
}
