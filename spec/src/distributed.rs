//! Model (c): transactions over many shards (design, section 8): independent, coordinated and interactive ones,
//! single-shard operations, and reads of several shards.
//!
//! A shard is a log, how much of it is synced, and what its primary derives of it. Replication, lists of witnesses and
//! leases are in the other models.

mod conflicts;
mod next;
pub mod program;
pub mod programs;
mod properties;
pub mod rules;
pub mod state;
mod steps;
mod tell;

use arrayvec::ArrayVec;
use stateright::{Model, Property};

use crate::distributed::program::{Plan, Program};
use crate::distributed::rules::Rule;
use crate::distributed::state::{Set, ShardIx, Stage, State, TXNS_MAX, Timestamp, Txn, TxnIx, Votes};

/// A program, with all rules or without one.
#[derive(Clone, Debug)]
pub struct Distributed {
    /// The program.
    pub program: &'static Program,
    /// The rule that is switched off.
    pub off: Option<Rule>,
}

/// One step of one machine or client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The call begins, and its requests may arrive from now on.
    Begin(TxnIx),
    /// A request arrives at a participant: a single-shard operation executes, another proposes this timestamp.
    OnRequest(TxnIx, ShardIx, Timestamp),
    /// The shard's witness takes an update, or a prepare.
    OnRecord(TxnIx, ShardIx),
    /// A peer asks a participant that never got its request.
    OnAsked(TxnIx, ShardIx),
    /// The shard's log is synced up to here.
    Advance(ShardIx, u8),
    /// The vote of the first shard arrives at the second.
    OnVote(TxnIx, ShardIx, ShardIx),
    /// A participant that worries sends its vote to the others.
    SendVote(TxnIx, ShardIx),
    /// A participant executes a distributed transaction at this timestamp.
    Execute(TxnIx, ShardIx, Timestamp),
    /// A participant learns that another voted CONFLICT or ABORT.
    OnVoteAgainst(TxnIx, ShardIx),
    /// A participant's result reaches the client.
    Answer(TxnIx, ShardIx),
    /// The votes of an interactive transaction reach the client, those of earlier primaries from these shards.
    AnswerPrepared(TxnIx, Set),
    /// ABORT reaches the client.
    AnswerAbort(TxnIx, ShardIx),
    /// CONFLICT reaches the client.
    AnswerConflict(TxnIx),
    /// The first read of a shard reaches the client.
    Read(TxnIx, ShardIx),
    /// The second read comes to a shard.
    Ask(TxnIx, ShardIx),
    /// The second read of a shard reaches the client.
    ReadAgain(TxnIx, ShardIx),
    /// The client acknowledges its result, or its lease ends.
    LetGo(TxnIx),
    /// A shard logs that.
    LogFloor(TxnIx, ShardIx),
    /// A shard forgets a transaction.
    Forget(TxnIx, ShardIx),
    /// The primary dies; the next has this much of the log, and replays these updates and prepares. Its clock may be
    /// ahead.
    Crash(ShardIx, u8, ArrayVec<TxnIx, TXNS_MAX>, bool),
}

impl Distributed {
    /// Whether a rule is switched on.
    pub fn keeps(&self, rule: Rule) -> bool {
        self.off != Some(rule)
    }

    fn plan(&self, txn: TxnIx) -> &'static Plan {
        &self.program.plans[usize::from(txn)]
    }

    fn txns(&self) -> impl Iterator<Item = TxnIx> + Clone + use<> {
        0..self.program.plans.len() as u8
    }
}

impl Model for Distributed {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let txn = Txn {
            stage: Stage::Waiting,
            before: 0,
            told: Default::default(),
            awaits: Default::default(),
            again: 0,
            decision: 0,
            is_let_go: false,
        };
        let shard = state::Shard {
            log: ArrayVec::new(),
            synced: 0,
            gates: Default::default(),
            ceiling: 0,
            floor: 0,
            witness: 0,
            forgotten: 0,
            heard: Default::default(),
            fast: 0,
        };
        vec![State {
            txns: self.txns().map(|_| txn).collect(),
            votes: self.txns().map(|_| Votes::default()).collect(),
            shards: (0..self.program.shards).map(|_| shard.clone()).collect(),
            crashes: self.program.crashes,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.client_actions(state, actions);
        self.shard_actions(state, actions);
        self.crashes(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        self.step(&mut next, &action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
