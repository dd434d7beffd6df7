//! `draft → open → execute`: what it will change and answer, a group with room for that, and the changes in the group.
//!
//! - **E4** Until `record` commits the group, nothing has happened: a draft or a group that is dropped was never there. Once the
//!   group is open, nothing can fail.
//! - **R4.8** What runs is the store's part, and depends on parameters and footprint only.

use kasha_log::{GroupWriter, Log, Purpose};
use kasha_store::Draft;
use kasha_types::limits::RESULT_BYTES_MAX;
use kasha_wire::OutcomeCode;

use super::order::{Action, Ordered};
use super::{RequestPath, Stop};
use crate::core::Scratch;
use crate::operation_keys;

/// It is known what it will change and answer.
pub(super) struct Drafted<'a> {
    ordered: Ordered<'a>,
    draft: Draft<'a>,
}

/// Its changes are in the open group.
pub(super) struct Executed<'a> {
    pub(super) ordered: Ordered<'a>,
    pub(super) draft: Draft<'a>,
}

impl Drafted<'_> {
    pub(super) fn ordered(&self) -> &Ordered<'_> {
        &self.ordered
    }

    pub(super) fn draft(&self) -> &Draft<'_> {
        &self.draft
    }
}

impl RequestPath<'_> {
    /// What it will do. Nothing is written.
    pub(super) fn draft<'a>(&mut self, log: &Log, ordered: Ordered<'a>) -> Drafted<'a> {
        let spare = std::mem::take(&mut self.core.scratch.draft);
        let body = ordered.body();
        let draft = match ordered.action() {
            Action::Execute { .. } => self.state.store.draft(log, body.head.table, &body.update, spare),
            Action::Repeat(place) => Draft::answering(operation_keys::record_at(log, place).result, spare),
            Action::Mismatch => Draft::answering(&[OutcomeCode::OperationKeyMismatch as u8], spare),
            Action::Cancel => Draft::answering(&[OutcomeCode::Cancelled as u8], spare),
        };
        assert!(draft.result().len() <= RESULT_BYTES_MAX, "an update's result is small");
        Drafted { ordered, draft }
    }

    /// Opens the group for its changes and its result: the last that can be refused.
    pub(super) fn open<'l, 'a>(
        &mut self,
        log: &'l mut Log,
        drafted: Drafted<'a>,
    ) -> Result<(GroupWriter<'l>, Drafted<'a>), Stop> {
        let Drafted { ordered, draft } = &drafted;
        let bytes = draft.bytes() + self.record_bytes(ordered, draft.result().len());
        match log.begin(self.epoch, bytes, ordered.purpose()) {
            Ok(group) => Ok((group, drafted)),
            Err(full) => {
                self.core.scratch.draft = drafted.draft.into_spare();
                Err(Stop::for_room(full))
            }
        }
    }

    /// Does what was drafted.
    pub(super) fn execute<'a>(&mut self, group: &mut GroupWriter<'_>, drafted: Drafted<'a>) -> Executed<'a> {
        let Drafted { ordered, mut draft } = drafted;
        let Scratch { dead, .. } = &mut self.core.scratch;
        dead.clear();
        self.state.store.write(group, &mut draft, dead);
        Executed { ordered, draft }
    }

    /// What [`kasha_types::planted::Bug::RecordApart`] opens: a group for the result alone.
    pub(super) fn open_again<'l>(&self, log: &'l mut Log, executed: &Executed<'_>) -> GroupWriter<'l> {
        let bytes = self.record_bytes(&executed.ordered, executed.draft.result().len());
        log.begin(self.epoch, bytes, Purpose::Own).expect("there was room a moment ago")
    }

    /// What the update replaced is dead now that its group is in the log.
    pub(super) fn kill_replaced(&mut self, log: &mut Log) {
        for at in self.core.scratch.dead.drain(..) {
            log.kill(at);
        }
    }
}
