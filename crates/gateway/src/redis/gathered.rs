//! The commands of a turn whose keys are of one shard, gathered from all connections: they go together as one call (REDIS 1).
//!
//! What changes something goes as a batch, what only reads as a query. Both may end early (**R10.17**): then the commands that did not run go again,
//! under a new number, and the first of them, which would have had to wait, alone. A command that is alone in its call waits as any transaction
//! does.

use std::collections::BTreeMap;

use kasha_client::session::{CallId, CallOptions, Session};
use kasha_commands::Row;
use kasha_machine::Effects;
use kasha_types::{ConnId, ShardId, TableId, Tick};
use kasha_wire::operation::PartsBuffer;

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
    /// Since when its first command is under way.
    since: Tick,
    limit: Limit,
    parts: PartsBuffer,
    keys: usize,
}

/// Why a command is not in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// It is none, or exceeds a limit.
    Wrong,
    /// The run is long enough.
    Full,
}

impl Run {
    /// An empty run. `parts`: memory for it.
    pub fn new(place: Place, since: Tick, mut parts: PartsBuffer, session: &Session) -> Self {
        let limit = if session.is_recorded(place.1) { ON_WITNESSES } else { ON_NONE };
        parts.clear();
        Self { place, since, limit, parts, keys: 0 }
    }

    /// Takes a command whose keys are of the run's shard, if there is room; the first one in any case.
    pub fn push(&mut self, row: &'static Row, words: &[&[u8]]) -> Result<(), NotTaken> {
        let parts = self.parts.as_parts();
        let bytes: usize = words.iter().map(|word| word.len() + size_of::<u32>()).sum();
        let keys: usize = row.keys.iter().map(|spec| spec.count(words.len())).sum();
        let is_full = parts.count() as usize >= COMMANDS_MAX
            || parts.bytes() + bytes > self.limit.bytes
            || self.keys + keys > self.limit.keys;
        if parts.count() > 0 && is_full {
            return Err(NotTaken::Full);
        }
        self.keys += self.parts.push_command(self.place.0, row, words[1..].iter().copied()).ok_or(NotTaken::Wrong)?;
        Ok(())
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
    /// The earliest of its runs'.
    since: Option<Tick>,
    parts: PartsBuffer,
    shares: Vec<Share>,
    keys: usize,
}

/// A call of several connections' commands.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    /// Since when the first of its commands is under way.
    pub since: Tick,
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

    /// Takes a run of a connection, which stays whole, and gives its memory back.
    pub fn push(&mut self, conn: ConnId, run: Run) -> PartsBuffer {
        let parts = run.parts.as_parts();
        let access = if parts.only_read() { Access::Reads } else { Access::Changes };
        let at = (run.place, access);
        let open = self.open.entry(at).or_default();
        let there = open.parts.as_parts();
        let has_room = there.count() + parts.count() <= COMMANDS_MAX as u32
            && open.keys + run.keys <= run.limit.keys
            && there.bytes() + parts.bytes() <= run.limit.bytes;
        if !has_room && there.count() > 0 {
            self.full.push((at, std::mem::take(open)));
        }
        open.shares.push(Share { conn, commands: parts.count() as usize });
        open.since = Some(open.since.map_or(run.since, |since| since.min(run.since)));
        open.keys += run.keys;
        open.parts.append(&run.parts);
        run.parts
    }

    /// Makes the calls.
    pub fn send(&mut self, now: Tick, session: &mut Session, out: &mut Effects) -> Vec<(CallId, Batch)> {
        let open = std::mem::take(&mut self.open);
        let all = std::mem::take(&mut self.full).into_iter().chain(open);
        all.map(|(((table, _), access), open)| {
            let since = open.since.unwrap_or(now);
            let deadline = Some(since.after(COMMAND_DEADLINE));
            let options = CallOptions { deadline, cancel_on_deadline: true, ..CallOptions::default() };
            let call = match access {
                Access::Reads => session.query_commands(now, &open.parts, deadline, out),
                Access::Changes => session.run_commands(now, &open.parts, &options, out),
            };
            (call, Batch { since, table, shares: open.shares })
        })
        .collect()
    }
}
