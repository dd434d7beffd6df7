//! What a program of this model consists of: transactions, what each of them touches, and what may go wrong meanwhile.

use crate::distributed::state::{Set, ShardIx, TxnIx};

/// How a transaction comes to its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// One shard, no vote.
    Single,
    /// Each participant comes to the same decision alone.
    Independent,
    /// Participants vote, under locks. The client has its answer when every participant has prepared or executed it.
    Coordinated,
    /// The same. In one round trip the client decides instead of the participants.
    Interactive,
    /// Reads of several shards, each of them twice, without a vote.
    Reads,
}

/// What a transaction touches at one shard: sets of keys.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The shard.
    pub shard: ShardIx,
    /// Keys that it reads.
    pub reads: Set,
    /// Keys that it writes.
    pub writes: Set,
}

/// A transaction of a program.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Its class.
    pub class: Class,
    /// Its parts, one for each participant.
    pub parts: &'static [Part],
    /// The transaction that must have ended before this one begins.
    pub after: Option<TxnIx>,
    /// What this participant reads makes it vote ABORT.
    pub aborts_at: Option<ShardIx>,
}

impl Plan {
    const fn new(class: Class, parts: &'static [Part]) -> Self {
        Self { class, parts, after: None, aborts_at: None }
    }

    pub(super) const fn after(self, txn: TxnIx) -> Self {
        Self { after: Some(txn), ..self }
    }

    pub(super) const fn aborts_at(self, shard: ShardIx) -> Self {
        Self { aborts_at: Some(shard), ..self }
    }

    /// Whether more than one shard takes part.
    pub fn is_distributed(&self) -> bool {
        self.class != Class::Single
    }

    /// Whether participants lock.
    pub fn locks(&self) -> bool {
        matches!(self.class, Class::Coordinated | Class::Interactive)
    }

    /// Whether it writes anywhere.
    pub fn writes(&self) -> bool {
        self.parts.iter().any(|part| part.writes != 0)
    }

    /// What it touches at a shard.
    pub fn part(&self, shard: ShardIx) -> Option<&Part> {
        self.parts.iter().find(|part| part.shard == shard)
    }

    /// The participants.
    pub fn participants(&self) -> Set {
        self.parts.iter().map(|part| 1 << part.shard).sum()
    }
}

pub(super) const X: Set = 1;
pub(super) const Y: Set = 2;
pub(super) const Z: Set = 4;

pub(super) const fn part(shard: ShardIx, reads: Set, writes: Set) -> Part {
    Part { shard, reads, writes }
}

pub(super) const fn single(parts: &'static [Part]) -> Plan {
    Plan::new(Class::Single, parts)
}

pub(super) const fn independent(parts: &'static [Part]) -> Plan {
    Plan::new(Class::Independent, parts)
}

pub(super) const fn coordinated(parts: &'static [Part]) -> Plan {
    Plan::new(Class::Coordinated, parts)
}

pub(super) const fn interactive(parts: &'static [Part]) -> Plan {
    Plan::new(Class::Interactive, parts)
}

pub(super) const fn reads(parts: &'static [Part]) -> Plan {
    Plan::new(Class::Reads, parts)
}

/// What becomes of what is known of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgets {
    /// It is kept for ever.
    Nothing,
    /// Clients acknowledge their results.
    Acknowledged,
    /// Clients may die at any time, and their leases end.
    Expired,
}

/// A program and its bounds.
#[derive(Debug)]
pub struct Program {
    /// The name of the program.
    pub name: &'static str,
    /// What the program is for.
    pub about: &'static str,
    /// Number of shards.
    pub shards: u8,
    /// The transactions.
    pub plans: &'static [Plan],
    /// Number of crashes.
    pub crashes: u8,
    /// The shards that may crash. What the others append is synced at once: without a crash, a sync is only late.
    pub crash_at: Set,
    /// Clocks run apart: a proposal may be above the floor by so much, or by one.
    pub ahead: u8,
    /// The shards whose clocks may be ahead.
    pub ahead_at: Set,
    /// Whether a participant that never got its request may be asked by a peer.
    pub refusals: bool,
    /// Whether callers may cancel.
    pub cancels: bool,
    /// Whether witnesses take updates, so that they may be answered before they are synced.
    pub witnesses: bool,
    /// Whether votes arrive one by one, so that one of them may imply others.
    pub implies: bool,
    /// Whether coordinated and interactive transactions commit in one round trip: their prepares are recorded at witnesses.
    pub one_trip: bool,
    /// What may be forgotten.
    pub forgets: Forgets,
    /// The transactions of which that holds.
    pub forgotten: Set,
    /// The shards that may forget.
    pub forgets_at: Set,
    /// Whether the program is searched in the small bounds, too.
    pub is_small: bool,
}

pub(super) const PLAIN: Program = Program {
    name: "",
    about: "",
    shards: 2,
    plans: &[],
    crashes: 0,
    crash_at: !0,
    ahead: 1,
    ahead_at: !0,
    refusals: false,
    cancels: false,
    witnesses: true,
    implies: false,
    one_trip: false,
    forgets: Forgets::Nothing,
    forgotten: !0,
    forgets_at: !0,
    is_small: true,
};
