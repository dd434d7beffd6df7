//! The parts of a state of the model.
//!
//! Votes and word of settlement are facts: once a shard may send one, every other participant may learn it at any time.
//! A participant that acts on what it knows acts late or early, as it likes, so a fact that is known at once permits
//! everything that a delayed message permits.

use arrayvec::ArrayVec;

/// The greatest number of transactions in a program.
pub const TXNS_MAX: usize = 4;
/// The greatest number of shards.
pub const SHARDS_MAX: usize = 4;
/// The greatest number of keys of a shard.
pub const KEYS_MAX: usize = 3;
/// The greatest number of entries in a log.
pub const LOG_MAX: usize = 10;

/// A transaction, by its place in the program. The number also orders equal timestamps, as a `RpcId` does.
pub type TxnIx = u8;
/// A shard, by its number.
pub type ShardIx = u8;
/// A set of transactions, shards or keys: one bit each.
pub type Set = u8;
/// A timestamp.
pub type Timestamp = u8;
/// For each key, the transaction that wrote what was read, and 0 for what was there from the start.
pub type Seen = [u8; KEYS_MAX];

/// The members of a set.
pub fn members(set: Set) -> impl Iterator<Item = u8> + Clone {
    (0..8).filter(move |bit| set & 1 << bit != 0)
}

/// An entry group of a shard's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A proposal. That of a coordinated transaction locks its keys, and says what it read there.
    Proposed(TxnIx, Timestamp, Seen),
    /// The participant votes CONFLICT.
    Conflict(TxnIx),
    /// The participant decided ABORT, by what it read.
    Abort(TxnIx, Seen),
    /// The execution, with what was read.
    Executed(Executed),
    /// Another participant's vote ended what was proposed here.
    Ended(TxnIx),
    /// The client's acknowledgement, or the end of its lease: what is new here from now on never happens here.
    Floor(TxnIx),
}

/// The execution of a transaction at one shard. That of a read stands in the log only for its place among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Executed {
    /// The transaction.
    pub txn: TxnIx,
    /// Its timestamp.
    pub at: Timestamp,
    /// What it read.
    pub seen: Seen,
    /// A single-shard update that may be answered before it is synced.
    pub is_fast: bool,
    /// It writes nothing, and the log does not have it.
    pub is_read: bool,
    /// What its answer waited for when it was executed, logged with it (R8.15).
    pub gate: Set,
}

impl Entry {
    /// The transaction that the entry is about.
    pub fn txn(self) -> TxnIx {
        match self {
            Self::Proposed(txn, ..)
            | Self::Conflict(txn)
            | Self::Abort(txn, _)
            | Self::Ended(txn)
            | Self::Floor(txn) => txn,
            Self::Executed(executed) => executed.txn,
        }
    }
}

/// The primary of a shard, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    /// The log.
    pub log: ArrayVec<Entry, LOG_MAX>,
    /// Entries that every member holds.
    pub synced: u8,
    /// For each transaction that was executed here, the transactions that must settle before the answer leaves.
    pub gates: [Set; TXNS_MAX],
    /// The timestamp up to which the durable ceiling reaches, at least.
    pub ceiling: Timestamp,
    /// A new primary starts above this.
    pub floor: Timestamp,
    /// Updates that the shard's witness holds.
    pub witness: Set,
    /// Distributed of which nothing is left but what they wrote.
    pub forgotten: Set,
    /// Prepared transactions that may be answered before they are synced: nothing overlapped.
    pub fast: Set,
    /// For each transaction, the participants whose votes have arrived. Used where votes may imply others.
    pub heard: [Set; TXNS_MAX],
}

/// What a caller knows of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The call has not begun.
    Waiting,
    /// The call is under way.
    Running,
    /// *Committed.*
    Committed,
    /// *Not committed*, because of what this participant read.
    Aborted(ShardIx),
    /// *Not committed*: there was a conflict, or nothing can be said of what was read.
    NotCommitted,
}

impl Stage {
    /// Whether the caller has an answer.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }
}

/// A call of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Txn {
    /// What the caller knows.
    pub stage: Stage,
    /// The transactions that had ended when this one began.
    pub before: Set,
    /// What the participants told the client that they read.
    pub told: [Option<Seen>; SHARDS_MAX],
    /// For each shard to which the second read has come: what the read waits for there.
    pub awaits: [Option<Set>; SHARDS_MAX],
    /// Shards that were read a second time, and had not changed.
    pub again: Set,
    /// The timestamp of the client's decision; 0: none.
    pub decision: Timestamp,
    /// The client has acknowledged the result, or its lease is over.
    pub is_let_go: bool,
}

