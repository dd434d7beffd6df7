//! The commands of a turn whose keys are of one shard, gathered from all connections: they go together as one call (REDIS 1).
//!
//! What changes something goes as a batch, what only reads as a query. Both may end early (**R10.17**): then the commands that did not run go again,
//! under a new number, and the first of them, which would have had to wait, alone. A command that is alone in its call waits as any transaction
//! does.

use std::collections::BTreeMap;

use kasha_client::session::{CallId, CallOptions, Session, TransactionParts, WhyNot};
use kasha_commands::{Class, Row};
use kasha_machine::Effects;
use kasha_types::{ConnId, ShardId, TableId, Tick};
use kasha_wire::operation::{CommandBuffer, PartOperation};

use crate::limits::COMMAND_DEADLINE;

/// Commands that go together, at most.
const COMMANDS_MAX: usize = 64;

/// How much may go together.
#[derive(Clone, Copy, Debug)]
struct Limit {
    keys: usize,
    bytes: usize,
}

/// As much as a witness keeps of one request.
const ON_WITNESSES: Limit = Limit { keys: 16, bytes: 1536 };

/// Where no witness is asked.
const ON_NONE: Limit = Limit { keys: 1024, bytes: 16 * 1024 };

/// Whether something may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Reads,
    Changes,
}

/// Where commands run.
pub type Place = (TableId, ShardId);

/// Commands of one connection that follow one another, of keys of one shard.
#[derive(Debug)]
pub struct Run {
    place: Place,
    access: Access,
    limit: Limit,
    commands: Vec<CommandBuffer>,
    keys: usize,
    bytes: usize,
}

impl Run {
    /// A run that begins with this command.
    pub fn new(place: Place, row: &'static Row, command: CommandBuffer, session: &Session) -> Self {
        let limit = if session.is_recorded(place.1) { ON_WITNESSES } else { ON_NONE };
        let mut run = Self { place, access: Access::Reads, limit, commands: Vec::new(), keys: 0, bytes: 0 };
        run.push(row, command);
        run
    }

    /// Whether a command of this shard finds room in it.
    pub fn takes(&self, shard: ShardId, command: &CommandBuffer) -> bool {
        let (keys, bytes) = (self.keys + command.as_command().keys(), self.bytes + command.bytes());
        shard == self.place.1
            && self.commands.len() < COMMANDS_MAX
            && keys <= self.limit.keys
            && bytes <= self.limit.bytes
    }

    pub fn push(&mut self, row: &Row, command: CommandBuffer) {
        if matches!(row.class, Class::Changes(_)) {
            self.access = Access::Changes;
        }
        self.keys += command.as_command().keys();
        self.bytes += command.bytes();
        self.commands.push(command);
    }
}

/// So many commands of a call are this connection's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub conn: ConnId,
    pub commands: usize,
}

/// A call that takes more commands.
#[derive(Debug, Default)]
struct Open {
    parts: TransactionParts,
    shares: Vec<Share>,
    commands: usize,
    keys: usize,
    bytes: usize,
}

/// A call of several connections' commands.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    pub table: TableId,
    pub shares: Vec<Share>,
}

/// What is gathered in this turn.
#[derive(Debug, Default)]
pub struct Gathered {
    open: BTreeMap<(Place, Access), Open>,
    full: Vec<((Place, Access), Open)>,
}

impl Gathered {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.full.is_empty()
    }

    /// What is in it of each connection.
    pub fn shares(&self) -> impl Iterator<Item = &Share> {
        self.open.values().chain(self.full.iter().map(|(_, open)| open)).flat_map(|open| &open.shares)
    }

    /// Takes a run of a connection, which stays whole.
    pub fn push(&mut self, conn: ConnId, run: Run) {
        let at = (run.place, run.access);
        let open = self.open.entry(at).or_default();
        let has_room = open.commands + run.commands.len() <= COMMANDS_MAX
            && open.keys + run.keys <= run.limit.keys
            && open.bytes + run.bytes <= run.limit.bytes;
        if !has_room && open.commands > 0 {
            self.full.push((at, std::mem::take(open)));
        }
        open.shares.push(Share { conn, commands: run.commands.len() });
        open.commands += run.commands.len();
        open.keys += run.keys;
        open.bytes += run.bytes;
        for command in &run.commands {
            open.parts.push(run.place.0, &PartOperation::Command(command.as_command()));
        }
    }

    /// Makes the calls. `Err`: a call cannot be made, and why.
    pub fn send(
        &mut self,
        now: Tick,
        session: &mut Session,
        out: &mut Effects,
    ) -> Vec<(Batch, Result<CallId, WhyNot>)> {
        let open = std::mem::take(&mut self.open);
        let all = std::mem::take(&mut self.full).into_iter().chain(open);
        all.map(|(((table, _), access), open)| {
            let call = open.call(access, now, session, out);
            (Batch { table, shares: open.shares }, call)
        })
        .collect()
    }
}

impl Open {
    fn call(&self, access: Access, now: Tick, session: &mut Session, out: &mut Effects) -> Result<CallId, WhyNot> {
        let deadline = Some(now.after(COMMAND_DEADLINE));
        let (table, operation) = match access {
            Access::Reads => {
                let (table, operation) = self.parts.query();
                return Ok(session.read_encoded(now, table, &operation?, deadline, out));
            }
            Access::Changes if self.commands == 1 => self.parts.operation(),
            Access::Changes => self.parts.batch(),
        };
        let options = CallOptions { deadline, cancel_on_deadline: true, ..CallOptions::default() };
        Ok(session.update_encoded(now, table, &operation?, &options, out))
    }
}
