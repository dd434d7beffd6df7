//! Sums over a whole round: no answered update is lost, and no update happened twice.
//!
//! The final value of a counter is at least the sum of the acknowledged increments, and at most that plus the unknown
//! ones. No two increments are told one sum (E1). An operation key ran once, whichever client used it and however often
//! (E2, R4.9).

use std::collections::{BTreeMap, BTreeSet};

use super::book::{Ended, Record};

/// The possible final values of a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Account {
    least: i64,
    most: i64,
    sums: BTreeSet<i64>,
    /// Operation keys: what each adds, and whether it surely has.
    once: BTreeMap<String, BTreeMap<i64, bool>>,
}

impl Account {
    fn enter(&mut self, record: &Record, problems: &mut Vec<String>) {
        let (asked, told) = (&record.asked, &record.told);
        let executed = record.outcome == Ended::Executed;
        if asked.op != "increment" || record.outcome == Ended::NotExecuted || told.got == "mismatch" {
            return;
        }
        if !asked.once.is_empty() {
            *self.once.entry(asked.once.clone()).or_default().entry(asked.delta).or_default() |= executed;
            return;
        }
        self.most += asked.delta;
        if executed {
            self.least += asked.delta;
            if !self.sums.insert(told.sum) {
                problems.push(format!("{}: two increments were told {}", asked.key, told.sum));
            }
        }
    }

    /// Adds the effects of operation keys.
    fn close(&mut self, key: &str, problems: &mut Vec<String>) {
        for (name, deltas) in &self.once {
            let done: Vec<_> = deltas.iter().filter(|(_, done)| **done).map(|(delta, _)| *delta).collect();
            match done[..] {
                [] => self.most += deltas.keys().max().copied().unwrap_or(0),
                [delta] => (self.least, self.most) = (self.least + delta, self.most + delta),
                _ => problems.push(format!("{key}: operation key {name} did several things: {done:?}")),
            }
        }
    }
}

/// Compares the counters with what clients were told. Returns how many were compared, and the problems.
#[must_use]
pub fn check(records: &[Record], found: &BTreeMap<String, i64>) -> (usize, Vec<String>) {
    let (mut accounts, mut problems) = (BTreeMap::<&str, Account>::new(), Vec::new());
    for record in records.iter().filter(|record| matches!(record.asked.model, "counter" | "redis-counter")) {
        accounts.entry(&record.asked.key).or_default().enter(record, &mut problems);
    }
    for (key, account) in &mut accounts {
        account.close(key, &mut problems);
        let (least, most) = (account.least, account.most);
        match found.get(*key) {
            None => problems.push(format!("{key} was not read in the end")),
            Some(found) if !(least..=most).contains(found) => {
                problems.push(format!("{key} is {found}, and was told to be from {least} to {most}"));
            }
            Some(_) => {}
        }
    }
    (accounts.len(), problems)
}

#[cfg(test)]
mod tests {
    use super::super::book::{Asked, Told};
    use super::*;

    fn increment(delta: i64, once: &str, outcome: Ended, sum: i64) -> Record {
        let (key, once) = ("c".to_owned(), once.to_owned());
        let asked = Asked { model: "counter", key, op: "increment", delta, once, ..Asked::default() };
        Record { asked, told_at: 0, outcome, told: Told { got: "done", sum, ..Told::default() } }
    }

    fn complaints(records: &[Record], found: i64) -> usize {
        check(records, &BTreeMap::from([("c".to_owned(), found)])).1.len()
    }

    #[test]
    fn counters_end_where_their_callers_were_told() {
        let mut records = vec![
            increment(1, "", Ended::Executed, 1),
            increment(1, "", Ended::Executed, 2),
            increment(1, "", Ended::NotExecuted, 0),
        ];
        assert_eq!((complaints(&records, 2), complaints(&records, 1), complaints(&records, 3)), (0, 1, 1));
        records.push(increment(1, "", Ended::Unknown, 0));
        assert_eq!([1, 2, 3, 4].map(|found| complaints(&records, found)), [1, 0, 0, 1]);
        records.push(increment(1, "", Ended::Executed, 2));
        assert_eq!(complaints(&records, 3), 1, "two were told 2");
        assert_eq!(check(&records, &BTreeMap::new()).1.len(), 2, "nothing was read");
    }

    #[test]
    fn an_operation_key_counts_once() {
        let mut records = vec![
            increment(2, "k", Ended::Executed, 2),
            increment(2, "k", Ended::Executed, 2),
            increment(3, "k", Ended::Unknown, 0),
            increment(5, "l", Ended::Unknown, 0),
        ];
        assert_eq!([1, 2, 7, 8].map(|found| complaints(&records, found)), [1, 0, 0, 1]);
        records.push(increment(3, "k", Ended::Executed, 5));
        assert_eq!(complaints(&records, 5), 1, "it did two things");
    }
}
