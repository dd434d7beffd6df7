//! Which faults a run has, and how strong they are. They are drawn once per run, so that runs differ in kind and not
//! only in order ("swarm testing": a run with all faults on hides what a run with one strong fault finds).

use kasha_machine::Rng;

use crate::clock::{micros, millis};

/// The strength of faults during the safety phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intensity {
    /// The shortest and longest usual delay of a frame, in nanoseconds.
    pub delay: (u64, u64),
    /// Per million: a frame is lost.
    pub loss: u64,
    /// Per million: a frame arrives twice.
    pub duplication: u64,
    /// Per million: a frame takes a long delay.
    pub stray: u64,
    /// The longest such delay, in nanoseconds.
    pub stray_delay: u64,
    /// Whether a connection's frames may overtake each other.
    pub reordering: bool,
    /// Per million: nobody is told that a connection is closed.
    pub silent_close: u64,
    /// The shortest and longest time of a turn.
    pub turn: (u64, u64),
    /// The shortest and longest time of an fsync.
    pub fsync: (u64, u64),
    /// Per million: a commit without fsync is reported in a later turn.
    pub late_commit: u64,
    /// Per million: an fsync fails, and with it the process.
    pub fsync_failure: u64,
    /// The longest pause before a process dials again what it could not reach, as clients do it; 0: there is none. The
    /// pause doubles from a millisecond on. Frames that are sent meanwhile wait for its end.
    pub dial_pause: u64,
    /// Mean time between two acts of the nemesis; 0: no acts.
    pub nemesis_every: u64,
    /// The acts of the nemesis, by weight.
    pub acts: Acts,
}

