//! Typed operations on one table, as futures: a call is made when its future is awaited.
//!
//! A method encodes its arguments, and turns the result bytes into a value. What an operation does is in `kasha_store`.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use kasha_types::TableId;
use kasha_types::limits::KEY_BYTES_MAX;
use kasha_wire::operation::{Bounds, Condition, ItemsBuffer, OwnedOperation, Terms};
use kasha_wire::{DecodeError, Outcome, Read, Update};

use super::driver::{Ask, Options};
use super::values::{
    Convert, appended_of, bounded_of, conditional, counter_of, deleted_of, exchanged_of, exists_of, found, replaced_of,
    taken_of, value_of, version_of,
};
use super::{Answer, Client, Error};
use crate::session::{Completion, TimeToLive, WhyFailed, WhyNot, number_in};

/// A table of a cluster.
///
/// ```no_run
/// # async fn example(client: kasha_client::Client) -> Result<(), kasha_client::Error> {
/// use kasha_client::{Bounded, Conditional};
///
/// let table = client.create_table("accounts").await?;
/// let version = table.put("alice", "100").await?;
/// let value = table.get("alice").await?.expect("it was just put");
/// assert_eq!((value.version, value.as_i64()), (version, Some(100)));
///
/// // Once, whoever sends it again and how often, and never below 0.
/// match table.increment("alice", -30).at_least(0).once("order-42").await? {
///     Bounded::Done(left) => println!("{} left", left.value),
///     Bounded::Rejected { value, .. } => println!("only {value} there"),
/// }
/// if let Conditional::Failed(found) = table.put_if_version("alice", version, "0").await? {
///     println!("somebody was faster: version {found:?}");
/// }
///
/// let mut accounts = table.scan().prefix("a").values();
/// while let Some(account) = accounts.next_key().await? {
///     println!("{}: {:?}", String::from_utf8_lossy(&account.key), account.value.as_str());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Table {
    client: Client,
    id: TableId,
}

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The key's version; it grows with each change of the key. 0 if a transaction under way has written the value itself
    /// ([`super::Interactive::get`]).
    pub version: u64,
    /// The value's bytes.
    pub bytes: Vec<u8>,
}

impl Value {
    /// The value as text, if it is UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// The value as a number, if it is one that [`Table::increment`] would add to: decimal, of 64 bits, without leading zeros.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        number_in(&self.bytes)
    }
}

/// The result of an increment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The number after the increment.
    pub value: i64,
    /// The key's new version.
    pub version: u64,
}

/// The result of an increment with bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounded {
    /// The number after the increment, and the key's new version.
    Done(Counter),
    /// The sum would be outside the bounds, and nothing changed. That is the outcome under an operation key, too, however the number
    /// changes later.
    Rejected {
        /// The number as it is; 0 if the key has no value.
        value: i64,
        /// The key's version, if the key has a value.
        version: Option<u64>,
    },
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Bytes of the value after the append.
    pub length: u64,
    /// The key's new version.
    pub version: u64,
}

/// The result of an update that replaced a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The new value's version.
    pub version: u64,
    /// The old value, if there was one.
    pub old: Option<Value>,
}

/// The result of an update that replaces a value if a condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exchanged {
    /// The condition held: the new version, and the old value.
    Done(Replaced),
    /// The condition did not hold, and nothing changed. What the key has, if it has a value.
    Failed(Option<Value>),
}

/// The result of an update with a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditional {
    /// The condition held. The new version, or the version that was deleted.
    Done(u64),
    /// The condition did not hold, and nothing changed. The key's present version, if the key has a value.
    Failed(Option<u64>),
}

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// An update that is made when it is awaited.
///
/// **A dropped future goes on.** Whoever drops the future (`tokio::time::timeout`, `select!`, a task that is aborted) stops
/// waiting, and the update may still take effect: nearly all do. To stop waiting, use [`UpdateCall::deadline`]; to have the update
/// taken back if that is still possible, [`UpdateCall::cancel_on_deadline`] too; to learn the outcome later, keep the
/// [`Error::Unknown`] that a deadline returns, and resolve it.
#[must_use = "nothing is sent until it is awaited"]
#[derive(Debug)]
pub struct UpdateCall<T> {
    pub(super) table: Table,
    pub(super) operation: Result<OwnedOperation, WhyNot>,
    pub(super) options: Options,
    pub(super) convert: Convert<T>,
}

