//! Interactive transactions: a program reads, decides, writes, and then commits all of that at one moment (RIFL V-D).
//!
//! They are optimistic. Reads take no locks, and writes stay here until the commit, which is one exactly-once transaction:
//! every key that was read must still be what it was, and then the writes take effect together. If some key has changed, nothing
//! does, and [`Client::in_transaction`] runs the program's part again.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::ops::{ControlFlow, Deref, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kasha_types::TableId;
use kasha_wire::DecodeError;
use tokio::time::Instant;

use super::driver::Tries;
use super::table::Boxed;
use super::transaction::bounds_of;
use super::values::value_of;
use super::{
    Answer, Client, Error, Rejection, Table, Transaction, TransactionOutcome, UpdateCall, Value, WhyPartFailed, random,
};
use crate::limits::{BACKOFF, BACKOFF_MAX};
use crate::session::{WhyFailed, WhyNot};

type Key = (TableId, Vec<u8>);

/// A transaction under way, of whatever tables and shards. Clones are the same transaction.
///
/// It sees its own writes, and what it has read once it does not read again. What it reads of different keys may belong to
/// different moments: only a commit says that all of it was so at one moment. One transaction takes up to 1,024 steps: a check for
/// each key that was read, and one for each write.
///
/// ```no_run
/// use kasha_client::{Client, Error, Table};
///
/// /// Moves money, unless there is too little, and says how much is left.
/// async fn pay(client: &Client, wallets: &Table, orders: &Table, order: &str) -> Result<Option<i64>, Error> {
///     let paid = client.in_transaction(|transaction| async move {
///         // A program that crashed after the commit comes here again.
///         if let Some(left) = transaction.get(orders, order).await? {
///             return Ok(left.as_i64());
///         }
///         let Some(left) = transaction.increment_within(wallets, "alice", -30, 0..).await? else { return Ok(None) };
///         transaction.increment(wallets, "bob", 30).await?;
///         transaction.put(orders, order, left.to_string());
///         Ok(Some(left))
///     });
///     paid.await
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Interactive {
    client: Client,
    state: Arc<Mutex<State>>,
}

/// An interactive transaction that its owner may commit. If it is dropped, nothing of it happens.
#[derive(Debug)]
#[must_use = "nothing is written until it is committed"]
pub struct Begun(Interactive);

#[derive(Debug, Default)]
struct State {
    keys: BTreeMap<Key, Entry>,
    /// Reads that were answered. One alone needs no check: all its keys were read at one moment.
    reads: u32,
    /// A read had no answer: what the program makes of that is no statement about values.
    has_failed: bool,
    has_ended: bool,
    /// When reads give up.
    until: Option<Instant>,
}

/// What is known of a key.
#[derive(Clone, Debug, Default)]
struct Entry {
    read: Option<Option<Value>>,
    write: Option<Write>,
}

#[derive(Clone, Debug)]
enum Write {
    Put(Vec<u8>),
    /// A value that ends.
    Ending(Vec<u8>, Duration),
    /// What is added to the number that was read, and what that gives. The value keeps its end, which a put would not leave it.
    Add {
        total: i128,
        number: i64,
    },
    Delete,
}

/// What came of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commit {
    /// What was read was so at one moment, at which all writes took effect.
    Committed,
    /// Somebody has changed what was read, and nothing was written.
    Conflict(Conflict),
}

/// A key that has changed since it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The table of the key.
    pub table: TableId,
    /// The key that has changed.
    pub key: Vec<u8>,
    /// The version that was read, if the key had a value.
    pub read: Option<u64>,
    /// The version at the commit, if the key had a value.
    pub found: Option<u64>,
}

/// A commit, which is made when it is awaited.
///
/// If its outcome is unknown, [`CommitCall::answer`] leads to what it was, and [`TransactionOutcome::of`] does so for a
/// [`super::Resolved`] one: a commit that was resolved may turn out not to have happened, because of what others had changed.
#[derive(Debug)]
#[must_use = "nothing is sent until it is awaited"]
pub struct CommitCall {
    /// `None`: there is nothing to check and nothing to write.
    call: Option<UpdateCall<TransactionOutcome>>,
    /// What the first parts check.
    checks: Vec<(Key, u64)>,
    has_writes: bool,
}

impl Client {
    /// Begins an interactive transaction. Nothing is sent.
    pub fn begin(&self) -> Begun {
        Begun(Interactive { client: self.clone(), state: Arc::default() })
    }

