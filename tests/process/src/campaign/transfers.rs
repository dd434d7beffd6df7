//! Money that moves between two keys in one transaction, and a counter of the moves; on one shard, and over several.
//!
//! Whatever fails, the power of all machines too: the two keys sum up to nothing in every answer, nobody sees half of a move. And the counter is at least
//! the number of moves that were told and at most that plus the unknown ones.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kasha_client::{Client, Error, Results, Table, TransactionOutcome, Value, WhyPartFailed};
use kasha_machine::Rng;

use super::book::Book;

const GROUPS: usize = 4;

/// The moves of a round.
#[derive(Debug, Default)]
pub struct Transfers {
    /// The numbers that moves were told.
    told: [Mutex<BTreeSet<i64>>; GROUPS],
    unknown: [AtomicI64; GROUPS],
}

/// In every other group the keys are of whatever shards.
fn keys(group: usize) -> [String; 3] {
    let tagged = |name| format!("{{transfer:{group}}}:{name}");
    let untagged = |name| format!("transfer:{group}:{name}");
    ["from", "to", "moves"].map(|name| if group.is_multiple_of(2) { tagged(name) } else { untagged(name) })
}

/// The two balances, as one answer shows them.
fn sum(results: &Results) -> i64 {
    let numbers = results.outcomes().iter().take(2).map(|outcome| match outcome {
        kasha_wire::Outcome::Number(value, _) => *value,
        _ => 0,
    });
    numbers.sum()
}

impl Transfers {
    /// Moves something, or tries what must not succeed, or looks.
    pub async fn use_some(&self, client: &Client, table: &Table, rng: &mut Rng, book: &Book) {
        let group = usize::try_from(rng.below(GROUPS as u64)).expect("few");
        match rng.below(6) {
            0 => self.look(client, table, group, book).await,
            1 => self.fail(client, table, group, book).await,
            2 | 3 => self.read_and_move(client, table, (group, rng), book).await,
            _ => self.do_move(client, table, (group, rng), book).await,
        }
    }

    async fn do_move(&self, client: &Client, table: &Table, (group, rng): (usize, &mut Rng), book: &Book) {
        let ([from, to, moves], mut transaction) = (keys(group), client.transaction());
        let amount = i64::try_from(rng.between(1, 100)).expect("small");
        let _ = (transaction.increment(table, &from, -amount), transaction.increment(table, &to, amount));
        let number = transaction.increment(table, &moves, 1);
        let mut call = transaction.commit();
        if rng.chance(1, 4) {
            call = call.deadline(Duration::from_millis(rng.between(1, 60)));
        }
        match call.await {
            Ok(TransactionOutcome::Committed(results)) => {
                let is_new = self.told(group).insert(results.of(number).value);
                if sum(&results) != 0 {
                    book.note_half(format!("a move of group {group} left {results:?}"));
                } else if !is_new {
                    book.complain(format!(
                        "transfers: a move of group {group} is the second that was told {results:?}"
                    ));
                }
            }
            Err(Error::NotExecuted(_)) => {}
            Err(Error::Unknown { .. }) => drop(self.unknown[group].fetch_add(1, Ordering::Relaxed)),
            other => book.complain(format!("transfers: a move of group {group} came to {other:?}")),
        }
    }

    /// The same by hand: the balances are read, and written if nobody has changed them.
    async fn read_and_move(&self, client: &Client, table: &Table, (group, rng): (usize, &mut Rng), book: &Book) {
        let (all, amount) = (keys(group), i64::try_from(rng.between(1, 100)).expect("small"));
        let in_one_read = rng.chance(1, 2);
        let keys = &all;
        let moved = client.in_transaction(|transaction| async move {
            let values = if in_one_read {
                transaction.get_many(table, keys).await?
            } else {
                let [from, to, moves] = keys;
                let from = transaction.get(table, from).await?;
                vec![from, transaction.get(table, to).await?, transaction.get(table, moves).await?]
            };
            let [from, to, moves] = [0, 1, 2].map(|at| values[at].as_ref().map_or(0, |value| parsed(&value.bytes)));
            for (key, number) in keys.iter().zip([from - amount, to + amount, moves + 1]) {
                transaction.put(table, key, number.to_string());
            }
            Ok::<_, Error>((from + to, moves + 1))
        });
        match moved.await {
            Ok((sum, number)) => {
                let is_new = self.told(group).insert(number);
                if sum != 0 {
                    book.note_half(format!("group {group} was read with sum {sum} by move {number}"));
                } else if !is_new {
                    book.complain(format!("transfers: move {number} of group {group} was there before"));
                }
            }
            Err(Error::NotExecuted(_) | Error::Failed(_)) => {}
            Err(Error::Unknown { .. }) => drop(self.unknown[group].fetch_add(1, Ordering::Relaxed)),
            Err(other) => book.complain(format!("transfers: a move by hand of group {group} came to {other:?}")),
        }
    }

