//! Model (d): the cleaner that copies to the head. What does a replay make of a log whose entries are not in the order in
//! which they were first written, and of which segments are missing?
//!
//! The model has a primary and a follower. The follower's log is a prefix of the primary's, and what it has is synced.
//! Segments end anywhere. The primary copies live entries of sealed segments, one entry a group. It frees segments, which
//! each member lets go in its own time. It is deposed. In every state the model compares each member's memory, and full
//! replays of the segments that the member has, with what the log said in the order in which it was first written.
//!
//! | file | what is in it |
//! |---|---|
//! | `state` | what a state consists of |
//! | `memory` | what is derived from a log, and replay |
//! | `bounds` | how much may happen |
//! | `rules` | the rules that can be switched off |
//! | `next` | which actions are possible |
//! | `steps` | what each does |
//! | `cleaning` | copying, settling, freeing |
//! | `properties` | what a log says, and what must hold |
//! | `tell` | a trace in words |
//! | `conformance` | a test: what is derived of a client is what the code derives |

pub mod bounds;
mod cleaning;
#[cfg(test)]
mod conformance;
mod memory;
mod next;
mod properties;
pub mod rules;
pub mod state;
mod steps;
mod tell;

use arrayvec::ArrayVec;
use stateright::{Model, Property};

use self::bounds::Bounds;
use self::memory::Memory;
use self::rules::Rule;
use self::state::{Left, Log, Member, Place, SegmentIx, State};

/// The model: bounds, and the rule that is switched off, if any.
#[derive(Clone, Debug)]
pub struct Cleaner {
    /// How much may happen.
    pub bounds: &'static Bounds,
    /// The rule that is not kept.
    pub off: Option<Rule>,
}

/// What may happen next. Named after the code that does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// node `request::run`: the next change of a key.
    OnChange,
    /// node `request::run`: the client's update, which a witness brings.
    OnUpdate(u8),
    /// node `request::order`: a run under the operation key.
    OnRun(u8),
    /// ClusterTime goes on.
    Tick,
    /// node `operation_keys::drop_some_expired`.
    ExpireOperationKey,
    /// node `leases::on_verdict`.
    OnLeaseVerdict,
    /// node `leases::settle_floor`.
    SettleFloor,
    /// node `house::raise_version_floor`.
    DropTombstones,
    /// log `Log::roll`: the head is full.
    Roll,
    /// node `cleaner::copy_group`, `relocation::moved`: what stands here is copied.
    Copy(Place),
    /// Where references move later: the first copy that is pending.
    Settle,
    /// There: a pass is given up.
    Abandon,
    /// node `house::free_segments`: the word of it.
    Free(SegmentIx),
    /// node `replay::free_retired`, at a member.
    LetGo(u8),
    /// node `backup::on_append`, `replay::replay_slice`, `Shipping::advance`.
    OnAppend,
    /// The follower's process ends and starts.
    Restart,
    /// The follower becomes the primary. The old primary's process goes on, or starts anew.
    FailOver { restarts: bool },
}

impl Cleaner {
    /// Whether a rule is on.
    pub fn keeps(&self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}

impl Model for Cleaner {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Bounds { floors, version_floors, copies, restarts, fail_overs, .. } = *self.bounds;
        let member = Member { held: 1, memory: Memory::default(), anew: false };
        vec![State {
            log: Log::new(),
            head: 0,
            shipped: 0,
            members: [member.clone(), member],
            pending: ArrayVec::new(),
            pending_floor: None,
            now: 1,
            next_change: 0,
            left: Left { copies, floors, version_floors, restarts, fail_overs },
            faults: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.request_actions(state, actions);
        self.house_actions(state, actions);
        self.cleaning_actions(state, actions);
        self.member_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        self.step(&mut next, action);
        next.faults = self.judge(&next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
