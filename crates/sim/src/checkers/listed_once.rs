//! Listed once: a listing of a table's keys shows each key that had a value throughout exactly once, and no key twice.
//!
//! All clients of a run ask for the pages of one listing after the other (`workload::Listing`), and each page goes on where the one
//! before it ended. What was put before the first page was asked for, and is never deleted, must be among them.
//!
//! A value that a page shows is one that the key had in the page's time: an update of that key has put it, and no update that came
//! after that one was over before the page was asked for.

use std::collections::BTreeMap;

use kasha_wire::operation::{ScanCursor, Terms};
use kasha_wire::outcome::Outcome;
use kasha_wire::{Read, Update};

use crate::clock::SimTime;
use crate::history::{History, Key, Operation, Told};

/// What keys that are never deleted begin with.
const STAYING: &[u8] = b"ls";

/// A listing that is under way.
struct Listing {
    begun: SimTime,
    next: Option<ScanCursor>,
    times: BTreeMap<Key, u32>,
}

/// What an update made of a key.
struct Write<'h> {
    /// `None`: it was deleted.
    value: Option<&'h [u8]>,
    asked: SimTime,
    /// When somebody was told that it has happened, if anybody was.
    told: Option<SimTime>,
}

/// Where the listing goes on behind a page, and what the page shows.
type Page<'h> = (Option<ScanCursor>, Vec<(&'h [u8], Option<&'h [u8]>)>);

fn page_of(told: &Told) -> Option<Page<'_>> {
    let Told::Executed { outcome, .. } = told else { return None };
    match outcome {
        Outcome::Keys(page) => Some((page.next, page.keys.iter().map(|(_, key)| (&key[..], None)).collect())),
        Outcome::KeysAndValues(page) => {
            let shown = page.keys.iter().map(|(_, key, value)| (&key[..], Some(&value[..])));
            Some((page.next, shown.collect()))
        }
        _ => None,
    }
}

/// All updates of each key, as far as listings ask for them.
fn writes_of(history: &History) -> BTreeMap<&[u8], Vec<Write<'_>>> {
    let mut writes: BTreeMap<&[u8], Vec<Write<'_>>> = BTreeMap::new();
    for operation in history.operations() {
        let mut made = Vec::new();
        match operation.action.update() {
            Some(Update::Put { key, value, axes }) if axes.terms == Terms::NONE => made.push((key, Some(value))),
            Some(Update::MultiPut { pairs }) => made.extend(pairs.iter().map(|pair| (pair.key, Some(pair.value)))),
            Some(Update::Delete { key, terms: Terms::NONE }) => made.push((key, None)),
            _ => {}
        }
        let told = operation.told_at.filter(|_| matches!(operation.told, Told::Executed { .. }));
        for (key, value) in made {
            writes.entry(key).or_default().push(Write { value, asked: operation.asked, told });
        }
    }
    writes
}

