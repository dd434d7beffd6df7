//! Updates: what each of them changes and answers, as a draft.
//!
//! [`Store::draft`] runs an update against the store and writes nothing. The draft has the changes, the result and its
//! size. [`Store::write`] then puts the changes into an open entry group and points the index at them. An operation
//! that fails (a condition, an overflow, a limit) drafts a result and no change; a transaction of which a part fails
//! drops the changes of the other parts too.
//!
//! Results depend only on the arguments and the objects touched (**R4.8**), so that a witness's replay gives the same
//! bytes. Clients, completion records and syncs are not known here.

use kasha_log::Log;
use kasha_types::limits::{RESULT_BYTES_MAX, TRANSACTION_BYTES_MAX};
use kasha_types::planted::{self, Bug};
use kasha_types::{TableId, key_hash};
use kasha_wire::operation::{self, Answer, Axes, Bounds, Check, Item, Items, PartOperation, Parts};
use kasha_wire::{OutcomeCode, Read, Update};

use crate::Store;
use crate::change::{Change, To};
use crate::draft::{Draft, SpareDraft, Value};
use crate::number::Number;
use crate::run::{Moment, Run};

impl Store {
    /// What an update will change and answer, begun at that moment. Nothing is written.
    pub fn draft<'a>(
        &self,
        log: &Log,
        (table, moment): (TableId, Moment),
        update: &Update<'a>,
        spare: SpareDraft,
    ) -> Draft<'a> {
        if let Update::Batch { batch } = *update {
            return self.draft_batch(log, moment, (batch, batch.count()), spare);
        }
        let mut run = Run { store: self, log, table, moment, draft: Draft::new(spare), cells: 0 };
        match *update {
            Update::Transaction { parts } => run.transaction(parts),
            _ => run.update(update),
        }
        run.draft
    }

    /// What the first `most` parts of a batch will change and answer, or fewer of them if they would be too large together: the result has as many
    /// parts as run (**R10.17**). Nothing is written. A part that fails is told so, and keeps no other one from running.
    ///
    /// # Panics
    /// If the batch has no part.
    pub fn draft_batch<'a>(
        &self,
        log: &Log,
        moment: Moment,
        (batch, most): (Parts<'a>, u32),
        mut spare: SpareDraft,
    ) -> Draft<'a> {
        let table = batch.first_table().expect("a batch has a part");
        let mut most = most.min(batch.count());
        let first_keys = batch.iter().take(most as usize).map(|part| key_hash(part.table, part.operation.first_key()));
        self.bring_near(log, first_keys);
        loop {
            let mut run = Run { store: self, log, table, moment, draft: Draft::new(spare), cells: 0 };
            match run.batch(batch, most) {
                Ok(()) => return run.draft,
                Err(fit) => (most, spare) = (fit, run.draft.into_spare()),
            }
        }
    }

    /// What the first `most` parts of a query answer, as the parts of a transaction would. `now`: when it runs. Parts whose answers find no room
    /// behind those before them do not run: the result has as many parts as ran. The answer of the first may be too large, which its caller
    /// refuses.
    ///
    /// # Panics
    /// If one of them would change something.
    pub fn query<'a>(&self, log: &Log, now: Moment, (queries, most): (Parts<'a>, u32), spare: SpareDraft) -> Draft<'a> {
        let table = queries.first_table().expect("a query has a part");
        let mut run = Run { store: self, log, table, moment: now, draft: Draft::new(spare), cells: 0 };
        let most = most.min(queries.count());
        run.draft.begin_parts(most);
        for (number, part) in (0u32..most).zip(queries.iter()) {
            let before = run.draft.result().len();
            run.draft.begin_part(part.operation.shape());
            run.part(&part);
            run.draft.end_part();
            if number > 0 && run.draft.result().len() > RESULT_BYTES_MAX {
                run.draft.end_before(number, before);
                break;
            }
        }
        assert!(run.draft.is_empty(), "a query changes nothing");
        run.draft
    }
}

impl<'r, 'a> Run<'r, 'a> {
    #[inline(always)]
    fn update(&mut self, update: &Update<'a>) {
        match *update {
            Update::Put { key, ref axes, value } => self.change(Change { key, axes, to: To::Value(value) }),
            Update::Increment { key, ref axes, delta, bounds } => {
                self.change(Change { key, axes, to: To::Sum(delta, bounds) });
            }
            Update::Append { key, ref axes, value } => self.change(Change { key, axes, to: To::Longer(value) }),
            Update::Delete { key, terms } => self.change(Change { key, axes: &Axes::with(terms), to: To::Nothing }),
            Update::Keep { key, ref axes } => self.change(Change { key, axes, to: To::Same }),
            Update::MultiPut { pairs: items } => self.multi_put(items),
            Update::MultiDelete { keys: items } => self.multi_delete(items),
            Update::MultiIncrement { deltas: items } => self.multi_increment(items),
            Update::Transaction { .. } | Update::Batch { .. } => unreachable!("a part is none"),
        }
    }

    fn multi_put(&mut self, items: Items<'a>) {
        self.done_with(items);
        for Item { key, value, .. } in items.iter() {
            let seen = self.see(key);
            let version = self.put(key, seen, Value::Bytes(value), None);
            self.tell(version);
        }
    }

