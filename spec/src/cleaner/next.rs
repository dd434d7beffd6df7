//! Which actions are possible in a state.

use crate::cleaner::bounds::{Change, FloorOrder};
use crate::cleaner::memory::is_object;
use crate::cleaner::rules::Rule;
use crate::cleaner::state::{FOLLOWER, Kind, LOG_MAX, PENDING_MAX, PRIMARY, Place, SegmentIx, State, freed_by, has};
use crate::cleaner::{Action, Cleaner};

/// Entries of the longest group.
const GROUP_MAX: usize = 2;

impl Cleaner {
    fn has_room(state: &State) -> bool {
        state.log.len() + GROUP_MAX <= LOG_MAX
    }

    /// Requests.
    pub(super) fn request_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !Self::has_room(state) {
            return;
        }
        if let Some(&change) = self.bounds.changes.get(usize::from(state.next_change))
            && may_change(state, change)
        {
            actions.push(Action::OnChange);
        }
        let memory = &state.members[PRIMARY].memory;
        let told = &state.log[..usize::from(state.shipped)];
        for (index, update) in (0..).zip(self.bounds.updates) {
            // Nobody acknowledges what was not told, and only what is synced was surely told.
            let is_told = |sequence: u8| {
                told.iter().any(|entry| matches!(entry.kind, Kind::Record { sequence: of, .. } if of == sequence))
            };
            let is_refused = state.pending_floor.is_some_and(|at| match state.log[usize::from(at)].kind {
                Kind::ExpiryFloor { time, .. } => update.lease <= time,
                other => unreachable!("no floor: {other:?}"),
            });
            let may_run = memory.is_new(index + 1, update.lease) && !is_refused;
            let is_possible = update.change.is_none_or(|change| may_change(state, change));
            if may_run && is_possible && (1..update.acknowledgement).all(is_told) {
                actions.push(Action::OnUpdate(index));
            }
        }
        for (run, &expires) in (0..).zip(self.bounds.runs) {
            let ran =
                state.log.iter().any(|entry| matches!(entry.kind, Kind::OperationKey { run: of, .. } if of == run));
            if memory.operation_key.is_none() && state.now <= expires && !ran {
                actions.push(Action::OnRun(run));
            }
        }
        if state.now < self.bounds.time_max {
            actions.push(Action::Tick);
        }
    }

    /// What a primary does besides requests and cleaning.
    pub(super) fn house_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if let Some(at) = state.pending_floor
            && at < state.shipped
        {
            actions.push(Action::SettleFloor);
        }
        if !Self::has_room(state) {
            return;
        }
        let memory = &state.members[PRIMARY].memory;
        if memory.has_expired(&state.log, state.now) {
            actions.push(Action::ExpireOperationKey);
        }
        if state.left.floors > 0 && state.pending_floor.is_none() && memory.client.is_some() {
            actions.push(Action::OnLeaseVerdict);
        }
        if state.left.version_floors > 0 && self.droppable(state).next().is_some() {
            actions.push(Action::DropTombstones);
        }
        let is_begun = state.log.last().is_some_and(|last| last.segment == state.head);
        if is_begun && state.head + 1 < self.bounds.segments {
            actions.push(Action::Roll);
        }
    }

    /// Tombstones that name only segments that are gone.
    pub(super) fn droppable<'s>(&self, state: &'s State) -> impl Iterator<Item = Place> + use<'s> {
        let held = state.members[PRIMARY].held;
        state.members[PRIMARY].memory.keys.iter().flatten().copied().filter(move |&at| {
            let entry = &state.log[usize::from(at)];
            match entry.kind {
                Kind::Tombstone { oldest, killed, .. } => {
                    (oldest..=killed).all(|segment| segment == entry.segment || !has(held, segment))
                }
                _ => false,
            }
        })
    }

    /// Copies, and segments to be freed.
    pub(super) fn cleaning_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.pending.is_empty() {
            actions.push(Action::Settle);
            if !self.keeps(Rule::NoneAbandoned) {
                actions.push(Action::Abandon);
            }
        }
        if !Self::has_room(state) {
            return;
        }
        if state.left.copies > 0 && state.pending.len() < PENDING_MAX {
            let places = 0..state.log.len() as Place;
            actions.extend(places.filter(|&at| self.may_copy(state, at)).map(Action::Copy));
        }
        let said = freed_by(&state.log);
        let sealed =
            (0..state.head).filter(|&segment| has(state.members[PRIMARY].held, segment) && !has(said, segment));
        actions.extend(sealed.filter(|&segment| self.may_free(state, segment)).map(Action::Free));
    }

    fn may_copy(&self, state: &State, at: Place) -> bool {
        let entry = &state.log[usize::from(at)];
        let is_alive = state.members[PRIMARY].memory.references().any(|known| known == at);
        let is_pending = state.pending.iter().any(|pending| pending.origin == at);
        let is_source = entry.segment < state.head && has(state.members[PRIMARY].held, entry.segment);
        let judged = is_alive || !self.keeps(Rule::LiveWhenAppended) && !matches!(entry.kind, Kind::Freed { .. });
        let of_floor = state.pending_floor.is_none()
            || match entry.kind {
                Kind::Record { .. } => !self.keeps(Rule::NothingOfPendingFloor),
                Kind::ExpiryFloor { .. } => {
                    self.bounds.floor_order == FloorOrder::GreatestInReplay || !self.keeps(Rule::NoFloorBehindPending)
                }
                _ => true,
            };
        is_source && judged && of_floor && (!is_pending || !self.keeps(Rule::OnePendingCopy))
    }

    /// Whether no entry of the segment lives, and none can come to live.
    fn may_free(&self, state: &State, segment: SegmentIx) -> bool {
        let is_there = |at: Place| state.log[usize::from(at)].segment == segment;
        let memory = &state.members[PRIMARY].memory;
        let lives = |at: Place| {
            let is_dropped_key = memory.dropped_entry == Some(at);
            is_there(at) && (!is_dropped_key || self.keeps(Rule::DroppedKeyLives))
        };
        if state.pending_floor.is_some_and(is_there) || state.pending.iter().any(|pending| is_there(pending.copy)) {
            return false;
        }
        !memory.references().any(lives) || !self.keeps(Rule::CopiedBeforeFreed) && state.left.copies > 0
    }

    /// What members do, restarts and fail-overs.
    pub(super) fn member_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if usize::from(state.shipped) < state.log.len() {
            actions.push(Action::OnAppend);
        }
        for member in [PRIMARY, FOLLOWER] {
            if self.next_let_go(state, member).is_some() {
                actions.push(Action::LetGo(member as u8));
            }
        }
        if state.left.restarts > 0 {
            actions.push(Action::Restart);
        }
        if state.left.fail_overs > 0 {
            actions.push(Action::FailOver { restarts: true });
            if usize::from(state.shipped) == state.log.len() {
                actions.push(Action::FailOver { restarts: false });
            }
        }
    }

    /// The segment that a member lets go next: in the order of the words.
    pub(super) fn next_let_go(&self, state: &State, member: usize) -> Option<SegmentIx> {
        let said = match self.keeps(Rule::LetGoWhenSynced) {
            true => &state.log[..usize::from(state.shipped)],
            false => state.log_of(member),
        };
        said.iter().find_map(|entry| match entry.kind {
            Kind::Freed { segment } if has(state.members[member].held, segment) => Some(segment),
            _ => None,
        })
    }
}

fn may_change(state: &State, change: Change) -> bool {
    match change {
        Change::Put(_) => true,
        Change::Delete(key) => {
            state.members[PRIMARY].memory.keys[usize::from(key)].is_some_and(|at| is_object(&state.log, at))
        }
    }
}