/// What is wrong with a value on a page.
fn wrong_value(writes: &[Write<'_>], value: &[u8], page: &Operation) -> Option<&'static str> {
    let mut of_it = writes.iter().filter(|write| write.value == Some(value)).peekable();
    if of_it.peek().is_none() {
        return Some("a value that nobody put there");
    }
    let is_over = |write: &Write<'_>| {
        let follows = |other: &&Write<'_>| write.told.is_some_and(|told| told < other.asked);
        writes.iter().filter(follows).any(|other| other.told.is_some_and(|told| told < page.asked))
    };
    of_it.all(is_over).then_some("a value that was over")
}

/// Checks all listings of a history that came to their end. Returns their number, too. `is_complete`: the history has all pages that were
/// told; of one that forgets some, nothing follows from a page that is not the next one.
#[must_use]
pub fn check(history: &History, is_complete: bool) -> (Vec<String>, u64) {
    let writes = writes_of(history);
    let puts = |key: &[u8]| writes.get(key).into_iter().flatten().filter(|write| write.value.is_some());
    let put_at = |key: &[u8]| puts(key).filter_map(|write| write.told).min();
    let (mut open, mut violations, mut whole) = (None::<Listing>, Vec::new(), 0);
    for operation in history.operations() {
        let Some(Read::Scan { cursor, .. } | Read::ScanValues { cursor, .. }) = operation.action.read() else {
            continue;
        };
        let Some((next, shown)) = page_of(&operation.told) else {
            // Where it ended is not known, if anybody was told. A page that failed is asked for again.
            open = open.filter(|_| operation.told != Told::Unknown);
            continue;
        };
        for (key, value) in &shown {
            let of_key = writes.get(key).map_or(&[][..], |writes| writes);
            if let Some(what) = value.and_then(|value| wrong_value(of_key, value, operation)) {
                violations.push(format!(
                    "listed_once: {} is shown with {what} to client {} at {}",
                    String::from_utf8_lossy(key),
                    operation.client,
                    operation.asked
                ));
            }
        }
        if cursor == ScanCursor::START {
            open = Some(Listing { begun: operation.asked, next: Some(cursor), times: BTreeMap::new() });
        }
        let Some(listing) = &mut open else { continue };
        if listing.next != Some(cursor) {
            let at = (operation.asked, listing.begun);
            let text = format!("listed_once: the page of {} is not the next one of the listing of {}", at.0, at.1);
            violations.extend(is_complete.then_some(text));
            open = None;
            continue;
        }
        listing.next = next;
        shown.iter().for_each(|(key, _)| *listing.times.entry(key.to_vec()).or_default() += 1);
        if next.is_some() {
            continue;
        }
        whole += 1;
        let listing = open.take().expect("it has just ended");
        let staying = writes.keys().filter(|key| key.starts_with(STAYING));
        let staying = staying.filter(|key| put_at(key).is_some_and(|at| at < listing.begun));
        let missing = staying.filter(|key| !listing.times.contains_key(**key)).map(|key| (*key, "missing"));
        let twice = listing.times.iter().filter(|(_, times)| **times > 1).map(|(key, _)| (&key[..], "there twice"));
        let unknown = listing.times.keys().filter(|key| puts(key).next().is_none()).map(|key| (&key[..], "of nobody"));
        for (key, what) in missing.chain(twice).chain(unknown) {
            violations.push(format!(
                "listed_once: {} is {what} in the listing that began at {}",
                String::from_utf8_lossy(key),
                listing.begun
            ));
        }
    }
    (violations, whole)
}

#[cfg(test)]
mod tests {
    use kasha_wire::outcome::ScannedPage;

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
        check(&history, true).0
    }

    #[test]
    fn a_value_is_one_of_the_pages_time() {
        let found = |updates: &[(Action, u64, Option<u64>)], value: &[u8], asked: u64| {
            let mut history = History::default();
            for (action, asked, told) in updates {
                let id = history.ask(0, action.clone(), None, SimTime(*asked));
                if let Some(told) = told {
                    let done = Told::Executed { outcome: Outcome::Version(1), bytes: Vec::new() };
                    history.tell(id, done, SimTime(*told)).expect("told once");
                }
            }
            let read = Read::ScanValues { cursor: ScanCursor::START, most: 9, prefix: b"l" };
            let page = ScannedPage { next: None, in_shard: 1, keys: vec![(1, b"lc1".to_vec(), value.to_vec())] };
            let id = history.ask(1, read.into(), None, SimTime(asked));
            let told = Told::Executed { outcome: Outcome::KeysAndValues(page), bytes: Vec::new() };
            history.tell(id, told, SimTime(asked + 10)).expect("told once");
            check(&history, true).0.len()
        };
        let put = |value: &[u8], asked, told| (Action::put(b"lc1", value), asked, told);
        let delete = |asked, told| (Action::from(Update::delete(b"lc1")), asked, told);
        let two = |told| [put(b"a", 1, Some(2)), put(b"b", 3, told)];
        assert_eq!(found(&two(Some(4)), b"b", 5), 0);
        assert_eq!(found(&two(Some(4)), b"a", 5), 1, "it was over");
        assert_eq!(found(&two(Some(6)), b"a", 5), 0, "the other one was under way");
        assert_eq!(found(&two(None), b"a", 5), 0, "perhaps the other one has not happened");
        assert_eq!(found(&[put(b"a", 1, Some(4)), put(b"b", 3, Some(4))], b"a", 5), 0, "in either order");
        assert_eq!(found(&[put(b"a", 1, None), delete(3, Some(4))], b"a", 5), 0, "perhaps it came late");
        assert_eq!(found(&[put(b"a", 1, Some(2)), delete(3, Some(4))], b"a", 5), 1, "it was deleted");
        assert_eq!(found(&two(Some(4)), b"c", 5), 1, "of nobody");
    }

    #[test]
    fn what_stays_is_listed_once() {
        assert_eq!(found(&[(0, 7, &["ls1"]), (7, 0, &["ls2"])]), Vec::<String>::new());
        assert_eq!(found(&[(0, 7, &["ls1"]), (0, 7, &["ls1"]), (7, 0, &["ls2"])]), Vec::<String>::new(), "begun anew");
        assert_eq!(found(&[(0, 7, &["ls1"]), (7, 0, &["ls1", "ls2"])]).len(), 1);
        assert_eq!(found(&[(0, 7, &["ls1"]), (7, 0, &[])]).len(), 1);
        assert_eq!(found(&[(0, 0, &["ls1", "ls2", "lx"])]).len(), 1);
        assert_eq!(found(&[(0, 7, &["ls1"])]), Vec::<String>::new(), "it has not ended");
        assert_eq!(found(&[(0, 7, &["ls1"]), (9, 0, &["ls2"])]).len(), 1, "pages were left out");
    }
}
