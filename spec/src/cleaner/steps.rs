//! What each action does.

use crate::cleaner::bounds::Change;
use crate::cleaner::memory::version_at;
use crate::cleaner::rules::Rule;
use crate::cleaner::state::{Entry, FOLLOWER, Kind, PRIMARY, Place, State, freed_by};
use crate::cleaner::{Action, Cleaner};

impl Cleaner {
    pub(super) fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::OnChange => {
                let change = self.bounds.changes[usize::from(state.next_change)];
                state.next_change += 1;
                self.execute(state, change);
                self.commit(state);
            }
            Action::OnUpdate(index) => {
                let update = self.bounds.updates[usize::from(index)];
                if let Some(change) = update.change {
                    self.execute(state, change);
                }
                let (lease, acknowledgement) = (update.lease, update.acknowledgement);
                self.append(state, Kind::Record { sequence: index + 1, lease, acknowledgement });
                self.commit(state);
            }
            Action::OnRun(run) => {
                let expires = self.bounds.runs[usize::from(run)];
                self.append(state, Kind::OperationKey { run, expires });
                self.commit(state);
            }
            Action::Tick => state.now += 1,
            Action::ExpireOperationKey => {
                self.append(state, Kind::Dropped { at: state.now });
                self.commit(state);
            }
            Action::OnLeaseVerdict => on_lease_verdict(state),
            Action::SettleFloor => settle_floor(state),
            Action::DropTombstones => self.drop_tombstones(state),
            Action::Roll => state.head += 1,
            Action::Copy(_) | Action::Settle | Action::Abandon => self.clean(state, action),
            Action::Free(segment) => {
                push(state, Kind::Freed { segment });
                self.commit(state);
            }
            Action::LetGo(member) => {
                let member = usize::from(member);
                let segment = self.next_let_go(state, member).expect("there is one");
                let State { members, log, .. } = state;
                members[member].memory.forget_segment(log, segment);
                members[member].held &= !(1 << segment);
            }
            Action::OnAppend => self.on_append(state),
            Action::Restart => {
                state.left.restarts -= 1;
                self.load(state, FOLLOWER);
            }
            Action::FailOver { restarts } => self.fail_over(state, restarts),
        }
    }

    /// The primary appends an entry of its own, and derives what it says.
    fn append(&self, state: &mut State, kind: Kind) -> Place {
        let at = push(state, kind);
        let State { members, log, .. } = state;
        self.replay_entry(&mut members[PRIMARY].memory, log, at);
        at
    }

    /// The group is complete.
    pub(super) fn commit(&self, state: &mut State) {
        state.log.last_mut().expect("it has an entry").ends_group = true;
    }

    /// store `Store::write`.
    fn execute(&self, state: &mut State, change: Change) {
        let (Change::Put(key) | Change::Delete(key)) = change;
        let (log, memory, head) = (&state.log, &state.members[PRIMARY].memory, state.head);
        let prior = memory.keys[usize::from(key)];
        let version = memory.next_version(log, key);
        let oldest = prior.map_or(head, |at| match log[usize::from(at)].kind {
            Kind::Object { oldest, .. } | Kind::Tombstone { oldest, .. } => oldest,
            other => unreachable!("no entry of a key: {other:?}"),
        });
        let kind = match change {
            Change::Put(_) => Kind::Object { key, version, oldest },
            Change::Delete(_) => {
                let origin = prior.expect("there is something to delete");
                let copies =
                    state.pending.iter().filter(|pending| pending.origin == origin).map(|pending| pending.copy);
                let reached = copies.filter(|_| self.keeps(Rule::TombstoneReachesCopy)).chain([origin]);
                let killed = reached.map(|at| log[usize::from(at)].segment).max().expect("the origin");
                Kind::Tombstone { key, version, oldest, killed }
            }
        };
        self.append(state, kind);
    }

    /// A version floor takes over, and the tombstones go.
    fn drop_tombstones(&self, state: &mut State) {
        state.left.version_floors -= 1;
        let droppable: Vec<Place> = self.droppable(state).collect();
        let memory = &state.members[PRIMARY].memory;
        let versions = droppable.iter().map(|&at| version_at(&state.log, at));
        let version = versions.max().expect("there is one").max(memory.version_floor);
        self.append(state, Kind::VersionFloor { version });
        self.commit(state);
        for key in &mut state.members[PRIMARY].memory.keys {
            *key = key.filter(|at| !droppable.contains(at));
        }
    }

    /// The follower takes the next group, and replays it.
    fn on_append(&self, state: &mut State) {
        loop {
            let at = state.shipped;
            let State { members, log, .. } = state;
            let entry = log[usize::from(at)];
            members[FOLLOWER].held |= 1 << entry.segment;
            self.replay_entry(&mut members[FOLLOWER].memory, log, at);
            state.shipped += 1;
            if entry.ends_group {
                return;
            }
        }
    }

    /// node `replica::load`: the files without what the log says is freed, and a full replay.
    fn load(&self, state: &mut State, member: usize) {
        let held = state.members[member].held & !freed_by(state.log_of(member));
        let memory = self.replay(state.log_of(member), held);
        let this = &mut state.members[member];
        (this.held, this.memory, this.anew) = (held, memory, true);
    }

    /// The follower leads, with what was synced. The old primary becomes its follower.
    fn fail_over(&self, state: &mut State, restarts: bool) {
        state.left.fail_overs -= 1;
        let is_cut = usize::from(state.shipped) < state.log.len();
        state.log.truncate(usize::from(state.shipped));
        state.head = state.log.last().map_or(0, |last| last.segment);
        state.members[PRIMARY].held &= (2u8 << state.head) - 1;
        if restarts {
            self.load(state, PRIMARY);
        } else if is_cut {
            // `truncate_log`: what is in memory is replayed, segments that are freed and not gone yet among it.
            let memory = self.replay(&state.log, state.members[PRIMARY].held);
            (state.members[PRIMARY].memory, state.members[PRIMARY].anew) = (memory, true);
        } else {
            self.lose_role(state);
        }
        state.pending.clear();
        state.pending_floor = None;
        state.members.swap(PRIMARY, FOLLOWER);
        // Its clock may be behind, but it has learned what the log speaks of.
        state.now = state.members[PRIMARY].memory.time.max(1);
    }

    /// It keeps its memory: what a follower's replay would have done by now.
    fn lose_role(&self, state: &mut State) {
        while !state.pending.is_empty() && self.keeps(Rule::DeposedSettles) {
            self.clean(state, Action::Settle);
        }
        if state.pending_floor.is_some() {
            settle_floor(state);
        }
    }
}

/// Adds an entry at the primary's end.
pub(super) fn push(state: &mut State, kind: Kind) -> Place {
    let (at, segment) = (state.log.len() as Place, state.head);
    state.log.push(Entry { segment, is_copy: false, ends_group: false, kind });
    state.members[PRIMARY].held |= 1 << segment;
    at
}

fn on_lease_verdict(state: &mut State) {
    state.left.floors -= 1;
    let memory = &state.members[PRIMARY].memory;
    let time = memory.client.as_ref().expect("it is known").lease.max(memory.floor);
    let first = state.log.len() as Place;
    let at = push(state, Kind::ExpiryFloor { time, names_client: true, first });
    state.log.last_mut().expect("just pushed").ends_group = true;
    state.pending_floor = Some(at);
}

/// The floor's entry is synced, or the role is lost.
fn settle_floor(state: &mut State) {
    let at = state.pending_floor.take().expect("one is pending");
    let memory = &mut state.members[PRIMARY].memory;
    let Kind::ExpiryFloor { time, names_client, first } = state.log[usize::from(at)].kind else {
        unreachable!("no floor")
    };
    memory.raise_floor(time, names_client, first);
    memory.floor_entry = Some(at);
}
