//! Model (b): a shard's replica set: fencing, elections, replacement of members, joiners, restarts, losses of power.
//!
//! A frame between a primary and a member, together with its answer, is one step (a fence with its report, an
//! attachment, an append with its acknowledgement, a copy). A lost or late frame is a step that is not taken yet.
//! Acknowledgements of earlier attachments stay on their way for ever. A node that is down takes no steps.
//!
//! | file | what is in it |
//! |---|---|
//! | `state` | what a state consists of |
//! | `bounds` | how much may happen |
//! | `rules` | the rules that can be switched off |
//! | `next` | which actions are possible |
//! | `steps` | what each action does |
//! | `properties` | D2, one log, F2, complete primaries |
//! | `thrift` | fewer states that mean the same |
//! | `tell` | a trace as text |

pub mod bounds;
mod next;
mod properties;
pub mod rules;
pub mod state;
mod steps;
mod tell;
mod thrift;

use arrayvec::ArrayVec;
use stateright::{Model, Property};

use self::bounds::Bounds;
use self::rules::Rule;
use self::state::{Committed, Entry, Left, Log, Member, Members, Node, NodeIx, Peer, Primary, Role, Stage, State};

/// The model: bounds, and the rule that is switched off, if any.
#[derive(Clone, Debug)]
pub struct Replicas {
    /// The bounds of the search.
    pub bounds: &'static Bounds,
    /// The rule that is switched off.
    pub off: Option<Rule>,
    /// Nodes must keep their numbers (see `thrift`).
    pub names_matter: bool,
}

/// What may happen next. Each action is named after the code that does it. If there are two nodes, the first is the
/// primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// node `request::commit`: a serving primary appends.
    Record(NodeIx),
    /// node `files::write_log`: its own file follows.
    WriteLog(NodeIx),
    /// node `fencing::advance`, `backup::on_fence`, `primary::on_fence_report`.
    OnFence(NodeIx, NodeIx),
    /// node `fencing::advance`: `Election::choice` is our own log.
    Take(NodeIx),
    /// node `fetching::cut_to_match`: `Election::choice` is another member's log.
    CutToMatch(NodeIx, NodeIx),
    /// node `copying::on_fetch_log`, `primary::on_log_piece`.
    OnLogPiece(NodeIx, NodeIx),
    /// node `primary::fence_again`: the other member does not hold any more what it reported.
    FenceAgain(NodeIx),
    /// node `beginning::begin_epoch`.
    BeginEpoch(NodeIx),
    /// replication `Shipping::on_fence_report`, node `backup::on_attach`.
    OnAttach(NodeIx, NodeIx),
    /// replication `Shipping::pump`, node `backup::on_append`, `Shipping::on_appended`.
    OnAppend(NodeIx, NodeIx),
    /// replication `copy`, node `copying::on_copy_segment`.
    OnCopySegment(NodeIx, NodeIx),
    /// replication `Shipping::advance`.
    Advance(NodeIx),
    /// `Advance`, but without a member that the coordinator has not taken out of the set.
    AdvanceWithout(NodeIx, NodeIx),
    /// coordinator `recovered`, node `primary::begin_serving`.
    Recovered(NodeIx),
    /// coordinator `Report::Copied`.
    Copied(NodeIx, NodeIx),
    /// coordinator `repair::set_members`: the first leaves, the second joins.
    SetMembers(NodeIx, Option<NodeIx>),
    /// coordinator `repair::promote`: the primary, and the rest of its set, one bit for each member.
    Promote(NodeIx, u8),
    /// node `configure::on_configuration`.
    OnConfiguration(NodeIx),
    /// The process of the node ends and starts again.
    Restart(NodeIx),
    /// The machine loses power; this much of the log is left.
    LosePower(NodeIx, u8),
    /// The node never comes back.
    Die(NodeIx),
}

impl Replicas {
    /// Whether a rule is switched on.
    pub fn keeps(&self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}

/// The first term: its primary is node 0, and one entry is synced.
fn first_primary(faults: u8) -> Primary {
    let mut members: Members = Default::default();
    let mut peers = [Peer::default(); state::NODES_MAX];
    for node in 0..=usize::from(faults) {
        members[node] = Some(Member { complete: true, since: 0 });
        peers[node] = Peer { attached: true, acked: 1, late: 0, copied: true };
    }
    Primary {
        epoch: 1,
        stage: Stage::Serving,
        electorate: 0,
        reports: Default::default(),
        members,
        peers,
        epoch_start: 0,
        synced: 1,
    }
}

impl Model for Replicas {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Bounds { nodes, faults, terms, writes, set_changes, restarts, power_losses, deaths, .. } = *self.bounds;
        let primary = first_primary(faults);
        let log: Log = [Entry { epoch: 1, writer: 0 }].into_iter().collect();
        let member = |node: NodeIx| Node {
            up: true,
            restarts: 0,
            promised: 1,
            log: log.clone(),
            base: 0,
            held: 1,
            intact: true,
            complete: true,
            must_hold: 0,
            role: if node == 0 { Role::Primary } else { Role::Backup { epoch: 1, attached: true } },
            primary: (node == 0).then(|| Box::new(primary.clone())),
        };
        let spare = Node {
            promised: 0,
            log: Log::new(),
            held: 0,
            intact: false,
            complete: false,
            role: Role::Idle,
            ..member(1)
        };
        let nodes: ArrayVec<Node, { state::NODES_MAX }> =
            (0..nodes).map(|node| if node <= faults { member(node) } else { spare.clone() }).collect();
        vec![State {
            committed: Committed {
                version: 0,
                epoch: 1,
                primary: 0,
                serving: true,
                members: primary.members,
                recover_from: 0,
            },
            nodes,
            told: log,
            told_twice: false,
            thin: false,
            lost: 0,
            left: Left { terms, writes, set_changes, restarts, power_losses, deaths },
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.term_actions(state, actions);
        self.shipping_actions(state, actions);
        self.coordinator_actions(state, actions);
        self.fault_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        self.step(&mut next, action);
        self.forget(&mut next);
        if !self.names_matter {
            self.canonical(&mut next);
        }
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
