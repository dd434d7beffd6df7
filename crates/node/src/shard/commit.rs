//! The one way to commit at a primary: a draft's changes and what belongs to them, in one entry group (E4).
//!
//! ```text
//! Draft ─┐
//!        ├─▶ room for all of it ─▶ written ─▶ in the log ─▶ applied to the state ─▶ what it replaced is dead
//! Entries┘          └ else Full, and nothing has happened
//! ```
//!
//! What stands beside the changes depends on who commits: a completion record, the outcome of a transaction over several
//! shards, an entry of the primary's own, or nothing. Each of them is [`Entries`].

use kasha_log::{EntryKind, EntryOffset, Full, GroupWriter, Log, Purpose, entry_bytes};
use kasha_store::Draft;
use kasha_types::planted::{self, Bug};
use kasha_types::{Epoch, LogEnd, SegmentId};

use crate::shard::state::ShardState;

/// What stands in a group beside a draft's changes. `result` is what the draft answers.
pub(crate) trait Entries {
    /// Where they begin.
    type Places;
    /// What there is to tell once they are in the log.
    type Done;

    /// Their bytes in the log.
    fn bytes(&self, result: &[u8]) -> usize;

    /// Writes them behind the changes.
    fn write(&mut self, group: &mut GroupWriter<'_>, result: &[u8]) -> Self::Places;

    /// They are in the log, whose last group ends at `end`. `dead`: entries that are needed no more.
    fn apply(
        self,
        state: &mut ShardState,
        log: &mut Log,
        places: Self::Places,
        end: LogEnd,
        dead: &mut Vec<EntryOffset>,
    ) -> Self::Done;
}

/// The changes alone.
impl Entries for () {
    type Places = ();
    type Done = ();

    fn bytes(&self, _: &[u8]) -> usize {
        0
    }

    fn write(&mut self, _: &mut GroupWriter<'_>, _: &[u8]) {}

    fn apply(self, _: &mut ShardState, _: &mut Log, (): (), _: LogEnd, _: &mut Vec<EntryOffset>) {}
}

/// A primary's own entry, whose payload `fill` writes: it is applied as each follower's replay will apply it.
struct Own<F> {
    kind: EntryKind,
    payload_len: usize,
    fill: F,
}

impl<F: Fn(&mut [u8])> Entries for Own<F> {
    type Places = EntryOffset;
    type Done = ();

    fn bytes(&self, _: &[u8]) -> usize {
        entry_bytes(self.payload_len)
    }

    fn write(&mut self, group: &mut GroupWriter<'_>, _: &[u8]) -> EntryOffset {
        let (at, payload) = group.entry(self.kind, self.payload_len);
        (self.fill)(payload);
        at
    }

    fn apply(self, state: &mut ShardState, log: &mut Log, at: EntryOffset, _: LogEnd, dead: &mut Vec<EntryOffset>) {
        state.apply_own(log, at, dead);
    }
}

/// The word that a segment is freed.
struct Freed(SegmentId);

impl Entries for Freed {
    type Places = ();
    type Done = ();

    fn bytes(&self, _: &[u8]) -> usize {
        entry_bytes(size_of::<SegmentId>())
    }

    fn write(&mut self, group: &mut GroupWriter<'_>, _: &[u8]) {
        group.segment_freed(self.0);
    }

    fn apply(self, _: &mut ShardState, _: &mut Log, (): (), _: LogEnd, _: &mut Vec<EntryOffset>) {}
}

impl ShardState {
    /// Commits a draft's changes and what stands beside them, if there is room for all of it. What changes nothing and says nothing
    /// leaves nothing behind. Returns where the log ends then. `dead` is scratch memory.
    ///
    /// # Errors
    /// There is no room. Nothing has happened.
    #[inline(always)]
    pub fn commit<E: Entries>(
        &mut self,
        log: &mut Log,
        at: (Epoch, Purpose),
        draft: &mut Draft<'_>,
        entries: E,
        dead: &mut Vec<EntryOffset>,
    ) -> Result<(LogEnd, E::Done), Full> {
        self.commit_group(log, at, Some(draft), entries, dead)
    }

    /// Commits what stands beside no changes.
    ///
    /// # Errors
    /// There is no room. Nothing has happened.
    pub fn commit_entries<E: Entries>(
        &mut self,
        log: &mut Log,
        at: (Epoch, Purpose),
        entries: E,
        dead: &mut Vec<EntryOffset>,
    ) -> Result<(LogEnd, E::Done), Full> {
        self.commit_group(log, at, None, entries, dead)
    }

    #[inline(always)]
    fn commit_group<E: Entries>(
        &mut self,
        log: &mut Log,
        (epoch, purpose): (Epoch, Purpose),
        mut draft: Option<&mut Draft<'_>>,
        mut entries: E,
        dead: &mut Vec<EntryOffset>,
    ) -> Result<(LogEnd, E::Done), Full> {
        let changes = draft.as_deref().map_or(0, Draft::bytes);
        let mut group = log.begin(epoch, changes + entries.bytes(result_of(&draft)), purpose)?;
        dead.clear();
        if let Some(draft) = &mut draft {
            self.store.write(&mut group, draft, dead);
            if planted::is_on(Bug::RecordApart) && !group.is_empty() {
                group = apart(group, epoch, draft.result());
            }
        }
        let places = entries.write(&mut group, result_of(&draft));
        let (log, end) = match group.is_empty() {
            true => (group.into_log(), None),
            false => {
                let (log, appended) = group.commit_and_release();
                (log, Some(appended.end.offset))
            }
        };
        let end = end.unwrap_or_else(|| log.end().offset);
        let done = entries.apply(self, log, places, end, dead);
        // What it replaced is dead now that its group is in the log.
        log.kill_all(dead);
        Ok((end, done))
    }

    /// Commits a primary's own entry, whose payload `fill` writes. Returns where the log ends then. `dead` is scratch memory.
    ///
    /// # Errors
    /// There is no room. Nothing has happened.
    pub fn commit_own(
        &mut self,
        log: &mut Log,
        at: (Epoch, Purpose),
        (kind, payload_len): (EntryKind, usize),
        dead: &mut Vec<EntryOffset>,
        fill: impl Fn(&mut [u8]),
    ) -> Result<LogEnd, Full> {
        let own = Own { kind, payload_len, fill };
        self.commit_entries(log, at, own, dead).map(|(end, ())| end)
    }

    /// Commits the word that a segment is freed.
    ///
    /// # Errors
    /// There is no room. Nothing has happened.
    pub fn commit_freed(
        &mut self,
        log: &mut Log,
        epoch: Epoch,
        segment: SegmentId,
        dead: &mut Vec<EntryOffset>,
    ) -> Result<(), Full> {
        self.commit_entries(log, (epoch, Purpose::Own), Freed(segment), dead).map(drop)
    }
}

/// What a draft answers; without one there is no answer.
fn result_of<'d>(draft: &'d Option<&mut Draft<'_>>) -> &'d [u8] {
    draft.as_deref().map_or(&[], Draft::result)
}

/// `record_apart`, a planted bug: the changes are committed, and what belongs to them gets a group of its own.
#[cold]
fn apart<'l>(changes: GroupWriter<'l>, epoch: Epoch, result: &[u8]) -> GroupWriter<'l> {
    let log = changes.commit_and_release().0;
    log.begin(epoch, result.len() + 4096, Purpose::Own).expect("room for a record")
}
