//! `open → execute`: a group with room for everything, and the changes in it.
//!
//! - **E4** Until `record` commits the group, nothing has happened: a group that is dropped was never there. Once it is
//!   open, nothing can fail for want of room.
//! - **R4.8** What runs is the store's part, and depends on parameters and footprint only.

use kasha_log::{GroupWriter, Log, Purpose};
use kasha_types::limits::RESULT_BYTES_MAX;
use kasha_wire::OutcomeCode;

use super::order::{Action, Ordered};
use super::{Path, Received, Stop};
use crate::core::Scratch;
use crate::operation_keys::{self, OperationKey};

/// Bytes of a result at most, but for one that is repeated.
const RESULT_BASE_BYTES: usize = 32;
/// What each key adds to them.
const RESULT_BYTES_PER_KEY: usize = 16;

/// Its changes are in the open group, its result is in the scratch memory.
pub(super) struct Executed<'a> {
    pub(super) received: Received<'a>,
    pub(super) keep_under: Option<OperationKey<'a>>,
    changes: kasha_store::Executed,
}

impl Executed<'_> {
    /// It failed after it had begun to write: its result must be recorded in another group.
    pub(super) fn is_void(&self) -> bool {
        self.changes == kasha_store::Executed::Discard
    }
}

impl Path<'_> {
    /// Opens the group for its changes and its result: the last that can be refused.
    pub(super) fn open<'l>(&self, log: &'l mut Log, ordered: &Ordered<'_>) -> Result<GroupWriter<'l>, Stop> {
        log.begin(self.epoch, self.bytes_needed(log, ordered), ordered.purpose()).map_err(Stop::for_room)
    }

    /// Bytes of entries that it needs at most.
    fn bytes_needed(&self, log: &Log, ordered: &Ordered<'_>) -> usize {
        let body = ordered.body();
        let mut result = RESULT_BASE_BYTES;
        body.update.for_each_key(|_| result += RESULT_BYTES_PER_KEY);
        match ordered.action() {
            Action::Execute { keep_under } => {
                let changes = self.state.store.bytes_needed(log, body.head.table, &body.update);
                changes + self.record_bytes(body, keep_under.as_ref(), result)
            }
            Action::Repeat(place) => {
                let kept = operation_keys::record_at(log, place).result.len();
                self.record_bytes(body, None, kept.max(result))
            }
            Action::Mismatch | Action::Cancel => self.record_bytes(body, None, result),
        }
    }

    /// Opens a group for its result alone, in place of one that is dropped.
    pub(super) fn open_again<'l>(&self, log: &'l mut Log, executed: &Executed<'_>) -> GroupWriter<'l> {
        let result = self.core.scratch.result.len();
        let needed = self.record_bytes(&executed.received.body, executed.keep_under.as_ref(), result);
        log.begin(self.epoch, needed, Purpose::Own).expect("there was room a moment ago")
    }

    /// Does what was ordered.
    pub(super) fn execute<'a>(&mut self, group: &mut GroupWriter<'_>, ordered: Ordered<'a>) -> Executed<'a> {
        let (received, action) = ordered.into_parts();
        let Scratch { result, dead, .. } = &mut self.core.scratch;
        result.clear();
        dead.clear();
        let (mut kept, mut changes) = (None, kasha_store::Executed::Commit);
        match action {
            Action::Execute { keep_under } => {
                let (table, update) = (received.body.head.table, &received.body.update);
                kept = keep_under;
                changes = self.state.store.execute(group, table, update, result, dead);
            }
            Action::Repeat(place) => {
                result.extend_from_slice(operation_keys::record_at(group.log(), place).result);
            }
            Action::Mismatch => result.push(OutcomeCode::OperationKeyMismatch as u8),
            Action::Cancel => result.push(OutcomeCode::Cancelled as u8),
        }
        assert!(result.len() <= RESULT_BYTES_MAX, "an update's result is small");
        Executed { received, keep_under: kept, changes }
    }

    /// What the update replaced is dead now that its group is in the log.
    pub(super) fn kill_replaced(&mut self, log: &mut Log) {
        for at in self.core.scratch.dead.drain(..) {
            log.kill(at);
        }
    }
}
