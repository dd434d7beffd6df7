//! Mistakes that can be switched on for a run, to see that the simulator's checkers catch them.
//!
//! Each breaks one rule of the design, at the one place that keeps it: `if … || planted::is_on(Bug::…)`. Without the
//! feature `planted-bugs` [`is_on`] is a constant `false` and costs nothing; no server is built with it. Which checker
//! catches what, and in how many runs, stands in `kasha-sim`'s own `planted` module.

macro_rules! bugs {
    ($($(#[doc = $what:literal])+ $bug:ident = $name:literal,)+) => {
        /// A rule that is broken on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Bug {
            $($(#[doc = $what])+ $bug,)+
        }

        impl Bug {
            /// Every bug, its name, and what it breaks.
            pub const TABLE: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$bug, $name, concat!($($what),+)),)+];
        }
    };
}

bugs! {
    /// D3: frames leave before their gates open.
    GatesIgnored = "gates_ignored",
    /// R5.3: an fsync is reported although nothing is on the platter.
    FsyncLies = "fsync_lies",
    /// Section 7: `now` is read before the process is stopped, and used after.
    StaleNow = "stale_now",
    /// R3.1: what was held for a role leaves after the role was lost; positions are compared without their epochs.
    HeldEffectsKept = "held_effects_kept",
    /// R2.1: a new attempt keeps the answer that the old one got.
    AttemptsMixed = "attempts_mixed",
    /// R2.1: a retry takes the session's newest acknowledgement and lease into the body.
    BodyRebuilt = "body_rebuilt",
    /// R2.1: `Sync` is answered in another epoch than the update ran in.
    SyncInAnotherEpoch = "sync_in_another_epoch",
    /// R4.5: a replayed request's acknowledgement is believed.
    ReplayAcknowledges = "replay_acknowledges",
    /// R4.5, E1: a replayed request is run without being looked up.
    ReplayWithoutLookUp = "replay_without_look_up",
    /// R4.6: an expired client's records go without a floor.
    ExpiryWithoutFloor = "expiry_without_floor",
    /// R4.9: the operation key is missing in the witness's footprint.
    OperationKeyNotRecorded = "operation_key_not_recorded",
    /// R4.9: a hit of an operation key writes no completion record.
    HitWithoutRecord = "hit_without_record",
    /// R5.3, F2: a promise to obey no smaller epoch is forgotten at a restart, and nothing else is asked.
    PromiseForgotten = "promise_forgotten",
    /// Section 6, C2: a witness goes on accepting after a recovery has read it.
    FreezeIgnored = "freeze_ignored",
    /// Section 6: a witness is told to drop what is not synced yet.
    GcBeforeSync = "gc_before_sync",
    /// Section 7, step 4: without a witness's word, a recovery falls through.
    WitnessSkipped = "witness_skipped",
    /// C3: the primary answers requests of an older witness list.
    ListUnchecked = "list_unchecked",
    /// R6.2: a witness list counts as closed before what it was promised is synced.
    ListClosedUnsynced = "list_closed_unsynced",
    /// C1: an update that touches something unsynced is answered at once.
    OverlapIgnored = "overlap_ignored",
    /// Pitfall 2: "not found" is not gated.
    NotFoundUngated = "not_found_ungated",
    /// Section 6, F1: reads are answered without a lease.
    ReadWithoutLease = "read_without_lease",
    /// R7.2: a sync counts when any member holds the log.
    SyncedAtAnyMember = "synced_at_any_member",
    /// R7.2: joiners do not count for syncs.
    JoinersUncounted = "joiners_uncounted",
    /// R7.2: a member whose copy is not complete is elected.
    JoinerElected = "joiner_elected",
}

impl Bug {
    /// Its name.
    ///
    /// # Panics
    /// Never: every bug is in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|row| row.0 == self).expect("every bug is in the table").1
    }

    /// The bug of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

/// Whether this thread's machines have the bug: never, without the feature.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
#[must_use]
pub const fn is_on(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "planted-bugs")]
pub use switch::{clear, is_on, plant};

#[cfg(feature = "planted-bugs")]
mod switch {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether this thread's machines have the bug.
    #[must_use]
    pub fn is_on(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Gives all machines of this thread a bug, and no other.
    pub fn plant(bug: Bug) {
        PLANTED.set(Some(bug));
    }

    /// Takes it back.
    pub fn clear() {
        PLANTED.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for &(bug, name, _) in Bug::TABLE {
            assert_eq!(Bug::by_name(name), Some(bug));
            assert_eq!(bug.name(), name);
        }
        assert_eq!(Bug::by_name("no such"), None);
    }
}
