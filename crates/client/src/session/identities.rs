//! A session's client ids, up to [`IDENTITIES_MAX`] (RIFL 3). With several ids, one update that cannot finish does not
//! stop the others (R4.10).
//!
//! A window belongs to an id, and an unfinished update holds up every later update of its id. So a busy session of
//! several shards has a second id ready. When most of the first id's window waits for its oldest update, updates are
//! numbered under another id. Three rules keep that other id free:
//! - A shard with an open update under a held-up id gets no update under another id: its updates wait without a number.
//! - A shard without one first gets one more update under the held-up id, to see whether it answers.
//! - An id whose updates have all ended gets one more update to each shard that it had touched. These updates carry the
//!   last acknowledgement.
//!
//! The same holds for updates of several shards: the shards of one update together are a [`Place`], as one shard is.
//!
//! Sequences, table requests and the loss of a lease belong to one id. The coordinator grants and renews ids. When an
//! id is lost, the saved results are lost with it: its updates under way are unknown (R2.2), and updates that were
//! never sent go on under another id.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kasha_machine::Effects;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClientId, ClusterTime, RpcId, ShardId, Tick};
use kasha_wire::message::{LeaseRenewed, OpenSession, RenewLease, SessionOpened};

use super::call::{Kind, NEVER, Stage};
use super::frames::{Known, send_message};
use super::identity::{Ended, Identity, Place};
use super::{Completion, Session, WhyUnknown};
use crate::limits::IDENTITIES_MAX;

/// How long the coordinator may be silent before the session asks again.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// All client ids of a session. The first one numbers updates.
#[derive(Debug)]
pub(super) struct Identities {
    held: Vec<Identity>,
    opening: Option<Opening>,
    /// Places whose updates may be numbered again.
    pub(super) released: Vec<Place>,
    /// So may all updates.
    pub(super) all_released: bool,
    /// The shards of each place of several. If two sets have one hash, those of both.
    members: BTreeMap<Place, BTreeSet<ShardId>>,
}

/// A request for a client id: `OpenSession` is repeated until it is answered.
#[derive(Debug)]
struct Opening {
    nonce: Option<u64>,
    /// When the last question left.
    asked_at: Tick,
    again_at: Tick,
    pause: Duration,
}

impl Opening {
    fn new(now: Tick) -> Self {
        Self { nonce: None, asked_at: now, again_at: now, pause: RETRY }
    }
}

/// The reason why an update has no number yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoNumber {
    /// There is no client id, or its window is full.
    NoRoom,
    /// The place holds up another id.
    HeldUp,
}

impl Identities {
    pub(super) fn opening(now: Tick) -> Self {
        Self {
            held: Vec::new(),
            opening: Some(Opening::new(now)),
            released: Vec::new(),
            all_released: false,
            members: BTreeMap::new(),
        }
    }

    /// The id that numbers updates.
    pub(super) fn current(&self) -> Option<&Identity> {
        self.held.first()
    }

    pub(super) fn all(&self) -> &[Identity] {
        &self.held
    }

    pub(super) fn of(&self, client: ClientId) -> Option<&Identity> {
        self.held.iter().find(|identity| identity.client == client)
    }

    pub(super) fn slot_of(&self, rpc: RpcId) -> Option<usize> {
        self.of(rpc.client)?.slot_of(rpc)
    }

    /// Another member of the coordinator's group is asked from now on.
    pub(super) fn ask_soon(&mut self, now: Tick) {
        if let Some(opening) = &mut self.opening {
            opening.again_at = opening.again_at.min(now.after(crate::limits::REFRESH_INTERVAL));
            opening.pause = RETRY;
        }
    }

    /// When the coordinator is to be asked for something next.
    pub(super) fn next_errand(&self) -> Tick {
        let renewal = self.held.iter().map(|identity| identity.renew_at).min().unwrap_or(NEVER);
        self.opening.as_ref().map_or(renewal, |opening| opening.again_at.min(renewal))
    }

    /// The id under which the next update of this place, which is these shards, is numbered.
    pub(super) fn id_for(&mut self, place: Place, shards: &[ShardId]) -> Result<&mut Identity, NoNumber> {
        if let Place::Several(_) = place {
            self.members.entry(place).or_default().extend(shards);
        }
        let Some((current, others)) = self.held.split_first() else { return Err(NoNumber::NoRoom) };
        let mut chosen = current.has_room().then_some(0);
        let mut is_untried = false;
        for (index, other) in others.iter().enumerate() {
            if other.is_held_up && other.is_open_at(place) && !planted::is_on(Bug::HeldUpShardNumbered) {
                hit(Probe::ShardHeldUp);
                return Err(NoNumber::HeldUp);
            }
            if other.owes(place) && other.has_room() {
                chosen = Some(index + 1);
                is_untried = false;
                break;
            }
            // There are more sets of shards than the window has room for trials: one with each shard for the one that is away.
            is_untried |= other.owes(place) && other.is_held_up && shards.len() > 1 && self.has_suspect(other, shards);
        }
        if is_untried {
            hit(Probe::TrialWithoutRoom);
            return Err(NoNumber::HeldUp);
        }
        if chosen.is_none() {
            hit(Probe::WindowFull);
        }
        chosen.map(|index| &mut self.held[index]).ok_or(NoNumber::NoRoom)
    }

