//! One client id: its lease, the sequences that calls hold under it (RIFL 3), and the places of these calls.
//!
//! Calls hold at most `OUTSTANDING_MAX` sequences. `identities` decides which id of the session an update gets.

use kasha_exactly_once::{Assigned, ClientWindow};
use kasha_types::limits::OUTSTANDING_MAX;
use kasha_types::{ClientId, ClusterTime, RpcId, Sequence, ShardId, Tick};

/// A client id with its sequences and the calls that hold them.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) client: ClientId,
    pub(super) expiry: ClusterTime,
    /// When `RenewLease` is due: at a third of the lease's term, and then repeatedly.
    pub(super) renew_at: Tick,
    /// The number of the last table request under this id.
    pub(super) table_sequence: u64,
    pub(super) window: ClientWindow,
    max: u64,
    /// The call that holds `sequence % OUTSTANDING_MAX`; the window makes that index unique. Empty until a sequence is
    /// held.
    calls: Box<[Option<Held>]>,
    open: u64,
    places: Vec<OfPlace>,
    /// Updates are numbered under another id, because some sequences of this one do not end (R4.10).
    pub(super) is_held_up: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    sequence: Sequence,
    slot: u32,
    /// The update's shard, or one of them, which is named if the update holds up others.
    shard: ShardId,
    place: Place,
}

/// Where an update is to be executed: updates of the same place end or hang together. An update of several shards hangs if one
/// of them does, and nobody knows which one. So these shards together are a place of their own, and it is no reason to hold
/// back what is for one of them alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// All keys are of this shard.
    Shard(ShardId),
    /// Several shards, by a hash of their numbers. Two sets with the same hash are one place.
    Several(u8),
}

/// Places of several shards.
const SEVERAL: usize = 1 << u8::BITS;

impl Place {
    pub(super) fn several(shards: impl Iterator<Item = ShardId>) -> Self {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash =
            shards.fold(0, |hash: u64, shard| (hash ^ u64::from(shard.0)).wrapping_add(1).wrapping_mul(MULTIPLIER));
        Self::Several((hash >> 56) as u8)
    }

    fn index(self) -> usize {
        match self {
            Self::Several(hash) => usize::from(hash),
            Self::Shard(shard) => SEVERAL + usize::from(shard.0),
        }
    }
}

/// What an id keeps of one place.
#[derive(Clone, Copy, Debug, Default)]
struct OfPlace {
    /// Sequences whose updates have not ended.
    open: u16,
    /// The place has got an update under this id since it was last owed one.
    is_touched: bool,
    /// The place gets one more update under this id, although updates are numbered under another id.
    is_owed: bool,
}

/// What the end of a sequence changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) place: Place,
    /// The id was held up, and this place does not hold it up any more.
    pub(super) is_released: bool,
    /// Nothing holds up the id any more.
    pub(super) is_over: bool,
}

impl Identity {
    pub(super) fn new(client: ClientId, max: u64, expiry: ClusterTime, renew_at: Tick) -> Self {
        Self {
            client,
            expiry,
            renew_at,
            table_sequence: 0,
            window: ClientWindow::with_max(max),
            max,
            calls: Box::default(),
            open: 0,
            places: Vec::new(),
            is_held_up: false,
        }
    }

    fn index_of(sequence: Sequence) -> usize {
        (sequence.0 % OUTSTANDING_MAX) as usize
    }

    pub(super) fn has_room(&self) -> bool {
        self.window.has_room()
    }

    /// The next sequence, for the call in this slot; `None`: the window is full.
    pub(super) fn assign(&mut self, slot: usize, shard: ShardId, place: Place) -> Option<Assigned> {
        let assigned = self.window.assign()?;
        if self.calls.is_empty() {
            self.calls = vec![None; usize::try_from(OUTSTANDING_MAX).expect("512")].into_boxed_slice();
        }
        let slot = u32::try_from(slot).expect("far below 2^32 calls");
        let held = Held { sequence: assigned.sequence, slot, shard, place };
        let before = self.calls[Self::index_of(assigned.sequence)].replace(held);
        assert!(before.is_none(), "{held:?} takes the place of {before:?}");
        self.open += 1;
        let index = place.index();
        if index >= self.places.len() {
            self.places.resize(index + 1, OfPlace::default());
        }
        let of_place = &mut self.places[index];
        of_place.open += 1;
        (of_place.is_touched, of_place.is_owed) = (true, false);
        Some(assigned)
    }

