//! The arguments of any operation, where the operation is drawn by its name. None of them lets a value end (`expiring`):
//! checkers of several keys do not know of ends.

use kasha_machine::Rng;
use kasha_wire::operation::{Answer, Bounds, Check, Condition, ItemsBuffer, PartOperation, Terms};
use kasha_wire::{Read, Update};

/// Bounds that some numbers of a run are at.
pub(super) fn bounds(rng: &mut Rng) -> Bounds {
    let most = i64::try_from(rng.below(8)).expect("small");
    Bounds::new(most.min(2) - 2, most).expect("in order")
}

pub(super) struct Drawn<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub expected: &'a [u8],
    pub version: u64,
    pub delta: i64,
    pub bounds: Bounds,
}

/// An operation on several keys.
pub(super) fn several<'a>(name: &str, [keys, pairs, deltas]: &'a [ItemsBuffer; 3]) -> Option<Update<'a>> {
    Some(match name {
        "multi-put" => Update::MultiPut { pairs: pairs.as_items() },
        "multi-delete" => Update::MultiDelete { keys: keys.as_items() },
        "multi-increment" => Update::MultiIncrement { deltas: deltas.as_items() },
        _ => return None,
    })
}

impl<'a> Drawn<'a> {
    /// The operation on one key that has this name here.
    pub fn operation(&self, name: &str) -> PartOperation<'a> {
        let key = self.key;
        match name {
            "get" => PartOperation::Read(Read::Get { key }),
            "exists" => PartOperation::Read(Read::Exists { key }),
            "has-version" => PartOperation::Check(Check::Meets { key, condition: self.has_version() }),
            "has-value" => PartOperation::Check(Check::Meets { key, condition: self.has_value() }),
            _ => PartOperation::Update(self.update(name)),
        }
    }

    /// The update of one key that has this name here.
    pub fn update(&self, name: &str) -> Update<'a> {
        let &Self { key, value, delta, bounds, .. } = self;
        let telling = |condition| Terms::only_if(condition).answering(Answer::Old);
        match name {
            "put" => Update::put(key, value),
            "put-if-version" => Update::put_if(key, self.has_version(), value),
            "put-if-absent" => Update::put_if(key, Condition::ABSENT, value),
            "compare-and-put" => Update::put_if(key, self.has_value(), value),
            "get-and-put" => Update::get_and_put(key, value),
            "get-and-put-if-version" => Update::put(key, value).with_terms(telling(self.has_version())),
            "delete" => Update::delete(key),
            "delete-if-version" => Update::delete_if(key, self.has_version()),
            "get-and-delete" => Update::get_and_delete(key),
            "get-and-delete-if-value" => Update::delete(key).with_terms(telling(self.has_value())),
            "increment" => Update::increment(key, delta),
            "increment-within" => Update::increment_within(key, delta, bounds),
            "increment-if-version" => Update::increment(key, delta).with_terms(Terms::only_if(self.has_version())),
            "append" => Update::append(key, value),
            "get-and-append" => Update::append(key, value).with_terms(Terms::NONE.answering(Answer::Old)),
            "persist" => Update::persist(key),
            _ => unreachable!("no operation on one key is drawn as {name}"),
        }
    }

    fn has_version(&self) -> Condition<'a> {
        Condition::Version(self.version)
    }

    fn has_value(&self) -> Condition<'a> {
        Condition::Value(self.expected)
    }
}