    /// Whether one of these shards may be what holds up this id: an update of the shard alone is open under the id, or one of
    /// several shards is, and nothing shows that the shard answers.
    fn has_suspect(&self, other: &Identity, shards: &[ShardId]) -> bool {
        let hangs = |shard: &ShardId| {
            let mut open = self.members.iter().filter(|(place, _)| other.is_open_at(**place));
            open.any(|(_, members)| members.contains(shard))
        };
        let is_suspect = |shard: &ShardId| {
            let alone = Place::Shard(*shard);
            other.is_open_at(alone) || (other.owes(alone) && hangs(shard))
        };
        shards.iter().any(is_suspect)
    }

    /// The outcome of this update is known, or never will be: its sequence may be acknowledged. `is_trial_void`: it begins
    /// again under another number, and tells nothing of its place.
    pub(super) fn finish(&mut self, rpc: RpcId, is_trial_void: bool) {
        let identity = self.held.iter_mut().find(|identity| identity.client == rpc.client);
        let identity = identity.unwrap_or_else(|| panic!("{rpc:?} outlived its client id"));
        let had_room = identity.has_room();
        let Ended { place, is_released, is_over } = identity.finish(rpc.sequence, is_trial_void);
        self.all_released |= is_over || (identity.is_held_up && !had_room && identity.has_room());
        if is_released {
            self.released.push(place);
        }
    }

    /// The next table request is sent under this id.
    pub(super) fn begin_table_request(&mut self) -> Option<ClientId> {
        let identity = self.held.first_mut()?;
        identity.table_sequence += 1;
        Some(identity.client)
    }

    /// Whether updates to this place wait for an update of a held-up id.
    pub(super) fn is_held_up(&self, place: Place) -> bool {
        self.held.iter().skip(1).any(|other| other.is_held_up && other.is_open_at(place))
    }

    /// The youngest id, besides the current one, under which nothing is open.
    fn spare(&self) -> Option<usize> {
        let spares = (1..self.held.len()).filter(|&index| self.held[index].open() == 0);
        spares.max_by_key(|&index| self.held[index].client)
    }

    /// From now on updates are numbered under another id; those of the former id go on. `shards`: the number of shards.
    fn switch_to(&mut self, spare: usize, shards: usize) {
        hit(Probe::FurtherIdentity);
        let former = &mut self.held[0];
        former.is_held_up = former.open() > 0;
        self.held.iter_mut().skip(1).for_each(Identity::owe_nothing);
        self.held[0].owe_untried(shards);
        self.held[spare].owe_nothing();
        self.held.swap(0, spare);
    }

    /// The lease of this id is lost, with everything under it. Another id numbers updates, if there is one.
    fn lose(&mut self, client: ClientId) {
        let Some(index) = self.held.iter().position(|identity| identity.client == client) else { return };
        self.held.remove(index);
        if index == 0 && !self.held.is_empty() {
            let best = self.spare().unwrap_or(0);
            let best = if self.held[0].open() == 0 { 0 } else { best };
            self.held.swap(0, best);
            self.held[0].is_held_up = false;
            self.held[0].owe_nothing();
        }
    }

    /// Whether the id may be given up: it is old, nothing is open under it or an older one, and there is another id.
    fn may_retire(&self, index: usize, table_client: Option<ClientId>) -> bool {
        let identity = &self.held[index];
        let is_needed = self.held.iter().any(|other| other.client <= identity.client && other.open() > 0);
        let has_other_spare = (1..self.held.len()).any(|other| other != index && self.held[other].open() == 0);
        index > 0 && !is_needed && has_other_spare && table_client != Some(identity.client)
    }
}

impl Session {
    /// Takes care that an update which cannot finish does not stop the others (R4.10).
    pub(super) fn relieve_window(&mut self, now: Tick) {
        let Some(current) = self.identities.current() else { return };
        if current.is_crowded()
            && (current.is_share_held_up(4) || self.is_oldest_in_trouble(current, now))
            && let Some(spare) = self.identities.spare()
        {
            let shards = self.cluster.configuration.as_ref().map_or(0, |known| known.shards.len());
            self.identities.switch_to(spare, shards);
            self.identities.released.extend(self.held_back.keys());
        }
        if self.wants_identity(now) {
            self.identities.opening.get_or_insert_with(|| Opening::new(now));
        } else {
            self.identities.opening = None;
        }
    }

    /// Whether the oldest update was sent again or refused, or others have ended that were sent after it, and its server is silent for twice
    /// the first waiting time, though it may usually take so long: then it is not just under way.
    fn is_oldest_in_trouble(&self, identity: &Identity, now: Tick) -> bool {
        let long = self.options.attempt_timeout * 2;
        identity.oldest().is_some_and(|(slot, _)| {
            let call = &self.calls[slot];
            let is_overtaken = identity.waiting_for_oldest() > 0 && now.since(call.sent_at) >= long;
            call.attempts > 1 || (call.is_doubted && is_overtaken) || call.stage != Stage::InFlight
        })
    }

