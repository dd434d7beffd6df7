//! One update, from frame to answer: `admit → look_up → order → overlap → execute → record → answer` (section 2).
//!
//! Each stage consumes one type and yields the next, so that none can be skipped; an answer can be built only from a
//! [`Recorded`]. Refusals are never recorded (R4.2). Witness replay and suspects enter at `look_up`, with the
//! acknowledgement of this shard's own log (R4.5).

use kasha_exactly_once::{
    CompletionRecord, Fingerprint, LookUp, OperationKeyCheck, OperationKeyDropped, OperationKeyRecord, Place, Request,
};
use kasha_log::{EntryKind, EntryOffset, Full, GroupWriter, Log, Purpose, entry_bytes};
use kasha_machine::planted::{self, Bug};
use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_replication::Shipping;
use kasha_store::Executed;
use kasha_types::limits::RESULT_BYTES_MAX;
use kasha_types::{ClusterTime, Epoch, KeyHash, ListVersion, LogPosition, LogSlice, RpcId, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::hot::{self, Envelope, RequestView};
use kasha_wire::{AnswerView, Body, Configuration, OutcomeCode, Refusal, Refused};

use crate::core::Core;
use crate::leader::{Leader, Stage};
use crate::replica::{Replica, Role};
use crate::serving::{Serving, UNSYNCED_OPERATIONS_MAX};
use crate::state::ShardState;
use crate::{Answers, core::Scratch};

/// Who brought a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client, which waits for the answer.
    Client { to: Endpoint, attempt: u32, list: ListVersion },
    /// A client that gives the update up: if it has not run, it never will.
    Cancel { to: Endpoint, attempt: u32 },
    /// A witness's replay or suspect: nobody waits.
    Replay,
}

/// What became of a request from a witness.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replayed {
    /// Its completion record is in the log, now or already.
    Recorded,
    /// Stale, expired, unprovable, or with a key that is not ours: it may be forgotten.
    Skipped,
    /// It cannot be executed now, and must not be forgotten.
    NoMemory,
}

/// A decoded request.
struct Received<'a> {
    origin: Origin,
    body: Body<'a>,
    request: Request,
}
/// This delivery runs nothing, for this reason.
struct Declined {
    origin: Origin,
    rpc: RpcId,
    why: Refusal,
}
/// This shard, in this term, may run it.
struct Admitted<'a>(Received<'a>);
/// It never ran here.
struct Fresh<'a>(Received<'a>);
/// It runs now. `overlaps`: it touches something unsynced (asked when it runs, R8.7).
struct Ordered<'a> {
    received: Received<'a>,
    overlaps: bool,
    operation_key: OperationKey<'a>,
}
/// What its operation key means for it (R4.9).
#[derive(Clone, Copy)]
enum OperationKey<'a> {
    None,
    /// Not used yet: the result is kept under it.
    Store(&'a [u8]),
    /// Used before with the same request: its result, from there.
    Hit(Place),
    /// Used with another request.
    Mismatch,
}
/// It has its result; the group is open.
struct Outcome<'a> {
    received: Received<'a>,
    overlaps: bool,
}
/// Its completion record is in the log, in the same group as its changes (R4.1, E4).
struct Recorded {
    origin: Origin,
    rpc: RpcId,
    result: LogSlice,
    /// Behind its group.
    end: u64,
    overlaps: bool,
}

enum Found<'a> {
    New(Fresh<'a>),
    Completed(Recorded),
    InProgress,
    Refuse(Declined),
    /// The coordinator must say whether this client's lease runs.
    AskLease(Received<'a>),
}

impl Received<'_> {
    fn declined(&self, why: Refusal) -> Declined {
        Declined { origin: self.origin, rpc: self.request.rpc, why }
    }
}

/// Everything a request can touch.
struct Path<'p> {
    shard: ShardId,
    epoch: Epoch,
    synced: u64,
    log: &'p mut Log,
    state: &'p mut ShardState,
    shipping: &'p mut Shipping,
    /// `None` while a new primary replays a witness.
    serving: Option<&'p mut Serving>,
    configuration: &'p Configuration,
    cluster_time: ClusterTime,
    clients_below: kasha_types::ClientId,
    answers: Answers,
    scratch: &'p mut Scratch,
}

