//! Table requests. Each is executed exactly once, by (client, sequence).
//!
//! **E1** A drop is answered only when no core can serve the table any more: every core that may hold a lease knows of
//! the drop, and no deposed primary can complete updates.

use kasha_machine::Endpoint;
use kasha_types::limits::TABLE_NAME_BYTES_MAX;
use kasha_types::{ClientId, ConfigVersion};
use kasha_wire::Level;
use kasha_wire::message::TableCommand;

use crate::State;
use crate::limits::TABLE_ANSWERS_WAITING_MAX;
use crate::state::{DEFAULT_TABLE, TableAnswer};

/// Why a request is refused in any state. The refusal is not recorded: a copy of the request is refused again.
pub(crate) fn refusal(command: &TableCommand, level: Level) -> Option<String> {
    let name = command.name();
    if command.level() > level {
        let needed = command.level();
        return Some(format!("that needs {needed}, and the cluster works at {level}: kasha admin finalize (K0326)"));
    }
    if name.is_empty() || name.len() > TABLE_NAME_BYTES_MAX {
        return Some(format!("a table's name has 1 to {TABLE_NAME_BYTES_MAX} bytes, this one {}", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Some("a table's name must be printable: it holds control characters".into());
    }
    match command {
        TableCommand::Create(_) | TableCommand::CreateAt(..) => None,
        TableCommand::Drop(name) => (name == DEFAULT_TABLE)
            .then(|| format!("the table \"{DEFAULT_TABLE}\" cannot be dropped: delete its keys instead")),
    }
}

/// The answer to a client whose earlier answers were forgotten: it cannot be known any more whether this request ran.
pub(crate) const FORGOTTEN: &str =
    "too many newer sessions have changed tables since this one began: open a new session and look at the tables first";

#[derive(Clone, Copy, Debug)]
struct Waiter {
    to: Endpoint,
    client: ClientId,
    sequence: u64,
}

/// Clients that wait for an answer that is committed.
#[derive(Debug)]
pub(crate) struct TableWaiters {
    waiters: Vec<Waiter>,
    /// The first and the last drop of which a core that goes on without us may not know. Any configuration from the
    /// first one on would tell it.
    unsettled: Option<(ConfigVersion, ConfigVersion)>,
}

impl TableWaiters {
    /// Nobody waits. An earlier process may have committed drops up to this version.
    pub(crate) fn new(version: ConfigVersion) -> Self {
        Self { waiters: Vec::new(), unsettled: Some((ConfigVersion(0), version)) }
    }

    /// In this version a table was dropped.
    pub(crate) fn dropped(&mut self, version: ConfigVersion) {
        let first = self.unsettled.map_or(version, |(first, _)| first);
        self.unsettled = Some((first, version));
    }

    /// Every core that may hold a lease knows this version, and no other core can serve.
    pub(crate) fn settled(&mut self, known: ConfigVersion) {
        self.unsettled = self.unsettled.filter(|&(_, last)| last > known);
    }

    /// `to` waits for the answer to (client, sequence); it is entered once, however often it asks.
    pub(crate) fn wait(&mut self, to: Endpoint, client: ClientId, sequence: u64) {
        self.waiters.retain(|waiter| waiter.client != client);
        if self.waiters.len() >= TABLE_ANSWERS_WAITING_MAX {
            self.waiters.remove(0);
        }
        self.waiters.push(Waiter { to, client, sequence });
    }

    pub(crate) fn closed(&mut self, end: Endpoint) {
        self.waiters.retain(|waiter| waiter.to != end);
    }

    /// Nobody waits, and there is no drop for which anybody would have to wait.
    pub(crate) fn is_settled(&self) -> bool {
        self.waiters.is_empty() && self.unsettled.is_none()
    }

    /// Takes the clients whose answer may leave: every core that could serve knows of it.
    pub(crate) fn take_known<'a>(
        &mut self,
        state: &'a State,
        known: ConfigVersion,
    ) -> Vec<(Endpoint, &'a TableAnswer)> {
        let mut answers = Vec::new();
        self.waiters.retain(|waiter| {
            let answer = state.table_answer(waiter.client).filter(|answer| answer.sequence == waiter.sequence);
            match answer {
                Some(answer) if answer.version > known => true,
                Some(answer) if self.unsettled.is_some_and(|(first, _)| answer.version >= first) => true,
                Some(answer) => {
                    answers.push((waiter.to, answer));
                    false
                }
                None => false,
            }
        });
        answers
    }
}