    /// Whether another id is needed: there is none, or one shard may hold up the only one and no other is ready.
    fn wants_identity(&self, now: Tick) -> bool {
        let Some(current) = self.identities.current() else { return true };
        if self.identities.held.len() >= IDENTITIES_MAX || self.identities.spare().is_some() {
            return false;
        }
        let has_several = self.cluster.configuration.as_ref().is_some_and(|known| known.shards.len() > 1);
        // Later may be too late: the coordinator may stop together with the shard that holds up the id.
        let keeps_spare = self.options.keeps_spare && self.stats.updates > 0;
        let is_held_up =
            || current.is_share_held_up(2) || current.is_crowded() && self.is_oldest_in_trouble(current, now);
        has_several && (keeps_spare || is_held_up())
    }

    /// Asks for a client id, renews leases, and gives up ids that are not needed, if that is due.
    pub(super) fn tend_leases(&mut self, now: Tick, out: &mut Effects) {
        let identities = &mut self.identities;
        let mut index = 0;
        while index < identities.held.len() {
            if identities.held[index].renew_at > now {
                index += 1;
            } else if identities.may_retire(index, self.table_client) {
                hit(Probe::IdentityRetired);
                identities.held.remove(index);
            } else if identities.held[index].is_held_up && planted::is_on(Bug::IdentityRetiredEarly) {
                identities.held[index].renew_at = NEVER;
            } else {
                let identity = &mut identities.held[index];
                identity.renew_at = now.after(RETRY_MAX);
                send_message(self.cluster.coordinator.ask(now), &RenewLease { client: identity.client }, out);
                index += 1;
            }
        }
        if let Some(opening) = &mut self.identities.opening
            && opening.again_at <= now
        {
            let nonce = *opening.nonce.get_or_insert_with(|| self.rng.next_u64());
            (opening.asked_at, opening.again_at) = (now, now.after(opening.pause));
            opening.pause = (opening.pause * 2).min(RETRY_MAX);
            send_message(self.cluster.coordinator.ask(now), &OpenSession { nonce }, out);
        }
    }

    pub(super) fn on_session_opened(&mut self, opened: &SessionOpened, now: Tick) -> Known {
        let &SessionOpened { nonce, client, lease_expiry: expiry, cluster_time: time } = opened;
        let opening = self.identities.opening.as_ref().filter(|opening| opening.nonce == Some(nonce));
        let Some(asked_at) = opening.map(|opening| opening.asked_at) else { return Known::No };
        if client == ClientId(0) || self.identities.of(client).is_some() {
            return Known::No;
        }
        self.cluster.heard_time((time, now.since(asked_at)), now);
        self.identities.opening = None;
        let identity = Identity::new(client, self.options.outstanding_max, expiry, renewal(expiry, time, now));
        self.identities.held.push(identity);
        self.stats.client_ids += 1;
        Known::Yes
    }

    pub(super) fn on_lease_renewed(&mut self, renewed: &LeaseRenewed, now: Tick) -> Known {
        let &LeaseRenewed { client, lease_expiry: expiry, cluster_time: time } = renewed;
        let Some(identity) = self.identities.held.iter_mut().find(|identity| identity.client == client) else {
            return Known::No;
        };
        identity.expiry = expiry.max(identity.expiry);
        identity.renew_at = renewal(expiry, time, now);
        self.cluster.heard_time((time, Duration::ZERO), now);
        Known::Yes
    }

    /// The saved results are lost with the lease, so the outcome of updates under way under this id is unknown (R2.2).
    /// Updates that were never sent go on under another id.
    pub(super) fn on_lease_lost(&mut self, client: ClientId, now: Tick) -> Known {
        if self.identities.of(client).is_none() {
            return Known::No;
        }
        self.stats.leases_lost += 1;
        let table_client = self.table_client;
        for slot in self.calls.slots() {
            let Some(call) = self.calls.get(slot) else { continue };
            let is_lost = match call.kind {
                Kind::Update(update) => update.rpc.is_some_and(|rpc| rpc.client == client),
                Kind::Table(_) => call.is_sent() && table_client == Some(client),
                Kind::Read(_) | Kind::Status { .. } | Kind::Refresh => false,
            };
            if is_lost {
                assert!(call.is_sent(), "what has a number was sent");
                self.end(slot, Completion::Unknown(WhyUnknown::LeaseLost));
            }
        }
        self.table_client = table_client.filter(|&of| of != client);
        self.identities.lose(client);
        self.identities.released.extend(self.held_back.keys());
        if self.identities.held.is_empty() {
            self.identities.opening = Some(Opening::new(now));
        }
        Known::Yes
    }
}

fn renewal(expiry: ClusterTime, time: ClusterTime, now: Tick) -> Tick {
    let third = Duration::from_millis(expiry.0.saturating_sub(time.0) / 3);
    now.after(third.max(RETRY))
}