/// How far ahead of us a client's clock may claim its lease to end: a term and a half.
const LEASE_CLAIM_MILLIS_MAX: u64 = kasha_types::limits::CLIENT_LEASE_MILLIS * 3 / 2;

impl Replica {
    /// One update from a client, from frame to answer.
    pub fn on_request(&mut self, core: &mut Core, origin: Origin, view: &RequestView<'_>, out: &mut Effects) {
        let (promised, refusal) = (self.meta.promised, self.refusal());
        // Before it serves, a new primary executes nothing but its witness's requests: a client's would carry an
        // acknowledgement past some of them (R4.5).
        let Some(mut path) = self.path(core).filter(|path| path.serving.is_some()) else {
            return refuse_view(origin, view, promised, refusal, out);
        };
        let Some(received) = path.receive(origin, view.body) else {
            return refuse_view(origin, view, path.epoch, Refusal::BadRequest, out);
        };
        let admitted = match path.admit(received, Some(&view.envelope)) {
            Ok(admitted) => admitted,
            Err(declined) => return path.refuse(&declined, out),
        };
        let fresh = match path.look_up(admitted) {
            Found::New(fresh) => fresh,
            Found::Completed(recorded) => return path.answer(&recorded, out),
            Found::InProgress => return,
            Found::Refuse(declined) => return path.refuse(&declined, out),
            Found::AskLease(received) => {
                path.ask_lease(&received);
                return path.refuse(&received.declined(Refusal::LeaseUnproven), out);
            }
        };
        let ordered = match path.order(fresh) {
            Ok(ordered) => ordered,
            Err(declined) => return path.refuse(&declined, out),
        };
        match path.execute_and_record(ordered) {
            Ok(recorded) => path.answer(&recorded, out),
            Err(declined) => path.refuse(&declined, out),
        }
    }

    /// One update from a witness: replayed by a new primary, or named a suspect (R4.5).
    pub fn replay_request(&mut self, core: &mut Core, body: &[u8]) -> Replayed {
        let Some(mut path) = self.path(core) else { return Replayed::Skipped };
        let Some(received) = path.receive(Origin::Replay, body) else { return Replayed::Skipped };
        let Ok(admitted) = path.admit(received, None) else { return Replayed::Skipped };
        let fresh = match path.look_up(admitted) {
            Found::New(fresh) => fresh,
            Found::Completed(_) | Found::InProgress => return Replayed::Recorded,
            Found::Refuse(..) | Found::AskLease(_) => return Replayed::Skipped,
        };
        let recorded = path.order(fresh).and_then(|ordered| path.execute_and_record(ordered));
        match recorded {
            Ok(_) => Replayed::Recorded,
            Err(Declined { why: Refusal::OutOfMemory, .. }) => Replayed::NoMemory,
            Err(_) => Replayed::Skipped,
        }
    }

    /// Why nothing is served here at all.
    fn refusal(&self) -> Refusal {
        match &self.role {
            Role::Leader(_) => Refusal::Recovering,
            Role::Idle | Role::Backup(_) => Refusal::NotPrimary,
        }
    }

    /// The request path of a serving primary, or of one that replays a witness.
    fn path<'p>(&'p mut self, core: &'p mut Core) -> Option<Path<'p>> {
        let Role::Leader(leader) = &mut self.role else { return None };
        let Leader { epoch, shipping, stage, .. } = &mut **leader;
        let serving = match stage {
            Stage::Serving(serving) => Some(serving),
            Stage::Witnessing { .. } => None,
            Stage::Fencing { .. }
            | Stage::Fetching(_)
            | Stage::Replaying
            | Stage::Syncing { .. }
            | Stage::Reporting => return None,
        };
        Some(Path {
            shard: self.shard,
            epoch: *epoch,
            synced: shipping.synced(),
            shipping,
            log: &mut self.log,
            state: &mut self.state,
            serving,
            configuration: core.configuration.as_deref()?,
            cluster_time: core.cluster_time,
            clients_below: core.clients_below,
            answers: core.options.answers,
            scratch: &mut core.scratch,
        })
    }
}

