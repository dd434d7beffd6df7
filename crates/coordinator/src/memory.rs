//! Whether this coordinator remembers all that its cluster was ever told (R9.13).
//!
//! The coordinator's folder is its memory. Without it, or with an older copy of it, a coordinator would place the shards
//! anew, or elect nodes that left long ago, and the intact copies would be thrown away. But each core's folder keeps a part
//! of what it was told, and says so with each heartbeat. The coordinator commits before it tells, so a core that knows more
//! proves that something was forgotten. Then the coordinator decides nothing, grants nothing and tells no configuration
//! until it is started with its own folder again.
//!
//! One core may not know what was forgotten, and another one may. So a coordinator that starts listens first: until all
//! nodes that it calls alive have spoken. A node that is away must not stop that for ever. After the time for which
//! its lease may last the others are enough, if they are all nodes but f: a set that the coordinator has forgotten has f + 1
//! members, so one of its members has spoken. After ten leases the coordinator goes on with whoever is there.
//!
//! A member of a group has overheard all nodes while another one led. So it knows what their folders knew a moment ago, that of the node which
//! died together with the leader, too, and it need not listen again.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use kasha_machine::Endpoint;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClientId, ClusterTime, ConfigVersion, CoreId, Epoch, ListVersion, NodeId, ShardId, Tick};
use kasha_wire::message::{Heartbeat, ShardKnowledge};

use crate::State;
use crate::limits::{LISTENING_LEASES, SESSIONS_HEARD_MAX};

/// The first thing that a core's folder knows and this coordinator does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The core.
    pub core: CoreId,
    /// What it knows.
    pub what: Forgotten,
}

/// What was forgotten: what the core's folder says, and what the coordinator's says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// A configuration was obeyed that is newer than the newest one here.
    Configuration(ConfigVersion, ConfigVersion),
    /// The cluster's time was later than any that is reserved here.
    Time(ClusterTime, ClusterTime),
    /// Client ids may be in use that are not reserved here.
    Clients(ClientId, ClientId),
    /// A shard that has no place here.
    Shard(ShardId),
    /// A later term of a shard was promised.
    Term(ShardId, Epoch, Epoch),
    /// A later witness list of a shard was begun.
    List(ShardId, ListVersion, ListVersion),
    /// A later set of members of a shard was made.
    Set(ShardId, ConfigVersion, ConfigVersion),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the folder of {} knows of ", self.core.node)?;
        match self.what {
            Forgotten::Configuration(theirs, ours) => write!(f, "configuration {}, this one of {}", theirs.0, ours.0),
            Forgotten::Time(theirs, ours) => {
                write!(f, "time {} of the cluster, this one of no later than {}", theirs.0, ours.0)
            }
            Forgotten::Clients(theirs, ours) => {
                write!(f, "client ids below {}, this one of those below {}", theirs.0, ours.0)
            }
            Forgotten::Shard(shard) => write!(f, "{shard}, this one of no such shard"),
            Forgotten::Term(shard, theirs, ours) => write!(f, "{theirs} of {shard}, this one of {ours}"),
            Forgotten::List(shard, theirs, ours) => write!(f, "witness {theirs} of {shard}, this one of {ours}"),
            Forgotten::Set(shard, theirs, ours) => write!(
                f,
                "the members of {shard} in configuration {}, this one of those in configuration {}",
                theirs.0, ours.0
            ),
        }
    }
}

/// What the coordinator knows of its own memory.
#[derive(Debug)]
pub(crate) struct Memory {
    /// What it hears before it decides anything.
    listening: Option<Listening>,
    /// Cores whose folders know more.
    losses: BTreeMap<CoreId, Loss>,
}

/// What a coordinator has heard that listens.
#[derive(Debug)]
pub(crate) struct Listening {
    began: Tick,
    /// The newest configuration of the files: all that was ever told is at most this.
    loaded: ConfigVersion,
    /// What each core said before this member led.
    overheard: BTreeMap<CoreId, Heartbeat>,
    /// The newest heartbeat of each core.
    pub(crate) heard: BTreeMap<CoreId, (Endpoint, Heartbeat)>,
    /// Clients that want a session, and what they drew.
    pub(crate) sessions: Vec<(Endpoint, u64)>,
}

impl Memory {
    /// The memory of a coordinator that begins with what was committed, and has overheard this: each with whether it is so recent that its core
    /// counts as heard. In a new cluster there is nobody to listen to.
    pub(crate) fn start<'a>(
        now: Tick,
        committed: &State,
        overheard: impl Iterator<Item = (&'a Heartbeat, bool)> + Clone,
    ) -> Self {
        let recent = overheard.clone().filter(|(_, is_recent)| *is_recent);
        let listens = committed.alive_nodes().next().is_some() && !planted::is_on(Bug::DecidesBeforeListening);
        let listening = listens.then(|| Listening {
            began: now,
            loaded: committed.configuration.version,
            overheard: recent.map(|(heartbeat, _)| (heartbeat.core, heartbeat.clone())).collect(),
            heard: BTreeMap::new(),
            sessions: Vec::new(),
        });
        let mut memory = Self { listening, losses: BTreeMap::new() };
        for (heartbeat, _) in overheard {
            memory.compare(committed.configuration.version, heartbeat, committed);
        }
        memory
    }

