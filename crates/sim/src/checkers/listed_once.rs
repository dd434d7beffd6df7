//! Listed once: a listing of a table's keys shows each key that had a value throughout exactly once, and no key twice.
//!
//! Pages of one client follow one another by their cursors. What was put before the first page was asked for, and is never
//! deleted, must be among them (`workload::Listing`).

use std::collections::{BTreeMap, BTreeSet};

use kasha_wire::operation::ScanCursor;
use kasha_wire::outcome::{Outcome, ScannedPage};
use kasha_wire::{Read, Update};

use crate::clock::SimTime;
use crate::history::{History, Key, Told};

/// What keys that are never deleted begin with.
const STAYING: &[u8] = b"ls";

/// A listing that is under way.
struct Listing {
    begun: SimTime,
    next: Option<ScanCursor>,
    times: BTreeMap<Key, u32>,
}

/// Checks all listings of a history that came to their end. Returns their number, too.
#[must_use]
pub fn check(history: &History) -> (Vec<String>, u64) {
    let mut put: BTreeMap<&[u8], SimTime> = BTreeMap::new();
    let mut asked: BTreeSet<&[u8]> = BTreeSet::new();
    for operation in history.operations() {
        let mut keys = Vec::new();
        match operation.action.update() {
            Some(Update::Put { key, .. } | Update::PutExpiring { key, .. }) => keys.push(key),
            Some(Update::MultiPut { pairs }) => keys.extend(pairs.iter().map(|pair| pair.key)),
            _ => {}
        }
        asked.extend(&keys);
        if let (Told::Executed { .. }, Some(at)) = (&operation.told, operation.told_at) {
            for key in keys {
                let first = put.entry(key).or_insert(at);
                *first = at.min(*first);
            }
        }
    }
    let (mut open, mut violations, mut whole) = (BTreeMap::new(), Vec::new(), 0);
    for operation in history.operations() {
        let Some(Read::Scan { cursor, .. }) = operation.action.read() else { continue };
        let Told::Executed { outcome: Outcome::Keys(ScannedPage { next, keys, .. }), .. } = &operation.told else {
            continue;
        };
        if cursor == ScanCursor::START {
            open.insert(
                operation.client,
                Listing { begun: operation.asked, next: Some(cursor), times: BTreeMap::new() },
            );
        }
        let Some(listing) = open.get_mut(&operation.client).filter(|listing| listing.next == Some(cursor)) else {
            continue;
        };
        listing.next = *next;
        keys.iter().for_each(|(_, key)| *listing.times.entry(key.clone()).or_default() += 1);
        if next.is_some() {
            continue;
        }
        whole += 1;
        let listing = open.remove(&operation.client).expect("it has just ended");
        let staying = put.iter().filter(|(key, at)| key.starts_with(STAYING) && **at < listing.begun);
        let missing = staying.filter(|(key, _)| !listing.times.contains_key(**key)).map(|(key, _)| (*key, "missing"));
        let twice = listing.times.iter().filter(|(_, times)| **times > 1).map(|(key, _)| (&key[..], "there twice"));
        let unknown = listing.times.keys().filter(|key| !asked.contains(&key[..])).map(|key| (&key[..], "of nobody"));
        for (key, what) in missing.chain(twice).chain(unknown) {
            violations.push(format!(
                "listed_once: {} is {what} in the listing of client {} that began at {}",
                String::from_utf8_lossy(key),
                operation.client,
                listing.begun
            ));
        }
    }
    (violations, whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Action;

    fn page(next: u64, keys: &[&str]) -> Told {
        let next = ScanCursor::from_number(next).filter(|next| *next != ScanCursor::START);
        let keys = keys.iter().map(|key| (1, key.as_bytes().to_vec())).collect();
        Told::Executed { outcome: Outcome::Keys(ScannedPage { next, in_shard: 0, keys }), bytes: Vec::new() }
    }

    fn found(pages: &[(u64, u64, &[&str])]) -> Vec<String> {
        let mut history = History::default();
        let mut now = 0;
        let mut ask = |action: Action, told: Told| {
            now += 2;
            let id = history.ask(0, action, None, SimTime(now));
            history.tell(id, told, SimTime(now + 1)).expect("told once");
        };
        for key in [b"ls1", b"ls2"] {
            ask(Action::put(key, b"v"), Told::Executed { outcome: Outcome::Version(1), bytes: Vec::new() });
        }
        for &(cursor, next, keys) in pages {
            let cursor = ScanCursor::from_number(cursor).expect("a slot");
            ask(Read::Scan { cursor, most: 9, prefix: b"l" }.into(), page(next, keys));
        }
        check(&history).0
    }

    #[test]
    fn what_stays_is_listed_once() {
        assert_eq!(found(&[(0, 7, &["ls1"]), (7, 0, &["ls2"])]), Vec::<String>::new());
        assert_eq!(found(&[(0, 7, &["ls1"]), (0, 7, &["ls1"]), (7, 0, &["ls2"])]), Vec::<String>::new(), "begun anew");
        assert_eq!(found(&[(0, 7, &["ls1"]), (7, 0, &["ls1", "ls2"])]).len(), 1);
        assert_eq!(found(&[(0, 7, &["ls1"]), (7, 0, &[])]).len(), 1);
        assert_eq!(found(&[(0, 0, &["ls1", "ls2", "lx"])]).len(), 1);
        assert_eq!(found(&[(0, 7, &["ls1"])]), Vec::<String>::new(), "it has not ended");
    }
}
