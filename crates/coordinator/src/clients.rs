//! Client leases, in memory only (RIFL 5; R4.6, R4.7, R9.4).
//!
//! Every member of the group has this. The leader grants and renews; a round tells the others what the answers say that wait for it. So
//! whoever leads next gathers what a quorum remembers (`viewstamped::gathering`), and knows of each client when it renewed last.
//!
//! A lead begins with a [`Bound`]: every id below the reservation counts as leased for one full term from now. That is one number, not a
//! million. It falls when a quorum's memory is gathered: else no client would ever expire where elections are frequent. It stays if there
//! is nothing to gather, since whoever has started again remembers nothing, and if nobody could renew for long before this lead.
//!
//! A client is *expired* only one term after its lease ended: its last request may still be under way. The verdict is
//! final: this lead never renews an expired client. A later one may renew a client that an earlier one
//! called expired. The expiry floors that the shards logged on that verdict still refuse the client's old requests
//! (R4.6).

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use kasha_types::planted::{self, Bug};
use kasha_types::{ClientId, ClusterTime};
use kasha_wire::wire_struct;

use crate::limits::{CLIENTS_IN_PIECE_MAX, CLIENTS_MAX, CLIENTS_SWEPT_MAX, GRANTS_IN_ROUND_MAX};

/// The state of a client's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The lease may be renewed; it ends (or ended) at this time.
    Alive(ClusterTime),
    /// The lease will never be renewed again, or was never granted.
    Expired,
}

/// What a client was told: its lease ends then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    client: ClientId,
    expiry: ClusterTime,
}

/// No client below this id was told of a later end than this, unless it is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    below: ClientId,
    expiry: ClusterTime,
}

/// What one message tells of a memory.
#[derive(Debug)]
pub(crate) struct Piece {
    bound: Bound,
    granted: Vec<Granted>,
}

wire_struct! {
    Granted { client, expiry }
    Bound { below, expiry }
    Piece { bound, granted }
}

impl Bound {
    const NONE: Self = Self { below: ClientId(0), expiry: ClusterTime(0) };

    fn of(self, client: ClientId) -> Option<ClusterTime> {
        (client != ClientId(0) && client < self.below).then_some(self.expiry)
    }

    fn max(self, other: Self) -> Self {
        Self { below: self.below.max(other.below), expiry: self.expiry.max(other.expiry) }
    }
}

/// The leases of all clients.
#[derive(Debug)]
pub(crate) struct ClientLeases {
    term_millis: u64,
    next: ClientId,
    /// Of this lead: for what was told before.
    of_lead: Bound,
    /// Of the memories that were gathered, or taught.
    of_memory: Bound,
    expiries: BTreeMap<ClientId, ClusterTime>,
    sweep_from: ClientId,
    /// What the next round tells the others.
    unsaid: Vec<Granted>,
}

impl ClientLeases {
    pub(crate) fn new(term_millis: u64) -> Self {
        Self {
            term_millis,
            next: ClientId(0),
            of_lead: Bound::NONE,
            of_memory: Bound::NONE,
            expiries: BTreeMap::new(),
            sweep_from: ClientId(0),
            unsaid: Vec::new(),
        }
    }

    /// A lead begins: ids below `reserved` may have been granted, at times up to `now`. `since`: when a leader was last able to renew.
    pub(crate) fn lead(&mut self, reserved: ClientId, now: ClusterTime, since: ClusterTime) {
        let expiry = match planted::is_on(Bug::LeasesNotExtended) {
            true => ClusterTime(0),
            false => now.after_millis(self.term_millis),
        };
        self.of_memory = self.of_memory.max(self.of_lead); // an earlier lead may have gathered nothing
        self.unsaid.clear();
        self.of_lead = Bound { below: reserved, expiry };
        if now.0.saturating_sub(since.0) > self.term_millis / 4 {
            self.of_memory = self.of_memory.max(self.of_lead); // a quorum's memory does not end it
        }
        self.next = if planted::is_on(Bug::ClientIdsReused) { ClientId(1) } else { reserved };
    }

    /// What a quorum remembers is here.
    pub(crate) fn gathered(&mut self) {
        self.of_lead = Bound::NONE;
    }

    /// The next id to grant. The caller must reserve it first.
    pub(crate) fn next(&self) -> ClientId {
        self.next
    }

    /// Grants an id and a lease; `None` when there are too many.
    pub(crate) fn grant(&mut self, now: ClusterTime) -> Option<(ClientId, ClusterTime)> {
        if self.expiries.len() >= CLIENTS_MAX {
            return None;
        }
        let (client, expiry) = (self.next, now.after_millis(self.term_millis));
        self.next = ClientId(client.0.checked_add(1).expect("client ids are exhausted"));
        self.tell(client, expiry);
        Some((client, expiry))
    }

