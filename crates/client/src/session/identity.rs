//! One client id: its lease, the sequences that calls hold under it (RIFL 3), and which shards those are about.
//!
//! At most `OUTSTANDING_MAX` sequences are held. Which of a session's ids an update gets is the business of `identities`.

use kasha_exactly_once::{Assigned, ClientWindow};
use kasha_types::limits::OUTSTANDING_MAX;
use kasha_types::{ClientId, ClusterTime, RpcId, Sequence, ShardId, Tick};

/// A client id's sequences and the calls that hold them.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) client: ClientId,
    pub(super) expiry: ClusterTime,
    /// When `RenewLease` is due: at a third of the term, and then again and again.
    pub(super) renew_at: Tick,
    /// The number of its last table request.
    pub(super) table_sequence: u64,
    pub(super) window: ClientWindow,
    max: u64,
    /// What holds `sequence % OUTSTANDING_MAX`: the window makes it unique. Empty until the first sequence is held.
    calls: Box<[Option<Held>]>,
    open: u64,
    shards: Vec<OfShard>,
    /// Updates are numbered elsewhere, because some of its sequences do not end (R4.10).
    pub(super) is_held_up: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    sequence: Sequence,
    slot: u32,
    shard: ShardId,
}

/// What an identity has to do with a shard.
#[derive(Clone, Copy, Debug, Default)]
struct OfShard {
    /// Sequences whose updates have not ended.
    open: u16,
    /// It got an update since it was last owed one.
    is_touched: bool,
    /// It gets one more update under this id, though others are numbered elsewhere.
    is_owed: bool,
}

/// What the end of a sequence came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) shard: ShardId,
    /// The identity was held up, and holds up this shard no longer.
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

    /// The result of this sequence is there, or never will be: it may be acknowledged.
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

    /// Half of the window is left.
    pub(super) fn is_half_free(&self) -> bool {
        self.window.unacknowledged() * 2 <= self.max && self.has_room()
    }

    /// How many sequences calls hold.
    pub(super) fn open(&self) -> u64 {
        self.open
    }

    /// Sequences that ended above one that did not.
    pub(super) fn waiting_for_oldest(&self) -> u64 {
        self.window.unacknowledged() - self.open
    }

    /// The call that holds everything up, and its shard.
    pub(super) fn oldest(&self) -> Option<(usize, ShardId)> {
        let held = self.held_at(Sequence(self.window.acknowledgement().0))?;
        Some((held.slot as usize, held.shard))
    }

    /// An eighth of the window or less is left.
    pub(super) fn is_crowded(&self) -> bool {
        self.window.unacknowledged() >= self.max - self.max / 8
    }

    /// A share of the window waits for its oldest sequence.
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

    /// Each of the cluster's shards that has nothing open here gets one more update, to see whether it answers.
    pub(super) fn owe_untried(&mut self, shards: usize) {
        self.shards.resize(self.shards.len().max(shards), OfShard::default());
        self.shards.iter_mut().for_each(|of_shard| of_shard.is_owed = of_shard.open == 0);
    }

    /// Each shard that had updates gets one more, which tells the last acknowledgement.
    fn owe_touched(&mut self) {
        self.shards.iter_mut().for_each(|of_shard| of_shard.is_owed = std::mem::take(&mut of_shard.is_touched));
    }

    pub(super) fn owe_nothing(&mut self) {
        self.shards.iter_mut().for_each(|of_shard| of_shard.is_owed = false);
    }
}
