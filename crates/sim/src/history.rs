//! The history: what clients asked for and were told. Checkers of results read it.
//!
//! An operation that was asked for may have been executed with a result, certainly not executed, or be unknown (R2.2).
//! An unknown update may have taken effect at any moment since it was asked for, may still do so, or may never do so.

use std::collections::{BTreeMap, BTreeSet};

use kasha_reference::Part;
use kasha_types::{Slot, TableId, slot_of};
use kasha_wire::operation::{ItemsBuffer, OwnedOperation, Read, Update};
use kasha_wire::outcome::Outcome;

use crate::clock::SimTime;

/// The table "default", which every cluster has from its first placement.
pub const DEFAULT_TABLE: TableId = TableId(1);

/// A key's bytes.
pub type Key = Vec<u8>;

/// A value's bytes.
pub type Value = Vec<u8>;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// An update or a read.
    Operation(OwnedOperation),
    /// The creation of a table with this name.
    CreateTable(String),
    /// The drop of the table with this name.
    DropTable(String),
}

impl From<Update<'_>> for Action {
    fn from(update: Update<'_>) -> Self {
        Self::Operation(OwnedOperation::from(&update))
    }
}

impl From<Read<'_>> for Action {
    fn from(read: Read<'_>) -> Self {
        Self::Operation(OwnedOperation::from(&read))
    }
}

impl Action {
    /// An update of several keys with values.
    #[must_use]
    pub fn multi_put<'k>(pairs: impl IntoIterator<Item = (&'k [u8], &'k [u8])>) -> Self {
        Update::MultiPut { pairs: ItemsBuffer::pairs(pairs).as_items() }.into()
    }

    /// An update that deletes several keys.
    #[must_use]
    pub fn multi_delete(keys: &[Key]) -> Self {
        Update::MultiDelete { keys: ItemsBuffer::keys(keys.iter().map(Vec::as_slice)).as_items() }.into()
    }

    /// A question for the values of several keys.
    #[must_use]
    pub fn multi_get(keys: &[Key]) -> Self {
        Read::MultiGet { keys: ItemsBuffer::keys(keys.iter().map(Vec::as_slice)).as_items() }.into()
    }

    /// An update that adds 1 to several keys.
    #[must_use]
    pub fn count_all(keys: &[Key]) -> Self {
        let deltas = ItemsBuffer::deltas(keys.iter().map(|key| (&key[..], 1)));
        Update::MultiIncrement { deltas: deltas.as_items() }.into()
    }

    /// An update that adds 1 to a key.
    #[must_use]
    pub fn count(key: &[u8]) -> Self {
        Update::increment(key, 1).into()
    }

    /// An update that sets a key's value.
    #[must_use]
    pub fn put(key: &[u8], value: &[u8]) -> Self {
        Update::put(key, value).into()
    }

    /// A read of a key's value.
    #[must_use]
    pub fn get(key: &[u8]) -> Self {
        Read::Get { key }.into()
    }

    /// The update or read, if the action is one.
    #[must_use]
    pub fn operation(&self) -> Option<Part<'_>> {
        match self {
            Self::Operation(owned) => owned.update().map(Part::Update).or_else(|| owned.read().map(Part::Read)),
            Self::CreateTable(_) | Self::DropTable(_) => None,
        }
    }

    /// The update, if the action is one.
    #[must_use]
    pub fn update(&self) -> Option<Update<'_>> {
        match self {
            Self::Operation(owned) => owned.update(),
            Self::CreateTable(_) | Self::DropTable(_) => None,
        }
    }

    /// The read, if the action is one.
    #[must_use]
    pub fn read(&self) -> Option<Read<'_>> {
        match self {
            Self::Operation(owned) => owned.read(),
            Self::CreateTable(_) | Self::DropTable(_) => None,
        }
    }

    /// Decodes result bytes. `None`: they are no result of this action, which is a violation.
    #[must_use]
    pub fn decode(&self, result: &[u8]) -> Option<Outcome> {
        match self {
            Self::Operation(owned) => Outcome::decode(owned.shape(), result).ok(),
            Self::CreateTable(_) | Self::DropTable(_) => None,
        }
    }

    /// Every key that the action names, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<&[u8]> {
        self.keys_in(DEFAULT_TABLE).into_iter().map(|(_, key)| key).collect()
    }

    /// Every key that the action names and its table, in order. `table`: of the keys that name none themselves.
    #[must_use]
    pub fn keys_in(&self, table: TableId) -> Vec<(TableId, &[u8])> {
        let mut keys = Vec::new();
        match self.operation() {
            Some(Part::Update(update)) => update.for_each_key(table, |table, key| keys.push((table, key))),
            Some(Part::Read(read)) => read.for_each_key(table, |table, key| keys.push((table, key))),
            Some(Part::Check(_) | Part::Remove) | None => {}
        }
        keys
    }

    /// Whether the action changes nothing.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.read().is_some()
    }
}

