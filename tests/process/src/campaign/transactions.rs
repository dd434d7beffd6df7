//! Transactions of lists and registers whose keys are of all shards, and their history, which `tests/cycles` judges as a whole:
//! is there one order of all of them (T3)?
//!
//! A value is written once: so whoever reads a value says which transaction wrote it. A list is read whole, and says the order of
//! all that was appended to it. Single operations, snapshots and interactive transactions are transactions of the history like all
//! others.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kasha_client::{Client, Commit, Error, PartId, Table, TransactionOutcome, UpdateCall, Value};
use kasha_machine::Rng;

use super::book::{Book, Ended};
use super::lines::{Lines, Step};

/// Lists, and registers, that are in use at once.
const KEYS: u64 = 4;
/// Uses of a list before another takes its place: whoever reads a list reads all of it.
const USES: u64 = 120;

/// The transactions of a round.
#[derive(Debug, Default)]
pub struct Transactions {
    lines: Lines,
    uses: AtomicU64,
    values: AtomicU64,
}

/// What a transaction does with a key.
enum Plan {
    Read(String),
    Append(String, String),
    Write(String, String),
}

/// A part that was sent, and what its result is to be.
enum Sent {
    Value(PartId<Option<Value>>),
    Version(PartId<u64>),
    Nothing,
}

/// Who acts, and on what.
#[derive(Clone, Copy)]
pub struct Actor<'a> {
    /// The task.
    pub number: u32,
    /// Its client.
    pub client: &'a Client,
    /// Where the keys are.
    pub table: &'a Table,
    /// The clock of the round, and where problems go.
    pub book: &'a Book,
}

fn is_list(key: &str) -> bool {
    key.starts_with("txn-list")
}

/// What a read of a key says.
fn read_of(key: &str, bytes: Option<&[u8]>, version: u64) -> Step {
    let text = bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
    let value = if is_list(key) { Step::of_list(key, &text) } else { Step { value: text, ..Step::default() } };
    Step { op: "read", key: key.to_owned(), version, ..value }
}

fn read_of_value(key: &str, value: Option<&Value>) -> Step {
    read_of(key, value.map(|value| &value.bytes[..]), value.map_or(0, |value| value.version))
}

impl Plan {
    /// Without what only an answer says.
    fn step(&self) -> Step {
        match self {
            Self::Read(key) => Step { op: "read", key: key.clone(), ..Step::default() },
            Self::Append(key, value) => {
                Step { op: "append", key: key.clone(), value: value.clone(), ..Step::default() }
            }
            Self::Write(key, value) => Step { op: "write", key: key.clone(), value: value.clone(), ..Step::default() },
        }
    }
}

fn writes_of(plans: &[Plan]) -> Vec<Step> {
    plans.iter().filter(|plan| !matches!(plan, Plan::Read(_))).map(Plan::step).collect()
}

/// Asks for a transaction: now and then under an operation key, and then perhaps again. Both times the answer must be the same, and
/// the transaction happens once (R4.9).
async fn once_or_twice<T: PartialEq + Debug + Send + 'static>(
    actor: Actor<'_>,
    rng: &mut Rng,
    call: u64,
    ask: impl Fn() -> UpdateCall<T>,
) -> Result<T, Error> {
    let key = rng.chance(1, 3).then(|| format!("txn-once-{}-{call}", actor.number));
    let mut ask = || {
        let update = ask();
        let update = if let Some(key) = &key { update.once(key) } else { update };
        if rng.chance(1, 6) { update.deadline(Duration::from_millis(rng.between(1, 60))) } else { update }
    };
    let first = ask().await;
    if key.is_none() {
        return first;
    }
    match (first, ask().await) {
        (Ok(first), Ok(again)) => {
            if first != again {
                actor.book.complain(format!("transactions: under one operation key came {first:?} and {again:?}"));
            }
            Ok(first)
        }
        (Ok(done), Err(_)) | (Err(_), Ok(done)) => Ok(done),
        (Err(unknown @ Error::Unknown { .. }), Err(_)) | (Err(_), Err(unknown)) => Err(unknown),
    }
}

