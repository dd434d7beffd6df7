//! The arguments of any operation, where the operation is drawn by its name. None of them lets a value end (`expiring`):
//! checkers of several keys do not know of ends.

use kasha_machine::Rng;
use kasha_wire::operation::arguments::Source;
use kasha_wire::operation::{Bounds, Check, ItemKind, Items, ItemsBuffer, Lifetime, Parts};
use kasha_wire::{Read, Update};

/// Bounds that some numbers of a run are at.
pub(super) fn bounds(rng: &mut Rng) -> Bounds {
    let most = i64::try_from(rng.below(8)).expect("small");
    Bounds::new(most.min(2) - 2, most).expect("in order")
}

/// The code of one of the operations with these names.
pub(super) fn one_of(rng: &mut Rng, names: &[&str]) -> u8 {
    let name = *rng.pick(names);
    let mut rows = Update::ALL.iter().chain(Read::ALL).chain(Check::ALL);
    rows.find(|row| row.name == name).expect("a name of the wire's table").code
}

pub(super) struct Drawn<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub expected: &'a [u8],
    pub version: u64,
    pub delta: i64,
    pub bounds: Bounds,
    /// By [`ItemKind`]. `None`: only operations on one key are drawn.
    pub lists: Option<&'a [ItemsBuffer; 3]>,
}

impl<'a> Source<'a> for Drawn<'a> {
    type Error = &'static str;

    fn no_such_operation(what: &'static str) -> &'static str {
        what
    }
    fn key(&mut self) -> Result<&'a [u8], &'static str> {
        Ok(self.key)
    }
    fn value(&mut self) -> Result<&'a [u8], &'static str> {
        Ok(self.value)
    }
    fn expected(&mut self) -> Result<&'a [u8], &'static str> {
        Ok(self.expected)
    }
    fn version(&mut self) -> Result<u64, &'static str> {
        Ok(self.version)
    }
    fn delta(&mut self) -> Result<i64, &'static str> {
        Ok(self.delta)
    }
    fn bounds(&mut self) -> Result<Bounds, &'static str> {
        Ok(self.bounds)
    }
    fn lifetime(&mut self) -> Result<Lifetime, &'static str> {
        Err("a value that ends")
    }
    fn items(&mut self, kind: ItemKind) -> Result<Items<'a>, &'static str> {
        self.lists.map(|lists| lists[kind as usize].as_items()).ok_or("an operation on one key")
    }
    fn parts(&mut self) -> Result<Parts<'a>, &'static str> {
        Err("no transaction")
    }
}
