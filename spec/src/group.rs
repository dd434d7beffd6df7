//! Model (f): the coordinator as a group (R9.1 to R9.6): view changes, rounds, leases, ClusterTime, changes of members.
//!
//! A frame and its answer are one step: a late answer is used in a later step (`Commit`, `Merge`, `Answer`). What was
//! sent in a view may arrive at any time after it, as long as a member is not in a later view. A member may enter any
//! view for which somebody wished: who may wish, and when, matters to progress only (R9.7, R9.8).
//!
//! | file | what is in it |
//! |---|---|
//! | `state` | what a state consists of |
//! | `bounds` | how much may happen |
//! | `rules` | the rules that can be switched off |
//! | `next` | which actions are possible |
//! | `steps` | what each action does |
//! | `change` | what the actions of a view change do, and faults |
//! | `properties` | what was told stays; F1, F2; answers are not stale |
//! | `thrift` | fewer states that mean the same |
//! | `tell` | a trace as text |

pub mod bounds;
mod change;
mod next;
mod properties;
pub mod rules;
pub mod state;
mod steps;
mod tell;
mod thrift;

use stateright::{Model, Property};

use self::bounds::Bounds;
use self::rules::Rule;
use self::state::{Entry, Kind, Lead, Left, Log, Member, NODES_MAX, NodeIx, State, Told, View, ViewIx, bits};

/// The model: bounds, and the rule that is switched off, if any.
#[derive(Clone, Debug)]
pub struct Group {
    /// The bounds of the search.
    pub bounds: &'static Bounds,
    /// The rule that is switched off.
    pub off: Option<Rule>,
    /// Members must keep their numbers (see `thrift`).
    pub names_matter: bool,
}

/// What may happen next. Each action is named after the code that does it, or will do it. If there are two members, the
/// first is the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// viewstamped `wishes::wish_for_next`: in memory.
    Wish(NodeIx, ViewIx),
    /// viewstamped `election::enter`: the view is on disk, and the log is reported to its leader.
    Enter(NodeIx, ViewIx),
    /// viewstamped `election::decide_election`, coordinator `Lead::begin`: from the reports of these members.
    Merge(NodeIx, u8),
    /// viewstamped `election::take_log`.
    OnNewView(NodeIx, ViewIx),
    /// viewstamped `normal::append`.
    Append(NodeIx),
    /// The disk has what is in memory.
    Write(NodeIx),
    /// viewstamped `normal::on_prepare`, and its acknowledgement.
    OnPrepare(NodeIx, ViewIx),
    /// viewstamped `normal::advance`, coordinator `Ledger::is_committed`: what is committed is told.
    Commit(NodeIx),
    /// viewstamped `change::change`: the change of this number.
    Change(NodeIx, u8),
    /// A question comes to a leader, and waits for no round of its own. Only without R9.2.
    Ask(NodeIx),
    /// A question comes to a leader, and viewstamped `rounds::begin_round`, with this time.
    BeginRound(NodeIx, u8),
    /// viewstamped `rounds::on_round`, and its confirmation.
    OnRound(NodeIx, NodeIx),
    /// viewstamped `rounds::is_confirmed`.
    Answer(NodeIx),
    /// coordinator `NodeLeases::judge`.
    DeclareLost(NodeIx),
    /// coordinator `settings`: leases are shorter from now on.
    ShortenLease(NodeIx),
    /// coordinator `settings`: no longer lease can run any more.
    LowerBound(NodeIx),
    /// The true time goes on.
    Tick,
    /// coordinator `storage`: a new file, which begins with a snapshot.
    Snapshot(NodeIx),
    /// The process ends, and starts with this much of its log.
    Restart(NodeIx, u8),
    /// The machine restarts.
    Reboot(NodeIx, u8),
    /// The files of the member are lost.
    LoseFiles(NodeIx),
}

impl Group {
    /// Whether a rule is switched on.
    pub fn keeps(&self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}

impl Model for Group {
    type State = State;
    type Action = Action;

    /// The first member leads view 1, and its first operation is committed. The node got a lease at time 0.
    fn init_states(&self) -> Vec<State> {
        let Bounds { nodes, list, operations, changes, questions, .. } = *self.bounds;
        let Bounds { lease, restarts, reboots, files_lost, snapshots, .. } = *self.bounds;
        let log: Log = [Entry { view: 1, kind: Kind::Start }].into_iter().collect();
        let mut acked = [0; NODES_MAX];
        bits(list).for_each(|node| acked[usize::from(node)] = 1);
        let (round, question, shortened) = (None, None, None);
        let lead = Lead { acked, committed: 1, round, question, time: 0, expires: lease, shortened };
        let member = |node: NodeIx| {
            let is_member = list & 1 << node != 0;
            Member {
                log: if is_member { log.clone() } else { Log::new() },
                synced: u8::from(is_member),
                view: u8::from(is_member),
                view_on_disk: u8::from(is_member),
                log_view: u8::from(is_member),
                lead: (node == 0).then(|| Box::new(lead.clone())),
                ..Member::empty()
            }
        };
        let first = View { leader: Some(0), log: log.clone(), base: 1, ..View::default() };
        let later = (0..self.bounds.views).map(|_| View::default());
        vec![State {
            members: (0..nodes).map(member).collect(),
            views: std::iter::once(first).chain(later).collect(),
            now: 0,
            lease_ends: lease,
            told: Told { log, twice: false, stale: false, time: 0, back: false, time_begun: 0, jumped: false },
            left: Left {
                operations,
                changes: ((1u16 << changes.len()) - 1) as u8,
                questions,
                restarts,
                reboots,
                files_lost,
                snapshots,
            },
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.change_actions(state, actions);
        self.lead_actions(state, actions);
        self.round_actions(state, actions);
        self.fault_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        self.step(&mut next, action);
        next.forget(!self.keeps(Rule::ViewHasOneLeader));
        if !self.names_matter && self.bounds.changes.is_empty() {
            next.canonical();
        }
        let left = std::mem::replace(&mut next.left, last.left);
        // Whatever changes nothing but a budget need not happen.
        let changes = next != *last;
        next.left = left;
        changes.then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
