//! Client leases, in memory only (RIFL 5; R4.6, R4.7).
//!
//! After a restart nothing is known of single clients, so every id below the reservation counts as leased for one full
//! term from the restart. That needs one number, not a million; a map holds those that were granted or renewed since.
//! A client is *expired* only one term after its lease ended, because its last request may still be under way and
//! because the verdict is final: an expired client is never renewed by this process. A restart may renew one that an
//! earlier process called expired; the expiry floors that the shards logged on that verdict still refuse its old
//! requests (R4.6).

use std::collections::BTreeMap;

use kasha_types::planted::{self, Bug};
use kasha_types::{ClientId, ClusterTime};

use crate::limits::{CLIENTS_MAX, CLIENTS_SWEPT_MAX};

/// What is known of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may be renewed; its lease ends (or ended) then.
    Alive(ClusterTime),
    /// It never will be renewed again, or was never granted.
    Expired,
}

/// All leases.
#[derive(Debug)]
pub(crate) struct ClientLeases {
    term_millis: u64,
    next: ClientId,
    /// Ids below were granted by earlier processes, as far as we know.
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

    /// The next id to grant: the caller reserves it first.
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

    /// How a client stands. Once expired, always expired: time and expiries only grow.
    pub(crate) fn standing(&self, now: ClusterTime, client: ClientId) -> Standing {
        let expiry = match self.expiries.get(&client) {
            Some(&expiry) => expiry,
            None if client == ClientId(0) || client >= self.inherited_below => return Standing::Expired,
            None => self.inherited_expiry,
        };
        if now > expiry.after_millis(self.term_millis) { Standing::Expired } else { Standing::Alive(expiry) }
    }

    /// Renews a lease; `None` when it has expired, or when there are too many to keep.
    pub(crate) fn renew(&mut self, now: ClusterTime, client: ClientId) -> Option<ClusterTime> {
        let Standing::Alive(before) = self.standing(now, client) else { return None };
        let expiry = now.after_millis(self.term_millis).max(before);
        if self.expiries.len() >= CLIENTS_MAX && !self.expiries.contains_key(&client) {
            return None;
        }
        self.expiries.insert(client, expiry);
        Some(expiry)
    }

    /// Forgets some expired clients, a slice at a time. Forgetting does not change how they stand: an inherited one was
    /// renewed after the restart, so its lease outlived the inherited one.
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