impl<'p> Path<'p> {
    fn receive<'a>(&self, origin: Origin, bytes: &'a [u8]) -> Option<Received<'a>> {
        let body = Body::decode(bytes).ok()?;
        let request = Request {
            rpc: body.head.rpc,
            body_hash: body.hash(),
            acknowledgement: body.head.acknowledgement,
            lease_expiry: body.head.lease_expiry,
        };
        Some(Received { origin, body, request })
    }

    /// May this shard run it, in this term and under this witness list?
    fn admit<'a>(&mut self, received: Received<'a>, envelope: Option<&Envelope>) -> Result<Admitted<'a>, Declined> {
        if let (Some(envelope), Some(serving)) = (envelope, &self.serving) {
            if envelope.shard != self.shard || envelope.epoch != self.epoch {
                return Err(received.declined(Refusal::NotPrimary));
            }
            if envelope.list != ListVersion::NONE
                && envelope.list != serving.list
                && !planted::is_on(Bug::ListUnchecked)
            {
                return Err(received.declined(Refusal::OldWitnessList));
            }
            if !serving.has_enough_members {
                return Err(received.declined(Refusal::TooFewMembers));
            }
            if serving.unsynced_operations() >= UNSYNCED_OPERATIONS_MAX {
                return Err(received.declined(Refusal::Busy));
            }
        }
        let mut owned = true;
        let (table, configuration, shard) = (received.body.head.table, self.configuration, self.shard);
        received.body.for_each_key(|_, slot| owned &= configuration.owner(table, slot) == Some(shard));
        if owned { Ok(Admitted(received)) } else { Err(received.declined(Refusal::WrongShard)) }
    }

    fn look_up<'a>(&mut self, Admitted(received): Admitted<'a>) -> Found<'a> {
        let found = match received.origin {
            Origin::Client { .. } | Origin::Cancel { .. } => self.state.tracker.look_up(&received.request),
            Origin::Replay if planted::is_on(Bug::ReplayWithoutLookUp) => LookUp::New,
            Origin::Replay => self.state.tracker.look_up_replayed(&received.request),
        };
        match found {
            // A floor that is logged and not synced yet refuses already (R4.6).
            LookUp::New if self.is_below_pending_floor(&received) => {
                Found::Refuse(received.declined(Refusal::LeaseExpired))
            }
            LookUp::New => Found::New(Fresh(received)),
            LookUp::InProgress => Found::InProgress,
            LookUp::Completed(place) => {
                if let Some(serving) = &mut self.serving {
                    serving.counters.duplicates_suppressed += 1;
                }
                Found::Completed(self.recorded_at(&received, place))
            }
            LookUp::Reused => Found::Refuse(received.declined(Refusal::Reused)),
            LookUp::Stale => Found::Refuse(received.declined(Refusal::Stale)),
            LookUp::WindowExceeded => Found::Refuse(received.declined(Refusal::WindowExceeded)),
            LookUp::LeaseExpired => Found::Refuse(received.declined(Refusal::LeaseExpired)),
            LookUp::LeaseUnproven => self.prove_lease(received),
        }
    }

    /// A client that this shard does not know (R4.3). Its claim is enough if the coordinator has granted such an id and
    /// may have granted such a lease (RIFL V-B); otherwise the coordinator is asked.
    fn prove_lease<'a>(&mut self, received: Received<'a>) -> Found<'a> {
        let (client, expiry) = (received.request.rpc.client, received.request.lease_expiry);
        let plausible = client < self.clients_below
            && expiry > self.cluster_time
            && expiry <= self.cluster_time.after_millis(LEASE_CLAIM_MILLIS_MAX);
        if !plausible {
            return Found::AskLease(received);
        }
        self.state.tracker.prove(client, expiry);
        self.look_up(Admitted(received))
    }

    fn is_below_pending_floor(&self, received: &Received<'_>) -> bool {
        let floor = self.serving.as_ref().and_then(|serving| serving.pending_floor_time());
        floor.is_some_and(|floor| received.request.lease_expiry <= floor)
    }

    fn ask_lease(&mut self, received: &Received<'_>) {
        if let Some(serving) = &mut self.serving {
            serving.ask_lease(received.request.rpc.client);
        }
    }

    /// A completion record that is in the log already.
    fn recorded_at(&self, received: &Received<'_>, place: Place) -> Recorded {
        let entry = self.log.entry(EntryOffset(place.0));
        let record = kasha_exactly_once::CompletionRecordRef::decode(entry.payload).expect("our own completion record");
        let result = LogSlice {
            shard: self.shard,
            offset: entry.payload_offset + record.result_offset() as u64,
            len: record.result.len() as u32,
        };
        Recorded { origin: received.origin, rpc: received.request.rpc, result, end: place.0 + 1, overlaps: true }
    }

    /// Single-shard operations run at once. Whether they overlap with something unsynced is judged now (C1).
    fn order<'a>(&mut self, Fresh(received): Fresh<'a>) -> Result<Ordered<'a>, Declined> {
        let mut overlaps = self.serving.as_ref().is_some_and(|serving| serving.everything_until > self.synced);
        let table = received.body.head.table;
        let (log, store, synced) = (&*self.log, &self.state.store, self.synced);
        received.body.update.for_each_key(|key| {
            overlaps |= store.newest(log, table, key).is_some_and(|at| at.0 >= synced);
        });
        let operation_key = match self.check_operation_key(&received, &mut overlaps) {
            Ok(operation_key) => operation_key,
            Err(why) => return Err(received.declined(why)),
        };
        Ok(Ordered { received, overlaps, operation_key })
    }

    fn check_operation_key<'a>(
        &mut self,
        received: &Received<'a>,
        overlaps: &mut bool,
    ) -> Result<OperationKey<'a>, Refusal> {
        let body = &received.body;
        let (Some(key), Some(hash)) = (body.operation_key, body.operation_key_hash()) else {
            return Ok(OperationKey::None);
        };
        if matches!(received.origin, Origin::Cancel { .. }) {
            return Ok(OperationKey::None); // nothing runs: nothing is kept under the key
        }
        let (slot, fingerprint) = (body.first_slot(), Fingerprint(body.fingerprint()));
        // Replay must run what was completed in time, however late it is now; only what the log itself says is over is.
        let now = match received.origin {
            Origin::Replay if self.serving.is_none() => self.state.cluster_time,
            Origin::Replay | Origin::Client { .. } | Origin::Cancel { .. } => self.cluster_time,
        };
        self.expire_operation_key(now, hash, slot, key)?;
        // A key dropped by an entry that is not synced yet is observed only by who waits for that entry (R5.2).
        *overlaps |= self.serving.as_ref().is_some_and(|serving| serving.keys_dropped_until > self.synced);
        // Either way it reads what the log says of the key: a hit may be unsynced (R4.9).
        Ok(match self.state.find_operation_key(self.log, hash, fingerprint, slot, key) {
            OperationKeyCheck::Hit(place) => {
                *overlaps = true;
                OperationKey::Hit(place)
            }
            OperationKeyCheck::Mismatch => {
                *overlaps = true;
                OperationKey::Mismatch
            }
            OperationKeyCheck::Miss if now > body.head.not_after => return Err(Refusal::Unprovable),
            OperationKeyCheck::Miss => OperationKey::Store(key),
        })
    }

    /// Expiry is a logged delete before the operation that observes it, never a look at a clock (R5.2).
    fn expire_operation_key(
        &mut self,
        now: ClusterTime,
        hash: KeyHash,
        slot: kasha_types::Slot,
        key: &[u8],
    ) -> Result<(), Refusal> {
        let expiry = self.state.operation_key_expiry(self.log, hash, slot, key);
        if expiry.is_none_or(|expiry| expiry >= now) {
            return Ok(());
        }
        let end = drop_operation_key(self.log, self.state, self.epoch, now, slot, key, self.scratch)
            .map_err(|_| Refusal::OutOfMemory)?;
        if let Some(serving) = &mut self.serving {
            serving.keys_dropped_until = end;
        }
        Ok(())
    }

    /// Executes, and appends changes and completion record as one entry group.
    fn execute_and_record<'a>(&mut self, ordered: Ordered<'a>) -> Result<Recorded, Declined> {
        let Ordered { received, overlaps, operation_key } = ordered;
        if let OperationKey::Hit(place) = operation_key
            && planted::is_on(Bug::HitWithoutRecord)
        {
            return Ok(self.unrecorded_hit(&received, place));
        }
        collect_slots(&received.body, &mut self.scratch.slots);
        let hit = match operation_key {
            OperationKey::Hit(place) => Some(self.saved_result(place)),
            OperationKey::None | OperationKey::Store(_) | OperationKey::Mismatch => None,
        };
        let executes = hit.is_none()
            && !matches!(operation_key, OperationKey::Mismatch)
            && !matches!(received.origin, Origin::Cancel { .. });
        let needed = self.bytes_needed(&received.body, operation_key, executes, hit.as_ref().map_or(0, Vec::len));
        let purpose = match received.origin {
            Origin::Replay if self.serving.is_none() => Purpose::Own,
            Origin::Replay | Origin::Cancel { .. } => Purpose::Freeing,
            Origin::Client { .. } if received.body.update.only_frees() => Purpose::Freeing,
            Origin::Client { .. } => Purpose::Normal,
        };
        let (table, update) = (received.body.head.table, received.body.update);
        let Scratch { result, dead, .. } = &mut *self.scratch;
        dead.clear();
        let mut group = match self.log.begin(self.epoch, needed, purpose) {
            Ok(group) => group,
            Err(Full::Memory) => return Err(received.declined(Refusal::OutOfMemory)),
            Err(Full::Group) => return Err(received.declined(Refusal::TooLarge)),
        };
        if let Some(hit) = hit {
            *result = hit;
        } else if executes {
            match self.state.store.execute(&mut group, table, &update, result, dead) {
                Executed::Commit => {}
                Executed::Discard => {
                    // The first group is never committed: it was never there.
                    group = self.log.begin(self.epoch, needed, Purpose::Own).expect("there was room a moment ago");
                }
            }
        } else {
            let code = match operation_key {
                OperationKey::Mismatch => OutcomeCode::OperationKeyMismatch,
                OperationKey::None | OperationKey::Store(_) | OperationKey::Hit(_) => OutcomeCode::Cancelled,
            };
            result.clear();
            result.push(code as u8);
        }
        assert!(result.len() <= RESULT_BYTES_MAX, "an update's result is small");
        let outcome = Outcome { received, overlaps };
        Ok(record(
            outcome,
            operation_key,
            group,
            RecordParts {
                shard: self.shard,
                state: self.state,
                serving: self.serving.as_deref_mut(),
                scratch: self.scratch,
            },
        )
        .kill_dead(self.log, &mut self.scratch.dead))
    }

    fn saved_result(&self, place: Place) -> Vec<u8> {
        let payload = self.log.entry(EntryOffset(place.0)).payload;
        OperationKeyRecord::decode(payload).expect("our own operation key").result.to_vec()
    }

    /// What [`Bug::HitWithoutRecord`] answers: the saved result, from where the operation key keeps it.
    fn unrecorded_hit(&self, received: &Received<'_>, place: Place) -> Recorded {
        let entry = self.log.entry(EntryOffset(place.0));
        let len = OperationKeyRecord::decode(entry.payload).expect("our own operation key").result.len();
        let offset = entry.payload_offset + (entry.payload.len() - len) as u64;
        let result = LogSlice { shard: self.shard, offset, len: len as u32 };
        Recorded { origin: received.origin, rpc: received.request.rpc, result, end: place.0 + 1, overlaps: true }
    }

    fn bytes_needed(&self, body: &Body<'_>, operation_key: OperationKey<'_>, executes: bool, hit: usize) -> usize {
        /// A result without what depends on the number of keys.
        const RESULT_BASE_BYTES: usize = 32;
        const RESULT_BYTES_PER_KEY: usize = 16;
        let mut keys = 0;
        body.for_each_key(|_, _| keys += 1);
        let result = hit.max(RESULT_BASE_BYTES + keys * RESULT_BYTES_PER_KEY);
        let record = CompletionRecord { request: request_of(body), slots: &self.scratch.slots, result: &[] };
        let changes = if executes { self.state.store.bytes_needed(self.log, body.head.table, &body.update) } else { 0 };
        let key = match operation_key {
            OperationKey::Store(key) => entry_bytes(operation_key_record(body, key, &[]).encoded_len() + result),
            OperationKey::None | OperationKey::Hit(_) | OperationKey::Mismatch => 0,
        };
        changes + key + entry_bytes(record.encoded_len() + result)
    }

    /// An answer, gated. Only a [`Recorded`] makes one.
    fn answer(&mut self, recorded: &Recorded, out: &mut Effects) {
        let (to, attempt, list) = match recorded.origin {
            Origin::Client { to, attempt, list } => (to, attempt, list),
            Origin::Cancel { to, attempt } => (to, attempt, ListVersion::NONE),
            Origin::Replay => return,
        };
        let Some(serving) = &mut self.serving else { return };
        let speculative = match self.answers {
            Answers::Speculative => {
                let commutes = !recorded.overlaps || planted::is_on(Bug::OverlapIgnored);
                commutes && list != ListVersion::NONE && serving.fast_path
            }
            Answers::Synced => false,
            Answers::Unreplicated => true,
        };
        let position = LogPosition { epoch: self.epoch, offset: recorded.end };
        let gate = if speculative { Gate::Now } else { Gate::Synced { shard: self.shard, position } };
        if !speculative {
            self.shipping.want_synced(recorded.end);
        }
        serving.counters.fast_answers += u64::from(speculative);
        serving.counters.gated_answers += u64::from(!speculative);
        let view = AnswerView {
            rpc: recorded.rpc,
            epoch: self.epoch,
            attempt,
            synced: !speculative || self.answers == Answers::Unreplicated,
            result: &[],
        };
        let mark = out.mark();
        view.encode(self.log.slice(recorded.result), out.arena());
        let head = out.span_from(mark);
        out.push(Effect::Send { to, head, tail: Some(recorded.result), gate });
    }

    fn refuse(&mut self, declined: &Declined, out: &mut Effects) {
        if let Some(serving) = &mut self.serving {
            serving.counters.refusals += 1;
        }
        refuse(declined.origin, declined.rpc, self.epoch, declined.why, out);
    }
}

