//! Counters with bounds, values that end, and listings, with checks of their own.
//!
//! - A purse is never outside its bounds, an answer that rejects shows the bound, and in the end the purse holds what was told.
//! - A value that ends is not gone long before its time, and what was found gone stays gone.
//! - A listing shows every key that was put before it began, once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kasha_client::{Bounded, Error, Table};
use kasha_machine::Rng;

use super::book::Book;

const PURSES: usize = 4;
const PURSE_MAX: i64 = 5;
/// A coordinator that was restarted may end a value a second early, and so may a client that heard its clock before (docs/guarantees.md).
const EARLY_MAX: Duration = Duration::from_secs(3);
/// Values that end are looked at again for so long.
const LIVES_MAX: usize = 200;

/// What is known of these keys in a round.
#[derive(Debug, Default)]
pub struct Lives {
    /// Of each purse: what was put in less what was taken out, by what was told, and how many calls have no known outcome.
    purses: [(AtomicI64, AtomicI64); PURSES],
    lives: Mutex<BTreeMap<String, Life>>,
    numbers: AtomicU64,
    stays: Mutex<Vec<String>>,
}

/// A value that ends.
#[derive(Clone, Copy, Debug)]
struct Life {
    asked: Instant,
    lasts: Duration,
    was_told: bool,
    was_gone: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lives {
    /// Uses one of these keys.
    pub async fn use_some(&self, table: &Table, rng: &mut Rng, book: &Book) {
        match rng.below(8) {
            0..3 => self.use_purse(table, rng, book).await,
            3 => self.begin_life(table, rng, book).await,
            4 | 5 => self.look_at_life(table, rng, book).await,
            6 => self.stay(table, rng, book).await,
            _ => self.list(table, rng, book).await,
        }
    }

    async fn use_purse(&self, table: &Table, rng: &mut Rng, book: &Book) {
        let (purse, by) = (usize::try_from(rng.below(PURSES as u64)).expect("few"), *rng.pick(&[1, -1]));
        let mut call = table.increment(format!("purse:{purse}"), by).at_least(0).at_most(PURSE_MAX);
        if rng.chance(1, 4) {
            call = call.deadline(Duration::from_millis(rng.between(1, 60)));
        }
        let bound = if by > 0 { PURSE_MAX } else { 0 };
        let (sum, unknown) = &self.purses[purse];
        match call.await {
            Ok(Bounded::Done(counter)) if (0..=PURSE_MAX).contains(&counter.value) => {
                sum.fetch_add(by, Ordering::Relaxed);
            }
            Ok(Bounded::Rejected { value, .. }) if value == bound => {}
            Err(Error::NotExecuted(_)) => {}
            Err(Error::Unknown { .. }) => drop(unknown.fetch_add(1, Ordering::Relaxed)),
            other => book.complain(format!("lives: purse {purse} and {by} came to {other:?}")),
        }
    }

    async fn begin_life(&self, table: &Table, rng: &mut Rng, book: &Book) {
        let key = format!("life:{}", self.numbers.fetch_add(1, Ordering::Relaxed));
        let lasts = Duration::from_millis(*rng.pick(&[20, 300, 1000, 4000, 10_000]));
        let asked = Instant::now();
        let told = table.put(&key, "lives").expires_in(lasts).await;
        match told {
            Ok(_) | Err(Error::Unknown { .. }) => {
                let life = Life { asked, lasts, was_told: told.is_ok(), was_gone: false };
                let mut lives = lock(&self.lives);
                lives.insert(key, life);
                if lives.len() > LIVES_MAX {
                    lives.pop_first();
                }
            }
            Err(Error::NotExecuted(_)) => {}
            Err(other) => book.complain(format!("lives: {key} came to {other:?}")),
        }
    }

    async fn look_at_life(&self, table: &Table, rng: &mut Rng, book: &Book) {
        let Some((key, before)) = ({
            let lives = lock(&self.lives);
            let which = rng.below(lives.len().max(1) as u64);
            lives.iter().nth(usize::try_from(which).expect("few")).map(|(key, life)| (key.clone(), *life))
        }) else {
            return;
        };
        let there = match table.exists(&key).await {
            Ok(there) => there,
            Err(Error::Failed(_)) => return,
            Err(other) => return book.complain(format!("lives: {key} is read as {other:?}")),
        };
        let age = before.asked.elapsed();
        if before.was_told && there && before.was_gone {
            book.complain(format!("lives: {key} was gone, and is there again"));
        }
        if before.was_told && !there && age + EARLY_MAX < before.lasts {
            book.complain(format!("lives: {key} was to live for {:?}, and is gone after {age:?}", before.lasts));
        }
        if !there && let Some(life) = lock(&self.lives).get_mut(&key) {
            life.was_gone = true;
        }
    }

    /// Keys that stay, several of them together, in whatever shards.
    async fn stay(&self, table: &Table, rng: &mut Rng, book: &Book) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let keys: Vec<_> = (0..rng.between(1, 4)).map(|part| format!("stay:{number}:{part}")).collect();
        let pairs: Vec<_> = keys.iter().map(|key| (key, "stays")).collect();
        match table.multi_put(&pairs).await {
            Ok(_) => lock(&self.stays).extend(keys),
            Err(Error::NotExecuted(_) | Error::Unknown { .. }) => {}
            Err(other) => book.complain(format!("lives: {keys:?} came to {other:?}")),
        }
    }

    async fn list(&self, table: &Table, rng: &mut Rng, book: &Book) {
        let before = lock(&self.stays).clone();
        let mut listing = table.scan().prefix("stay:").page(u32::try_from(rng.between(1, 200)).expect("small"));
        let mut times: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        loop {
            match listing.next_key().await {
                Ok(Some(found)) => *times.entry(found.key).or_default() += 1,
                Ok(None) => break,
                Err(Error::Failed(_)) => return,
                Err(other) => return book.complain(format!("lives: a listing came to {other:?}")),
            }
        }
        let wrong = |key: &&String| times.get(key.as_bytes()) != Some(&1);
        if let Some(key) = before.iter().find(wrong) {
            book.complain(format!("lives: {key} is {:?} times in a listing", times.get(key.as_bytes()).unwrap_or(&0)));
        }
        if let Some((key, times)) = times.iter().find(|(_, times)| **times > 1) {
            book.complain(format!("lives: {} is {times} times in a listing", key.escape_ascii()));
        }
    }

    /// Reads everything in the end.
    ///
    /// # Errors
    /// If something cannot be read.
    pub async fn check(&self, table: &Table, book: &Book) -> Result<(), String> {
        for (purse, (sum, unknown)) in self.purses.iter().enumerate() {
            let found =
                table.get_number(format!("purse:{purse}")).await.map_err(|error| format!("a purse: {error}"))?;
            let found = found.map_or(0, |counter| counter.value);
            let (sum, unknown) = (sum.load(Ordering::Relaxed), unknown.load(Ordering::Relaxed));
            if !(0..=PURSE_MAX).contains(&found) || (found - sum).abs() > unknown {
                book.complain(format!("lives: purse {purse} holds {found}; told {sum}, and {unknown} unknown"));
            }
        }
        self.list(table, &mut Rng::new(1), book).await;
        Ok(())
    }
}
