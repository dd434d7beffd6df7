//! What clients asked for and were told: the oracle that the checkers of results read.
//!
//! An operation that was asked for may have been executed with a result, certainly not executed, or be unknown (R2.2).
//! An unknown update may have taken effect at any moment since it was asked for, may still, or never will.

use std::collections::BTreeSet;

use kasha_types::TableId;
use kasha_wire::operation::{ItemsBuffer, Read, Update};
use kasha_wire::outcome::{Outcome, Shape};

use crate::clock::SimTime;

/// Every cluster has it from its first placement.
pub const DEFAULT_TABLE: TableId = TableId(1);

/// A key's bytes.
pub type Key = Vec<u8>;

/// A value's bytes.
pub type Value = Vec<u8>;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the wire crate's operation table says what each is")]
pub enum Action {
    Put(Key, Value),
    PutIfVersion(Key, u64, Value),
    PutIfAbsent(Key, Value),
    Delete(Key),
    DeleteIfVersion(Key, u64),
    Increment(Key, i64),
    Append(Key, Value),
    MultiPut(Vec<(Key, Value)>),
    MultiDelete(Vec<Key>),
    MultiIncrement(Vec<(Key, i64)>),
    Get(Key),
    Exists(Key),
    MultiGet(Vec<Key>),
    CreateTable(String),
    DropTable(String),
}

impl Action {
    /// Gives `use_it` the update, if it is one.
    pub fn with_update<R>(&self, use_it: impl FnOnce(&Update<'_>) -> R) -> Option<R> {
        let items;
        let update = match self {
            Self::Put(key, value) => Update::Put { key, value },
            Self::PutIfVersion(key, version, value) => Update::PutIfVersion { key, version: *version, value },
            Self::PutIfAbsent(key, value) => Update::PutIfAbsent { key, value },
            Self::Delete(key) => Update::Delete { key },
            Self::DeleteIfVersion(key, version) => Update::DeleteIfVersion { key, version: *version },
            Self::Increment(key, delta) => Update::Increment { key, delta: *delta },
            Self::Append(key, value) => Update::Append { key, value },
            Self::MultiPut(pairs) => {
                items = ItemsBuffer::pairs(pairs.iter().map(|(key, value)| (&key[..], &value[..])));
                Update::MultiPut(items.as_items())
            }
            Self::MultiDelete(keys) => {
                items = ItemsBuffer::keys(keys.iter().map(Vec::as_slice));
                Update::MultiDelete(items.as_items())
            }
            Self::MultiIncrement(deltas) => {
                items = ItemsBuffer::deltas(deltas.iter().map(|(key, delta)| (&key[..], *delta)));
                Update::MultiIncrement(items.as_items())
            }
            Self::Get(_) | Self::Exists(_) | Self::MultiGet(_) | Self::CreateTable(_) | Self::DropTable(_) => {
                return None;
            }
        };
        Some(use_it(&update))
    }

    /// Gives `use_it` the read, if it is one.
    pub fn with_read<R>(&self, use_it: impl FnOnce(&Read<'_>) -> R) -> Option<R> {
        let items;
        let read = match self {
            Self::Get(key) => Read::Get { key },
            Self::Exists(key) => Read::Exists { key },
            Self::MultiGet(keys) => {
                items = ItemsBuffer::keys(keys.iter().map(Vec::as_slice));
                Read::MultiGet(items.as_items())
            }
            _ => return None,
        };
        Some(use_it(&read))
    }

    /// Decodes its result bytes. `None`: they are none, which is a violation.
    #[must_use]
    pub fn decode(&self, result: &[u8]) -> Option<Outcome> {
        let code = self.with_update(|update| update.code()).or_else(|| self.with_read(|read| read.code()))?;
        Outcome::decode(Shape::of(code)?, result).ok()
    }

    /// Every key that it names, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<&Key> {
        match self {
            Self::Put(key, _)
            | Self::PutIfVersion(key, _, _)
            | Self::PutIfAbsent(key, _)
            | Self::Delete(key)
            | Self::DeleteIfVersion(key, _)
            | Self::Increment(key, _)
            | Self::Append(key, _)
            | Self::Get(key)
            | Self::Exists(key) => vec![key],
            Self::MultiPut(pairs) => pairs.iter().map(|(key, _)| key).collect(),
            Self::MultiIncrement(deltas) => deltas.iter().map(|(key, _)| key).collect(),
            Self::MultiDelete(keys) | Self::MultiGet(keys) => keys.iter().collect(),
            Self::CreateTable(_) | Self::DropTable(_) => Vec::new(),
        }
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Get(_) | Self::Exists(_) | Self::MultiGet(_))
    }
}