struct RecordParts<'r> {
    shard: ShardId,
    state: &'r mut ShardState,
    serving: Option<&'r mut Serving>,
    scratch: &'r mut Scratch,
}

/// A record whose replaced entries are not marked dead yet.
struct Undead(Recorded);

impl Undead {
    fn kill_dead(self, log: &mut Log, dead: &mut Vec<EntryOffset>) -> Recorded {
        for at in dead.drain(..) {
            log.kill(at);
        }
        self.0
    }
}

/// Adds the completion record (and what the operation key keeps) to the open group, and commits it: E4.
fn record(
    outcome: Outcome<'_>,
    operation_key: OperationKey<'_>,
    mut group: GroupWriter<'_>,
    parts: RecordParts<'_>,
) -> Undead {
    let Outcome { received, overlaps } = outcome;
    let RecordParts { shard, state, serving, scratch } = parts;
    let mut request = received.request;
    let mut replayed = received.origin == Origin::Replay;
    if replayed && planted::is_on(Bug::ReplayAcknowledges) {
        state.tracker.prove(request.rpc.client, request.lease_expiry);
        replayed = false;
    }
    if replayed {
        // R4.5 [M]: the record carries this shard's own acknowledgement, never the request's.
        request.acknowledgement = state.tracker.acknowledgement_of(request.rpc.client);
    }
    let key_entry = match operation_key {
        OperationKey::Store(key) => {
            let record = operation_key_record(&received.body, key, &scratch.result);
            let (at, payload) = group.entry(EntryKind::OperationKey, record.encoded_len());
            record.encode_into(payload);
            Some((key, at))
        }
        OperationKey::None | OperationKey::Hit(_) | OperationKey::Mismatch => None,
    };
    let completion = CompletionRecord { request, slots: &scratch.slots, result: &scratch.result };
    let (at, payload) = group.entry(EntryKind::Completion, completion.encoded_len());
    completion.encode_into(payload);
    let payload_offset = group.read(at).payload_offset;
    let offset = payload_offset + completion.result_offset() as u64;
    let result = LogSlice { shard, offset, len: scratch.result.len() as u32 };
    let end = group.commit().end.offset;

    let place = Place(at.0);
    let dead = &mut scratch.dead;
    let on_dead = |place: Place| dead.push(EntryOffset(place.0));
    match replayed {
        true => state.tracker.complete_replayed(&request, place, on_dead),
        false => state.tracker.complete(&request, place, on_dead),
    }
    if let Some((_, at)) = key_entry {
        let hash = received.body.operation_key_hash().expect("it has an operation key");
        let fingerprint = Fingerprint(received.body.fingerprint());
        // `order` looked: there is no record of this key.
        state.operation_keys.insert(hash, fingerprint, received.body.head.not_after, Place(at.0), |_| false);
    }
    if let Some(serving) = serving {
        received.body.footprint(&mut scratch.hashes);
        serving.executed(end, request.rpc, &scratch.hashes);
    }
    Undead(Recorded { origin: received.origin, rpc: request.rpc, result, end, overlaps })
}