/// A read that is made when it is awaited.
#[must_use = "nothing is sent until it is awaited"]
#[derive(Debug)]
pub struct ReadCall<T> {
    table: Table,
    operation: Result<OwnedOperation, WhyNot>,
    deadline: Option<Duration>,
    convert: ConvertRead<T>,
}

/// How a read's outcome becomes its value.
#[derive(Debug)]
enum ConvertRead<T> {
    Of(Convert<T>),
    /// Of the time that is left until a value ends.
    Left(fn(Option<TimeToLive>) -> T),
    /// If the value is what the caller says.
    If(fn(Outcome) -> Result<T, Error>),
}

impl Table {
    pub(super) fn new(client: Client, id: TableId) -> Self {
        Self { client, id }
    }

    /// The table's number in the cluster.
    #[must_use]
    pub fn id(&self) -> TableId {
        self.id
    }

    pub(super) fn update<T>(&self, update: &Update<'_>, convert: Convert<T>) -> UpdateCall<T> {
        let operation = update.to_owned_within_limits().map_err(WhyNot::from);
        UpdateCall::new(self.clone(), operation, convert)
    }

    pub(super) fn read<T>(&self, read: &Read<'_>, convert: Convert<T>) -> ReadCall<T> {
        let operation = read.to_owned_within_limits().map_err(WhyNot::from);
        ReadCall { table: self.clone(), operation, deadline: None, convert: ConvertRead::Of(convert) }
    }

    /// A read of how long a value has to live.
    pub(super) fn read_left(&self, read: &Read<'_>) -> ReadCall<Option<TimeToLive>> {
        let operation = read.to_owned_within_limits().map_err(WhyNot::from);
        ReadCall { table: self.clone(), operation, deadline: None, convert: ConvertRead::Left(|left| left) }
    }

    /// The key's value.
    pub fn get(&self, key: impl AsRef<[u8]>) -> ReadCall<Option<Value>> {
        self.read(&Read::Get { key: key.as_ref() }, found)
    }

    /// The number in the key, as [`Table::increment`] leaves it; [`WhyFailed::NotANumber`] if there is something else.
    pub fn get_number(&self, key: impl AsRef<[u8]>) -> ReadCall<Option<Counter>> {
        let operation = Read::Get { key: key.as_ref() }.to_owned_within_limits().map_err(WhyNot::from);
        ReadCall { table: self.clone(), operation, deadline: None, convert: ConvertRead::If(number_of) }
    }

    /// Whether the key has a value.
    pub fn exists(&self, key: impl AsRef<[u8]>) -> ReadCall<bool> {
        self.read(&Read::Exists { key: key.as_ref() }, exists_of)
    }