/// What the client was told of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing yet, or "unknown".
    Unknown,
    /// The operation took effect, with this result.
    Executed {
        /// The decoded result.
        outcome: Outcome,
        /// The result bytes, unchanged.
        bytes: Vec<u8>,
    },
    /// The operation never took effect and never will (or was a read that failed).
    NotExecuted,
    /// A table was created or dropped now.
    TableDone(TableId),
    /// The table existed already.
    TableExists(TableId),
    /// There is no such table.
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

/// One operation of a client.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The client that asked.
    pub client: usize,
    /// What the client asked for.
    pub action: Action,
    /// The table.
    pub table: TableId,
    /// Operations of one group share an operation key, and their first key with its table: those with one action are one update,
    /// and only one action of a group runs (R4.9).
    pub group: Option<u64>,
    /// Whether the operation key's time to live is so short that the group may run again.
    pub expiring: bool,
    /// When it was asked for.
    pub asked: SimTime,
    /// What the client was told.
    pub told: Told,
    /// When the client was told; `None` as long as it was told nothing.
    pub told_at: Option<SimTime>,
}

impl Operation {
    /// Whether it has keys of several slots, and so perhaps of several shards.
    #[must_use]
    pub fn has_several_slots(&self) -> bool {
        let slots: BTreeSet<Slot> = self.action.keys_in(self.table).into_iter().map(|(_, key)| slot_of(key)).collect();
        slots.len() > 1
    }
}

/// All operations of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    operations: Vec<Operation>,
    /// The group of each operation key with a first key.
    groups: BTreeMap<(u64, TableId, Key), u64>,
}

impl History {
    /// The group of what is asked for under an operation key with this number: the number itself, or one that no operation key has.
    fn group_of(&mut self, number: u64, (table, key): (TableId, &[u8])) -> u64 {
        let is_first =
            self.groups.range((number, TableId(0), Key::new())..).next().is_none_or(|(name, _)| name.0 != number);
        let fresh = if is_first { number } else { u64::MAX - self.groups.len() as u64 };
        *self.groups.entry((number, table, key.to_vec())).or_insert(fresh)
    }

    /// A client asks for something in the default table.
    pub fn ask(&mut self, client: usize, action: Action, group: Option<u64>, asked: SimTime) -> OperationId {
        self.ask_in(DEFAULT_TABLE, client, action, group, asked)
    }

    /// A client asks for something in this table. `number`: of its operation key.
    pub fn ask_in(
        &mut self,
        table: TableId,
        client: usize,
        action: Action,
        number: Option<u64>,
        asked: SimTime,
    ) -> OperationId {
        let first_key = action.keys_in(table).first().copied();
        let group = number.zip(first_key).map(|(number, first_key)| self.group_of(number, first_key));
        let (told, told_at, expiring) = (Told::Unknown, None, false);
        self.operations.push(Operation { client, action, table, group, expiring, asked, told, told_at });
        OperationId(self.operations.len() - 1)
    }

    /// The operation key of this operation has a short time to live.
    pub fn expires(&mut self, id: OperationId) {
        self.operations[id.0].expiring = true;
    }

    /// Every key that was asked for, with its table, in order. No key is used in two tables.
    #[must_use]
    pub fn keys(&self) -> BTreeSet<(TableId, Key)> {
        let keys_of = |operation: &Operation| -> Vec<_> {
            operation.action.keys_in(operation.table).into_iter().map(|(table, key)| (table, key.to_vec())).collect()
        };
        self.operations.iter().flat_map(keys_of).collect()
    }

    /// The client is told something. "Unknown" may be followed by the outcome; nothing else may change.
    ///
    /// # Errors
    /// If the client was told something else before (E2).
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

    /// Replaces what was told where `change` says so. "Unknown" has no moment at which it was told.
    pub fn untell(&mut self, change: impl Fn(&Operation) -> Option<Told>) {
        for operation in &mut self.operations {
            if let Some(told) = change(operation) {
                operation.told_at = operation.told_at.filter(|_| told != Told::Unknown);
                operation.told = told;
            }
        }
    }

    /// All operations, in the order in which they were asked for.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The operation with this id.
    #[must_use]
    pub fn operation(&self, id: OperationId) -> &Operation {
        &self.operations[id.0]
    }
}