impl Transactions {
    /// Does something, whatever comes of it.
    pub async fn use_some(&self, actor: Actor<'_>, rng: &mut Rng) {
        match rng.below(10) {
            0..3 => self.at_once(actor, rng).await,
            3..5 => self.put_together(actor, rng).await,
            5..7 => self.read_together(actor, rng).await,
            7 => self.alone(actor, rng).await,
            _ => self.interactive(actor, rng).await,
        }
    }

    /// A few different keys that are in use now.
    fn keys(&self, rng: &mut Rng, kind: &str) -> Vec<String> {
        let generation = self.uses.fetch_add(1, Ordering::Relaxed) / (USES * KEYS);
        let places: BTreeSet<u64> = (0..rng.between(1, 3)).map(|_| rng.below(KEYS)).collect();
        places.into_iter().map(|place| format!("{kind}:{place}:{generation}")).collect()
    }

    fn value(&self) -> String {
        self.values.fetch_add(1, Ordering::Relaxed).to_string()
    }

    /// A transaction begins now, with these writes. Returns its call, which is also its name.
    fn begin(&self, actor: Actor<'_>, plans: &[Plan]) -> u64 {
        self.lines.begin(actor.number, actor.book, writes_of(plans))
    }

    fn write(&self, actor: Actor<'_>, call: u64, outcome: Ended, ops: Vec<Step>) {
        self.lines.write(actor.number, actor.book, call, outcome, ops);
    }

    /// What became of a transaction that was not executed. Reads of it say nothing.
    fn write_error(&self, actor: Actor<'_>, call: u64, error: &Error, plans: &[Plan]) {
        let outcome = match error {
            Error::NotExecuted(_) | Error::Failed(_) => Ended::NotExecuted,
            Error::Unknown { .. } => Ended::Unknown,
            other => return actor.book.complain(format!("transactions: {other}")),
        };
        self.write(actor, call, outcome, writes_of(plans));
    }

    /// One transaction of several parts, sent at once.
    async fn at_once(&self, actor: Actor<'_>, rng: &mut Rng) {
        let mut keys = self.keys(rng, "txn-list");
        keys.extend(self.keys(rng, "txn-register"));
        let plans: Vec<_> = keys.into_iter().map(|key| self.plan(key, rng)).collect();
        let build = || {
            let mut transaction = actor.client.transaction();
            let table = actor.table;
            let part = |plan: &Plan| match plan {
                Plan::Read(key) => Sent::Value(transaction.get(table, key)),
                Plan::Append(key, value) => {
                    let _ = transaction.append(table, key, format!("{value} "));
                    Sent::Nothing
                }
                Plan::Write(key, value) => Sent::Version(transaction.put(table, key, value)),
            };
            let sent: Vec<_> = plans.iter().map(part).collect();
            (transaction.commit(), sent)
        };
        let (call, sent) = (self.begin(actor, &plans), build().1);
        match once_or_twice(actor, rng, call, || build().0).await {
            Ok(TransactionOutcome::Committed(results)) => {
                let step = |(plan, sent): (&Plan, &Sent)| match (plan, sent) {
                    (Plan::Read(key), Sent::Value(part)) => read_of_value(key, results.of(*part).as_ref()),
                    (plan, Sent::Version(part)) => Step { version: results.of(*part), ..plan.step() },
                    (plan, _) => plan.step(),
                };
                let steps = plans.iter().zip(&sent).map(step).collect();
                self.write(actor, call, Ended::Executed, steps);
            }
            Ok(other) => actor.book.complain(format!("transactions: without a check came {other:?}")),
            Err(error) => self.write_error(actor, call, &error, &plans),
        }
    }

    fn plan(&self, key: String, rng: &mut Rng) -> Plan {
        match (rng.chance(1, 2), is_list(&key)) {
            (true, _) => Plan::Read(key),
            (false, true) => Plan::Append(key, self.value()),
            (false, false) => Plan::Write(key, self.value()),
        }
    }

    /// Without locks: nothing of it can fail.
    async fn put_together(&self, actor: Actor<'_>, rng: &mut Rng) {
        let plans: Vec<_> =
            self.keys(rng, "txn-register").into_iter().map(|key| Plan::Write(key, self.value())).collect();
        let pairs: Vec<_> = plans
            .iter()
            .filter_map(|plan| match plan {
                Plan::Write(key, value) => Some((key.as_str(), value.as_str())),
                Plan::Read(_) | Plan::Append(..) => None,
            })
            .collect();
        let call = self.begin(actor, &plans);
        match once_or_twice(actor, rng, call, || actor.table.multi_put(&pairs)).await {
            Ok(versions) => {
                let steps = plans.iter().zip(versions).map(|(plan, version)| Step { version, ..plan.step() });
                self.write(actor, call, Ended::Executed, steps.collect());
            }
            Err(error) => self.write_error(actor, call, &error, &plans),
        }
    }