    /// The values of several keys, at one moment. Keys of several shards are read twice, until nothing has changed between:
    /// keys that change all the time may not be readable together.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> ReadCall<Vec<Option<Value>>> {
        let items = checked(keys, K::as_ref, |keys| ItemsBuffer::keys(keys.iter().map(AsRef::as_ref)));
        let convert: Convert<_> = |outcome| match outcome {
            Outcome::Values(values) => {
                let value = |found: Option<_>| found.map(|(version, bytes)| Value { version, bytes });
                Some(values.into_iter().map(value).collect())
            }
            _ => None,
        };
        match items {
            Ok(items) => self.read(&Read::MultiGet { keys: items.as_items() }, convert),
            Err(why) => {
                let convert = ConvertRead::Of(convert);
                ReadCall { table: self.clone(), operation: Err(why), deadline: None, convert }
            }
        }
    }

    /// Sets the key. Returns its new version.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> UpdateCall<u64> {
        self.update(&Update::put(key.as_ref(), value.as_ref()), version_of)
    }

    /// Sets the key if it has this version.
    pub fn put_if_version(
        &self,
        key: impl AsRef<[u8]>,
        version: u64,
        value: impl AsRef<[u8]>,
    ) -> UpdateCall<Conditional> {
        self.update(&Update::put_if(key.as_ref(), Condition::Version(version), value.as_ref()), conditional)
    }

    /// Sets the key if it has no value.
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> UpdateCall<Conditional> {
        self.update(&Update::put_if(key.as_ref(), Condition::ABSENT, value.as_ref()), conditional)
    }

    /// Deletes the key. Returns the version that was deleted.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> UpdateCall<Option<u64>> {
        self.update(&Update::delete(key.as_ref()), deleted_of)
    }

    /// Deletes the key if it has this version.
    pub fn delete_if_version(&self, key: impl AsRef<[u8]>, version: u64) -> UpdateCall<Conditional> {
        self.update(&Update::delete_if(key.as_ref(), Condition::Version(version)), conditional)
    }

    /// Sets the key. Returns the old value, whatever its size. With [`UpdateCall::only_if`] and `expires_in` that is Redis' `SET` with
    /// `NX`, `GET` and `PX` at once.
    pub fn get_and_put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> UpdateCall<Replaced> {
        self.update(&Update::get_and_put(key.as_ref(), value.as_ref()), replaced_of)
    }

    /// Deletes the key. Returns the value that was deleted, whatever its size.
    pub fn get_and_delete(&self, key: impl AsRef<[u8]>) -> UpdateCall<Option<Value>> {
        self.update(&Update::get_and_delete(key.as_ref()), taken_of)
    }

    /// Sets the key if it has exactly the expected value.
    pub fn compare_and_put(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> UpdateCall<Conditional> {
        let (key, expected, value) = (key.as_ref(), expected.as_ref(), value.as_ref());
        self.update(&Update::put_if(key, Condition::Value(expected), value), conditional)
    }

    /// Adds to the decimal number in the key; a missing key counts as 0. [`UpdateCall::at_most`] and [`UpdateCall::at_least`] say where
    /// it must not lead.
    pub fn increment(&self, key: impl AsRef<[u8]>, delta: i64) -> UpdateCall<Counter> {
        self.update(&Update::increment(key.as_ref(), delta), counter_of)
    }

    /// Appends to the key's value; a missing key counts as empty.
    pub fn append(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> UpdateCall<Appended> {
        self.update(&Update::append(key.as_ref(), value.as_ref()), appended_of)
    }

    /// Sets several keys together, of whatever shards. Returns their versions.
    pub fn multi_put<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, pairs: &[(K, V)]) -> UpdateCall<Vec<u64>> {
        let items = checked(
            pairs,
            |(key, _)| key.as_ref(),
            |pairs| ItemsBuffer::pairs(pairs.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))),
        );
        self.multi(
            items,
            |items| Update::MultiPut { pairs: items.as_items() },
            |outcome| match outcome {
                Outcome::Versions(versions) => Some(versions),
                _ => None,
            },
        )
    }

    /// Deletes several keys together, of whatever shards. Returns for each whether it had a value.
    pub fn multi_delete<K: AsRef<[u8]>>(&self, keys: &[K]) -> UpdateCall<Vec<bool>> {
        let items = checked(keys, K::as_ref, |keys| ItemsBuffer::keys(keys.iter().map(AsRef::as_ref)));
        self.multi(
            items,
            |items| Update::MultiDelete { keys: items.as_items() },
            |outcome| match outcome {
                Outcome::Flags(flags) => Some(flags),
                _ => None,
            },
        )
    }

    /// Adds to several keys together, of whatever shards. If one sum does not fit, none is changed.
    pub fn multi_increment<K: AsRef<[u8]>>(&self, deltas: &[(K, i64)]) -> UpdateCall<Vec<Counter>> {
        let items = checked(
            deltas,
            |(key, _)| key.as_ref(),
            |deltas| ItemsBuffer::deltas(deltas.iter().map(|(key, delta)| (key.as_ref(), *delta))),
        );
        self.multi(
            items,
            |items| Update::MultiIncrement { deltas: items.as_items() },
            |outcome| match outcome {
                Outcome::Numbers(numbers) => {
                    Some(numbers.into_iter().map(|(value, version)| Counter { value, version }).collect())
                }
                _ => None,
            },
        )
    }

    fn multi<T>(
        &self,
        items: Result<ItemsBuffer, WhyNot>,
        update: impl FnOnce(&ItemsBuffer) -> Update<'_>,
        convert: Convert<T>,
    ) -> UpdateCall<T> {
        match items {
            Ok(items) => self.update(&update(&items), convert),
            Err(why) => UpdateCall::new(self.clone(), Err(why), convert),
        }
    }
}