/// What the client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing yet, or "unknown".
    Unknown,
    /// It took effect, with this result.
    Executed {
        /// Decoded.
        outcome: Outcome,
        /// As it came.
        bytes: Vec<u8>,
    },
    /// It never took effect and never will (or was a read that failed).
    NotExecuted,
    /// A table was created or dropped now.
    TableDone(TableId),
    /// A table was there already.
    TableExists(TableId),
    /// No such table.
    TableNotFound,
}

impl Told {
    /// Whether another action ran under its operation key.
    #[must_use]
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::Executed { outcome: Outcome::OperationKeyMismatch, .. })
    }
}

/// Index of an operation in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub usize);

/// One operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Who asked.
    pub client: usize,
    /// For what.
    pub action: Action,
    /// In which table.
    pub table: TableId,
    /// Operations of one group share an operation key: those with one action are one update, and no two actions run.
    pub group: Option<u64>,
    /// The operation key's time to live is so short that the group may run again.
    pub expiring: bool,
    /// When it was asked for.
    pub asked: SimTime,
    /// What the client was told, and when.
    pub told: Told,
    /// When; `None` as long as nothing was told.
    pub told_at: Option<SimTime>,
}

/// All operations of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    operations: Vec<Operation>,
}

impl History {
    /// A client asks.
    pub fn ask(&mut self, client: usize, action: Action, group: Option<u64>, asked: SimTime) -> OperationId {
        self.ask_in(DEFAULT_TABLE, client, action, group, asked)
    }

    /// A client asks for something in this table.
    pub fn ask_in(
        &mut self,
        table: TableId,
        client: usize,
        action: Action,
        group: Option<u64>,
        asked: SimTime,
    ) -> OperationId {
        let (told, told_at, expiring) = (Told::Unknown, None, false);
        self.operations.push(Operation { client, action, table, group, expiring, asked, told, told_at });
        OperationId(self.operations.len() - 1)
    }

    /// The operation's key has a short time to live.
    pub fn expires(&mut self, id: OperationId) {
        self.operations[id.0].expiring = true;
    }

    /// Every key that was asked for, with its table, in order. Of different tables no key is the same.
    #[must_use]
    pub fn keys(&self) -> BTreeSet<(TableId, Key)> {
        let keys_of = |operation: &Operation| -> Vec<_> {
            operation.action.keys().into_iter().map(|key| (operation.table, key.clone())).collect()
        };
        self.operations.iter().flat_map(keys_of).collect()
    }

    /// It is told. "Unknown" may be followed by the truth; nothing else may change.
    ///
    /// # Errors
    /// If it was told something else before (E2).
    pub fn tell(&mut self, id: OperationId, told: Told, at: SimTime) -> Result<(), String> {
        let operation = &mut self.operations[id.0];
        if operation.told != Told::Unknown && operation.told != told {
            return Err(format!("{:?} was told {:?}, then {told:?} (E2)", operation.action, operation.told));
        }
        if operation.told == Told::Unknown {
            operation.told_at = (told != Told::Unknown).then_some(at);
            operation.told = told;
        }
        Ok(())
    }

    /// Replaces what was told where `change` says so; "unknown" was told at no moment.
    pub fn untell(&mut self, change: impl Fn(&Operation) -> Option<Told>) {
        for operation in &mut self.operations {
            if let Some(told) = change(operation) {
                operation.told_at = operation.told_at.filter(|_| told != Told::Unknown);
                operation.told = told;
            }
        }
    }

    /// All, in the order of asking.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// One.
    #[must_use]
    pub fn operation(&self, id: OperationId) -> &Operation {
        &self.operations[id.0]
    }
}
