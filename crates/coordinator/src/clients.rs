//! Client leases, in memory only (RIFL 5; R4.6, R4.7).
//!
//! After a restart the coordinator knows nothing about single clients. So every id below the reservation counts as
//! leased for one full term from the restart. That needs one number, not a million; a map holds the leases that were
//! granted or renewed since.
//!
//! A client is *expired* only one term after its lease ended: its last request may still be under way. The verdict is
//! final: this process never renews an expired client. A restarted process may renew a client that an earlier process
//! called expired. The expiry floors that the shards logged on that verdict still refuse the client's old requests
//! (R4.6).

use std::collections::BTreeMap;

use kasha_types::planted::{self, Bug};
use kasha_types::{ClientId, ClusterTime};

use crate::limits::{CLIENTS_MAX, CLIENTS_SWEPT_MAX};

/// The state of a client's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The lease may be renewed; it ends (or ended) at this time.
    Alive(ClusterTime),
    /// The lease will never be renewed again, or was never granted.
    Expired,
}

/// The leases of all clients.
#[derive(Debug)]
pub(crate) struct ClientLeases {
    term_millis: u64,
    next: ClientId,
    /// Ids below this one may have been granted by earlier processes.
    inherited_below: ClientId,
    inherited_expiry: ClusterTime,
    expiries: BTreeMap<ClientId, ClusterTime>,
    sweep_from: ClientId,
}

impl ClientLeases {
    /// At a start: ids below `reserved` may have been granted, at times up to `now`.
    pub(crate) fn start(reserved: ClientId, now: ClusterTime, term_millis: u64) -> Self {
        Self {
            term_millis,
            next: if planted::is_on(Bug::ClientIdsReused) { ClientId(1) } else { reserved },
            inherited_below: reserved,
            inherited_expiry: match planted::is_on(Bug::LeasesNotExtended) {
                true => ClusterTime(0),
                false => now.after_millis(term_millis),
            },
            expiries: BTreeMap::new(),
            sweep_from: ClientId(0),
        }
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
        self.expiries.insert(client, expiry);
        Some((client, expiry))
    }

    /// The state of a client's lease. Once expired, always expired: time and expiries only grow.
    pub(crate) fn standing(&self, now: ClusterTime, client: ClientId) -> Standing {
        let expiry = match self.expiries.get(&client) {
            Some(&expiry) => expiry,
            None if client == ClientId(0) || client >= self.inherited_below => return Standing::Expired,
            None => self.inherited_expiry,
        };
        if now > expiry.after_millis(self.term_millis) { Standing::Expired } else { Standing::Alive(expiry) }
    }

    /// Renews a lease; `None` if it has expired, or if there are too many leases.
    pub(crate) fn renew(&mut self, now: ClusterTime, client: ClientId) -> Option<ClusterTime> {
        let Standing::Alive(before) = self.standing(now, client) else { return None };
        let expiry = now.after_millis(self.term_millis).max(before);
        if self.expiries.len() >= CLIENTS_MAX && !self.expiries.contains_key(&client) {
            return None;
        }
        self.expiries.insert(client, expiry);
        Some(expiry)
    }

    /// Forgets some expired clients, a slice at a time. The client stays expired: an entry of an inherited client was
    /// made by a renewal after the restart, so its lease ended after the inherited leases.
    pub(crate) fn sweep(&mut self, now: ClusterTime) {
        let slice = self.expiries.range(self.sweep_from..).take(CLIENTS_SWEPT_MAX);
        let (mut seen, mut last, mut expired) = (0, ClientId(0), Vec::new());
        for (&client, &expiry) in slice {
            (seen, last) = (seen + 1, client);
            if now > expiry.after_millis(self.term_millis) {
                expired.push(client);
            }
        }
        self.sweep_from = if seen < CLIENTS_SWEPT_MAX { ClientId(0) } else { ClientId(last.0 + 1) };
        for client in expired {
            self.expiries.remove(&client);
            assert_eq!(self.standing(now, client), Standing::Expired, "R4.6: a verdict is final");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_expires_one_term_after_its_end() {
        let mut leases = ClientLeases::start(ClientId(1), ClusterTime(0), 100);
        let (client, expiry) = leases.grant(ClusterTime(10)).expect("room");
        assert_eq!((client, expiry), (ClientId(1), ClusterTime(110)));
        assert_eq!(leases.standing(ClusterTime(210), client), Standing::Alive(expiry));
        assert_eq!(leases.standing(ClusterTime(211), client), Standing::Expired);
        assert_eq!(leases.renew(ClusterTime(210), client), Some(ClusterTime(310)));
        assert_eq!(leases.renew(ClusterTime(411), client), None);
        leases.sweep(ClusterTime(411));
        assert!(leases.expiries.is_empty());
        assert_eq!(leases.standing(ClusterTime(411), client), Standing::Expired);
    }

    #[test]
    fn r4_7_a_restart_extends_all_leases_by_a_full_term() {
        let mut leases = ClientLeases::start(ClientId(1025), ClusterTime(1000), 100);
        assert_eq!(leases.standing(ClusterTime(1000), ClientId(1024)), Standing::Alive(ClusterTime(1100)));
        assert_eq!(leases.standing(ClusterTime(1000), ClientId(1025)), Standing::Expired, "never granted");
        assert_eq!(leases.standing(ClusterTime(1000), ClientId(0)), Standing::Expired);
        assert_eq!(leases.renew(ClusterTime(1150), ClientId(3)), Some(ClusterTime(1250)));
        assert_eq!(leases.standing(ClusterTime(1201), ClientId(4)), Standing::Expired);
        assert_eq!(leases.standing(ClusterTime(1201), ClientId(3)), Standing::Alive(ClusterTime(1250)));
        assert_eq!(leases.grant(ClusterTime(1201)).map(|granted| granted.0), Some(ClientId(1025)), "never reused");
    }

    #[test]
    fn sweeping_goes_round_in_slices() {
        let mut leases = ClientLeases::start(ClientId(1), ClusterTime(0), 100);
        for _ in 0..CLIENTS_SWEPT_MAX + 10 {
            leases.grant(ClusterTime(0));
        }
        leases.sweep(ClusterTime(1000));
        assert_eq!(leases.expiries.len(), 10);
        leases.sweep(ClusterTime(1000));
        assert!(leases.expiries.is_empty());
    }
}