    fn held_at(&self, sequence: Sequence) -> Option<Held> {
        self.calls.get(Self::index_of(sequence)).copied().flatten().filter(|held| held.sequence == sequence)
    }

    pub(super) fn slot_of(&self, rpc: RpcId) -> Option<usize> {
        self.held_at(rpc.sequence).filter(|_| rpc.client == self.client).map(|held| held.slot as usize)
    }

    /// The outcome of this sequence is known, or never will be: it may be acknowledged. `is_trial_void`: that tells nothing of
    /// whether the place answers, which is tried again.
    pub(super) fn finish(&mut self, sequence: Sequence, is_trial_void: bool) -> Ended {
        let held = self.held_at(sequence).unwrap_or_else(|| panic!("{sequence} was not held"));
        self.calls[Self::index_of(sequence)] = None;
        self.window.finish(sequence);
        self.open -= 1;
        let of_place = &mut self.places[held.place.index()];
        of_place.open -= 1;
        let is_released = self.is_held_up && of_place.open == 0;
        of_place.is_owed |= is_released && is_trial_void;
        let is_over = self.open == 0 && self.is_held_up;
        if is_over {
            self.is_held_up = false;
            self.owe_touched();
        }
        Ended { place: held.place, is_released, is_over }
    }

    /// Whether half of the window is free.
    pub(super) fn is_half_free(&self) -> bool {
        self.window.unacknowledged() * 2 <= self.max && self.has_room()
    }

    /// Number of sequences that calls hold.
    pub(super) fn open(&self) -> u64 {
        self.open
    }

    /// Number of sequences that ended above the oldest one that has not ended.
    pub(super) fn waiting_for_oldest(&self) -> u64 {
        self.window.unacknowledged() - self.open
    }

    /// The oldest call, which holds up the acknowledgement, and its shard.
    pub(super) fn oldest(&self) -> Option<(usize, ShardId)> {
        let held = self.held_at(Sequence(self.window.acknowledgement().0))?;
        Some((held.slot as usize, held.shard))
    }

    /// Whether an eighth of the window or less is free.
    pub(super) fn is_crowded(&self) -> bool {
        self.window.unacknowledged() >= self.max - self.max / 8
    }

    /// Whether this share of the window waits for its oldest sequence.
    pub(super) fn is_share_held_up(&self, one_in: u64) -> bool {
        self.waiting_for_oldest() >= (self.max / one_in).max(1)
    }

    /// Whether an update to this place is under way.
    pub(super) fn is_open_at(&self, place: Place) -> bool {
        self.places.get(place.index()).is_some_and(|of_place| of_place.open > 0)
    }

    pub(super) fn owes(&self, place: Place) -> bool {
        self.places.get(place.index()).is_some_and(|of_place| of_place.is_owed)
    }

    /// Each place of a cluster of so many shards with no open update here gets one more update, to see whether it answers.
    pub(super) fn owe_untried(&mut self, shards: usize) {
        self.places.resize(self.places.len().max(SEVERAL + shards), OfPlace::default());
        self.places.iter_mut().for_each(|of_place| of_place.is_owed = of_place.open == 0);
    }

    /// Each place that had updates gets one more, which carries the last acknowledgement.
    fn owe_touched(&mut self) {
        self.places.iter_mut().for_each(|of_place| of_place.is_owed = std::mem::take(&mut of_place.is_touched));
    }

    pub(super) fn owe_nothing(&mut self) {
        self.places.iter_mut().for_each(|of_place| of_place.is_owed = false);
    }
}
