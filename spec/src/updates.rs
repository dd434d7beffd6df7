//! Model (a): updates of a few clients at one shard: exactly once, witnesses, attempts, list changes, recoveries.
//!
//! Replication is one step here (`Advance`: every member holds the log up to here), and so is a fence (`Promote`: a log
//! that holds everything that was synced is taken over, and the old primary syncs nothing more). Model (b), `replicas`,
//! is about why these two may be assumed. A primary that crashed is a deposed primary that takes no more steps.
//!
//! | file | what is in it |
//! |---|---|
//! | `state` | what a state consists of; how the network is represented |
//! | `program` | which client calls what, and the bounds |
//! | `rules` | the rules that can be switched off |
//! | `next` | which actions are possible |
//! | `steps` | what each action does |
//! | `primary` | the request path |
//! | `properties` | E1, E2, D1, C3, R2.2, and that the clients' results are linearizable |
//! | `thrift` | fewer states that mean the same |
//! | `tell` | a trace as text |

mod next;
pub mod primary;
pub mod program;
mod properties;
pub mod rules;
pub mod state;
mod steps;
mod tell;
mod thrift;

use arrayvec::ArrayVec;
use stateright::{Model, Property};

use self::program::{Plan, Program};
use self::rules::Rule;
use self::state::{Attempt, CALLS_MAX, Call, CallIx, Lease, Stage, State, Term, TermStage, WitnessList};

/// The model: a program, and the rule that is switched off, if any.
#[derive(Clone, Debug)]
pub struct Updates {
    /// The calls of the clients, and the bounds.
    pub program: &'static Program,
    /// The rule that is switched off.
    pub off: Option<Rule>,
    /// The reductions to use.
    pub thrift: Thrift,
}

/// Reductions: ways to search fewer states (see `thrift`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Thrift {
    /// One state stands for all states that differ in names only.
    pub names: bool,
    /// State that no recovery reads any more is left out.
    pub last_list: bool,
}

/// What may happen next. Each action is named after the code that does it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// client `updates::start_update`, `send_update`: the first attempt, or another.
    StartUpdate { call: CallIx, attempt: Attempt },
    /// client `replies::on_answer`, `on_recorded`, `judge`: answered, and accepted by all witnesses of `list`.
    OnAnswer { call: CallIx, list: u8 },
    /// client `replies::on_answer`: a gated answer of the term's primary arrived.
    OnSyncedAnswer { call: CallIx, epoch: u8 },
    /// client `replies::on_synced`: the primary of `epoch` confirms the answer that the client has.
    OnSynced { call: CallIx, list: u8, epoch: u8 },
    /// The same, for a hit of an operation key that left no record.
    OnHit { call: CallIx, epoch: u8 },
    /// client `replies::on_refused`, where a refusal is treated as an outcome.
    OnRefused { call: CallIx },
    /// client `updates::cancel`.
    Cancel { call: CallIx },
    /// node `request::on_request` (and `Cancel`, once the caller has given up).
    OnRequest { call: CallIx, attempt: Attempt },
    /// node `reads::on_read`.
    OnRead { call: CallIx, epoch: u8 },
    /// Everything that a read overlapped with is synced, and its answer has arrived.
    OnReadSynced { call: CallIx },
    /// node `witnessing::on_record`.
    OnRecord { call: CallIx, list: u8, witness: u8 },
    /// replication `Shipping::advance`: every member holds this much.
    Advance { epoch: u8, to: u8 },
    /// node `garbage::collect`, `witnessing::on_gc`.
    OnGc { epoch: u8, call: CallIx, list: u8, witness: u8 },
    /// node `request::on_suspect`.
    OnSuspect { call: CallIx, epoch: u8 },
    /// coordinator `repair::close_list`, `Command::CloseList`.
    CloseList,
    /// node `Serving::update`: the primary learns that the list closes.
    ObeyClosing,
    /// node `Serving::list_is_closed`, coordinator `Command::OpenList`.
    OpenList,
    /// node `Serving::update`: the primary learns of the new list.
    ObeyOpened,
    /// coordinator `Command::Promote`, node `replica::begin_term`, `fence`, `log_is_replayed`.
    Promote { from: u8, end: u8 },
    /// node `primary::on_witness_holds`, `begin_epoch`, `request::on_replay` in this order.
    OnWitnessHolds { witness: u8, order: ArrayVec<CallIx, CALLS_MAX> },
    /// A recovery goes on without a witness.
    SkipWitness,
    /// coordinator `Command::Recovered`, node `primary::begin_serving`.
    Recovered,
    /// coordinator `on_lease_query`, node `leases::on_verdict`: client 1's lease is over.
    OnLeaseVerdict { epoch: u8 },
    /// A restarted coordinator has extended client 1's lease.
    LeaseBack,
    /// ClusterTime goes on by one.
    Tick,
    /// A witness restarts: requests that gcs had dropped may still be in its file (`witness::persistence`).
    Restart { list: u8, witness: u8 },
    /// A witness's machine loses power, under `replicated`.
    LosePower { list: u8, witness: u8 },
}

impl Updates {
    /// Whether a rule is switched on.
    pub fn keeps(&self, rule: Rule) -> bool {
        self.off != Some(rule)
    }

    /// What a call does.
    pub fn plan(&self, call: CallIx) -> &'static Plan {
        &self.program.calls[usize::from(call)]
    }

    /// The other requests that a witness must not hold together with this one (C2).
    fn conflicts(&self, call: CallIx) -> u8 {
        let plan = self.plan(call);
        let is_in_the_way = |other: &Plan| {
            let same_key = other.once.is_some() && plan.once.is_some() && self.keeps(Rule::KeyOnWitness);
            other.key == plan.key || same_key
        };
        let others = (0..).zip(self.program.calls).filter(|(at, other)| *at != call && is_in_the_way(other));
        others.map(|(at, _)| 1u8 << at).sum()
    }
}

impl Model for Updates {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let call = Call {
            stage: Stage::Waiting,
            acknowledgement: 0,
            lease: 0,
            before: 0,
            sent: 0,
            current: Attempt::NONE,
            answers: Default::default(),
            accepted: Default::default(),
            read: None,
            cancelled: false,
            told_over: false,
        };
        let term = Term {
            stage: TermStage::Serving,
            log: ArrayVec::new(),
            base: 0,
            synced: 0,
            deposed: false,
            list: 1,
            closing_at: None,
            forgotten: 0,
        };
        vec![State {
            calls: self.program.calls.iter().map(|_| call.clone()).collect(),
            terms: [term].into_iter().collect(),
            lists: [WitnessList { epoch: 1, witnesses: Default::default() }].into_iter().collect(),
            serving: true,
            closing: false,
            list_changes: self.program.list_changes,
            restarts: self.program.restarts,
            power_losses: self.program.power_losses,
            lease: Lease::Held,
            time: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.client_actions(state, actions);
        self.network_actions(state, actions);
        self.primary_actions(state, actions);
        self.cluster_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        if !self.step(&mut next, &action) {
            return None;
        }
        self.forget(&mut next);
        if self.thrift.names {
            self.canonical(&mut next);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
