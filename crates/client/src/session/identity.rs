//! One client id: its lease, the sequences that calls hold under it (RIFL 3), and the shards of these calls.
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
    shards: Vec<OfShard>,
    /// Updates are numbered under another id, because some sequences of this one do not end (R4.10).
    pub(super) is_held_up: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    sequence: Sequence,
    slot: u32,
    shard: ShardId,
}

/// What an id keeps of one shard.
#[derive(Clone, Copy, Debug, Default)]
struct OfShard {
    /// Sequences whose updates have not ended.
    open: u16,
    /// The shard has got an update under this id since it was last owed one.
    is_touched: bool,
    /// The shard gets one more update under this id, although updates are numbered under another id.
    is_owed: bool,
}

/// What the end of a sequence changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) shard: ShardId,
    /// The id was held up, and this shard does not hold it up any more.
    pub(super) is_released: bool,
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
            shards: Vec::new(),
            is_held_up: false,
        }
    }

    fn place(sequence: Sequence) -> usize {
        (sequence.0 % OUTSTANDING_MAX) as usize
    }

    pub(super) fn has_room(&self) -> bool {
        self.window.has_room()
    }

    /// The next sequence, for the call in this slot; `None`: the window is full.
    pub(super) fn assign(&mut self, slot: usize, shard: ShardId) -> Option<Assigned> {
        let assigned = self.window.assign()?;
        if self.calls.is_empty() {
            self.calls = vec![None; usize::try_from(OUTSTANDING_MAX).expect("512")].into_boxed_slice();
        }
        let slot = u32::try_from(slot).expect("far below 2^32 calls");
        let held = Held { sequence: assigned.sequence, slot, shard };
        let before = self.calls[Self::place(assigned.sequence)].replace(held);
        assert!(before.is_none(), "{held:?} takes the place of {before:?}");
        self.open += 1;
        let index = usize::from(shard.0);
        if index >= self.shards.len() {
            self.shards.resize(index + 1, OfShard::default());
        }
        let of_shard = &mut self.shards[index];
        of_shard.open += 1;
        (of_shard.is_touched, of_shard.is_owed) = (true, false);
        Some(assigned)
    }

    fn held_at(&self, sequence: Sequence) -> Option<Held> {
        self.calls.get(Self::place(sequence)).copied().flatten().filter(|held| held.sequence == sequence)
    }

    pub(super) fn slot_of(&self, rpc: RpcId) -> Option<usize> {
        self.held_at(rpc.sequence).filter(|_| rpc.client == self.client).map(|held| held.slot as usize)
    }

    /// The outcome of this sequence is known, or never will be: it may be acknowledged.
    pub(super) fn finish(&mut self, sequence: Sequence) -> Ended {
        let held = self.held_at(sequence).unwrap_or_else(|| panic!("{sequence} was not held"));
        self.calls[Self::place(sequence)] = None;
        self.window.finish(sequence);
        self.open -= 1;
        let of_shard = &mut self.shards[usize::from(held.shard.0)];
        of_shard.open -= 1;
        let is_released = self.is_held_up && of_shard.open == 0;
        if self.open == 0 && self.is_held_up {
            self.is_held_up = false;
            self.owe_touched();
        }
        Ended { shard: held.shard, is_released }
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

    /// Whether an update to this shard is under way.
    pub(super) fn is_open_at(&self, shard: ShardId) -> bool {
        self.shards.get(usize::from(shard.0)).is_some_and(|of_shard| of_shard.open > 0)
    }

    pub(super) fn owes(&self, shard: ShardId) -> bool {
        self.shards.get(usize::from(shard.0)).is_some_and(|of_shard| of_shard.is_owed)
    }

    /// Each shard of the cluster with no open update here gets one more update, to see whether it answers.
    pub(super) fn owe_untried(&mut self, shards: usize) {
        self.shards.resize(self.shards.len().max(shards), OfShard::default());
        self.shards.iter_mut().for_each(|of_shard| of_shard.is_owed = of_shard.open == 0);
    }

    /// Each shard that had updates gets one more, which carries the last acknowledgement.
    fn owe_touched(&mut self) {
        self.shards.iter_mut().for_each(|of_shard| of_shard.is_owed = std::mem::take(&mut of_shard.is_touched));
    }

    pub(super) fn owe_nothing(&mut self) {
        self.shards.iter_mut().for_each(|of_shard| of_shard.is_owed = false);
    }
}
