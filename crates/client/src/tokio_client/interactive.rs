//! Interactive transactions for programs that wait: handles of one that a program shares, and the run of its body. What a transaction
//! sees, commits and makes of the outcome is in `session`.

use std::future::IntoFuture;
use std::ops::{ControlFlow, Deref, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kasha_types::Tick;
use kasha_wire::{DecodeError, Outcome};

use super::table::Boxed;
use super::transaction::bounds_of;
use super::values::value_of;
use super::{Answer, Client, Error, Rejection, Table, UpdateCall, Value, random};
use crate::session::{
    BodyEnd, Commit, CommitEnd, Found, Interactive as Seen, Next, NoCommit, ToCommit, Tries, WhyFailed, WhyNot,
};

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
    seen: Seen,
    /// A read had no answer: what the program makes of that is no statement about values.
    has_failed: bool,
    has_ended: bool,
    /// When reads give up.
    until: Option<Tick>,
}

/// A commit, which is made when it is awaited.
///
/// If its outcome is unknown, [`CommitCall::answer`] leads to what it was, and [`super::TransactionOutcome::of`] does so for a
/// [`super::Resolved`] one: a commit that was resolved may turn out not to have happened, because of what others had changed.
#[derive(Debug)]
#[must_use = "nothing is sent until it is awaited"]
pub struct CommitCall {
    /// `None`: there is nothing to check and nothing to write.
    call: Option<UpdateCall<Outcome>>,
    commit: ToCommit,
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
        let tries = Arc::new(Mutex::new(Tries::new(self.clock.now().after(self.deadline))));
        loop {
            let begun = self.begin();
            begun.lock().until = Some(lock(&tries).until());
            let result = body(begun.0.clone()).await;
            match begun.end(result, &tries).await {
                ControlFlow::Break(result) => return result,
                ControlFlow::Continue(pause) if pause.is_zero() => {}
                ControlFlow::Continue(pause) => tokio::time::sleep(pause).await,
            }
        }
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

fn found(value: Option<Value>) -> Found {
    value.map(|value| (value.version, value.bytes))
}

fn value(found: Found) -> Option<Value> {
    found.map(|(version, bytes)| Value { version, bytes })
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
        let left = {
            let state = self.under_way();
            if let Some(seen) = state.seen.seen(table.id(), key) {
                return Ok(value(seen));
            }
            self.left(&state)
        };
        let mut read = self.own(table).get(key);
        if let Some(left) = left {
            read = read.deadline(left);
        }
        let read = self.note_failure(read.await)?;
        let mut state = self.under_way();
        state.seen.on_read(table.id(), [(key, found(read))]);
        Ok(value(state.seen.seen(table.id(), key).flatten()))
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
        let (unknown, left): (Vec<&[u8]>, _) = {
            let state = self.under_way();
            let keys = keys.iter().map(AsRef::as_ref);
            (keys.filter(|key| state.seen.seen(table.id(), key).is_none()).collect(), self.left(&state))
        };
        if !unknown.is_empty() {
            let mut read = self.own(table).multi_get(&unknown);
            if let Some(left) = left {
                read = read.deadline(left);
            }
            let values = self.note_failure(read.await)?;
            if values.len() != unknown.len() {
                return Err(Error::Answer(DecodeError::Invalid("a value for each key")));
            }
            let mut state = self.under_way();
            state.seen.on_read(table.id(), unknown.into_iter().zip(values.into_iter().map(found)));
        }
        let state = self.under_way();
        Ok(keys.iter().map(|key| state.seen.seen(table.id(), key.as_ref()).flatten()).map(value).collect())
    }

    /// Sets the key, at the commit.
    ///
    /// # Panics
    /// If the transaction has ended.
    pub fn put(&self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.under_way().seen.put(table.id(), key.as_ref(), value.as_ref());
    }

    /// Sets the key, at the commit, to a value that ends after this time, which counts from the commit.
    ///
    /// # Panics
    /// If the transaction has ended.
    pub fn put_expiring(&self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, time: Duration) {
        self.under_way().seen.put_expiring(table.id(), key.as_ref(), value.as_ref(), time);
    }

