//! Model (g): the disk of one member of the group (R9.5): what a load finds after kills, losses of power and rot.
//!
//! A member has two files that take turns. Each file begins with a snapshot of all that the member has; operations and
//! views follow. A record has two pages. A kill in a write leaves its first page. A loss of power leaves any of the
//! pages that were not fsynced. A load must find what the member had at its last fsync, or at some moment after it, or
//! know that its files are damaged.
//!
//! | file | what is in it |
//! |---|---|
//! | `state` | what a state consists of |
//! | `bounds` | how much may happen |
//! | `rules` | the rules that can be switched off |
//! | `next` | which actions are possible |
//! | `steps` | what each action does |
//! | `load` | what a load finds |
//! | `tell` | a trace as text |

pub mod bounds;
mod load;
mod next;
pub mod rules;
pub mod state;
mod steps;
mod tell;

use stateright::{Model, Property};

use self::bounds::Bounds;
use self::rules::Rule;
use self::state::{Content, Files, Kind, Left, Memory, Page, Record, State};

/// The model: bounds, and the rule that is switched off, if any.
#[derive(Clone, Debug)]
pub struct GroupDisk {
    /// The bounds of the search.
    pub bounds: &'static Bounds,
    /// The rule that is switched off.
    pub off: Option<Rule>,
}

/// A write of the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// An operation behind the others.
    Operation,
    /// A view is entered.
    View,
    /// The log of a new view: so much of the log before, and another operation.
    NewLog(u8),
    /// The file is full: the other one begins.
    NextFile,
}

/// What may happen next. All but the faults are viewstamped `journal`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A write to the page cache.
    Write(Write),
    /// The log view of a new log goes to a place of its own. Only without R9.5.
    WriteLogView,
    /// An fsync; then what was written is acknowledged.
    Fsync,
    /// The process is killed, and starts.
    Kill,
    /// The process is killed when the first page of a write was written, and starts.
    KillInWrite(Write),
    /// The machine loses power: these pages that were not fsynced are left, one bit each. Then it starts.
    LosePower(u8),
    /// This page of the last record cannot be read any more when the process starts after a kill.
    Rot(u8),
}

impl GroupDisk {
    /// Whether a rule is switched on.
    pub fn keeps(&self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}

impl Model for GroupDisk {
    type State = State;
    type Action = Action;

    /// The first file has its snapshot: view 1, and no operations.
    fn init_states(&self) -> Vec<State> {
        let Bounds { operations, views, cuts, kills, power_losses, rot, .. } = *self.bounds;
        let content = Content { view: 1, log_view: 1, ..Content::default() };
        let mut files = Files::default();
        files[0][0] = [Page::Part(0); state::PAGES];
        let first = Record { after: None, generation: 1, kind: Kind::Snapshot(content.clone()) };
        vec![State {
            records: [first].into_iter().collect(),
            disk: files,
            cache: files,
            log_view_alone: 0,
            may_have: [content.clone()].into_iter().collect(),
            memory: Some(Memory { content, file: 0, next: 1, last: 0, generation: 1 }),
            is_rotten: false,
            wrong: false,
            left: Left { operations, views, cuts, kills, power_losses, rot },
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.possible(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        self.step(&mut next, action);
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "R9.5: a load finds what was acknowledged, and nothing that was cut",
                |_: &Self, state: &State| !state.wrong,
            ),
            Property::always("R9.5: files that are not damaged do not pass for damaged", |_: &Self, state: &State| {
                state.memory.is_some() || state.is_rotten
            }),
        ]
    }
}
