//! What a log says in the order in which it was first written, and the properties of members' memories and files.

use stateright::Property;

use crate::cleaner::Cleaner;
use crate::cleaner::memory::{Memory, is_object, version_at};
use crate::cleaner::rules::Rule;
use crate::cleaner::state::{Entry, FOLLOWER, KEYS_MAX, Kind, PRIMARY, State, UPDATES_MAX, freed_by, has};

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Hole,
    Value,
    Version,
    RunsTwice,
    ResultLost,
    OperationKey,
    FloorFalls,
    LeadsNowhere,
    Differs,
}

impl Fault {
    fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// All of them.
pub fn all() -> Vec<Property<Cleaner>> {
    macro_rules! never {
        ($name:literal, $fault:ident) => {
            Property::always($name, |_: &Cleaner, state: &State| state.faults & Fault::$fault.bit() == 0)
        };
    }
    vec![
        never!("D4: a log lacks only what it says is freed", Hole),
        never!("D2: each key is as its last change left it", Value),
        never!("R4.8: versions go on above all that were given", Version),
        never!("E1: what has run is new to nobody", RunsTwice),
        never!("E3: a result that nobody acknowledged is kept", ResultLost),
        never!("R4.9: an operation key stands for its run", OperationKey),
        never!("F2: a floor does not fall", FloorFalls),
        never!("R4.4: nothing leads to what was let go", LeadsNowhere),
        never!("a follower that has replayed all is what its primary is", Differs),
    ]
}

/// What a log says in the order in which it was first written, copies left out.
#[derive(Debug, Default)]
struct Said {
    /// The version and whether there is a value.
    keys: [(u8, bool); KEYS_MAX],
    /// Leases of what ran, by sequence.
    ran: [Option<u8>; UPDATES_MAX],
    acknowledged: u8,
    floor: u8,
    /// The run of the operation key, and when it expires.
    run: Option<(u8, u8)>,
    time: u8,
}

impl Said {
    fn by(log: &[Entry]) -> Self {
        let mut said = Self::default();
        for entry in log.iter().filter(|entry| !entry.is_copy) {
            match entry.kind {
                Kind::Object { key, version, .. } => said.keys[usize::from(key)] = (version, true),
                Kind::Tombstone { key, version, .. } => said.keys[usize::from(key)] = (version, false),
                Kind::Record { sequence, lease, acknowledgement } => {
                    said.ran[usize::from(sequence) - 1] = Some(lease);
                    said.acknowledged = said.acknowledged.max(acknowledgement.min(sequence));
                }
                Kind::OperationKey { run, expires } => said.run = Some((run, expires)),
                Kind::Dropped { at } => {
                    said.time = said.time.max(at);
                    said.run = said.run.filter(|&(_, expires)| expires >= at);
                }
                Kind::ExpiryFloor { time, .. } => said.floor = said.floor.max(time),
                Kind::VersionFloor { .. } | Kind::Freed { .. } => {}
            }
        }
        said
    }

    /// What is wrong with a memory that was derived from this log.
    fn faults_of(&self, memory: &Memory, log: &[Entry]) -> u16 {
        let mut faults = 0;
        let mut check = |holds: bool, fault: Fault| faults |= if holds { 0 } else { fault.bit() };
        for (key, &(version, is_there)) in (0u8..).zip(&self.keys) {
            let known = memory.keys[usize::from(key)];
            let is_known = known.is_some_and(|at| is_object(log, at));
            let is_right = !is_there || known.is_some_and(|at| version_at(log, at) == version);
            check(is_known == is_there && is_right, Fault::Value);
            check(is_there || memory.next_version(log, key) > version, Fault::Version);
        }
        for (sequence, lease) in (1u8..).zip(&self.ran) {
            let Some(lease) = *lease else { continue };
            let is_found =
                memory.client.as_ref().is_some_and(|client| client.records[usize::from(sequence) - 1].is_some());
            check(!memory.is_new(sequence, lease), Fault::RunsTwice);
            check(is_found || sequence < self.acknowledged || lease <= self.floor, Fault::ResultLost);
        }
        let run = self.run.filter(|&(_, expires)| expires >= self.time).map(|(run, _)| run);
        check(memory.run_found(log) == run, Fault::OperationKey);
        faults
    }
}

impl Cleaner {
    /// What is wrong in a state.
    pub(super) fn judge(&self, state: &State) -> u16 {
        let members = self.judge_member(state, PRIMARY) | self.judge_member(state, FOLLOWER);
        // The absence of other rules is better seen in what is lost.
        let is_asked = self.off.is_none_or(|off| off == Rule::NothingOfPendingFloor);
        members | if is_asked { differs(state) } else { 0 }
    }

    fn judge_member(&self, state: &State, member: usize) -> u16 {
        let log = state.log_of(member);
        let (said, this) = (Said::by(log), &state.members[member]);
        let mut faults = said.faults_of(&this.memory, log);
        if log.iter().any(|entry| !has(this.held | freed_by(log), entry.segment)) {
            faults |= Fault::Hole.bit();
        }
        if this.memory.references().any(|at| !has(this.held, log[usize::from(at)].segment)) {
            faults |= Fault::LeadsNowhere.bit();
        }
        // A process that starts finds the segments that the log does not call freed. A replay without a restart also finds
        // the freed ones that are not let go yet.
        let found = this.held & !freed_by(log);
        for held in [found, this.held].into_iter().take(if found == this.held { 1 } else { 2 }) {
            let memory = self.replay(log, held);
            faults |= said.faults_of(&memory, log);
            if memory.floor < said.floor {
                faults |= Fault::FloorFalls.bit();
            }
        }
        faults
    }
}

/// Whether a follower that has the whole log leads elsewhere than its primary. The two are compared only if neither was
/// derived anew and the primary waits for nothing. A follower drops tombstones later, so these are left out.
fn differs(state: &State) -> u16 {
    let [primary, follower] = &state.members;
    let waits = !state.pending.is_empty() || state.pending_floor.is_some();
    if waits || usize::from(state.shipped) < state.log.len() || primary.anew || follower.anew {
        return 0;
    }
    let objects = |memory: &Memory| memory.keys.map(|key| key.filter(|&at| is_object(&state.log, at)));
    let known = |memory: &Memory| memory.client.as_ref().map(|client| (client.acknowledged, client.records));
    let (ours, theirs) = (&primary.memory, &follower.memory);
    let same = objects(ours) == objects(theirs)
        && known(ours) == known(theirs)
        && (ours.version_floor, ours.version_floor_entry) == (theirs.version_floor, theirs.version_floor_entry)
        && (ours.floor, ours.floor_entry) == (theirs.floor, theirs.floor_entry)
        && (ours.operation_key, ours.time, ours.dropped_entry)
            == (theirs.operation_key, theirs.time, theirs.dropped_entry);
    if same { 0 } else { Fault::Differs.bit() }
}