    /// Runs `body` with a new transaction and commits it; again, after a pause, while others change what it reads. What the body
    /// does besides, it may do several times.
    ///
    /// If the body returns an error, nothing is written, and the error is returned once it is certain that all that the body had
    /// read was so at one moment; unless a read had no answer, and that check has none either.
    ///
    /// # Errors
    /// What the body returns, and what a commit may return. [`WhyNot::Conflict`] if the client's deadline has passed before a
    /// commit without a conflict. The deadline is for all reads and commits together.
    pub async fn in_transaction<T, E, Body>(&self, mut body: impl FnMut(Interactive) -> Body) -> Result<T, E>
    where
        E: From<Error>,
        Body: Future<Output = Result<T, E>>,
    {
        let (until, mut tries) = (Instant::now().checked_add(self.deadline), Tries::default());
        loop {
            let begun = self.begin();
            begun.lock().until = until;
            let result = body(begun.0.clone()).await;
            if let ControlFlow::Break(result) = begun.end(result, (until, &tries)).await {
                return result;
            }
            tries.lost += 1;
            // Somewhere in the pause, so that those who met do not meet again.
            let pause = pause_after(tries.lost).mul_f64((random() % 1024) as f64 / 1024.0);
            if until.is_some_and(|until| Instant::now() + pause >= until) {
                return Err(Error::NotExecuted(WhyNot::Conflict).into());
            }
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// The longest pause after so many tries that were lost. From the second on a shard says when it is this one's turn, and keeps that for a
/// moment (0047): so there is none, unless that does not help.
fn pause_after(lost: u32) -> Duration {
    const TURNS: std::ops::RangeInclusive<u32> = 2..=8;
    match lost {
        0 | 1 => BACKOFF,
        lost if TURNS.contains(&lost) => Duration::ZERO,
        lost => BACKOFF.saturating_mul(1 << (lost - TURNS.end()).min(16)).min(BACKOFF_MAX),
    }
}

fn left(until: Option<Instant>) -> Option<Duration> {
    until.map(|until| until.saturating_duration_since(Instant::now()))
}

impl Interactive {
    /// The key's value. One that this transaction has written itself has version 0: it gets its version at the commit.
    ///
    /// # Errors
    /// If the shard does not answer.
    ///
    /// # Panics
    /// If the transaction has ended.
    pub async fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        let key = key.as_ref();
        let until = {
            let state = self.under_way();
            if let Some(seen) = state.seen(table, key) {
                return Ok(seen);
            }
            state.until
        };
        let mut read = self.own(table).get(key);
        if let Some(left) = left(until) {
            read = read.deadline(left);
        }
        let read = self.note_failure(read.await)?;
        let mut state = self.under_way();
        state.reads += 1;
        state.entry(table, key).read.get_or_insert(read);
        Ok(state.seen(table, key).flatten())
    }

    /// The number in the key, if it has a value.
    ///
    /// # Errors
    /// As [`Self::get`]; [`WhyFailed::NotANumber`] if the value is no number.
    ///
    /// # Panics
    /// If the transaction has ended.
    pub async fn get_number(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<i64>, Error> {
        let value = self.get(table, key).await?;
        let number = |value: Value| value.as_i64().ok_or(Error::Failed(WhyFailed::NotANumber));
        value.map(number).transpose()
    }

    /// The values of several keys, as [`Self::get`] gives them. Those that this transaction had not read before are read at one moment.
    ///
    /// # Errors
    /// As [`Table::multi_get`].
    ///
    /// # Panics
    /// If the transaction has ended.
    pub async fn get_many<K: AsRef<[u8]>>(&self, table: &Table, keys: &[K]) -> Result<Vec<Option<Value>>, Error> {
        let (unknown, until): (Vec<&[u8]>, _) = {
            let state = self.under_way();
            let keys = keys.iter().map(AsRef::as_ref);
            (keys.filter(|key| state.seen(table, key).is_none()).collect(), state.until)
        };
        if !unknown.is_empty() {
            let mut read = self.own(table).multi_get(&unknown);
            if let Some(left) = left(until) {
                read = read.deadline(left);
            }
            let values = self.note_failure(read.await)?;
            if values.len() != unknown.len() {
                return Err(Error::Answer(DecodeError::Invalid("a value for each key")));
            }
            let mut state = self.under_way();
            state.reads += 1;
            for (key, value) in unknown.iter().zip(values) {
                state.entry(table, key).read.get_or_insert(value);
            }
        }
        let state = self.under_way();
        Ok(keys.iter().map(|key| state.seen(table, key.as_ref()).flatten()).collect())
    }

    /// Sets the key, at the commit.
    ///
    /// # Panics
    /// If the transaction has ended.
    pub fn put(&self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.under_way().entry(table, key.as_ref()).write = Some(Write::Put(value.as_ref().to_vec()));
    }

    /// Sets the key, at the commit, to a value that ends after this time, which counts from the commit.
    ///
    /// # Panics
    /// If the transaction has ended.
    pub fn put_expiring(&self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, time: Duration) {
        self.under_way().entry(table, key.as_ref()).write = Some(Write::Ending(value.as_ref().to_vec(), time));
    }

    /// Adds to the decimal number in the key, at the commit; a missing key counts as 0, and a value that ends keeps its end. Returns
    /// the sum. The key counts as read: if somebody else changes the number before the commit, that is a conflict. To add to a number
    /// without looking at it, which meets nobody, use [`Transaction::increment`].
    ///
    /// # Errors
    /// As [`Self::get_number`]; [`Rejection::Overflow`] if the sum does not fit 64 bits.
    ///
    /// # Panics
    /// If the transaction has ended.
    pub async fn increment(&self, table: &Table, key: impl AsRef<[u8]>, delta: i64) -> Result<i64, Error> {
        let sum = self.increment_within(table, key, delta, ..).await?;
        sum.ok_or(Error::Rejected(Rejection::Overflow(0)))
    }

    /// The same, if the sum is in this range; `None`: it would not be, and nothing is added. As for
    /// [`Transaction::increment_within`], an increment that grows is held by the end of the range alone, one that falls by its beginning.
    /// A sum that does not fit 64 bits is in no range.
    ///
    /// # Errors
    /// As [`Self::get_number`]; [`WhyNot::Bounds`] if nothing is in the range.
    ///
    /// # Panics
    /// If the transaction has ended.
    pub async fn increment_within(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        delta: i64,
        range: impl RangeBounds<i64>,
    ) -> Result<Option<i64>, Error> {
        let key = key.as_ref();
        let bounds = bounds_of(&range).ok_or(Error::NotExecuted(WhyNot::Bounds))?;
        self.get(table, key).await?;
        // Of now, not of before the read: a clone of this transaction may have written meanwhile.
        let mut state = self.under_way();
        let value = state.seen(table, key).flatten();
        let number = value.map_or(Some(0), |value| value.as_i64()).ok_or(Error::Failed(WhyFailed::NotANumber))?;
        let Some(sum) = bounds.add(number, delta) else { return Ok(None) };
        let entry = state.entry(table, key);
        entry.write = Some(match entry.write.take() {
            None => Write::Add { total: delta.into(), number: sum },
            Some(Write::Add { total, .. }) => Write::Add { total: total + i128::from(delta), number: sum },
            Some(Write::Put(_) | Write::Delete) => Write::Put(sum.to_string().into_bytes()),
            Some(Write::Ending(_, time)) => Write::Ending(sum.to_string().into_bytes(), time),
        });
        Ok(Some(sum))
    }

    /// Deletes the key, at the commit.
    ///
    /// # Panics
    /// If the transaction has ended.
    pub fn delete(&self, table: &Table, key: impl AsRef<[u8]>) {
        self.under_way().entry(table, key.as_ref()).write = Some(Write::Delete);
    }

    /// The table in the cluster of this transaction.
    fn own(&self, table: &Table) -> Table {
        Table::new(self.client.clone(), table.id())
    }

    fn note_failure<T>(&self, read: Result<T, Error>) -> Result<T, Error> {
        self.lock().has_failed |= read.is_err();
        read
    }

    fn under_way(&self) -> MutexGuard<'_, State> {
        let state = self.lock();
        assert!(!state.has_ended, "the transaction has ended; begin another");
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Begun {
    type Target = Interactive;

    fn deref(&self) -> &Interactive {
        &self.0
    }
}

impl Begun {
    /// Checks what was read and writes what was written, all at one moment.
    pub fn commit(self) -> CommitCall {
        let mut state = self.lock();
        state.has_ended = true;
        let (mut transaction, mut checks) = (self.client.transaction(), Vec::new());
        let table = |id| Table::new(self.client.clone(), id);
        for (key, entry) in &state.keys {
            if let Some(read) = &entry.read {
                let version = read.as_ref().map_or(0, |value| value.version);
                transaction.check_version(&table(key.0), &key.1, version);
                checks.push((key.clone(), version));
            }
        }
        let mut has_writes = false;
        for ((id, key), entry) in &state.keys {
            if let Some(write) = &entry.write {
                has_writes = true;
                write.join(&mut transaction, &table(*id), key);
            }
        }
        let is_needed = has_writes || state.reads > 1;
        CommitCall { call: is_needed.then(|| transaction.commit()), checks, has_writes }
    }

    /// Commits what a program's part has come to. `Continue`: it is to run again.
    async fn end<T, E: From<Error>>(
        self,
        result: Result<T, E>,
        (until, tries): (Option<Instant>, &Tries),
    ) -> ControlFlow<Result<T, E>> {
        let mut has_failed = false;
        if result.is_err() {
            let mut state = self.lock();
            state.keys.values_mut().for_each(|entry| entry.write = None);
            has_failed = state.has_failed;
        }
        let mut commit = self.commit();
        commit.call = commit.call.map(|mut call| {
            call.options.tries = Some(tries.clone());
            call
        });
        if let Some(left) = left(until) {
            commit = commit.deadline(left);
        }
        let has_writes = commit.has_writes;
        match (commit.await, result) {
            (Ok(Commit::Committed), result) => ControlFlow::Break(result),
            (Ok(Commit::Conflict(_)) | Err(Error::NotExecuted(WhyNot::Conflict)), _) => ControlFlow::Continue(()),
            // Nothing can have been written: to look again does no harm.
            (Err(Error::Unknown { .. }), _) if !has_writes => ControlFlow::Continue(()),
            // Most likely the body says the same.
            (Err(_), result @ Err(_)) if has_failed => ControlFlow::Break(result),
            (Err(error), _) => ControlFlow::Break(Err(error.into())),
        }
    }
}

impl State {
    fn entry(&mut self, table: &Table, key: &[u8]) -> &mut Entry {
        self.keys.entry((table.id(), key.to_vec())).or_default()
    }

    /// What the transaction sees in a key that it has read or written.
    fn seen(&self, table: &Table, key: &[u8]) -> Option<Option<Value>> {
        let entry = self.keys.get(&(table.id(), key.to_vec()))?;
        let own = |bytes| Some(Some(Value { version: 0, bytes }));
        match &entry.write {
            Some(Write::Put(value) | Write::Ending(value, _)) => own(value.clone()),
            Some(Write::Add { number, .. }) => own(number.to_string().into_bytes()),
            Some(Write::Delete) => Some(None),
            None => entry.read.clone(),
        }
    }
}

impl Write {
    fn join(&self, transaction: &mut Transaction, table: &Table, key: &[u8]) {
        match self {
            Self::Put(value) => _ = transaction.put(table, key, value),
            Self::Ending(value, time) => _ = transaction.put_expiring(table, key, value, *time),
            Self::Add { total, .. } => {
                // The sum of what was added may not fit 64 bits, although each number on the way does: then it takes several parts, all
                // of one sign, so that what lies between is between numbers that fit.
                let mut left = *total;
                loop {
                    let part = left.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
                    transaction.increment(table, key, part);
                    left -= i128::from(part);
                    if left == 0 {
                        break;
                    }
                }
            }
            Self::Delete => _ = transaction.delete(table, key),
        }
    }
}

impl CommitCall {
    /// How long to wait before the caller is told that the outcome is unknown.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.call = self.call.map(|call| call.deadline(deadline));
        self
    }

    /// Cancels the commit at the deadline instead of leaving its outcome unknown, if a shard answers within a second.
    pub fn cancel_on_deadline(mut self) -> Self {
        self.call = self.call.map(UpdateCall::cancel_on_deadline);
        self
    }
}

/// What the outcome of a commit means, whose first parts made these checks.
fn commit_of(outcome: TransactionOutcome, checks: &[(Key, u64)]) -> Result<Commit, Error> {
    let failure = match outcome {
        TransactionOutcome::Committed(_) => return Ok(Commit::Committed),
        TransactionOutcome::NotCommitted(failure) => failure,
    };
    match (failure.why, checks.get(failure.part)) {
        (WhyPartFailed::Check(found), Some(((table, key), version))) => {
            let (table, key) = (*table, key.clone());
            Ok(Commit::Conflict(Conflict { table, key, read: (*version != 0).then_some(*version), found }))
        }
        (WhyPartFailed::TooLarge, _) => Err(Error::Rejected(Rejection::TooLarge)),
        _ => Err(Error::Answer(DecodeError::Invalid("the outcome of a commit"))),
    }
}

impl CommitCall {
    /// As [`UpdateCall::answer`].
    ///
    /// # Errors
    /// Those of the commit, but for [`Error::Unknown`].
    pub async fn answer(self) -> Result<Answer<Commit>, Error> {
        let Self { call, checks, .. } = self;
        let Some(call) = call else { return Ok(Answer::Known(Commit::Committed)) };
        let convert = call.convert;
        let result = call.await.and_then(|outcome| commit_of(outcome, &checks));
        Answer::of(result, move |shape, result| commit_of(value_of(shape, result, convert)?, &checks))
    }
}

impl IntoFuture for CommitCall {
    type Output = Result<Commit, Error>;
    type IntoFuture = Boxed<Commit>;

    fn into_future(self) -> Boxed<Commit> {
        Box::pin(async move {
            let Self { call, checks, .. } = self;
            match call {
                Some(call) => commit_of(call.await?, &checks),
                None => Ok(Commit::Committed),
            }
        })
    }
}
