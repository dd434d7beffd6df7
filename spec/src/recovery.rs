//! Model (e): recovery without a witness (R7.7): which log needs one, and whether a shard can wait for ever.
//!
//! The model has members with files and memory of their own, f witnesses of each list, the coordinator's `served`, and
//! updates that commute. Terms begin, replay, append, report, and stop at any step. Processes are killed in the middle
//! of a write. Witnesses, machines and power are lost, at most f of them.
//!
//! | file | what is in it |
//! |---|---|
//! | `state` | what a state consists of |
//! | `bounds` | how much may happen |
//! | `rules` | the rules that can be switched off |
//! | `next` | which actions are possible, and which log is whole |
//! | `steps` | what each action does |
//! | `properties` | D1, E1, and that no shard waits for ever |
//! | `serves` | a test: from every state a serving term can be reached |
//! | `tell` | a trace as text |

pub mod bounds;
mod next;
mod properties;
pub mod rules;
#[cfg(test)]
mod serves;
pub mod state;
mod steps;
mod tell;

use arrayvec::ArrayVec;
use stateright::{Model, Property};

use self::bounds::Bounds;
use self::rules::Rule;
use self::state::{Committed, Entry, Kind, Left, List, Log, NODES_MAX, Node, NodeIx, Primary, Stage, State, UpdateIx};

/// The model: bounds, and the rule that is switched off, if any.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// The bounds of the search.
    pub bounds: &'static Bounds,
    /// The rule that is switched off.
    pub off: Option<Rule>,
}

/// What may happen next. Each action is named after the code that does it. If there are two nodes, the first is the
/// primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// coordinator `repair::promote`, node `replica::begin_term`: the primary, and its set, one bit for each member.
    Promote(NodeIx, u8),
    /// node `fencing::advance`, `backup::on_fence`, `primary::on_fence_report`.
    OnFence(NodeIx, NodeIx),
    /// node `fencing::advance`: `Election::choice` is our own log.
    Take(NodeIx),
    /// node `fetching::cut_to_match`: `Election::choice` is another member's log.
    CutToMatch(NodeIx, NodeIx),
    /// node `primary::on_log_piece`.
    OnLogPiece(NodeIx, NodeIx),
    /// node `primary::fence_again`: the other member does not hold any more what it reported.
    FenceAgain(NodeIx),
    /// node `beginning::begin_epoch`, without a witness.
    BeginEpoch(NodeIx),
    /// node `primary::on_witness_holds`, `begin_epoch`.
    OnWitnessHolds(NodeIx, u8),
    /// node `files::write_log`: its own file follows.
    WriteLog(NodeIx),
    /// node `backup::on_attach`.
    OnAttach(NodeIx, NodeIx),
    /// node `backup::on_append`, replication `Shipping::advance`.
    OnAppend(NodeIx, NodeIx),
    /// node `beginning::advance`: all is synced, the mark goes to the file, and the report leaves.
    Mark(NodeIx),
    /// coordinator `Command::Recovered`, node `primary::begin_serving`.
    Recovered(NodeIx),
    /// node `request::on_request`.
    OnRequest(NodeIx, UpdateIx),
    /// node `witnessing::on_record`: the update, the list, the witness.
    OnRecord(UpdateIx, u8, u8),
    /// coordinator `Command::CloseList`, node `Serving::update`.
    CloseList(NodeIx),
    /// An orderly stop begins.
    Stop(NodeIx),
    /// node `Serving::list_is_closed`, coordinator `Command::OpenList`.
    OpenList(NodeIx),
    /// The process is killed, and starts with this much of its log.
    Kill(NodeIx, u8),
    /// The machine loses power; this much of the log is left.
    LosePower(NodeIx, u8),
    /// The log's last entry cannot be read any more.
    Damage(NodeIx),
    /// The node never comes back.
    Die(NodeIx),
    /// The files of a witness of the current list never come back.
    LoseWitness(u8),
}

impl Recovery {
    /// Whether a rule is switched on.
    pub fn keeps(&self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}

impl Model for Recovery {
    type State = State;
    type Action = Action;

    /// Term 1 serves under list 1, and node 0 is its primary.
    fn init_states(&self) -> Vec<State> {
        let Bounds { faults, terms, kills, list_changes, stops, .. } = *self.bounds;
        let all = (1u8 << (faults + 1)) - 1;
        let log: Log = [Entry { epoch: 1, kind: Kind::Start }].into_iter().collect();
        let mut acked = [None; NODES_MAX];
        (1..=usize::from(faults)).for_each(|member| acked[member] = Some(1));
        let primary = Primary {
            epoch: 1,
            stage: Stage::Serving,
            reports: Default::default(),
            members: all,
            acked,
            synced: 1,
            whole_end: 1,
            list: 1,
            closing_at: None,
            stops: false,
            fast: 0,
        };
        let node = |node: NodeIx| Node {
            up: true,
            promised: 1,
            log: log.clone(),
            held: 1,
            flushed: 1,
            mark: u8::from(node == 0),
            intact: true,
            attached: u8::from(node != 0),
            primary: (node == 0).then(|| Box::new(primary.clone())),
        };
        let list = List { empty: false, witnesses: Default::default() };
        vec![State {
            committed: Committed {
                epoch: 1,
                primary: 0,
                serving: true,
                members: all,
                recover_from: all,
                served: (1, 0),
            },
            nodes: (0..=faults).map(node).collect(),
            lists: ArrayVec::from_iter([list]),
            updates: Default::default(),
            left: Left { terms, kills, losses: faults, list_changes, stops },
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.term_actions(state, actions);
        self.client_actions(state, actions);
        self.promotions(state, actions);
        self.fault_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        self.step(&mut next, action);
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
