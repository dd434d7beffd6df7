//! Mistakes that a test run can switch on, to show that the simulator's checkers catch them.
//!
//! Each mistake breaks one rule of the design, at the place in the code that keeps the rule:
//! `if … || planted::is_on(Bug::…)`. Without the feature `planted-bugs`, [`is_on`] is a constant `false` and costs
//! nothing. Only servers of the judges' builds have the feature. The `planted` module of `kasha-sim` says which checker catches which
//! mistake, and in how many runs.

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
    /// R7.7: a fast answer leaves before the primary's own file holds its entry.
    FileLagsAnswers = "file_lags_answers",
    /// R7.7: a cut keeps the mark that the log is whole.
    MarkKeptByCut = "mark_kept_by_cut",
    /// R7.7: the entry `Whole` is logged before the last request of a witness is replayed.
    WholeBeforeReplay = "whole_before_replay",
    /// R7.7: although one report is of a whole log, the greatest log is taken, and counts as whole.
    UnservedTermPreferred = "unserved_term_preferred",
    /// R7.7: a loss of power under `replicated` leaves the mark that the log is whole.
    MarkSurvivesPowerLoss = "mark_survives_power_loss",
    /// R7.7: an orderly stop gives up the witnesses before all answers are gated and all updates are synced.
    StopOnlyCloses = "stop_only_closes",
    /// R5.3: a process that starts does not clear the mark that the last process ended in good order.
    CleanEndKept = "clean_end_kept",
    /// R5.5: a damaged last group counts as a write that a crash cut short.
    DamagedEndTaken = "damaged_end_taken",
    /// Section 7: `now` is read before the process is stopped, and used after it goes on.
    StaleNow = "stale_now",
    /// R3.1: an effect that was held for a role leaves after the role was lost; positions are compared without epochs.
    HeldEffectsKept = "held_effects_kept",
    /// R2.1: a new attempt keeps the answer that the old one got.
    AttemptsMixed = "attempts_mixed",
    /// R2.1: a new attempt keeps the acceptances that the old one got, perhaps of another witness list.
    AcceptancesMixed = "acceptances_mixed",
    /// E1, RIFL 3: a retry is sent under a new id.
    RetryRenamed = "retry_renamed",
    /// R2.2: a client reports "not executed" after a refusal, although a witness may hold the update.
    NotExecutedAfterRefusal = "not_executed_after_refusal",
    /// R2.1: a retry takes the session's newest acknowledgement and lease into the body.
    BodyRebuilt = "body_rebuilt",
    /// R9.2: a leader answers although no round has ended since the question.
    AnsweredWithoutRound = "answered_without_round",
    /// R9.2: a round that was under way when the question came counts.
    RoundUnderWayCounts = "round_under_way_counts",
    /// R9.4: a new leader goes on from the time that it remembers itself.
    TimeOfOwnMemory = "time_of_own_memory",
    /// R9.4: members do not remember what a round says.
    RoundUnheard = "round_unheard",
    /// R9.4: with a new list of members nobody is taught again.
    LeasesKeptOverLists = "leases_kept_over_lists",
    /// R9.5: a snapshot has what is decided, and not committed.
    DecidedInSnapshot = "decided_in_snapshot",
    /// R9.5: a member votes in a view that is not on its disk.
    ViewForgotten = "view_forgotten",
    /// R9.5: the view of a log is on the disk before its log is.
    LogViewAhead = "log_view_ahead",
    /// R9.6: a newcomer becomes a member before it has caught up.
    NewcomerCountsEarly = "newcomer_counts_early",
    /// R9.6: a quorum of the list in its own log elects a leader.
    OwnListElects = "own_list_elects",
    /// R9.6: members change before an operation of the own view is committed.
    ListChangedEarly = "list_changed_early",
    /// R9.8: a member enters a view that nobody else would follow into.
    ViewEnteredAlone = "view_entered_alone",
    /// R9.8: a leader that completes no round goes on.
    LeaderKeepsOn = "leader_keeps_on",
    /// R9.10: a leader whose followers write nothing goes on.
    StuckLeaderStays = "stuck_leader_stays",
    /// R9.11: members do not compare their states.
    StatesUncompared = "states_uncompared",
    /// R9.1: a goodbye does not wait until what it follows from is committed.
    GoodbyeUngated = "goodbye_ungated",
    /// R9.9: a member that begins to lead forgets what it has overheard.
    EvidenceForgotten = "evidence_forgotten",
    /// R9.15: a leader judges silences although another member hears more nodes.
    DeafLeaderJudges = "deaf_leader_judges",
    /// R9.4: a member that has just started counts as one that remembers all client leases.
    RestartKnowsLeases = "restart_knows_leases",
    /// R9.4: a new leader takes its own memory of client leases for that of a quorum.
    OwnLeasesAlone = "own_leases_alone",
    /// R9.13: a coordinator that knows less than a node's folder goes on as if it knew all.
    MemoryLossUnnoticed = "memory_loss_unnoticed",
    /// R9.13: a coordinator that starts decides before it has heard what the nodes' folders know.
    DecidesBeforeListening = "decides_before_listening",
    /// R9.13: a node does not note in its folder what the coordinator tells.
    ToldUnnoted = "told_unnoted",
    /// Section 6: a client waits for a witness that is known not to answer.
    AbsentAwaited = "absent_awaited",
    /// A client sends again after a fixed time, however long its servers take.
    PauseFixed = "pause_fixed",
    /// Section 7: a client that asked for a newer configuration is not told when there is one.
    NewsUntold = "news_untold",
    /// R4.10: updates for a shard that holds up one client id are numbered under the next id, and hold that up too.
    HeldUpShardNumbered = "held_up_shard_numbered",
    /// R4.10: the lease of a client id that is held up is not renewed, although updates are open under the id.
    IdentityRetiredEarly = "identity_retired_early",
    /// R2.1: `Sync` is answered in another epoch than the update ran in.
    SyncInAnotherEpoch = "sync_in_another_epoch",
    /// E4, R4.1: the completion record stands in a group of its own, behind the changes.
    RecordApart = "record_apart",
    /// R4.2: a refusal is recorded, as if it were an outcome.
    RefusalRecorded = "refusal_recorded",
    /// R4.3: an update whose sequence is far above the acknowledgement is run.
    WindowNotEnforced = "window_not_enforced",
    /// R4.3: a shard accepts a client whose lease nobody has granted.
    LeaseNotProven = "lease_not_proven",
    /// R10.1: a front answers at once what needs no call, although earlier requests of the connection have no reply yet.
    RepliesSwapped = "replies_swapped",
    /// R10.2: a front asks again, as a new update, for what it has no outcome of.
    UnknownAskedAgain = "unknown_asked_again",
    /// R10.2: a front says that nothing was executed, try again, when it does not know the outcome.
    RetryProvoked = "retry_provoked",
    /// R10.2: a front closes a connection when it does not know the outcome of a request.
    ClosedWhenUnknown = "closed_when_unknown",
    /// R10.3: a request over several shards does not hold up those behind it on its connection.
    NextOneNotHeldUp = "next_one_not_held_up",
    /// R10.4: a reply is in the protocol that was asked for behind its request.
    ProtocolOfLater = "protocol_of_later",
    /// R10.5: a connection whose other side has ended is closed before what was sent is answered.
    EndNotAwaited = "end_not_awaited",
    /// R10.6: a command that errs undoes the `EXEC` that it is of.
    CommandRefusesMulti = "command_refuses_multi",
    /// R10.6: the commands of an `EXEC` run one by one.
    MultiSplit = "multi_split",
    /// R10.7: `EXEC` demands nothing of a watched key that had a value.
    WatchBlind = "watch_blind",
    /// R10.7: `EXEC` runs although a key could not be watched.
    WatchFailedUnnoticed = "watch_failed_unnoticed",
    /// R10.6: what moves a value between shards demands nothing of what it has read.
    MovedUnchecked = "moved_unchecked",
    /// R10.12: a value that moves between shards leaves its end behind.
    EndLeftBehind = "end_left_behind",
    /// R10.11: what a command says of time counts from when it is run, and not from when its request was begun.
    TimeOfRun = "time_of_run",
    /// R10.12: what programs say in unix milliseconds is rounded to seconds.
    UnixEndRounded = "unix_end_rounded",
    /// R10.12: a core counts all of a lease on as soon as it hears ClusterTime.
    LeaseCountedAtOnce = "lease_counted_at_once",
    /// R10.12: a core ends values by what it has counted once, and counts no further.
    EndsNotCounted = "ends_not_counted",
    /// R10.18: what a front has for the keys of a request whose outcome is unknown does not wait.
    LaterRunsAheadOfUnknown = "later_runs_ahead_of_unknown",
    /// D3: an answer to a client in the node's own core does not wait for its gate.
    PipeUngated = "pipe_ungated",
    /// Section 4: another body under a used id gets the saved result.
    IdReuseAnswered = "id_reuse_answered",
    /// Section 4: a saved result leaves as if it were synced.
    DuplicateUngated = "duplicate_ungated",
    /// E3, R4.4: an acknowledgement frees the record of the first update above it, too.
    RecordFreedEarly = "record_freed_early",
    /// T3: a part of a transaction that fails is passed over, and the other parts take effect.
    FailedPartPassed = "failed_part_passed",
    /// D1: a new primary skips a transaction of a witness because one of its tables was dropped.
    SkippedForTable = "skipped_for_table",
    /// R8.16: keys of several shards are read once.
    SnapshotUnvalidated = "snapshot_unvalidated",
    /// R8.16: a key without a value is observed without a version.
    AbsenceUnversioned = "absence_unversioned",
    /// R8.1: a participant votes before its proposal is synced.
    VoteUnsynced = "vote_unsynced",
    /// R8.1: a participant executes before its own proposal is synced.
    ExecutedUnsynced = "executed_unsynced",
    /// R8.1: a vote against a transaction leaves before it is synced.
    ConflictUnsynced = "conflict_unsynced",
    /// R8.1: a participant executes above its ceiling, and a new primary begins below the ceiling.
    CeilingIgnored = "ceiling_ignored",
    /// Section 8: a transaction is executed although one that conflicts may come before it.
    ExecutedOutOfOrder = "executed_out_of_order",
    /// R8.11: what ends because a participant says *never* frees its keys before that is synced.
    NeverFreesAtOnce = "never_frees_at_once",
    /// R8.3: a coordinated transaction locks keys that a pending one has in its footprint.
    PrepareIgnoresPending = "prepare_ignores_pending",
    /// 0047: nobody gives way to whoever has waited longer.
    YoungGoesFirst = "young_goes_first",
    /// R8.3: an independent transaction proposes on keys that are locked.
    ProposedUnderLock = "proposed_under_lock",
    /// R8.4: an answer waits for no transaction that read what the answered operation writes.
    AntiDependencyUngated = "anti_dependency_ungated",
    /// R8.4: the gate of an operation is not left to those that conflict with it.
    GatesNotInherited = "gates_not_inherited",
    /// R8.4: a transaction that only reads at a shard is in nobody's gate there.
    ReadOnlyWithoutGate = "read_only_without_gate",
    /// R8.4: a coordinated transaction is in nobody's gate.
    CoordinatedWithoutGate = "coordinated_without_gate",
    /// R8.4: a transaction counts as settled although its own gate is closed.
    SettledUngated = "settled_ungated",
    /// R8.4: a participant takes the gate of another one for open because that one says what the gate waits for.
    ToldGateIgnored = "told_gate_ignored",
    /// R8.4: a participant is told a part of what a gate waits for.
    GateToldInPart = "gate_told_in_part",
    /// R8.7: an operation on one shard runs ahead of a pending transaction that conflicts.
    RunsAheadOfPending = "runs_ahead_of_pending",
    /// R8.8: a client is told that a transaction is prepared although its gate is closed.
    PreparedUngated = "prepared_ungated",
    /// R8.8: a client is told that a transaction is prepared before the proposal is synced.
    PreparedUnsynced = "prepared_unsynced",
    /// Section 8, one round trip (a): a transaction is told before it is durable although it overlaps with something unsynced.
    PreparedOverOverlap = "prepared_over_overlap",
    /// Section 8, one round trip (b): what a participant told one attempt counts with what witnesses accept of the next.
    PartAttemptsMixed = "part_attempts_mixed",
    /// R4.9: a participant does not lock the operation key of a transaction over several shards.
    PartKeyUnlocked = "part_key_unlocked",
    /// R4.9: a participant executes a transaction over several shards, and keeps nothing under its operation key.
    PartResultUnkept = "part_result_unkept",
    /// Section 8, one round trip (c): a recovery skips the transactions that a witness holds.
    PrepareNotReplayed = "prepare_not_replayed",
    /// R8.9: a participant forgets a transaction whose outcome another participant may lose.
    ForgottenUnrecorded = "forgotten_unrecorded",
    /// R8.17: a participant says and executes what its own file may lose with the power.
    DurableUnflushed = "durable_unflushed",
    /// R8.17: a log counts as flushed as soon as its flush begins.
    FlushedWhenBegun = "flushed_when_begun",
    /// R8.9: a participant forgets a transaction that is not settled.
    ForgottenUnsettled = "forgotten_unsettled",
    /// R8.7: an update may be answered fast although a transaction on its keys has an outcome that is not synced.
    FreshIsNoOverlap = "fresh_is_no_overlap",
    /// R8.10: a request of a witness is executed although it conflicts with what is pending.
    ReplayedOverPending = "replayed_over_pending",
    /// Section 8: a table is dropped although something pending names it.
    DroppedUnderPending = "dropped_under_pending",
    /// R8.1, R8.8: a primary raises the version floor although it has not executed something whose client may know its result.
    FloorRaisedOverPending = "floor_raised_over_pending",
    /// R8.11: words of two transactions that have one id are taken for words of one.
    BodiesUncompared = "bodies_uncompared",
    /// R8.11: a participant says *never* of a transaction because of another one with that id, which may get lost.
    OtherBodyUnsynced = "other_body_unsynced",
    /// R8.5: that a check said no is told before what the check read is settled.
    AbortUngated = "abort_ungated",
    /// R8.5: participants whose check it was not tell the client that a check said no.
    AbortToldByOthers = "abort_told_by_others",
    /// C1: whether an update overlaps is judged by the keys that it changes, and not by those that it reads.
    ReadsCommute = "reads_commute",
    /// R4.4, D4: a segment is freed before the entries that replaced its content, and the entry that says so, are
    /// synced.
    FreedBeforeSynced = "freed_before_synced",
    /// R5.8: the copy of an expiry floor does not have the floor's time.
    FloorNotCopied = "floor_not_copied",
    /// R5.8: the copy of an expiry floor names the clients of the original, as if they expired where the copy stands.
    FloorCopiedAsNew = "floor_copied_as_new",
    /// R5.12: a group of a segment that is cleaned is taken for whole, whatever its checksum says.
    DamageCopied = "damage_copied",
    /// E1, R5.7: a completion record that is copied loses its name, so that no replay finds it.
    RecordNotCopied = "record_not_copied",
    /// R5.10: a copy says that nothing older of its key is in front of the copy's own segment.
    CopyNarrowsOldest = "copy_narrows_oldest",
    /// R5.16: new data may use what is kept for deletes and for the cleaner.
    ReserveShared = "reserve_shared",
    /// R4.5: a replayed request is not compared with the acknowledgement of this shard's log.
    ReplayIgnoresAcknowledgement = "replay_ignores_acknowledgement",
    /// R4.5: the same, but the record is taken in as if it came from a log, so that no assertion fails.
    StaleReplayed = "stale_replayed",
    /// R4.5: a shard takes over the acknowledgement of a replayed request.
    ReplayAcknowledges = "replay_acknowledges",
    /// R4.5, E1: a replayed request is run without being looked up.
    ReplayWithoutLookUp = "replay_without_look_up",
    /// R4.5, E1: the same, but the record is taken in as if it came from a log, so that no assertion fails.
    ReplayedTwice = "replayed_twice",
    /// R4.6: an expired client's records are dropped without a floor.
    ExpiryWithoutFloor = "expiry_without_floor",
    /// R4.6: a client is expired by ClusterTime alone, without a verdict.
    ExpiryByClock = "expiry_by_clock",
    /// R4.6: a client is told that its lease is over before the floor that says so is synced.
    FloorRefusalUngated = "floor_refusal_ungated",
    /// R4.6: an expired client's records are dropped before the floor is synced.
    FloorSettledEarly = "floor_settled_early",
    /// R4.6: replay runs what the floor refuses.
    FloorIgnoredInReplay = "floor_ignored_in_replay",
    /// R4.6: a witness accepts a request that a floor refuses, although it was told of the floor.
    FloorIgnoredByWitness = "floor_ignored_by_witness",
    /// R4.6: a new primary skips a witness's request because ClusterTime says that the client's lease is over.
    ExpiryInRecovery = "expiry_in_recovery",
    /// R4.7: a restarted coordinator treats the leases that it granted before as ended.
    LeasesNotExtended = "leases_not_extended",
    /// R4.7: a restarted coordinator grants client ids from the first one on.
    ClientIdsReused = "client_ids_reused",
    /// R4.7: a restarted coordinator does not begin at the time it has reserved.
    ClusterTimeReused = "cluster_time_reused",
    /// R4.7: a coordinator that starts again begins at the time it has reserved, in the same boot of its machine, too.
    TimeFromReservationInOneBoot = "time_from_reservation_in_one_boot",
    /// R9.1: what the leader has on its own disk counts as committed.
    ToldBeforeQuorum = "told_before_quorum",
    /// R9.5: a journal that is written anew lacks what is not committed, though it was acknowledged.
    SuffixForgotten = "suffix_forgotten",
    /// Section 9: of the logs of a quorum, the leader takes the shortest.
    ShortestLogTaken = "shortest_log_taken",
    /// R4.7: a session that has heard ClusterTime once counts on by its own clock alone.
    TimeLeftFromOwnClock = "time_left_from_own_clock",
    /// R4.8: versions are positions in the log.
    VersionFromPosition = "version_from_position",
    /// R4.8: an answer that tells a version from the version floor leaves before the floor is synced.
    VersionFloorUngated = "version_floor_ungated",
    /// R4.9: the operation key is missing in the overlap test: an update that finds the key used is answered at once.
    OperationKeyOverlapIgnored = "operation_key_overlap_ignored",
    /// R4.9: it is kept under an operation key that a demand was refused, although its client wants that forgotten.
    RefusalKept = "refusal_kept",
    /// R4.9: the operation key is missing in the witness's footprint.
    OperationKeyNotRecorded = "operation_key_not_recorded",
    /// R10.17: the answer of a batch that ends early leaves before it is synced.
    EarlyEndFast = "early_end_fast",
    /// R10.17: how far a batch came is told, and recorded nowhere.
    EarlyEndUnrecorded = "early_end_unrecorded",
    /// R10.17: a new primary runs the part of a witness's copy of a batch that need not wait.
    ReplayEndsEarly = "replay_ends_early",
    /// R4.9: an operation key names whatever has its first key in a slot, of any key and any table.
    OperationKeyBySlot = "operation_key_by_slot",
    /// R4.9: an update is run past its operation key's time limit.
    NotAfterIgnored = "not_after_ignored",
    /// R4.9: a hit of an operation key writes no completion record.
    HitWithoutRecord = "hit_without_record",
    /// D4: a group that a crash cut short counts as complete.
    TornTailAccepted = "torn_tail_accepted",
    /// R10.7: versions of a flushed table's keys begin as if they had never had one; what a flush has ended is known by its place in the log.
    FlushForgetsVersions = "flush_forgets_versions",
    /// R5.1: an update after a table's drop is answered before the drop is synced.
    EverythingUngated = "everything_ungated",
    /// R5.1, C1: an operation after a key's deletion is answered before the deletion is synced.
    DeletedKeyUngated = "deleted_key_ungated",
    /// R5.2: an update that observes that an operation key has expired is answered before the entry that drops it is
    /// synced.
    DroppedKeyUngated = "dropped_key_ungated",
    /// R5.2: a read of one key compares clocks, and logs no delete; other reads do not compare.
    ExpiryInRead = "expiry_in_read",
    /// R5.2: an operation that finds an ended value gone is answered before the delete is synced.
    ExpiryUngated = "expiry_ungated",
    /// R5.2: a new primary ends values by its clock before it runs what a witness holds.
    ExpiryInReplay = "expiry_in_replay",
    /// R10.12: a new primary ends nothing that the log does not end, whenever what a witness holds was begun.
    ReplayEndsNothing = "replay_ends_nothing",
    /// R10.12: who has seen a value that was over when the request was begun is told without a sync.
    EndedToldUnsynced = "ended_told_unsynced",
    /// Section 10: a page of a listing ends, and the next one begins further on.
    CursorSkips = "cursor_skips",
    /// Section 10: a listing does not wait for what is pending over several shards when it comes.
    ListingOverPending = "listing_over_pending",
    /// Section 10: a listing shows the value of another key, the one that its page has seen before.
    ValueOfAnother = "value_of_another",
    /// R5.3: a repeated record is answered before the first one's write is flushed.
    DuplicateRecordEarly = "duplicate_record_early",
    /// Section 5, R5.3: a recovery is reported, and its witnesses' files are deleted, before what they held is flushed.
    RecoveredUnflushed = "recovered_unflushed",
    /// R5.4: a failed fsync is reported as if it had worked.
    FailedFsyncWorked = "failed_fsync_worked",
    /// R5.5: although no member is sure, a log is chosen before every member has reported.
    ChosenTooEarly = "chosen_too_early",
    /// R5.5: a log that ends below its acknowledged end counts as intact.
    AcknowledgedEndIgnored = "acknowledged_end_ignored",
    /// R5.5: a replica does not notice that its machine has lost power.
    BootIgnored = "boot_ignored",
    /// R5.5: a witness does not notice that its machine has lost power.
    WitnessBootIgnored = "witness_boot_ignored",
    /// R5.5: a witness keeps a request although its file lacks one of the request's slots.
    PartialRequestLoaded = "partial_request_loaded",
    /// R5.3, F2: a member forgets at a restart its promise to obey no smaller epoch, and checks nothing else.
    PromiseForgotten = "promise_forgotten",
    /// R5.3, C2: a witness forgets at a restart that a recovery has read it.
    FrozenForgotten = "frozen_forgotten",
    /// Section 6, C2: a witness goes on accepting after a recovery has read it.
    FreezeIgnored = "freeze_ignored",
    /// Section 6, pitfall 10: a full witness overwrites a request that it holds.
    WitnessOverwrites = "witness_overwrites",
    /// Section 6: a witness treats any request that it holds on a key as the same request.
    WitnessComparesHashes = "witness_compares_hashes",
    /// Section 6: a witness drops a slot by its key hash, whatever request holds the slot.
    GcByHash = "gc_by_hash",
    /// Section 6, C3: a suspect is dropped without being run.
    SuspectDropped = "suspect_dropped",
    /// R4.2, C3: a suspect that is parked at its primary is taken for recorded, so that its witnesses drop it.
    ParkedIsRecorded = "parked_is_recorded",
    /// Section 6: a read of something unsynced is answered at once.
    UnsyncedRead = "unsynced_read",
    /// R6.1: a list without witnesses has a fast path.
    ShortListFast = "short_list_fast",
    /// Section 6: a witness is told to drop what is not synced yet.
    GcBeforeSync = "gc_before_sync",
    /// Section 7, step 4: a recovery goes on although no witness has answered.
    WitnessSkipped = "witness_skipped",
    /// C3: the primary answers requests of an older witness list.
    ListUnchecked = "list_unchecked",
    /// R6.2: a witness list counts as closed before the updates that were answered under it are synced.
    ListClosedUnsynced = "list_closed_unsynced",
    /// R6.2: the next witness list is in force before the primary has closed the old one.
    ListChangedAtOnce = "list_changed_at_once",
    /// R6.2: while a witness list is being closed, its requests are still taken and answered.
    ClosingListAnswers = "closing_list_answers",
    /// C1: an update that touches something unsynced is answered at once.
    OverlapIgnored = "overlap_ignored",
    /// Pitfall 2: "not found" is not gated.
    NotFoundUngated = "not_found_ungated",
    /// Section 6, F1: reads are answered without a lease.
    ReadWithoutLease = "read_without_lease",
    /// R7.2: a primary takes and syncs updates with fewer backups than there must be.
    TooFewMembersSync = "too_few_members_sync",
    /// Section 7: a node counts its lease from the coordinator's answer.
    LeaseFromReply = "lease_from_reply",
    /// Section 7: a restarted coordinator declares nodes lost before their leases can have lapsed.
    CoordinatorDoesNotWait = "coordinator_does_not_wait",
    /// R7.8: a coordinator that hears nobody declares nodes lost.
    SilenceOfOnesOwnCounts = "silence_of_ones_own_counts",
    /// R7.8: when a coordinator hears a node again, it judges the others at once.
    HeardAgainJudgedAtOnce = "heard_again_judged_at_once",
    /// E1: a table's drop is confirmed while a deposed primary that does not know of the drop may still execute
    /// updates.
    DropToldDuringFailOver = "drop_told_during_fail_over",
    /// Section 9: the coordinator tells a decision that is not on its file yet.
    ToldBeforePersisted = "told_before_persisted",
    /// Section 7, step 2: a member that has promised a later term obeys an older primary.
    EpochUnfenced = "epoch_unfenced",
    /// Section 7, step 2: the point where two logs join is computed from their lengths; predecessors are not compared.
    PredecessorUnchecked = "predecessor_unchecked",
    /// Section 7, step 5: a new primary serves before what it recovered is synced.
    ServedUnsynced = "served_unsynced",
    /// R7.1: a primary that restarts within its lease goes on serving, from an empty memory.
    FastRestartServes = "fast_restart_serves",
    /// R7.2: the primary stops counting a silent member, although no such set was committed.
    SilentMemberDropped = "silent_member_dropped",
    /// R7.2: a sync counts when any member holds the log.
    SyncedAtAnyMember = "synced_at_any_member",
    /// R7.2: joiners do not count for syncs.
    JoinersUncounted = "joiners_uncounted",
    /// R7.2: a member whose copy is not complete is elected.
    JoinerElected = "joiner_elected",
}

impl Bug {
    /// The bug's name, as `--planted` takes it.
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

/// Whether the machines of this thread have the bug. Without the feature: never.
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

    /// Whether the machines of this thread have the bug.
    #[must_use]
    pub fn is_on(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Gives all machines of this thread this bug, and no other.
    pub fn plant(bug: Bug) {
        PLANTED.set(Some(bug));
    }

    /// Switches the planted bug of this thread off.
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