macro_rules! acts {
    ($($(#[$doc:meta])* $weight:ident $act:ident,)*) => {
        /// Weights of the nemesis's acts.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Acts { $($(#[$doc])* pub $weight: u64),* }

        /// One act of the nemesis.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Act { $($(#[$doc])* $act),* }

        impl Acts {
            /// The acts and their weights.
            pub fn weights(&self) -> impl Iterator<Item = (Act, u64)> {
                [$((Act::$act, self.$weight)),*].into_iter()
            }
        }
    };
}

// Each act is caused by a row in a file of `faults`.
acts! {
    /// A node's process is killed and comes back after a while.
    crash Crash,
    /// A node's process is killed and comes back before its lease has lapsed.
    fast_restart FastRestart,
    /// A node's process is killed in the middle of a turn.
    torn_turn TornTurn,
    /// A node's machine loses power.
    power Power,
    /// Every machine loses power (only where fsync promises to survive it).
    blackout Blackout,
    /// Every machine loses power although nothing but the flushes in the background is fsynced.
    blackout_replicated BlackoutReplicated,
    /// Every machine of one shard, and no other, loses power in the same way.
    shard_blackout ShardBlackout,
    /// Every process is killed, disks stay.
    kill_all KillAll,
    /// A member is lost, and every process is killed while a joiner copies what it had.
    kill_all_copying KillAllCopying,
    /// A node is stopped and goes on later, without knowing that.
    zombie Zombie,
    /// A node gets slow.
    slow Slow,
    /// Hosts are cut off from each other.
    partition Partition,
    /// One direction between two hosts is cut.
    one_way OneWay,
    /// The coordinator is killed and comes back.
    coordinator Coordinator,
    /// The coordinator is away for a whole minute.
    coordinator_minute CoordinatorMinute,
    /// The coordinator's process is killed, and comes back soon.
    coordinator_restart CoordinatorRestart,
    /// The coordinator's machine loses power, and comes back soon.
    coordinator_reboot CoordinatorReboot,
    /// The coordinator's machine loses power as soon as it tells something new.
    coordinator_telling CoordinatorTelling,
    /// The leader of a group of coordinators is cut off from the other members, and not from all nodes.
    leader_cut LeaderCut,
    /// The coordinator's folder is lost, or an older copy takes its place, and it comes back later.
    lost_memory LostMemory,
    /// A client dies for ever, and another is born.
    client Client,
    /// A client is stopped, perhaps for longer than its lease.
    client_pause ClientPause,
    /// Nodes hear a front, and the front hears none of them, for longer than it waits for the outcome of a command.
    deaf_front DeafFront,
    /// A primary is cut off from its backups, and mostly from the coordinator, but not from all clients.
    depose Depose,
    /// A primary is cut off together with its witnesses and some clients: they go on, and no other node can recover the
    /// shard.
    apart Apart,
    /// A primary is cut off. When its successor restarts, it comes back for its backups, but not for the coordinator.
    old_primary OldPrimary,
    /// A witness is cut off from the coordinator only; when its list changes, the primary dies with a tail of its own.
    list_change ListChange,
    /// A node dies, and a file of it that must be whole is damaged or gone when it comes back.
    damage Damage,
    /// A primary is cut off from the coordinator only: the other nodes report that they hear it.
    unheard Unheard,
    /// A backup of a whole set dies, and comes back when the others have gone on without it.
    away Away,
    /// A shard's witnesses lose their files, or are away, while only the last primary has what was answered last.
    without_witness WithoutWitness,
    /// A node is asked to stop, and then its machine is switched off, or loses power before the stop is over, or later.
    orderly_stop OrderlyStop,
}

impl Acts {
    /// An act, drawn by weight; `None`: all weights are 0.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> Option<Act> {
        let all: u64 = self.weights().map(|(_, weight)| weight).sum();
        let mut draw = if all == 0 { return None } else { rng.below(all) };
        for (act, weight) in self.weights() {
            if draw < weight {
                return Some(act);
            }
            draw -= weight;
        }
        None
    }
}

impl Intensity {
    /// A world without faults, as in the second phase of every run.
    #[must_use]
    pub fn calm() -> Self {
        Self {
            delay: (micros(50), micros(200)),
            loss: 0,
            duplication: 0,
            stray: 0,
            stray_delay: 0,
            reordering: false,
            silent_close: 0,
            turn: (micros(2), micros(20)),
            fsync: (micros(500), millis(3)),
            late_commit: 0,
            fsync_failure: 0,
            dial_pause: 0,
            nemesis_every: 0,
            acts: Acts::default(),
        }
    }

    /// Random faults of the network, without a nemesis.
    pub fn drawn_network(rng: &mut Rng) -> Self {
        let mut drawn =
            |chance: u64, low: u64, high: u64| if rng.chance(chance, 10) { rng.between(low, high) } else { 0 };
        let (loss, duplication, stray) = (drawn(5, 100, 50_000), drawn(5, 100, 50_000), drawn(5, 100, 20_000));
        let (silent_close, late_commit) = (drawn(3, 10_000, 500_000), drawn(5, 10_000, 900_000));
        let slowest = rng.between(100, 2000);
        Self {
            delay: (micros(rng.between(20, 100)), micros(slowest)),
            loss,
            duplication,
            stray,
            stray_delay: millis(rng.between(5, 800)),
            reordering: rng.chance(1, 2),
            silent_close,
            turn: (micros(1), micros(rng.between(5, 200))),
            fsync: (micros(200), millis(rng.between(1, 30))),
            late_commit,
            fsync_failure: 0,
            dial_pause: 0,
            nemesis_every: 0,
            acts: Acts::default(),
        }
    }

    /// Random faults of all kinds.
    pub fn drawn(rng: &mut Rng) -> Self {
        let mut intensity = Self::drawn_network(rng);
        intensity.nemesis_every = millis(rng.between(150, 2500));
        let mut weight = |chance: u64| if rng.chance(chance, 10) { rng.between(1, 10) } else { 0 };
        intensity.acts = Acts {
            crash: weight(5),
            fast_restart: weight(5),
            torn_turn: weight(4),
            power: weight(4),
            blackout: weight(2),
            kill_all: weight(2),
            zombie: weight(5),
            slow: weight(3),
            partition: weight(5),
            one_way: weight(3),
            coordinator: weight(4),
            client: weight(3),
            client_pause: weight(2),
            depose: weight(3),
            old_primary: weight(1),
            list_change: weight(2),
            unheard: weight(2),
            // Drawn only where a scenario asks for them.
            ..Acts::default()
        };
        intensity
    }
}
