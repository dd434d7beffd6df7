//! Counts of the rare paths of the production code. A test that never reaches a path proves nothing about it.
//!
//! Each probe stands once, at the place that it names: `probe::hit(Probe::…)`. On a thread that counts ([`start`]) it
//! adds one. On any other thread, as in every server, it looks at one thread-local word and does nothing. Probes stand
//! on rare paths only, never on the path of a request. The simulator's report lists them all, and which of them a sweep
//! must reach.

use std::cell::RefCell;

macro_rules! probes {
    ($($(#[doc = $what:literal])+ $probe:ident = $name:literal,)+) => {
        /// A rare path of the production code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Probe {
            $($(#[doc = $what])+ $probe,)+
        }

        impl Probe {
            /// Every probe, its name, and where it stands in the code.
            pub const TABLE: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$probe, $name, concat!($($what),+)),)+];
        }
    };
}

probes! {
    /// R9.13: a node's folder knows more than the coordinator, which decides nothing.
    MemoryLost = "coordinator: knows less than a folder",
    /// R9.13: a coordinator that starts goes on, although a node has not said what its folder knows.
    ListenedInPart = "coordinator: began without having heard all",
    /// Section 8: a transaction over several shards is proposed.
    DistributedProposed = "distributed: proposed",
    /// R8.8: its client is told what it comes to as soon as it is durable here.
    DistributedPrepared = "distributed: told when prepared",
    /// Section 8, one round trip: it is told before it is durable here, for witnesses hold it.
    DistributedPreparedFast = "distributed: told before it is durable",
    /// R4.9: its operation key was used before, and a participant says what it recorded then.
    DistributedRepeated = "distributed: repeated under its operation key",
    /// 0034: nothing in it can fail, and it leaves locks that others have.
    LocksLeft = "distributed: goes on without locks",
    /// Section 8: it is executed.
    DistributedExecuted = "distributed: executed",
    /// R8.3: it meets a lock or something pending, and that is recorded.
    DistributedConflict = "distributed: conflict",
    /// R8.5: one of its checks says no here.
    DistributedAborted = "distributed: aborted here",
    /// What was proposed does not happen.
    DistributedEnded = "distributed: ended against",
    /// R8.3: an independent one waits for a lock before it is proposed.
    DistributedWaits = "distributed: waits for a lock",
    /// Its client asks again while it is pending.
    DistributedAskedAgain = "distributed: asked again",
    /// R8.11: a participant that never got it records a conflict.
    ConflictForUnknown = "distributed: conflict for what is unknown",
    /// R8.11: a participant asks about what is over here.
    NeverSaid = "distributed: never",
    /// R8.9: some are needed no more.
    DistributedForgotten = "distributed: forgotten",
    /// A client's transaction met another one, and is tried again.
    ConflictTriedAgain = "distributed: tried again under another id",
    /// 0047: a transaction that takes locks gives way to one that has waited longer.
    TurnGivenWay = "turn: gave way to an elder",
    /// 0047: an update waits until an elder has had its turn.
    TurnParked = "turn: parked behind an elder",
    /// 0047: whoever lost hears that when its turn has come.
    TurnTold = "turn: told that it has come",
    /// 0047: whoever had its turn has not come again in time.
    TurnLapsed = "turn: lapsed",
    /// R8.4: an answer waits for a gate.
    AnswerBehindGate = "distributed: answer behind a gate",
    /// R8.4: an update of one shard inherits a gate.
    UpdateBehindGate = "distributed: update behind a gate",
    /// R8.3: a read meets something pending.
    ReadMeetsPending = "distributed: read meets what is pending",
    /// A new primary takes another member's log, and keeps the part that both logs share.
    LogFetchedFromPrefix = "term: log fetched from the common prefix",
    /// A new primary takes another member's log, and keeps nothing of its own.
    LogFetchedWhole = "term: log fetched whole",
    /// A fetched log comes with an older segment that the new primary lacked.
    LogFetchedSegment = "term: older segment fetched",
    /// Pieces of a fetched log do not fit or do not arrive: the fence begins anew.
    FenceAgain = "term: fenced again",
    /// R5.5: no witness is sure, so every member must report.
    EveryoneMustReport = "term: no sure witness, every member must report",
    /// R5.5: of the witnesses that lost power, the one that holds most is replayed.
    FullestWitness = "term: fullest witness replayed",
    /// R5.5: all members lost power, and the log that one of them holds is the best that is left.
    IntactByAllReports = "term: log counts since all have reported",
    /// Section 7, step 4: the list names no witness, so there is nothing to replay.
    NoWitnessToReplay = "term: list without witnesses",
    /// R7.7: the log is whole, and no sure witness answers: the term goes on without one.
    NoWitnessNeeded = "term: whole log, no witness needed",
    /// R7.7: while no witness answers, a member reports a whole log.
    WholeLogFound = "term: whole log found while waiting for a witness",
    /// R7.7: a cut removes a part of the log that the mark `whole` covers.
    WholeUnmarked = "log: cut, and no longer whole",
    /// R4.5: a request that a witness held is recorded already.
    ReplayCompleted = "replay: recorded already",
    /// R4.5: this shard's own log says that the client acknowledged a request that a witness held.
    ReplayStale = "replay: stale",
    /// R4.6: a request that a witness held is of an expired client.
    ReplayBelowFloor = "replay: below the expiry floor",
    /// R4.9: the operation key of a request that a witness held is already used.
    ReplayOperationKeyHit = "replay: operation key used",
    /// A suspect had not run: its request never reached the primary.
    SuspectExecuted = "suspect: executed",
    /// A suspect is of a table that the primary may not know yet.
    SuspectOfNewerTable = "suspect: of a newer table",
    /// R3.1: a primary learns that it is not the primary any more.
    PrimaryDeposed = "role: primary deposed",
    /// A primary is deposed with an expiry floor that is logged and not synced.
    DeposedWithPendingFloor = "role: deposed with a pending floor",
    /// Section 7: a message of an older epoch, from a zombie.
    OlderEpochIgnored = "member: older epoch ignored",
    /// A member is told to attach, in an attempt that is over.
    OldAttachIgnored = "member: old attachment ignored",
    /// A member is sent log bytes, but is not attached to a primary.
    AppendUnattached = "member: append without an attachment",
    /// Log bytes behind a gap arrive: the bytes between were lost on the way.
    AppendGap = "member: append behind a gap",
    /// A member's log does not end where the attachment expects it to end.
    AttachMismatch = "member: attachment does not fit",
    /// R5.5: a replica that lost something with the power has been copied again.
    CopiedAgain = "member: intact again",
    /// A joiner got the message that ends its copy, and still lacks a segment.
    ClosingMarkTooEarly = "joiner: closing mark, and a segment lacks",
    /// A copied segment came in several parts.
    SegmentInParts = "joiner: segment came in parts",
    /// R5.5: the log on file ends below the end that was surely acknowledged.
    AcknowledgedLost = "load: end below the acknowledged one",
    /// R5.5: the machine of a replica has lost power.
    ReplicaLostPower = "load: replica lost power",
    /// D4: a torn tail is dropped.
    TornTail = "load: torn tail dropped",
    /// The log is damaged before its tail: everything behind the damage does not count.
    DamagedLog = "load: damage before the tail",
    /// R5.5: something is lost that a loss of power does not take: the replica does not count until it is copied anew.
    DamageUnexplained = "load: lost what no loss of power takes",
    /// A log is cut at a group boundary.
    LogCut = "log: cut",
    /// A cut removes log bytes that were noted as acknowledged.
    CutBelowAcknowledged = "log: cut below the acknowledged end",
    /// Section 5: a member retires a segment because of the log entry that says that it is freed.
    SegmentRetired = "log: segment retired",
    /// R7.2: a member's process has restarted, so that the member gets a new attachment.
    MemberRestarted = "shipping: member restarted",
    /// R7.2: a primary asks a member again what it holds.
    MemberAskedAgain = "shipping: member asked again",
    /// A member's log joins below its end, and older segments are copied to it.
    JoinedAtSegment = "shipping: joined at a segment's base",
    /// A segment is freed while it is copied.
    FreedWhileCopied = "shipping: freed while it was copied",
    /// A joiner began its copy anew, and needs the rest again.
    CopyBeganAnew = "shipping: a copy began anew",
    /// There are fewer members than `min_backups` demands, so that nothing counts as synced.
    TooFewPeers = "shipping: too few peers to sync",
    /// R6.2: a witness list is closed.
    ListClosing = "list: closing",
    /// A witness does not answer a gc, and is sent the next one.
    GcUnanswered = "list: gc unanswered",
    /// R5.1: a table was dropped: every later operation overlaps until the drop is synced.
    TableDropped = "primary: table dropped",
    /// R4.8: a version floor takes the place of tombstones.
    VersionFloor = "primary: version floor",
    /// R4.6: an expiry floor is logged.
    FloorLogged = "primary: expiry floor logged",
    /// R4.6: a request is refused because of a floor that is not synced yet.
    RefusedBelowPendingFloor = "primary: refused below a pending floor",
    /// R8.16: a key has changed between two rounds of reads of several shards.
    SnapshotChanged = "client: a key changed between two rounds of reads",
    /// R4.3: a client's claim of a lease is not plausible, so that the shard asks the coordinator.
    LeaseAsked = "primary: lease asked for",
    /// An update waits at its primary for the coordinator's answer, or for room.
    RequestParked = "primary: request parked",
    /// R10.17: parts of a batch do not run, because they would have to wait.
    BatchEndedEarly = "primary: batch ended early",
    /// A parked update has what it waited for.
    ParkedRan = "primary: parked request ran",
    /// R4.9: an update gets the saved result of its operation key.
    OperationKeyHit = "primary: operation key hit",
    /// R4.9: an operation key comes with another operation.
    OperationKeyMismatch = "primary: operation key used for something else",
    /// R4.9: an update arrives after its operation key's time to live.
    Unprovable = "primary: unprovable",
    /// R5.2: an operation key whose time is over is used again.
    ExpiredKeyUsed = "primary: expired operation key dropped on use",
    /// R5.2: values whose time is over are deleted.
    ValueExpired = "primary: expired values deleted",
    /// R5.2: an operation finds that the time of a value is over.
    ExpiredValueSeen = "primary: expired value deleted on use",
    /// Section 6: a read without a lease waits for a sync round.
    ReadConfirmed = "primary: read waits for a round",
    /// R2.1: a client asks for the sync of an update of another term.
    SyncOfAnotherTerm = "primary: sync of another term",
    /// A witness instance that was never used is removed at a start.
    WitnessUnused = "witness: unused instance removed",
    /// A witness accepts a repeated record again.
    WitnessRepeated = "witness: repeated record",
    /// A witness is sent another body under the same id.
    WitnessReused = "witness: id used with another body",
    /// R5.5: a multi-key request lacks a slot at load.
    WitnessPartDropped = "witness: incomplete request dropped at load",
    /// A witness instance's files are damaged, so that no recovery may use it.
    WitnessDamaged = "witness: damaged",
    /// The witness instance that the configuration lists is not here, and never was.
    WitnessNeverHad = "witness: never had the list",
    /// Pitfall 9: many silent nodes at once are given another lease.
    ManySilent = "coordinator: too many silent at once",
    /// The cleaner copied live entries.
    EntriesCopied = "node: live entries copied",
    /// The cleaner walked through a segment.
    SegmentCleaned = "node: segment cleaned",
    /// R5.11: a floor waits for its sync, and the cleaner for the floor.
    CleaningWaitsForFloor = "node: cleaning waits for a floor",
    /// New data waits for the cleaner.
    CleaningBehind = "node: cleaning is behind",
    /// Pitfall 9: other nodes hear a silent node.
    VouchedFor = "coordinator: a silent node is vouched for",
    /// The coordinator itself was stalled.
    OwnStall = "coordinator: own stall",
    /// R7.8: the coordinator hears a node again after it heard none.
    OwnSilence = "coordinator: own silence",
    /// R9.15: another member hears more nodes than the leader does, which asks that member to lead.
    HearsLess = "coordinator: another member hears more nodes",
    /// R7.8: a complaint about a time in which the coordinator was cut off does not count.
    ComplaintVoid = "coordinator: complaint of its own silence",
    /// R7.8: the coordinator has heard no other node for so long that a node in its own process goes on alone.
    WentOnAlone = "coordinator: went on alone",
    /// A node that receives no answers of the coordinator counts as silent.
    DeafNode = "coordinator: deaf node",
    /// A stuck recovery is given to another member.
    StuckRecovery = "coordinator: stuck recovery moved",
    /// A badly connected primary is replaced.
    PrimaryMoved = "coordinator: badly connected primary moved",
    /// A member that does not answer its primary is replaced.
    MemberAvoided = "coordinator: member avoided",
    /// A complete copy may not leave its set, because the primary does not speak.
    CopyKept = "coordinator: copy kept while its primary is silent",
    /// Promotions are put off, because enough recoveries are under way.
    PromotionsCapped = "coordinator: promotions put off",
    /// A lost node is taken back.
    TakenBack = "coordinator: lost node taken back",
    /// R4.7: a coordinator that starts again in the same boot of its machine goes on with ClusterTime where it is by then.
    TimeGoesOnInBoot = "coordinator: time goes on in the same boot",
    /// R4.7: a client whose requests show another ClusterTime is told what it is.
    ClientHearsTime = "time: a client hears it with an answer",
    /// A table request is repeated.
    TableRequestRepeated = "coordinator: table request repeated",
    /// R2.1: a message of an earlier attempt comes late, and is ignored.
    OldAttempt = "client: word of an earlier attempt",
    /// R4.3: the window of unacknowledged updates is full.
    WindowFull = "client: window full",
    /// R4.10: another client id numbers updates, because the former one's window waits for its oldest update.
    FurtherIdentity = "client: further identity",
    /// R4.10: an update of several shards, one of which may hold up a client id, finds no room for its trial under that id.
    TrialWithoutRoom = "client: no room for a trial",
    /// R4.10: an update waits without a number, because its shard holds up a client id.
    ShardHeldUp = "client: shard held up",
    /// R4.10: a client id whose updates have all ended is given up.
    IdentityRetired = "client: identity retired",
    /// At its deadline an update is cancelled.
    Cancelled = "client: cancellation begun",
    /// A witness is unreachable, so that the client does not wait for it.
    WitnessGone = "client: witness unreachable",
    /// A witness is known not to answer, so that the client does not wait for it.
    AbsentWitness = "client: witness known to be absent",
    /// An attempt is silent, but no longer than its servers usually are: it is not sent again.
    SilenceIsUsual = "client: silence as usual",
    /// A core that was silent answers again: what was lost meanwhile is sent again at once.
    SilenceIsOver = "client: silence is over",
}

/// How often each probe was hit, in the order of [`Probe::TABLE`].
pub type Counts = [u64; Probe::TABLE.len()];

thread_local! {
    static COUNTS: RefCell<Option<Box<Counts>>> = const { RefCell::new(None) };
}

/// Counts that this rare path was taken.
#[cold]
pub fn hit(probe: Probe) {
    COUNTS.with_borrow_mut(|counts| {
        if let Some(counts) = counts {
            counts[probe as usize] += 1;
        }
    });
}

/// This thread counts from now on, beginning with zero.
pub fn start() {
    COUNTS.set(Some(Box::new([0; Probe::TABLE.len()])));
}

/// Returns what this thread has counted, and stops counting. All counts are zero if it did not count.
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
