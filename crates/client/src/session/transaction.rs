//! A transaction that is being put together: its parts, within their limits.

use kasha_types::TableId;
use kasha_wire::operation::{OwnedOperation, PartOperation, PartsBuffer};
use kasha_wire::{Read, Update};

use super::WhyNot;

/// The parts of a transaction so far.
#[derive(Clone, Debug, Default)]
pub struct TransactionParts {
    parts: PartsBuffer,
    wrong: Option<WhyNot>,
}

impl TransactionParts {
    /// One more part. Returns its index. A part that exceeds a limit makes the transaction wrong.
    pub fn push(&mut self, table: TableId, operation: &PartOperation<'_>) -> u32 {
        let index = self.parts.as_parts().count();
        match operation.check_limits() {
            Ok(()) => self.parts.push(table, operation),
            Err(excess) => self.is_wrong(excess.into()),
        }
        index
    }

    /// How many parts there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.parts.as_parts().count()
    }

    /// It is never sent. The first reason counts.
    pub fn is_wrong(&mut self, why: WhyNot) {
        self.wrong.get_or_insert(why);
    }

    /// The parts as a query, which only reads, and the table that it is sent with.
    ///
    /// # Panics
    /// If one of them may change something.
    pub fn query(&self) -> (TableId, Result<OwnedOperation, WhyNot>) {
        let parts = self.parts.as_parts();
        assert!(self.wrong.is_some() || parts.only_read(), "a query changes nothing");
        let whole = || Read::Query { queries: parts }.to_owned_within_limits().map_err(WhyNot::from);
        (parts.first_table().unwrap_or(TableId(0)), self.wrong.map_or_else(whole, Err))
    }

    /// The transaction as one operation, and the table that it is sent with: that of its first part.
    pub fn operation(&self) -> (TableId, Result<OwnedOperation, WhyNot>) {
        let parts = self.parts.as_parts();
        let whole = || Update::Transaction { parts }.to_owned_within_limits().map_err(WhyNot::from);
        (parts.first_table().unwrap_or(TableId(0)), self.wrong.map_or_else(whole, Err))
    }
}
