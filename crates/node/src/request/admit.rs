//! `admit → look_up`: may this shard run it, and has it run?
//!
//! - **C3**, R6.2: a request of another witness list is refused: recovery will not read where it was recorded.
//! - **E1** What has run is answered with what was recorded, whatever has become of leases since.
//! - **R4.2** Refusals are recorded nowhere. **R4.3** Nothing is kept for a client before its lease is proven.
//! - **R4.5** \[M\] What a witness held is compared with the acknowledgement of this shard's own log.
//! - **R4.6** A floor refuses from when it is logged, though records go only when it is synced, and the refusal leaves
//!   only then. The tracker's own floor is always synced while clients are served: it refuses at once.

use kasha_exactly_once::{LookUp, Request};
use kasha_log::Log;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ListVersion, LogEnd, ShardId};
use kasha_wire::hot::Envelope;
use kasha_wire::operation::{Part, Parts};
use kasha_wire::{Configuration, Refusal, Update};

use crate::request::Condition;
use crate::request::path::{RequestPath, Stop};
use crate::request::{Caller, Origin, Received, Why, Wish};
use crate::serving::UNSYNCED_OPERATIONS_MAX;

/// This shard, in this term, may run it. Its slots are known.
pub(super) struct Admitted<'r, 'a>(&'r mut Received<'a>);

/// It never ran here.
pub(super) struct Fresh<'r, 'a>(&'r mut Received<'a>);

impl<'r, 'a> Fresh<'r, 'a> {
    pub(super) fn into_received(self) -> &'r mut Received<'a> {
        self.0
    }
}

