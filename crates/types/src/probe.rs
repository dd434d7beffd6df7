//! Counts of the rare paths of the production code: a test that never gets there proves nothing about them.
//!
//! Each probe stands once, at the place that it names: `probe::hit(Probe::…)`. On a thread that counts ([`start`]) it adds
//! one; on any other, as in every server, it looks at one thread-local word and does nothing. Probes stand on rare paths
//! only, never on that of a request. The simulator's report lists them all, and what must reach them.

use std::cell::RefCell;

macro_rules! probes {
    ($($(#[doc = $what:literal])+ $probe:ident = $name:literal,)+) => {
        /// A rare path.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Probe {
            $($(#[doc = $what])+ $probe,)+
        }

        impl Probe {
            /// Every probe, its name, and where it stands.
            pub const TABLE: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$probe, $name, concat!($($what),+)),)+];
        }
    };
}

probes! {
    /// A new primary takes another member's log, and keeps what both share.
    LogFetchedFromPrefix = "term: log fetched from the common prefix",
    /// A new primary takes another member's log, and nothing of its own can stay.
    LogFetchedWhole = "term: log fetched whole",
    /// A fetched log comes with an older segment that was lacking.
    LogFetchedSegment = "term: older segment fetched",
    /// Pieces that do not fit or do not come: the fence begins anew.
    FenceAgain = "term: fenced again",
    /// R5.5: no witness is sure, so every member must report.
    EveryoneMustReport = "term: no sure witness, every member must report",
    /// R5.5: the fullest of the witnesses that lost power is replayed.
    FullestWitness = "term: fullest witness replayed",
    /// R5.5: all members lost power, and what one of them holds is all there is.
    IntactByAllReports = "term: log counts since all have reported",
    /// Section 7, step 4: the list names no witness, so there is nothing to replay.
    NoWitnessToReplay = "term: list without witnesses",
    /// R7.7: the log is whole, and no sure witness answers: the term goes on without one.
    NoWitnessNeeded = "term: whole log, no witness needed",
    /// R7.7: while no witness can be had, a member brings a whole log.
    WholeLogFound = "term: whole log found while waiting for a witness",
    /// R7.7: a cut takes away what the mark of a whole log speaks of.
    WholeUnmarked = "log: cut, and no longer whole",
    /// R4.5: what a witness held is recorded already.
    ReplayCompleted = "replay: recorded already",
    /// R4.5: what a witness held was acknowledged by its client, says this shard's own log.
    ReplayStale = "replay: stale",
    /// R4.6: what a witness held is of an expired client.
    ReplayBelowFloor = "replay: below the expiry floor",
    /// R4.9: what a witness held finds its operation key used.
    ReplayOperationKeyHit = "replay: operation key used",
    /// A suspect had not run: its request never reached the primary.
    SuspectExecuted = "suspect: executed",
    /// A suspect is of a table that the primary may not know yet.
    SuspectOfNewerTable = "suspect: of a newer table",
    /// R3.1: a primary learns that it is none any more.
    PrimaryDeposed = "role: primary deposed",
    /// A primary is deposed with an expiry floor that is logged and not synced.
    DeposedWithPendingFloor = "role: deposed with a pending floor",
    /// Section 7: a message of an older epoch, from a zombie.
    OlderEpochIgnored = "member: older epoch ignored",
    /// A member is told to attach in an attempt that is over.
    OldAttachIgnored = "member: old attachment ignored",
    /// A member that does not know its primary any more is sent log bytes.
    AppendUnattached = "member: append without an attachment",
    /// Log bytes behind a gap: what is between was lost on the way.
    AppendGap = "member: append behind a gap",
    /// A member's log does not end as it did when the attachment was made for it.
    AttachMismatch = "member: attachment does not fit",
    /// R5.5: what was lost with the power has been copied again.
    CopiedAgain = "member: intact again",
    /// A joiner that got the closing mark still lacks a segment.
    ClosingMarkTooEarly = "joiner: closing mark, and a segment lacks",
    /// A segment that came in several parts.
    SegmentInParts = "joiner: segment came in parts",
    /// R5.5: less on file than was surely acknowledged.
    AcknowledgedLost = "load: end below the acknowledged one",
    /// R5.5: a replica that lost power.
    ReplicaLostPower = "load: replica lost power",
    /// D4: a torn tail is dropped.
    TornTail = "load: torn tail dropped",
    /// Damage before the tail: what lies behind it does not count.
    DamagedLog = "load: damage before the tail",
    /// R5.5: what no loss of power takes is lost: the replica is nobody's log until it is copied anew.
    DamageUnexplained = "load: lost what no loss of power takes",
    /// A log is cut at a group boundary.
    LogCut = "log: cut",
    /// A cut takes away what was noted as acknowledged.
    CutBelowAcknowledged = "log: cut below the acknowledged end",
    /// Section 5: a segment is retired by the word of it.
    SegmentRetired = "log: segment retired",
    /// R7.2: a member gets a new attachment since its process is another one.
    MemberRestarted = "shipping: member restarted",
    /// R7.2: a member is asked again for what it holds.
    MemberAskedAgain = "shipping: member asked again",
    /// A member joins below what it has, and older segments are copied to it.
    JoinedAtSegment = "shipping: joined at a segment's base",
    /// A member lacks what was freed meanwhile.
    LacksWhatWasFreed = "shipping: lacks what was freed",
    /// A segment is freed while it is copied.
    FreedWhileCopied = "shipping: freed while it was copied",
    /// A joiner began anew, and wants the rest again.
    CopyBeganAnew = "shipping: a copy began anew",
    /// With fewer members than must be, nothing counts as synced.
    TooFewPeers = "shipping: too few peers to sync",
    /// R6.2: a witness list is closed.
    ListClosing = "list: closing",
    /// A witness does not answer gc, and is sent the next one.
    GcUnanswered = "list: gc unanswered",
    /// R5.1: a dropped table overlaps with everything until that is synced.
    TableDropped = "primary: table dropped",
    /// R4.8: a version floor takes the place of tombstones.
    VersionFloor = "primary: version floor",
    /// R4.6: an expiry floor is logged.
    FloorLogged = "primary: expiry floor logged",
    /// R4.6: a request is refused below a floor that is not synced.
    RefusedBelowPendingFloor = "primary: refused below a pending floor",
    /// R4.3: a client's claim is not plausible: the coordinator is asked.
    LeaseAsked = "primary: lease asked for",
    /// R4.9: an operation key's result is given again.
    OperationKeyHit = "primary: operation key hit",
    /// R4.9: an operation key comes with another operation.
    OperationKeyMismatch = "primary: operation key used for something else",
    /// R4.9: a resend after the operation key's time.
    Unprovable = "primary: unprovable",
    /// R5.2: an operation key whose time is over is used again.
    ExpiredKeyUsed = "primary: expired operation key dropped on use",
    /// Section 6: a read without a lease waits for a round.
    ReadConfirmed = "primary: read waits for a round",
    /// R2.1: an update of another term is asked to be synced.
    SyncOfAnotherTerm = "primary: sync of another term",
    /// A witness instance that was never used goes at a start.
    WitnessUnused = "witness: unused instance removed",
    /// A repeated record is accepted again.
    WitnessRepeated = "witness: repeated record",
    /// The same id with another body.
    WitnessReused = "witness: id used with another body",
    /// R5.5: a multi-key request lacks a slot at load.
    WitnessPartDropped = "witness: incomplete request dropped at load",
    /// What a witness held names nothing that a recovery may use.
    WitnessDamaged = "witness: damaged",
    /// The listed instance is not here, and never was.
    WitnessNeverHad = "witness: never had the list",
    /// Pitfall 9: many silent nodes at once are given another lease.
    ManySilent = "coordinator: too many silent at once",
    /// The cleaner copied live entries.
    EntriesCopied = "node: live entries copied",
    /// The cleaner walked through a segment.
    SegmentCleaned = "node: segment cleaned",
    /// R5.16: copies found no room.
    CopyWithoutRoom = "node: no room for copies",
    /// R5.11: a floor waits for its sync, and the cleaner for the floor.
    CleaningWaitsForFloor = "node: cleaning waits for a floor",
    /// New data waits for the cleaner.
    CleaningBehind = "node: cleaning is behind",
    /// Pitfall 9: a silent node is heard by others.
    VouchedFor = "coordinator: a silent node is vouched for",
    /// A stall of the coordinator's own.
    OwnStall = "coordinator: own stall",
    /// R7.8: somebody is heard again after a silence of all.
    OwnSilence = "coordinator: own silence",
    /// R7.8: what is said of a silence of our own does not count.
    ComplaintVoid = "coordinator: complaint of its own silence",
    /// R7.8: nobody is heard for so long that a node of our own goes on.
    WentOnAlone = "coordinator: went on alone",
    /// A node that hears nothing of us passes for silent.
    DeafNode = "coordinator: deaf node",
    /// A stuck recovery goes to another member.
    StuckRecovery = "coordinator: stuck recovery moved",
    /// A badly connected primary makes room.
    PrimaryMoved = "coordinator: badly connected primary moved",
    /// A member that does not answer its primary is replaced.
    MemberAvoided = "coordinator: member avoided",
    /// A copy may not leave: its primary does not speak.
    CopyKept = "coordinator: copy kept while its primary is silent",
    /// Recoveries are put off: enough are under way.
    PromotionsCapped = "coordinator: promotions put off",
    /// A lost node is taken back.
    TakenBack = "coordinator: lost node taken back",
    /// A table request is repeated.
    TableRequestRepeated = "coordinator: table request repeated",
    /// R2.1: words of an earlier attempt come late, and count for nothing.
    OldAttempt = "client: word of an earlier attempt",
    /// R4.3: no room in the window of unacknowledged updates.
    WindowFull = "client: window full",
    /// R4.10: another client id numbers updates, because the former one's window waits for its oldest update.
    FurtherIdentity = "client: further identity",
    /// R4.10: an update waits without a number, because its shard holds up a client id.
    ShardHeldUp = "client: shard held up",
    /// R4.10: a client id whose updates have all ended is let go.
    IdentityRetired = "client: identity retired",
    /// A deadline turns an update into one to be cancelled.
    Cancelled = "client: cancellation begun",
    /// A witness is gone; no use in waiting for it.
    WitnessGone = "client: witness unreachable",
}