    /// Adds to the decimal number in the key, at the commit; a missing key counts as 0, and a value that ends keeps its end. Returns
    /// the sum. The key counts as read: if somebody else changes the number before the commit, that is a conflict. To add to a number
    /// without looking at it, which meets nobody, use [`super::Transaction::increment`].
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
    /// [`super::Transaction::increment_within`], an increment that grows is held by the end of the range alone, one that falls by its beginning.
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
        self.under_way().seen.increment(table.id(), key, delta, bounds).map_err(Error::Failed)
    }

    /// Deletes the key, at the commit.
    ///
    /// # Panics
    /// If the transaction has ended.
    pub fn delete(&self, table: &Table, key: impl AsRef<[u8]>) {
        self.under_way().seen.delete(table.id(), key.as_ref());
    }

    /// The table in the cluster of this transaction.
    fn own(&self, table: &Table) -> Table {
        Table::new(self.client.clone(), table.id())
    }

    fn left(&self, state: &State) -> Option<Duration> {
        state.until.map(|until| until.since(self.client.clock.now()))
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
        lock(&self.state)
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
        let commit = state.seen.to_commit();
        let call = commit.operation.clone().map(|(table, operation)| {
            UpdateCall::new(Table::new(self.client.clone(), table), operation, Some as fn(Outcome) -> _)
        });
        CommitCall { call, commit }
    }

    /// Commits what a program's part has come to. `Continue`: it is to run again, after this pause.
    async fn end<T, E: From<Error>>(
        self,
        result: Result<T, E>,
        tries: &Arc<Mutex<Tries>>,
    ) -> ControlFlow<Result<T, E>, Duration> {
        let mut body = BodyEnd::Done;
        if result.is_err() {
            let mut state = self.lock();
            state.seen.forget_writes();
            body = BodyEnd::Failed { read_failed: state.has_failed };
        }
        let clock = self.client.clock;
        let CommitCall { mut call, commit } = self.commit();
        if let Some(call) = &mut call {
            call.options.tries = Some(Arc::clone(tries));
            call.options.deadline = Some(lock(tries).until().since(clock.now()));
        }
        let committed = CommitCall { call, commit: commit.clone() }.await;
        let ended = match &committed {
            Ok(Commit::Committed) => CommitEnd::Committed,
            Ok(Commit::Conflict(_)) | Err(Error::NotExecuted(WhyNot::Conflict)) => CommitEnd::Lost,
            Err(Error::Unknown { .. }) => CommitEnd::Unknown,
            Err(_) => CommitEnd::Failed,
        };
        let next = lock(tries).on_end((ended, &commit), body, clock.now(), random());
        match (next, committed) {
            (Next::Again(pause), _) => ControlFlow::Continue(pause),
            (Next::GiveUp, _) => ControlFlow::Break(Err(Error::NotExecuted(WhyNot::Conflict).into())),
            (Next::Fail, Err(error)) => ControlFlow::Break(Err(error.into())),
            (Next::Return | Next::Fail, _) => ControlFlow::Break(result),
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

fn commit_of(commit: &ToCommit, outcome: &Outcome) -> Result<Commit, Error> {
    commit.commit_of(outcome).map_err(|why| match why {
        NoCommit::TooLarge => Error::Rejected(Rejection::TooLarge),
        NoCommit::Invalid => Error::Answer(DecodeError::Invalid("the outcome of a commit")),
    })
}

impl CommitCall {
    /// As [`UpdateCall::answer`].
    ///
    /// # Errors
    /// Those of the commit, but for [`Error::Unknown`].
    pub async fn answer(self) -> Result<Answer<Commit>, Error> {
        let Self { call, commit } = self;
        let Some(call) = call else { return Ok(Answer::Known(Commit::Committed)) };
        let convert = call.convert;
        let result = call.await.and_then(|outcome| commit_of(&commit, &outcome));
        Answer::of(result, move |shape, result| commit_of(&commit, &value_of(shape, result, convert)?))
    }
}

impl IntoFuture for CommitCall {
    type Output = Result<Commit, Error>;
    type IntoFuture = Boxed<Commit>;

    fn into_future(self) -> Boxed<Commit> {
        Box::pin(async move {
            let Self { call, commit } = self;
            match call {
                Some(call) => commit_of(&commit, &call.await?),
                None => Ok(Commit::Committed),
            }
        })
    }
}