/// Logs that an operation key has expired, and forgets it. Returns the end of the entry.
pub(crate) fn drop_operation_key(
    log: &mut Log,
    state: &mut ShardState,
    epoch: Epoch,
    at_time: ClusterTime,
    slot: kasha_types::Slot,
    key: &[u8],
    scratch: &mut Scratch,
) -> Result<u64, Full> {
    let dropped = OperationKeyDropped { slot, at: at_time, operation_key: key };
    let mut group = log.begin(epoch, entry_bytes(dropped.encoded_len()), Purpose::Own)?;
    let (at, payload) = group.entry(EntryKind::OperationKeyDropped, dropped.encoded_len());
    dropped.encode_into(payload);
    let end = group.commit().end.offset;
    scratch.dead.clear();
    state.drop_operation_key(log, &dropped, at, &mut scratch.dead);
    for at in scratch.dead.drain(..) {
        log.kill(at);
    }
    Ok(end)
}

fn request_of(body: &Body<'_>) -> Request {
    Request {
        rpc: body.head.rpc,
        body_hash: kasha_types::BodyHash(0),
        acknowledgement: body.head.acknowledgement,
        lease_expiry: body.head.lease_expiry,
    }
}

fn operation_key_record<'r>(body: &Body<'r>, key: &'r [u8], result: &'r [u8]) -> OperationKeyRecord<'r> {
    OperationKeyRecord {
        slot: body.first_slot(),
        operation_key: key,
        fingerprint: Fingerprint(body.fingerprint()),
        expires_at: body.head.not_after,
        rpc: body.head.rpc,
        result,
    }
}

/// All slots the operation touches, each once (R4.1).
fn collect_slots(body: &Body<'_>, slots: &mut Vec<kasha_types::Slot>) {
    slots.clear();
    body.for_each_key(|_, slot| slots.push(slot));
    slots.sort_unstable();
    slots.dedup();
}

fn refuse(origin: Origin, rpc: RpcId, epoch: Epoch, why: Refusal, out: &mut Effects) {
    let (Origin::Client { to, attempt, .. } | Origin::Cancel { to, attempt }) = origin else { return };
    let mark = out.mark();
    hot::encode_small(Kind::Refuse, &Refused { rpc, attempt, epoch, why }, out.arena());
    let head = out.span_from(mark);
    out.push(Effect::Send { to, head, tail: None, gate: Gate::Now });
}

/// Refuses a request before it was decoded, if at least its id can be read.
pub(crate) fn refuse_view(origin: Origin, view: &RequestView<'_>, epoch: Epoch, why: Refusal, out: &mut Effects) {
    let mut reader = kasha_wire::Reader::new(view.body);
    if let (Ok(client), Ok(sequence)) = (reader.take(), reader.take()) {
        refuse(origin, RpcId { client, sequence }, epoch, why, out);
    }
}