    /// When the client's lease ends at the latest; `None`: it was never granted, or has expired and is forgotten.
    fn expiry_of(&self, client: ClientId) -> Option<ClusterTime> {
        let noted = self.expiries.get(&client).copied();
        noted.max(self.of_lead.of(client)).max(self.of_memory.of(client))
    }

    /// The state of a client's lease. Once expired, always expired: time and expiries only grow.
    pub(crate) fn standing(&self, now: ClusterTime, client: ClientId) -> Standing {
        match self.expiry_of(client) {
            Some(expiry) if now <= expiry.after_millis(self.term_millis) => Standing::Alive(expiry),
            Some(_) | None => Standing::Expired,
        }
    }

    /// Renews a lease; `None` if it has expired.
    pub(crate) fn renew(&mut self, now: ClusterTime, client: ClientId) -> Option<ClusterTime> {
        let Standing::Alive(before) = self.standing(now, client) else { return None };
        let expiry = now.after_millis(self.term_millis).max(before);
        self.tell(client, expiry);
        Some(expiry)
    }

    /// Whether the next round takes what one more answer tells.
    pub(crate) fn has_room(&self) -> bool {
        self.unsaid.len() < GRANTS_IN_ROUND_MAX
    }

    /// The same, and there is room to remember when this client's lease ends.
    pub(crate) fn has_room_for(&self, client: ClientId) -> bool {
        self.has_room() && (self.expiries.len() < CLIENTS_MAX || self.expiries.contains_key(&client))
    }

    fn tell(&mut self, client: ClientId, expiry: ClusterTime) {
        self.expiries.insert(client, expiry);
        self.unsaid.push(Granted { client, expiry });
    }

    /// What the round that begins now tells the others: all that the answers say which wait for it.
    pub(crate) fn take_unsaid(&mut self) -> Vec<Granted> {
        std::mem::take(&mut self.unsaid)
    }

    /// Another member remembers this.
    pub(crate) fn note(&mut self, granted: &[Granted]) {
        for &Granted { client, expiry } in granted {
            let known = self.expiries.entry(client).or_insert(expiry);
            *known = expiry.max(*known);
        }
    }

    /// What is remembered of the clients behind this one, and where the next piece begins.
    pub(crate) fn piece(&self, behind: ClientId) -> (Piece, Option<ClientId>) {
        let clients = self.expiries.range((Excluded(behind), Unbounded)).take(CLIENTS_IN_PIECE_MAX);
        let granted: Vec<_> = clients.map(|(&client, &expiry)| Granted { client, expiry }).collect();
        let next = granted.last().filter(|_| granted.len() == CLIENTS_IN_PIECE_MAX).map(|last| last.client);
        (Piece { bound: self.of_lead.max(self.of_memory), granted }, next)
    }

    /// A piece of what another member remembers.
    pub(crate) fn merge(&mut self, Piece { bound, granted }: Piece) {
        self.of_memory = self.of_memory.max(bound);
        self.note(&granted);
    }