fn number_of(outcome: Outcome) -> Result<Option<Counter>, Error> {
    match outcome {
        Outcome::NotFound => Ok(None),
        Outcome::Value(version, bytes) => match number_in(&bytes) {
            Some(value) => Ok(Some(Counter { value, version })),
            None => Err(Error::Failed(WhyFailed::NotANumber)),
        },
        _ => Err(Error::Answer(DecodeError::Invalid("an outcome of this operation"))),
    }
}

/// The list of an operation; an error if a key is too long to be encoded in it.
fn checked<I>(
    items: &[I],
    key: impl Fn(&I) -> &[u8],
    build: impl FnOnce(&[I]) -> ItemsBuffer,
) -> Result<ItemsBuffer, WhyNot> {
    let is_too_large = items.iter().any(|item| key(item).len() > KEY_BYTES_MAX);
    if is_too_large { Err(WhyNot::KeyTooLarge) } else { Ok(build(items)) }
}

impl<T> UpdateCall<T> {
    /// The same call with another update.
    pub(super) fn changed<U>(
        self,
        convert: Convert<U>,
        change: impl for<'a> FnOnce(Update<'a>) -> Result<Update<'a>, WhyNot>,
    ) -> UpdateCall<U> {
        let Self { table, operation, options, convert: _ } = self;
        let operation = operation.and_then(|operation| {
            let update = operation.update().expect("an update's call has one");
            Ok(OwnedOperation::from(&change(update)?))
        });
        UpdateCall { table, operation, options, convert }
    }

    /// The same increment with other bounds.
    fn within(self, bounds: impl FnOnce(Bounds) -> Option<Bounds>) -> UpdateCall<Bounded> {
        self.changed(bounded_of, |mut update| {
            let Update::Increment { bounds: of_update, .. } = &mut update else {
                unreachable!("{update} is no increment")
            };
            *of_update = bounds(*of_update).ok_or(WhyNot::Bounds)?;
            Ok(update)
        })
    }

    /// The same change of one key, if that is so.
    fn conditional<U>(self, condition: Condition<'_>, convert: Convert<U>) -> UpdateCall<U> {
        let Self { table, operation, options, convert: _ } = self;
        let operation = operation.and_then(|operation| {
            let update = operation.update().expect("an update's call has one");
            let terms = Terms::only_if(condition).answering(update.terms().answer);
            Ok(update.with_terms(terms).to_owned_within_limits()?)
        });
        UpdateCall { table, operation, options, convert }
    }
}

impl UpdateCall<u64> {
    /// The put is made only if this is so: the outcome says whether.
    pub fn only_if(self, condition: Condition<'_>) -> UpdateCall<Conditional> {
        self.conditional(condition, conditional)
    }
}

impl UpdateCall<Replaced> {
    /// The put is made only if this is so. If it is not, the outcome tells what the key has instead.
    ///
    /// ```no_run
    /// # async fn example(table: kasha_client::Table) -> Result<(), kasha_client::Error> {
    /// use kasha_client::{Condition, Exchanged};
    ///
    /// // Whoever asks first is the leader for ten seconds; the others learn who is.
    /// let ten_seconds = std::time::Duration::from_secs(10);
    /// match table.get_and_put("leader", "node-3").only_if(Condition::ABSENT).expires_in(ten_seconds).await? {
    ///     Exchanged::Done(_) => println!("we lead"),
    ///     Exchanged::Failed(leader) => println!("led by {:?}", leader.as_ref().and_then(|value| value.as_str())),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn only_if(self, condition: Condition<'_>) -> UpdateCall<Exchanged> {
        self.conditional(condition, exchanged_of)
    }
}

impl UpdateCall<Counter> {
    /// An increment that would lead above this number is rejected, and changes nothing: for quotas. One that falls is not held by it.
    pub fn at_most(self, most: i64) -> UpdateCall<Bounded> {
        self.within(|bounds| Bounds::new(bounds.least(), most))
    }