/// How often each probe was hit, in the order of [`Probe::TABLE`].
pub type Counts = [u64; Probe::TABLE.len()];

thread_local! {
    static COUNTS: RefCell<Option<Box<Counts>>> = const { RefCell::new(None) };
}

/// This rare path was taken.
#[cold]
pub fn hit(probe: Probe) {
    COUNTS.with_borrow_mut(|counts| {
        if let Some(counts) = counts {
            counts[probe as usize] += 1;
        }
    });
}

/// This thread counts from now on, from zero.
pub fn start() {
    COUNTS.set(Some(Box::new([0; Probe::TABLE.len()])));
}

/// What this thread has counted; it counts no more. All zero if it did not.
#[must_use]
pub fn stop() -> Counts {
    COUNTS.take().map_or([0; Probe::TABLE.len()], |counts| *counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_only_between_start_and_stop() {
        hit(Probe::TornTail);
        assert_eq!(stop(), [0; Probe::TABLE.len()]);
        start();
        hit(Probe::TornTail);
        hit(Probe::TornTail);
        let counts = stop();
        assert_eq!(counts[Probe::TornTail as usize], 2);
        assert_eq!(counts.iter().sum::<u64>(), 2);
        hit(Probe::TornTail);
        assert_eq!(stop(), [0; Probe::TABLE.len()]);
    }

    #[test]
    fn names_are_unique_and_in_order() {
        let names: std::collections::BTreeSet<_> = Probe::TABLE.iter().map(|row| row.1).collect();
        assert_eq!(names.len(), Probe::TABLE.len());
        assert!(Probe::TABLE.iter().enumerate().all(|(index, row)| row.0 as usize == index));
    }
}