    /// A snapshot.
    async fn read_together(&self, actor: Actor<'_>, rng: &mut Rng) {
        let mut keys = self.keys(rng, "txn-list");
        keys.extend(self.keys(rng, "txn-register"));
        let call = self.begin(actor, &[]);
        match actor.table.multi_get(&keys).await {
            Ok(values) => {
                let steps = keys.iter().zip(&values).map(|(key, value)| read_of_value(key, value.as_ref()));
                self.write(actor, call, Ended::Executed, steps.collect());
            }
            Err(error) => self.write_error(actor, call, &error, &[]),
        }
    }

    /// One operation on one key.
    async fn alone(&self, actor: Actor<'_>, rng: &mut Rng) {
        let kind = if rng.chance(1, 2) { "txn-list" } else { "txn-register" };
        let plan = self.plan(self.keys(rng, kind).swap_remove(0), rng);
        let (call, table) = (self.begin(actor, std::slice::from_ref(&plan)), actor.table);
        let done = match &plan {
            Plan::Read(key) => table.get(key).await.map(|value| read_of_value(key, value.as_ref())),
            Plan::Append(key, value) => table.append(key, format!("{value} ")).await.map(|_| plan.step()),
            Plan::Write(key, value) => table.put(key, value).await.map(|version| Step { version, ..plan.step() }),
        };
        match done {
            Ok(step) => self.write(actor, call, Ended::Executed, vec![step]),
            Err(error) => self.write_error(actor, call, &error, &[plan]),
        }
    }

    /// Reads, and then writes what it has read and more.
    async fn interactive(&self, actor: Actor<'_>, rng: &mut Rng) {
        let mut keys = self.keys(rng, "txn-list");
        keys.extend(self.keys(rng, "txn-register"));
        let (call, transaction) = (self.begin(actor, &[]), actor.client.begin());
        let (mut steps, mut plans) = (Vec::new(), Vec::new());
        for key in keys {
            let value = match transaction.get(actor.table, &key).await {
                Ok(value) => value,
                Err(error @ Error::Failed(_)) => return self.write_error(actor, call, &error, &[]),
                Err(error) => return actor.book.complain(format!("transactions: {error}")),
            };
            steps.push(read_of(&key, value.as_ref().map(|value| &value.bytes[..]), 0));
            let plan = self.plan(key, rng);
            match &plan {
                Plan::Read(_) => continue,
                Plan::Append(key, more) => {
                    let before =
                        value.map(|value| String::from_utf8_lossy(&value.bytes).into_owned()).unwrap_or_default();
                    transaction.put(actor.table, key, format!("{before}{more} "));
                }
                Plan::Write(key, value) => transaction.put(actor.table, key, value),
            }
            plans.push(plan);
        }
        steps.extend(plans.iter().map(Plan::step));
        self.lines.plans(call, writes_of(&plans));
        match transaction.commit().await {
            Ok(Commit::Committed) => self.write(actor, call, Ended::Executed, steps),
            Ok(Commit::Conflict(_)) => {
                self.write(actor, call, Ended::NotExecuted, writes_of(&plans));
            }
            Err(error) => self.write_error(actor, call, &error, &plans),
        }
    }

    /// Reads every key once more.
    ///
    /// # Errors
    /// If one cannot be read.
    pub async fn read_all(&self, actor: Actor<'_>) -> Result<(), String> {
        for key in self.lines.keys() {
            let call = self.begin(actor, &[]);
            let value = actor.table.get(&key).await.map_err(|error| format!("reading {key} in the end: {error}"))?;
            self.write(actor, call, Ended::Executed, vec![read_of_value(&key, value.as_ref())]);
        }
        Ok(())
    }

    /// The history so far.
    #[must_use]
    pub fn lines(&self) -> &Lines {
        &self.lines
    }
}
