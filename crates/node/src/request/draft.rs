//! `draft`: what it will change and answer, what that needs, and what its answer must wait for.
//!
//! - **E4** Until `commit` nothing has happened: a draft that is dropped was never there.
//! - **R4.8** What runs is the store's part, and depends on parameters and footprint only.

use kasha_distributed::Footprint;
use kasha_log::{Log, Purpose};
use kasha_store::{Draft, SpareDraft};
use kasha_types::limits::RESULT_BYTES_MAX;
use kasha_types::planted::{self, Bug};
use kasha_wire::{OutcomeCode, Update};

use crate::request::Origin;
use crate::request::order::{Action, Ordered};
use crate::request::path::RequestPath;
use crate::shard::distributed::Gated;
use crate::shard::operation_keys;
use crate::shard::state::bytes_of;

/// A repeat under an operation key whose result is no longer finds room where a cancel does. Otherwise its client would
/// hear that there is no room, take the repeat back by a cancel, which takes as much, and report as not executed what has
/// been executed under the key.
pub(super) const REPEATED_BYTES_MAX: usize = 64;

/// It is known what it will change and answer, and what it touches.
pub(super) struct Drafted<'r, 'a> {
    ordered: Ordered<'r, 'a>,
    draft: Draft<'a>,
}

impl<'r, 'a> Drafted<'r, 'a> {
    pub(super) fn ordered(&self) -> &Ordered<'r, 'a> {
        &self.ordered
    }

    pub(super) fn draft(&self) -> &Draft<'a> {
        &self.draft
    }

    pub(super) fn into_parts(self) -> (Ordered<'r, 'a>, Draft<'a>) {
        (self.ordered, self.draft)
    }

    /// What it reads and writes, for transactions over several shards.
    pub(super) fn footprint(&self) -> Footprint {
        // Who finds the operation key used, or used otherwise, has seen this one.
        let key = self.ordered.keep_under().and_then(|_| self.ordered.body().operation_key_hash());
        let writes = self.draft.changed().map(|(key, _)| key).chain(key);
        // What a batch leaves to another request it has not touched. A repeat has read nothing for itself.
        let all = &self.ordered.received().memory.footprint;
        let touched = if self.draft.is_early_end() { self.draft.touched() } else { all };
        Footprint::new(touched.iter().copied(), writes)
    }
}

impl RequestPath<'_> {
    /// What it will do. Nothing is written.
    pub(super) fn draft<'r, 'a>(&self, log: &Log, mut ordered: Ordered<'r, 'a>) -> Drafted<'r, 'a> {
        let spare = std::mem::take(&mut ordered.memory().draft);
        let (body, action) = (*ordered.body(), ordered.action());
        let draft = match action {
            Action::Execute { .. } => self.draft_changes(log, &ordered, spare),
            Action::Repeat(place) => Draft::answering(operation_keys::record_at(log, place).result, spare),
            Action::Mismatch => Draft::answering(&[OutcomeCode::OperationKeyMismatch as u8], spare),
            Action::Cancel => Draft::answering(&[OutcomeCode::Cancelled as u8], spare),
        };
        assert!(draft.result().len() <= RESULT_BYTES_MAX, "an update's result is small");
        let footprint = &mut ordered.memory().footprint;
        match action {
            // Hashed for the draft already.
            Action::Execute { .. } => {
                footprint.clear();
                footprint.extend_from_slice(draft.footprint());
                footprint.extend(body.operation_key_hash());
            }
            Action::Repeat(_) | Action::Mismatch | Action::Cancel => body.footprint(footprint),
        }
        Drafted { ordered, draft }
    }

    fn draft_changes<'a>(&self, log: &Log, ordered: &Ordered<'_, 'a>, spare: SpareDraft) -> Draft<'a> {
        let body = ordered.body();
        let begun = if planted::is_on(Bug::TimeOfRun) { self.core.counted.time() } else { body.head.begun };
        let moment = self.core.moment(begun);
        if let Update::Batch { batch } = body.update {
            return self.state.store.draft_batch(log, moment, (batch, ordered.parts_max()), spare);
        }
        let mut draft = self.state.store.draft(log, (body.head.table, moment), &body.update, spare);
        // Only a replay comes here with keys of tables that there are not (`admit`).
        if let (Origin::Replay, Update::Transaction { .. }) = (ordered.received().origin, body.update) {
            let configuration = self.core.configuration.as_deref().expect("a configuration promoted us");
            draft.withhold(|table| configuration.has_table(table));
        }
        draft
    }

    /// What its answer waits for, as the log is to say (R8.4, R8.15). What is given up touches nothing.
    #[inline]
    pub(super) fn gated(&self, drafted: &Drafted<'_, '_>) -> Option<Box<(Gated, Vec<u8>)>> {
        if self.is_quiet { None } else { self.find_gate(drafted) }
    }

    #[cold]
    #[inline(never)]
    fn find_gate(&self, drafted: &Drafted<'_, '_>) -> Option<Box<(Gated, Vec<u8>)>> {
        if matches!(drafted.ordered.action(), Action::Cancel) {
            return None;
        }
        let participant = &self.state.distributed.participant;
        let footprint = drafted.footprint();
        let gate = participant.gate_of(&footprint);
        if gate.is_empty() {
            return None;
        }
        let gated = Gated { rpc: drafted.ordered.received().request.rpc, footprint, gate };
        let encoded = gated.encode();
        Some(Box::new((gated, encoded)))
    }

    /// What its group, of so many bytes of entries, is for. Deletes and cancels whose records nobody acknowledges for a while
    /// may use up the reserve. Then those go on that leave no more alive than there was, and with them their clients'
    /// acknowledgements arrive: without that, only the end of a lease would make room (R5.16). So does a small update that is
    /// the oldest of its client, which can acknowledge nothing before that is over.
    pub(super) fn purpose(&self, log: &Log, ordered: &Ordered<'_, '_>, draft: &Draft<'_>, bytes: usize) -> Purpose {
        let purpose = match (ordered.purpose(), ordered.action()) {
            (Purpose::Normal, Action::Repeat(_)) if draft.result().len() <= REPEATED_BYTES_MAX => Purpose::Freeing,
            (purpose, _) => purpose,
        };
        if purpose != Purpose::Freeing || log.has_room_for(bytes, purpose) {
            return purpose;
        }
        let received = ordered.received();
        let is_heard = matches!(received.origin, Origin::Client(_)); // R4.5
        let acknowledged = self.state.tracker.acknowledged_by(&received.request).filter(|_| is_heard);
        if bytes_of(log, draft.replaced().chain(acknowledged)) >= bytes {
            Purpose::Shrinking
        } else if is_heard && self.state.unblocks(log, &received.request, bytes) {
            Purpose::Unblocking
        } else {
            purpose
        }
    }
}