impl RequestPath<'_> {
    /// May this shard run it, in this term and under this witness list?
    pub(super) fn admit<'r, 'a>(&mut self, received: &'r mut Received<'a>) -> Result<Admitted<'r, 'a>, Stop> {
        if let Origin::Client(caller) = &mut received.origin {
            match self.admit_envelope(&caller.envelope) {
                Err(Refusal::OldWitnessList) if planted::is_on(Bug::RefusalRecorded) => caller.wish = Wish::Cancel,
                Err(why) => return Err(Stop::refuse(why)),
                Ok(()) => {}
            }
        }
        let configuration = self.core.configuration.as_deref().expect("a configuration promoted us");
        let (table, slots) = (received.body.head.table, &mut received.memory.slots);
        slots.clear();
        received.body.for_each_key(|_, _, slot| slots.push(slot));
        slots.sort_unstable();
        slots.dedup();
        let is_ours = match received.body.update {
            Update::Transaction { parts } => {
                self.check_known(received.origin, parts)?;
                self.owns_keys_of_tables(configuration, received)
            }
            update => {
                if let Update::Batch { batch } = update {
                    self.check_known(received.origin, batch)?;
                }
                slots.iter().all(|&slot| configuration.owner(table, slot) == Some(self.shard))
            }
        };
        if is_ours { Ok(Admitted(received)) } else { Err(Stop::refuse(Refusal::WrongShard)) }
    }

    /// The same for a transaction over several shards: the shard must take part with its own keys. Witnesses hold coordinated
    /// transactions only (0032).
    #[cold]
    pub(super) fn admit_distributed<'r, 'a>(
        &mut self,
        received: &'r mut Received<'a>,
    ) -> Result<Admitted<'r, 'a>, Stop> {
        match &received.origin {
            Origin::Client(caller) => self.admit_envelope(&caller.envelope).map_err(Stop::refuse)?,
            Origin::Suspect | Origin::Replay if received.body.is_coordinated() => {}
            Origin::Suspect | Origin::Replay => return Err(Stop::refuse(Refusal::BadRequest)),
        }
        let configuration = self.core.configuration.as_deref().expect("a configuration promoted us");
        let own = received.body.parts_at(self.shard).ok_or(Stop::refuse(Refusal::WrongShard))?;
        self.check_known(received.origin, own)?;
        let is_replay = matches!(received.origin, Origin::Replay);
        let is_ours = |part: Part<'_>| {
            let mut all_are = true;
            part.operation.for_each_key(|key| {
                all_are &= match configuration.owner(part.table, kasha_types::slot_of(key)) {
                    Some(owner) => owner == self.shard,
                    // It may have been proposed, and its client told, before one of its tables was dropped.
                    None => is_replay && !configuration.has_table(part.table),
                };
            });
            all_are
        };
        let exists = |shard: ShardId| configuration.shard(shard).is_some();
        let participants = received.body.participants().expect("checked by the caller");
        let are_known = participants.iter().all(|(shard, _)| exists(shard));
        if own.iter().all(is_ours) && are_known {
            Ok(Admitted(received))
        } else {
            Err(Stop::refuse(Refusal::WrongShard))
        }
    }

    /// What needs a higher level, or the time of day, does not run before that is known here. Who has answered it knew it, and so does
    /// whoever came after (R10.12): what a witness holds was not answered then, and runs when its client sends it again. Who gives it up
    /// meanwhile may do so.
    #[cold]
    fn check_known(&self, origin: Origin, parts: Parts<'_>) -> Result<(), Stop> {
        let gives_up = matches!(origin, Origin::Client(Caller { wish: Wish::Cancel, .. }));
        if gives_up || self.core.knows_enough_for(parts) {
            return Ok(());
        }
        Err(Stop::refuse(match origin {
            Origin::Client(_) | Origin::Suspect => Refusal::Busy,
            Origin::Replay => Refusal::BadRequest,
        }))
    }

    /// The same for keys of several tables.
    #[cold]
    fn owns_keys_of_tables(&self, configuration: &Configuration, received: &Received<'_>) -> bool {
        let is_replay = matches!(received.origin, Origin::Replay);
        let (mut some_are_ours, mut some_are_not) = (false, false);
        received.body.for_each_key(|table, _, slot| match configuration.owner(table, slot) {
            Some(owner) if owner == self.shard => some_are_ours = true,
            // A transaction may have run, and been answered, before one of its tables was dropped. What it did to the others
            // stays; nothing is written to that one.
            None if is_replay && !configuration.has_table(table) && !planted::is_on(Bug::SkippedForTable) => {}
            Some(_) | None => some_are_not = true,
        });
        some_are_ours && !some_are_not
    }

    #[inline(always)]
    fn admit_envelope(&mut self, envelope: &Envelope) -> Result<(), Refusal> {
        let (shard, epoch, serving) = (self.shard, self.epoch, self.serving());
        let is_another_list = envelope.list != ListVersion::NONE && envelope.list != serving.list;
        if envelope.shard != shard || envelope.epoch != epoch {
            Err(Refusal::NotPrimary)
        } else if is_another_list && !planted::is_on(Bug::ListUnchecked) {
            Err(Refusal::OldWitnessList) // R6.2, C3
        } else if !serving.has_enough_members {
            Err(Refusal::TooFewMembers)
        } else if serving.unsynced_operations() >= UNSYNCED_OPERATIONS_MAX {
            Err(Refusal::Busy)
        } else {
            Ok(())
        }
    }

    /// Has it run, or may it not run any more (E1)?
    #[inline(always)] // its other callers are cold
    pub(super) fn look_up<'r, 'a>(
        &mut self,
        log: &Log,
        Admitted(received): Admitted<'r, 'a>,
    ) -> Result<Fresh<'r, 'a>, Stop> {
        let request = &received.request;
        let found = match received.origin {
            Origin::Client(_) if self.is_without_records(received) => LookUp::New,
            Origin::Client(_) => self.state.tracker.look_up(request),
            Origin::Suspect | Origin::Replay
                if planted::is_on(Bug::ReplayWithoutLookUp) || planted::is_on(Bug::ReplayedTwice) =>
            {
                LookUp::New
            }
            Origin::Replay
                if planted::is_on(Bug::ExpiryInRecovery) && request.lease_expiry < self.core.cluster_time =>
            {
                LookUp::LeaseExpired
            }
            // Against the acknowledgement of this shard's own log (R4.5).
            Origin::Suspect | Origin::Replay => self.state.tracker.look_up_replayed(request),
        };
        match found {
            LookUp::New => match self.pending_floor_above(request) {
                Some(floor_end) => {
                    hit(Probe::RefusedBelowPendingFloor);
                    Err(Stop::Nothing(Why::BelowFloor { floor_end }))
                }
                None => Ok(Fresh(received)),
            },
            LookUp::Completed(place) => {
                if let Some(serving) = &mut self.serving {
                    serving.counters.duplicates_suppressed += 1;
                }
                Err(Stop::Completed(self.completed_at(log, place, request.rpc)))
            }
            LookUp::InProgress => Err(Stop::Nothing(Why::InProgress)),
            LookUp::Reused => Err(Stop::refuse(Refusal::Reused)),
            LookUp::Stale => Err(Stop::refuse(Refusal::Stale)),
            LookUp::WindowExceeded => Err(Stop::refuse(Refusal::WindowExceeded)),
            LookUp::LeaseExpired => Err(Stop::refuse(Refusal::LeaseExpired)),
            LookUp::LeaseUnproven => match self.prove_lease(request) {
                Ok(()) => self.look_up_again(log, Admitted(received)),
                Err(why) => Err(Stop::Nothing(why)),
            },
        }
    }

    /// Its client's lease is proven now.
    #[cold]
    #[inline(never)]
    fn look_up_again<'r, 'a>(&mut self, log: &Log, admitted: Admitted<'r, 'a>) -> Result<Fresh<'r, 'a>, Stop> {
        self.look_up(log, admitted)
    }

    /// Without records ([`crate::Baseline`]) only what other shards ask about has one.
    fn is_without_records(&self, received: &Received<'_>) -> bool {
        !self.core.options.baseline.has_records() && !received.body.is_distributed()
    }

    /// Where the entry ends of a floor that refuses this request, and that the tracker does not know yet (R4.6).
    fn pending_floor_above(&self, request: &Request) -> Option<LogEnd> {
        let (floor, end) = self.serving.as_ref()?.leases.pending_floor()?;
        (request.lease_expiry <= floor).then_some(end)
    }

    /// R4.3: a suspect over several shards would take locks, and leave something at all of them.
    pub(super) fn prove_lease_of_suspect(&mut self, received: &Received<'_>) -> Result<(), Stop> {
        let client = received.request.rpc.client;
        let is_known = self.state.tracker.lease_expiry_of(client).is_some();
        if is_known || !matches!(received.origin, Origin::Suspect) {
            return Ok(());
        }
        self.prove_lease(&received.request).map_err(|why| {
            self.serving().leases.ask_about(client);
            Stop::Nothing(why)
        })
    }

    /// A client that this shard does not know (R4.3). Its claim is enough if the coordinator has granted such an id and
    /// may have granted such a lease (RIFL V-B); otherwise the coordinator is asked.
    fn prove_lease(&mut self, request: &Request) -> Result<(), Why> {
        let (client, expiry, now) = (request.rpc.client, request.lease_expiry, self.core.cluster_time);
        // Our clock may be behind the one that granted it.
        let latest = now.after_millis(self.core.options.client_lease_millis * 3 / 2);
        let is_plausible = client < self.core.clients_below && expiry > now && expiry <= latest;
        if !is_plausible && !planted::is_on(Bug::LeaseNotProven) {
            hit(Probe::LeaseAsked);
            return Err(Why::Parked(Condition::Lease(client)));
        }
        self.state.tracker.prove(client, expiry);
        Ok(())
    }
}