    /// Forgets some expired clients, a slice at a time. The client stays expired: also for a leader whose time is a little less than this one,
    /// which no quorum may have confirmed.
    pub(crate) fn sweep(&mut self, now: ClusterTime) {
        let slice = self.expiries.range(self.sweep_from..).take(CLIENTS_SWEPT_MAX);
        let (mut seen, mut last, mut expired) = (0, ClientId(0), Vec::new());
        for (&client, &expiry) in slice {
            (seen, last) = (seen + 1, client);
            let is_long_over = now > expiry.after_millis(self.term_millis.saturating_add(self.term_millis / 4));
            if is_long_over && self.standing(now, client) == Standing::Expired {
                expired.push(client);
            }
        }
        self.sweep_from = if seen < CLIENTS_SWEPT_MAX { ClientId(0) } else { ClientId(last.0.saturating_add(1)) };
        for client in expired {
            self.expiries.remove(&client);
            assert_eq!(self.standing(now, client), Standing::Expired, "R4.6: a verdict is final");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(reserved: u64, now: u64) -> ClientLeases {
        let mut leases = ClientLeases::new(100);
        leases.lead(ClientId(reserved), ClusterTime(now), ClusterTime(now));
        leases
    }

    #[test]
    fn a_lease_expires_one_term_after_its_end() {
        let mut leases = led(1, 0);
        let (client, expiry) = leases.grant(ClusterTime(10)).expect("room");
        assert_eq!((client, expiry), (ClientId(1), ClusterTime(110)));
        assert_eq!(leases.standing(ClusterTime(210), client), Standing::Alive(expiry));
        assert_eq!(leases.standing(ClusterTime(211), client), Standing::Expired);
        assert_eq!(leases.renew(ClusterTime(210), client), Some(ClusterTime(310)));
        assert_eq!(leases.renew(ClusterTime(411), client), None);
        leases.sweep(ClusterTime(435));
        assert_eq!(leases.expiries.len(), 1, "a later leader may be a little behind");
        leases.sweep(ClusterTime(436));
        assert!(leases.expiries.is_empty());
        assert_eq!(leases.standing(ClusterTime(411), client), Standing::Expired);
    }

    #[test]
    fn r4_7_a_restart_extends_all_leases_by_a_full_term() {
        let mut leases = led(1025, 1000);
        assert_eq!(leases.standing(ClusterTime(1000), ClientId(1024)), Standing::Alive(ClusterTime(1100)));
        assert_eq!(leases.standing(ClusterTime(1000), ClientId(1025)), Standing::Expired, "never granted");
        assert_eq!(leases.standing(ClusterTime(1000), ClientId(0)), Standing::Expired);
        assert_eq!(leases.renew(ClusterTime(1150), ClientId(3)), Some(ClusterTime(1250)));
        assert_eq!(leases.standing(ClusterTime(1201), ClientId(4)), Standing::Expired);
        assert_eq!(leases.standing(ClusterTime(1201), ClientId(3)), Standing::Alive(ClusterTime(1250)));
        assert_eq!(leases.grant(ClusterTime(1201)).map(|granted| granted.0), Some(ClientId(1025)), "never reused");
    }

    #[test]
    fn r9_4_the_bound_of_a_lead_falls_when_a_quorum_has_told() {
        let mut before = led(1, 1000);
        let (dead, alive) = (before.grant(ClusterTime(1000)), before.grant(ClusterTime(1000)));
        let ((dead, _), (alive, _)) = (dead.expect("room"), alive.expect("room"));
        before.renew(ClusterTime(1080), alive);
        let mut next = ClientLeases::new(100);
        next.lead(ClientId(1025), ClusterTime(1190), ClusterTime(1180));
        assert_eq!(next.standing(ClusterTime(1190), dead), Standing::Alive(ClusterTime(1290)));
        let (piece, end) = before.piece(ClientId(0));
        assert_eq!(end, None);
        next.merge(piece);
        next.gathered();
        // The memory's own bound has the ids below the reservation of its lead: there are none.
        assert_eq!(next.standing(ClusterTime(1190), dead), Standing::Alive(ClusterTime(1100)));
        assert_eq!(next.standing(ClusterTime(1201), dead), Standing::Expired);
        assert_eq!(next.standing(ClusterTime(1201), alive), Standing::Alive(ClusterTime(1180)));
        assert_eq!(next.standing(ClusterTime(1201), ClientId(700)), Standing::Expired, "never granted");
    }

    #[test]
    fn r9_4_after_an_outage_the_bound_stays() {
        let mut next = ClientLeases::new(100);
        next.lead(ClientId(1025), ClusterTime(1190), ClusterTime(1160));
        next.gathered();
        assert_eq!(
            next.standing(ClusterTime(1191), ClientId(3)),
            Standing::Alive(ClusterTime(1290)),
            "nobody could renew"
        );
    }

    #[test]
    fn a_memory_goes_in_pieces() {
        let mut leases = led(1, 0);
        let count = 2 * CLIENTS_IN_PIECE_MAX;
        (0..count).for_each(|_| _ = leases.grant(ClusterTime(7)));
        assert_eq!(leases.take_unsaid().len(), count);
        let (mut other, mut behind, mut pieces) = (ClientLeases::new(100), Some(ClientId(0)), 0);
        while let Some(key) = behind {
            let (piece, next) = leases.piece(key);
            other.merge(piece);
            (behind, pieces) = (next, pieces + 1);
        }
        assert_eq!((other.expiries, pieces), (leases.expiries, 3));
    }

    #[test]
    fn sweeping_goes_round_in_slices() {
        let mut leases = led(1, 0);
        for _ in 0..CLIENTS_SWEPT_MAX + 10 {
            leases.grant(ClusterTime(0));
        }
        leases.sweep(ClusterTime(1000));
        assert_eq!(leases.expiries.len(), 10);
        leases.sweep(ClusterTime(1000));
        assert!(leases.expiries.is_empty());
    }

    #[test]
    fn an_absurd_client_id_of_another_member_stops_nobody() {
        let mut leases = ClientLeases::new(100);
        let granted = |client| Granted { client: ClientId(client), expiry: ClusterTime(0) };
        let count = CLIENTS_SWEPT_MAX as u64;
        leases.note(&(1..count).chain([u64::MAX]).map(granted).collect::<Vec<_>>());
        leases.sweep(ClusterTime(1));
    }
}