    fn multi_delete(&mut self, items: Items<'a>) {
        self.done_with(items);
        for Item { key, .. } in items.iter() {
            let seen = self.see(key);
            let was_there = seen.value().is_some();
            if was_there {
                self.draft.remove(self.table, key, &seen);
            }
            self.draft.answer_bytes(&[u8::from(was_there)]);
        }
    }

    fn multi_increment(&mut self, items: Items<'a>) {
        self.done_with(items);
        for (index, Item { key, delta, .. }) in (0u32..).zip(items.iter()) {
            let seen = self.see(key);
            match self.sum(&seen, delta, Bounds::NONE) {
                Ok(sum) => {
                    let version = self.put(key, seen, Value::Number(Number::new(sum)), seen.ends());
                    self.tell_number(sum, version);
                }
                Err(failed) => {
                    self.draft.clear();
                    self.failed(&failed, &seen);
                    self.draft.answer_bytes(&index.to_le_bytes());
                    // What it waits for is judged by all its keys, as witnesses judge it (C1).
                    return items.iter().skip(index as usize + 1).for_each(|item| {
                        self.see(item.key);
                    });
                }
            }
        }
    }

    /// The parts run one after the other. The first that fails, or that makes the transaction too large, is all that is
    /// told, and nothing changes. The result counts twice: it may be kept under an operation key as well.
    #[cold]
    #[inline(never)]
    fn transaction(&mut self, parts: Parts<'a>) {
        self.draft.begin_parts(parts.count());
        for (number, part) in (0u32..).zip(parts.iter()) {
            self.draft.begin_part(part.operation.shape());
            self.part(&part);
            if self.draft.bytes() + 2 * self.draft.result().len() > TRANSACTION_BYTES_MAX {
                self.draft.answer(OutcomeCode::TooLarge);
            }
            let is_done = match self.draft.end_part() {
                OutcomeCode::Done | OutcomeCode::NotFound => true,
                OutcomeCode::ConditionFailed
                | OutcomeCode::Overflow
                | OutcomeCode::NotANumber
                | OutcomeCode::OutOfBounds
                | OutcomeCode::TooLarge => planted::is_on(Bug::FailedPartPassed),
                OutcomeCode::Cancelled
                | OutcomeCode::OperationKeyMismatch
                | OutcomeCode::NotCommitted
                | OutcomeCode::Conflict
                | OutcomeCode::RefusedElsewhere
                | OutcomeCode::Prepared
                | OutcomeCode::Repeated => {
                    unreachable!("no part answers so")
                }
            };
            if !is_done {
                self.draft.fail_at_part(number);
                // What it waits for is judged by all its keys, as witnesses judge it (C1).
                return parts.iter().skip(number as usize + 1).for_each(|part| self.see_key_of(&part));
            }
        }
    }

    /// The first `most` parts run one after the other. `Err`: so many of them fit, and nothing is drafted that counts.
    #[cold]
    #[inline(never)]
    fn batch(&mut self, parts: Parts<'a>, most: u32) -> Result<(), u32> {
        self.draft.begin_parts(most);
        for (number, part) in (0u32..most).zip(parts.iter()) {
            self.draft.begin_part(part.operation.shape());
            self.part(&part);
            self.draft.end_part();
            if self.draft.bytes() + self.draft.result().len() > TRANSACTION_BYTES_MAX {
                return Err(number);
            }
        }
        // What it waits for is judged by all its keys, as witnesses judge it (C1), and a gc names them all (R10.17).
        self.draft.ends_early(most < parts.count());
        parts.iter().skip(most as usize).for_each(|part| self.see_key_of(&part));
        Ok(())
    }

    #[inline(never)]
    fn part(&mut self, part: &operation::Part<'a>) {
        self.table = part.table;
        match part.operation {
            PartOperation::Command(command) => self.command(&command),
            PartOperation::Update(update) => self.update(&update),
            PartOperation::Read(Read::Get { key }) => {
                let seen = self.see(key);
                match seen.value() {
                    Some(_) => {
                        self.done();
                        self.tell(seen.version());
                        self.tell_value(&seen);
                    }
                    None => self.draft.answer(OutcomeCode::NotFound),
                }
            }
            PartOperation::Read(Read::Exists { key }) => {
                let exists = self.see(key).value().is_some();
                self.done();
                self.draft.answer_bytes(&[u8::from(exists)]);
            }
            PartOperation::Read(Read::TimeToLive { key }) => {
                let seen = self.see(key);
                match seen.value() {
                    Some(_) => {
                        self.done();
                        self.tell(seen.version());
                        self.tell(seen.ends().map_or(0, |ends| ends.0));
                    }
                    None => self.draft.answer(OutcomeCode::NotFound),
                }
            }
            PartOperation::Read(
                Read::MultiGet { .. }
                | Read::Observe { .. }
                | Read::Scan { .. }
                | Read::ScanValues { .. }
                | Read::Query { .. },
            ) => unreachable!("a part has one key"),
            PartOperation::Check(Check::Meets { key, condition }) => {
                let seen = self.see(key);
                match self.meets(&seen, condition) {
                    true => {
                        self.done();
                        self.tell(seen.version());
                    }
                    false => self.condition_failed(&seen, Answer::Usual),
                }
            }
        }
    }

    fn see_key_of(&mut self, part: &operation::Part<'a>) {
        self.table = part.table;
        part.operation.for_each_key(|key| _ = self.see(key));
    }

    fn done_with(&mut self, items: Items<'_>) {
        self.done();
        self.draft.answer_bytes(&items.count().to_le_bytes());
    }
}