    /// An increment that would lead below this number is rejected, and changes nothing: for wallets. One that grows is not held by it.
    pub fn at_least(self, least: i64) -> UpdateCall<Bounded> {
        self.within(|bounds| Bounds::new(least, bounds.most()))
    }
}

impl UpdateCall<Bounded> {
    /// See [`UpdateCall::at_most`] of an increment without bounds.
    pub fn at_most(self, most: i64) -> Self {
        self.within(|bounds| Bounds::new(bounds.least(), most))
    }

    /// See [`UpdateCall::at_least`] of an increment without bounds.
    pub fn at_least(self, least: i64) -> Self {
        self.within(|bounds| Bounds::new(least, bounds.most()))
    }
}

impl<T> UpdateCall<T> {
    pub(super) fn new(table: Table, operation: Result<OwnedOperation, WhyNot>, convert: Convert<T>) -> Self {
        Self { table, operation, options: Options::default(), convert }
    }

    /// Makes the update at most once under this operation key, for a day (see [`UpdateCall::remember_for`]), whoever sends it
    /// again. The same request gets the original result; another request gets an error. That a condition did not hold or a bound
    /// would be crossed is a result, too: the same request is not tried anew, so that what is to be tried again needs another
    /// operation key. The key belongs to the operation's first key in its table: with
    /// another first key, or the same one in another table, it is another operation.
    pub fn once(mut self, operation_key: impl AsRef<[u8]>) -> Self {
        self.options.operation_key = Some(operation_key.as_ref().to_vec());
        self
    }

    /// How long the operation key of [`UpdateCall::once`] is remembered, in milliseconds precision. Without such a key
    /// it has no effect.
    pub fn remember_for(mut self, time: Duration) -> Self {
        self.options.operation_key_ttl = Some(time);
        self
    }

    /// How long to wait before the caller is told that the outcome is unknown.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.options.deadline = Some(deadline);
        self
    }

    /// Cancels the update at the deadline instead of leaving its outcome unknown, if a shard answers within a second.
    pub fn cancel_on_deadline(mut self) -> Self {
        self.options.cancel_on_deadline = true;
        self
    }
}

impl<T> ReadCall<T> {
    /// How long to wait for an answer.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

impl<T: Send + 'static> UpdateCall<T> {
    /// Makes the update. If its deadline passes first, or the lease is lost, that is no error but an answer, which resolves to the
    /// same result as the call would have had, whoever waits for it and for how long.
    ///
    /// # Errors
    /// Those of the call, but for [`Error::Unknown`].
    pub async fn answer(self) -> Result<Answer<T>, Error> {
        let convert = self.convert;
        Answer::of(self.await, move |shape, result| value_of(shape, result, convert))
    }
}

impl<T: Send + 'static> IntoFuture for UpdateCall<T> {
    type Output = Result<T, Error>;
    type IntoFuture = Boxed<T>;

    fn into_future(self) -> Boxed<T> {
        Box::pin(async move {
            let Self { table, operation, options, convert } = self;
            let operation = operation.map_err(Error::NotExecuted)?;
            let shape = operation.shape();
            match table.client.call(Ask::Update { table: table.id, operation, options }, Some(shape)).await? {
                Completion::Executed { result, .. } => value_of(shape, &result, convert),
                other => unreachable!("{other:?} of an update"),
            }
        })
    }
}

impl<T: Send + 'static> IntoFuture for ReadCall<T> {
    type Output = Result<T, Error>;
    type IntoFuture = Boxed<T>;

    fn into_future(self) -> Boxed<T> {
        Box::pin(async move {
            let Self { table, operation, deadline, convert } = self;
            let operation = operation.map_err(|why| Error::Failed(WhyFailed::NotPossible(why)))?;
            let shape = operation.shape();
            let ask = Ask::Read { table: table.id, operation, deadline };
            match (table.client.call(ask, Some(shape)).await?, convert) {
                (Completion::Read { result }, ConvertRead::Of(convert)) => value_of(shape, &result, convert),
                (Completion::Read { result }, ConvertRead::If(convert)) => {
                    value_of(shape, &result, Some).and_then(convert)
                }
                (Completion::TimeToLive { left, .. }, ConvertRead::Left(convert)) => Ok(convert(left)),
                (other, _) => unreachable!("{other:?} of a read"),
            }
        })
    }
}