/// What participants have told each other of one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Votes {
    /// The newest proposal of each shard that left for the other participants; 0: none.
    pub proposed: [Timestamp; SHARDS_MAX],
    /// The newest proposal of each shard that the client may count on, and what it read.
    pub promised: [Option<(Timestamp, Seen)>; SHARDS_MAX],
    /// What a primary promised before the newest one did, if that was something else.
    pub older: [Option<(Timestamp, Seen)>; SHARDS_MAX],
    /// Shards whose witness ever took it, and what their primaries ever promised for that. Used only where attempts are
    /// mixed.
    pub accepted: Set,
    /// See `accepted`.
    pub spoken: [Option<(Timestamp, Seen)>; SHARDS_MAX],
    /// The timestamp of an execution that is on every member of its shard; 0: none.
    pub outcome: Timestamp,
    /// Shards that voted CONFLICT or ABORT.
    pub against: Set,
    /// Shards that have executed it and whose gate there is open.
    pub settled: Set,
    /// For each shard that has executed it and whose gate there was shut: what others were told that the gate waits for.
    /// A primary that fails over takes nothing of that back.
    pub behind: [Option<Set>; SHARDS_MAX],
    /// Shards whose outcome is on every member.
    pub recorded: Set,
    /// Shards that say: it never happens here, or it is long over.
    pub never: Set,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The calls of the program.
    pub txns: ArrayVec<Txn, TXNS_MAX>,
    /// What is known of each.
    pub votes: ArrayVec<Votes, TXNS_MAX>,
    /// The shards.
    pub shards: ArrayVec<Shard, SHARDS_MAX>,
    /// Crashes that may still happen.
    pub crashes: u8,
}

impl State {
    /// The transaction with this number.
    pub fn txn(&self, txn: TxnIx) -> &Txn {
        &self.txns[usize::from(txn)]
    }

    /// The transaction with this number, to be changed.
    pub fn txn_mut(&mut self, txn: TxnIx) -> &mut Txn {
        &mut self.txns[usize::from(txn)]
    }

    /// What is known of a transaction.
    pub fn votes(&self, txn: TxnIx) -> &Votes {
        &self.votes[usize::from(txn)]
    }

    /// What is known of a transaction, to be changed.
    pub fn votes_mut(&mut self, txn: TxnIx) -> &mut Votes {
        &mut self.votes[usize::from(txn)]
    }

    /// The shard with this number.
    pub fn shard(&self, shard: ShardIx) -> &Shard {
        &self.shards[usize::from(shard)]
    }

    /// The shard with this number, to be changed.
    pub fn shard_mut(&mut self, shard: ShardIx) -> &mut Shard {
        &mut self.shards[usize::from(shard)]
    }
}

/// How far a transaction is at a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is known of it.
    New,
    /// It has proposed this, and has no outcome.
    Pending(Timestamp),
    /// It is executed.
    Executed(Executed),
    /// It is recorded that it does not happen.
    Against,
    /// An acknowledgement or the end of a lease says that nothing more happens, and nothing else is left.
    Stale,
}

impl Shard {
    /// How far a transaction is here.
    pub fn progress(&self, txn: TxnIx) -> Progress {
        if self.forgotten & 1 << txn != 0 {
            return Progress::Stale;
        }
        let is_about_it = |entry: &&Entry| entry.txn() == txn;
        let state = self.log.iter().rev().filter(is_about_it).find(|entry| !matches!(entry, Entry::Floor(_)));
        match state {
            None if self.has_floor(txn) => Progress::Stale,
            None | Some(Entry::Floor(_)) => Progress::New,
            Some(&Entry::Proposed(_, at, _)) => Progress::Pending(at),
            Some(&Entry::Executed(executed)) => Progress::Executed(executed),
            Some(Entry::Conflict(_) | Entry::Abort(..) | Entry::Ended(_)) => Progress::Against,
        }
    }

    /// The transaction's execution, whether anything else is known of it or not.
    pub fn execution(&self, txn: TxnIx) -> Option<&Executed> {
        self.executions().find(|executed| executed.txn == txn)
    }

    /// The place of the transaction's last entry, floors left out.
    pub fn place(&self, txn: TxnIx) -> Option<u8> {
        let is_state = |entry: &Entry| entry.txn() == txn && !matches!(entry, Entry::Floor(_));
        self.log.iter().rposition(is_state).map(|at| at as u8)
    }

    /// Whether the log has the acknowledgement of the transaction, or the end of its client's lease.
    pub fn has_floor(&self, txn: TxnIx) -> bool {
        self.log.contains(&Entry::Floor(txn))
    }

    /// Whether that is on every member.
    pub fn is_floor_synced(&self, txn: TxnIx) -> bool {
        self.log.iter().take(usize::from(self.synced)).any(|entry| *entry == Entry::Floor(txn))
    }

    /// Whether the transaction's last entry is on every member.
    pub fn is_synced(&self, txn: TxnIx) -> bool {
        self.place(txn).is_some_and(|at| at < self.synced)
    }

    /// Whether the transaction's own proposal is on every member.
    pub fn is_proposal_synced(&self, txn: TxnIx) -> bool {
        let proposal = |entry: &Entry| matches!(*entry, Entry::Proposed(of, ..) if of == txn);
        self.log.iter().position(proposal).is_some_and(|at| at < usize::from(self.synced))
    }

    /// The executions, in their order.
    pub fn executions(&self) -> impl DoubleEndedIterator<Item = &Executed> + Clone {
        self.log.iter().filter_map(|entry| match entry {
            Entry::Executed(executed) => Some(executed),
            Entry::Proposed(..) | Entry::Conflict(_) | Entry::Abort(..) | Entry::Ended(_) | Entry::Floor(_) => None,
        })
    }
}