    /// Compares what a core's folder knows with the state. `told`: the newest configuration that it may have been told.
    fn compare(&mut self, told: ConfigVersion, heartbeat: &Heartbeat, state: &State) {
        match forgotten(state, told, heartbeat).filter(|_| !planted::is_on(Bug::MemoryLossUnnoticed)) {
            Some(what) => {
                hit(Probe::MemoryLost);
                self.losses.insert(heartbeat.core, Loss { core: heartbeat.core, what });
            }
            None => {
                self.losses.remove(&heartbeat.core);
            }
        }
    }

    /// Whether the coordinator may decide and tell anything.
    pub(crate) fn may_decide(&self) -> bool {
        self.listening.is_none() && self.losses.is_empty()
    }

    /// What was forgotten, as far as is known.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.losses.values().next().copied()
    }

    /// A core speaks. Returns whether its heartbeat is to be handled now; one that comes too early is handled when the
    /// coordinator has listened.
    pub(crate) fn hear(&mut self, from: Endpoint, heartbeat: &Heartbeat, state: &State) -> bool {
        let told = self.listening.as_ref().map_or(state.configuration.version, |listening| listening.loaded);
        self.compare(told, heartbeat, state);
        if let Some(listening) = &mut self.listening {
            listening.heard.insert(heartbeat.core, (from, heartbeat.clone()));
        }
        self.may_decide()
    }

    /// A client wants a session while the coordinator listens.
    pub(crate) fn remember_session(&mut self, from: Endpoint, nonce: u64) {
        if let Some(listening) = &mut self.listening
            && listening.sessions.len() < SESSIONS_HEARD_MAX
            && !listening.sessions.contains(&(from, nonce))
        {
            listening.sessions.push((from, nonce));
        }
    }

    /// A connection is closed: nothing that came on it is answered.
    pub(crate) fn on_closed(&mut self, end: Endpoint) {
        if let Some(listening) = &mut self.listening {
            listening.heard.retain(|_, (from, _)| *from != end);
            listening.sessions.retain(|(from, _)| *from != end);
        }
    }

    /// Once the coordinator has listened for long enough, and nobody knows more: what was not handled yet.
    pub(crate) fn has_listened(&mut self, now: Tick, state: &State, lease: Duration) -> Option<Listening> {
        let lost_nothing = self.losses.is_empty();
        self.listening.take_if(|listening| lost_nothing && listening.is_over(now, state, lease))
    }
}

impl Listening {
    fn is_over(&self, now: Tick, state: &State, lease: Duration) -> bool {
        let alive = state.alive_nodes().count();
        let silent = state.alive_nodes().filter(|&node| !self.has_heard(state, node)).count();
        if silent == 0 {
            return true;
        }
        let time = now.since(self.began);
        let enough = silent <= usize::from(state.configuration.faults) && silent < alive;
        let bound = match planted::is_on(Bug::CoordinatorDoesNotWait) {
            true => Duration::ZERO,
            false => Duration::from_millis(state.lease_bound_millis),
        };
        let is_over = time >= lease * LISTENING_LEASES || (enough && time >= bound);
        if is_over {
            hit(Probe::ListenedInPart);
        }
        is_over
    }

    /// Whether every core of the node's newest process has spoken, since this member leads or before.
    fn has_heard(&self, state: &State, node: NodeId) -> bool {
        let cores = CoreId { node, core: 0 }..=CoreId { node, core: u8::MAX };
        let overheard = self.overheard.range(cores.clone());
        let heard = self.heard.range(cores).map(|(core, (_, heartbeat))| (core, heartbeat));
        let all: BTreeMap<_, _> = overheard.chain(heard).collect();
        let newest = all.values().map(|heartbeat| heartbeat.incarnation).max();
        let known = state.configuration.node(node).map_or(0, |info| info.cores.len());
        newest.is_some_and(|newest| {
            let its = || all.values().filter(|heartbeat| heartbeat.incarnation == newest);
            let cores = its().map(|heartbeat| heartbeat.addresses.len()).max().unwrap_or(known);
            its().count() >= cores
        })
    }
}

/// What a heartbeat shows that is not in the state. `told`: the newest configuration that the core may have been told.
fn forgotten(state: &State, told: ConfigVersion, heartbeat: &Heartbeat) -> Option<Forgotten> {
    let knows = &heartbeat.knows;
    let newest = knows.configuration.max(heartbeat.have);
    if newest > told {
        return Some(Forgotten::Configuration(newest, told));
    }
    if heartbeat.cluster_time > state.time_reserved {
        return Some(Forgotten::Time(heartbeat.cluster_time, state.time_reserved));
    }
    if knows.clients_below > state.clients_below {
        return Some(Forgotten::Clients(knows.clients_below, state.clients_below));
    }
    knows.shards.iter().find_map(|known| forgotten_of_shard(state, known))
}

fn forgotten_of_shard(state: &State, known: &ShardKnowledge) -> Option<Forgotten> {
    let &ShardKnowledge { shard, promised, list, set } = known;
    let Some(config) = state.configuration.shard(shard) else { return Some(Forgotten::Shard(shard)) };
    if promised > config.epoch {
        Some(Forgotten::Term(shard, promised, config.epoch))
    } else if list > config.list {
        Some(Forgotten::List(shard, list, config.list))
    } else if set > config.members_since {
        Some(Forgotten::Set(shard, set, config.members_since))
    } else {
        None
    }
}