    /// A transaction whose last part fails must change nothing.
    async fn fail(&self, client: &Client, table: &Table, group: usize, book: &Book) {
        let ([from, _, moves], mut transaction) = (keys(group), client.transaction());
        let _ = (transaction.increment(table, &from, 1_000_000), transaction.increment(table, &moves, 1_000_000));
        transaction.check_version(table, &from, u64::MAX);
        match transaction.commit().await {
            Ok(TransactionOutcome::NotCommitted(failure)) if matches!(failure.why, WhyPartFailed::Check(Some(_))) => {}
            Err(Error::NotExecuted(_) | Error::Unknown { .. }) => {}
            other => book.complain(format!("transfers: what must fail in group {group} came to {other:?}")),
        }
    }

    /// By a transaction or by a read, in turn: no half of a move is there, and every move that was told before is.
    async fn look(&self, client: &Client, table: &Table, group: usize, book: &Book) {
        let (all, before) = (keys(group), self.told(group).last().copied().unwrap_or(0));
        let [from, to, moves] = if before % 2 == 0 {
            let mut transaction = client.transaction();
            let parts = all.each_ref().map(|key| transaction.get(table, key));
            match transaction.commit().await {
                Ok(TransactionOutcome::Committed(results)) => parts.map(|part| number(results.of(part).as_ref())),
                Err(Error::NotExecuted(_) | Error::Unknown { .. }) => return,
                other => return book.complain(format!("transfers: a look at group {group} came to {other:?}")),
            }
        } else {
            match table.multi_get(&all).await {
                Ok(values) => [0, 1, 2].map(|at| number(values[at].as_ref())),
                Err(Error::Failed(_)) => return,
                other => return book.complain(format!("transfers: a look at group {group} came to {other:?}")),
            }
        };
        if from + to != 0 {
            book.note_half(format!("group {group} is seen with {from} and {to}"));
        } else if moves < before {
            book.complain(format!("transfers: of group {group} is seen {from}, {to}, {moves}; told before: {before}"));
        }
    }

    fn told(&self, group: usize) -> MutexGuard<'_, BTreeSet<i64>> {
        self.told[group].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads everything in the end.
    ///
    /// # Errors
    /// If something cannot be read.
    pub async fn check(&self, table: &Table, book: &Book) -> Result<(), String> {
        for group in 0..GROUPS {
            let values = table.multi_get(&keys(group)).await.map_err(|error| format!("reading transfers: {error}"))?;
            let [from, to, moves] = [0, 1, 2].map(|at| number(values[at].as_ref()));
            let least = i64::try_from(self.told(group).len()).expect("few");
            let most = least + self.unknown[group].load(Ordering::Relaxed);
            if from + to != 0 {
                book.note_half(format!("group {group} holds {from} and {to} at the end"));
            } else if !(least..=most).contains(&moves) {
                book.complain(format!(
                    "transfers: group {group} holds {from} and {to} after {moves} moves, of {least} to {most}"
                ));
            }
        }
        Ok(())
    }
}

fn number(value: Option<&Value>) -> i64 {
    value.map_or(0, |value| parsed(&value.bytes))
}

fn parsed(bytes: &[u8]) -> i64 {
    String::from_utf8_lossy(bytes).parse().unwrap_or(i64::MAX / 4)
}
