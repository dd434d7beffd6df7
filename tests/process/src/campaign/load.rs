//! The clients of a round: several sessions of several tasks each, which write down their calls and the answers.
//!
//! All tasks use the same keys, and leave a key for a fresh one after some operations, so that each key has a history
//! that can be searched. A few counters live through the whole round, and so does what `transfers` moves. `transactions` has a
//! history of its own. What `lives` uses checks itself. Some calls have short deadlines, some are cancelled at their deadline, and some callers go away. An outcome
//! that is unknown at first is resolved if possible.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kasha_client::{Client, ClientOptions, Error, Rejection, Resolved, Table, UnknownCall, UpdateCall};
use kasha_machine::Rng;

use super::book::{Asked, Book, Ended, Told, told_late};
use super::lives::Lives;
use super::net::Net;
use super::transactions::{Actor, Transactions};
use super::transfers::Transfers;
use super::{Failure, broken};

const SESSIONS: u32 = 3;
const TASKS: u32 = 4;
/// The client number of the reader that reads everything at the end.
pub const READER: u32 = SESSIONS * TASKS;
/// Keys of each kind that are in use at once.
const KEYS: u64 = 6;
/// Operations on a key before another key takes its place.
const OPERATIONS_PER_KEY: u64 = 100;
/// Counters that live through the whole round.
const SUMS: u64 = 8;
/// Operation keys for one counter.
const ONCE_KEYS: u64 = 12;
/// Longest pause between two operations of a task, in milliseconds.
const PAUSE_MAX_MS: u64 = 12;
/// How long anything may take while nothing fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// What all tasks share.
#[derive(Debug)]
struct Shared {
    book: Book,
    transfers: Transfers,
    transactions: Transactions,
    lives: Lives,
    stop: AtomicBool,
    /// Operations so far on the registers, counters and operation keys of each place.
    used: [[AtomicU64; KEYS as usize]; 3],
    /// The number of calls of each task that were executed, or read.
    done: Vec<AtomicU64>,
    /// Number of calls that are being resolved.
    open: AtomicU64,
}

/// The sessions and tasks of a round.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    sessions: Vec<JoinHandle<Result<(), String>>>,
}

impl Load {
    /// Opens the sessions.
    ///
    /// # Errors
    /// If there can be no threads.
    pub fn start(net: &Net, seed: u64) -> Result<Self, Failure> {
        let done = (0..SESSIONS * TASKS).map(|_| AtomicU64::new(0)).collect();
        let (stop, open, used) = (AtomicBool::new(false), AtomicU64::new(0), Default::default());
        let (book, transfers, transactions) = (Book::default(), Transfers::default(), Transactions::default());
        let shared =
            Arc::new(Shared { book, transfers, transactions, lives: Lives::default(), stop, used, done, open });
        let mut rng = Rng::new(seed ^ 0x10AD);
        let mut sessions = Vec::new();
        for number in 0..SESSIONS {
            let (seeds, theirs, rng) = (net.seeds(), Arc::clone(&shared), rng.fork());
            let job = move || block_on(session(seeds, number, theirs, rng));
            sessions.push(net.thread(&format!("session-{number}"), job).map_err(broken("no thread"))?);
        }
        Ok(Self { shared, sessions })
    }

    /// How often each task was answered.
    #[must_use]
    pub fn answers(&self) -> Vec<u64> {
        self.shared.done.iter().map(|done| done.load(Ordering::Relaxed)).collect()
    }

    /// The tasks that were answered less than this many times more than before.
    #[must_use]
    pub fn behind(&self, before: &[u64], times: u64) -> Vec<usize> {
        let answers = self.answers();
        (0..answers.len()).filter(|&task| answers[task] < before[task] + times).collect()
    }

    /// Waits until every task was answered this many times more.
    ///
    /// # Errors
    /// If one is not.
    pub fn goes_on(&self, times: u64) -> Result<(), Failure> {
        let (before, began) = (self.answers(), Instant::now());
        loop {
            let behind = self.behind(&before, times);
            if behind.is_empty() {
                return Ok(());
            }
            if self.sessions.iter().any(JoinHandle::is_finished) {
                return Err(Failure::Broken("a session has ended".to_owned()));
            }
            if began.elapsed() > PATIENCE {
                return Err(Failure::Stuck(format!("tasks {behind:?} are not answered, though the cluster is whole")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the load on a whole cluster: every call ends, and everything is read once more. Returns the counters.
    ///
    /// # Errors
    /// If a call does not end, or what is there cannot be read.
    pub fn end(&mut self, net: &Net) -> Result<BTreeMap<String, i64>, Failure> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for session in self.sessions.drain(..) {
            let ended = session.join().map_err(|_| Failure::Broken("a session panicked".to_owned()))?;
            ended.map_err(Failure::Stuck)?;
        }
        let (seeds, theirs) = (net.seeds(), Arc::clone(&self.shared));
        let job = move || block_on(read_all(seeds, theirs));
        let reading = net.thread("reading", job).map_err(broken("no thread"))?;
        let counters = reading.join().map_err(|_| Failure::Broken("the reader panicked".to_owned()))?;
        counters.map_err(Failure::Stuck)
    }

    /// The transactions so far.
    #[must_use]
    pub fn transactions(&self) -> &Transactions {
        &self.shared.transactions
    }

    /// The history so far.
    #[must_use]
    pub fn book(&self) -> &Book {
        &self.shared.book
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

async fn connect(seeds: &[String]) -> Result<(Client, Table), String> {
    let options =
        ClientOptions { connect_timeout: PATIENCE, deadline: Duration::from_secs(10), ..ClientOptions::default() };
    let client = Client::connect_with(seeds, options).await.map_err(|error| error.to_string())?;
    let table = client.table("default").await.map_err(|error| error.to_string())?;
    Ok((client, table))
}

async fn session(seeds: Vec<String>, number: u32, shared: Arc<Shared>, mut rng: Rng) -> Result<(), String> {
    let (client, table) = connect(&seeds).await?;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (number, client, table, rng) = (number * TASKS + task, client.clone(), table.clone(), rng.fork());
            let (shared, versions, seen, values) = (Arc::clone(&shared), BTreeMap::new(), BTreeMap::new(), 0);
            tokio::spawn(Task { number, client, table, shared, rng, versions, seen, values }.run())
        })
        .collect();
    for task in tasks {
        task.await.map_err(|error| error.to_string())?;
    }
    // The session lives until nobody waits for it any more.
    let began = Instant::now();
    while shared.open.load(Ordering::Relaxed) > 0 {
        if began.elapsed() > PATIENCE {
            return Err(format!(
                "{} calls do not end, though the cluster is whole",
                shared.open.load(Ordering::Relaxed)
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Reads every key that was ever used.
async fn read_all(seeds: Vec<String>, shared: Arc<Shared>) -> Result<BTreeMap<String, i64>, String> {
    let (client, table) = connect(&seeds).await?;
    shared.transfers.check(&table, &shared.book).await?;
    shared.lives.check(&table, &shared.book).await?;
    let actor = Actor { number: READER, client: &client, table: &table, book: &shared.book };
    shared.transactions.read_all(actor).await?;
    let mut keys: BTreeMap<String, &'static str> = BTreeMap::new();
    for record in shared.book.records() {
        keys.insert(record.asked.key, record.asked.model);
    }
    let mut counters = BTreeMap::new();
    for (key, model) in keys {
        let asked =
            Asked { client: READER, model, key: key.clone(), op: "get", call: shared.book.now(), ..Asked::default() };
        let value = table.get(&key).await.map_err(|error| format!("reading {key} in the end: {error}"))?;
        let told = Told::from(value);
        if model == "counter" {
            let sum = if told.got == "found" { &told.text } else { "0" };
            counters.insert(key, sum.parse().map_err(|_| format!("{sum:?} is no number"))?);
        }
        shared.book.write(asked, Ended::Executed, told);
    }
    Ok(counters)
}

struct Task {
    number: u32,
    client: Client,
    table: Table,
    shared: Arc<Shared>,
    rng: Rng,
    /// The versions of keys, as this task saw them last.
    versions: BTreeMap<String, u64>,
    /// Values of registers as this task read them last.
    seen: BTreeMap<String, Vec<u8>>,
    /// Values that it has put.
    values: u64,
}

/// How long a caller waits, and what it does then.
#[derive(Clone, Copy)]
enum Patience {
    Long,
    Short(Duration),
    Cancels(Duration),
    Leaves(Duration),
}

impl Task {
    async fn run(mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            match self.rng.below(27) {
                0..8 => self.use_register().await,
                8..13 => self.use_counter().await,
                13..16 => self.use_operation_key().await,
                16..18 => self.use_sum().await,
                24..27 => {
                    let Self { table, shared, rng, .. } = &mut self;
                    shared.lives.use_some(table, rng, &shared.book).await;
                }
                18..22 => {
                    let Self { number, client, table, shared, rng, .. } = &mut self;
                    let actor = Actor { number: *number, client, table, book: &shared.book };
                    shared.transactions.use_some(actor, rng).await;
                }
                _ => {
                    let Self { client, table, shared, rng, .. } = &mut self;
                    shared.transfers.use_some(client, table, rng, &shared.book).await;
                }
            }
            let pause = Duration::from_millis(self.rng.below(PAUSE_MAX_MS));
            tokio::time::sleep(pause).await;
        }
    }

    /// A key of this kind that is in use at present.
    fn key(&mut self, kind: usize, name: &str) -> String {
        let place = self.rng.below(KEYS);
        let used = &self.shared.used[kind][usize::try_from(place).expect("few")];
        let generation = used.fetch_add(1, Ordering::Relaxed) / OPERATIONS_PER_KEY;
        format!("{name}:{place}:{generation}")
    }

    fn asked(&self, model: &'static str, key: &str, op: &'static str) -> Asked {
        Asked { client: self.number, model, key: key.to_owned(), op, ..Asked::default() }
    }

    fn patience(&mut self) -> Patience {
        let short = Duration::from_millis(self.rng.between(1, 60));
        match self.rng.below(20) {
            0..3 => Patience::Short(short),
            3 => Patience::Cancels(short),
            4 => Patience::Leaves(short),
            _ => Patience::Long,
        }
    }

    /// A value of this task: mostly short, sometimes too long for a witness, rarely of many pages.
    fn value(&mut self) -> (String, Vec<u8>) {
        self.values += 1;
        let name = format!("{}-{}", self.number, self.values);
        let len = *self.rng.pick(&[20, 20, 20, 200, 200, 3000, 40_000]);
        let mut bytes = name.clone().into_bytes();
        bytes.resize(len.max(bytes.len()), b'.');
        (name, bytes)
    }

    async fn use_register(&mut self) {
        let key = self.key(0, "register");
        let seen = self.versions.get(&key).copied();
        let (model, table) = ("register", self.table.clone());
        match self.rng.below(13) {
            0..4 => self.get(model, &key).await,
            10 => {
                let (name, bytes) = self.value();
                let asked = Asked { value: name, ..self.asked(model, &key, "put") };
                self.update(asked, table.get_and_put(&key, &bytes)).await;
            }
            11 => {
                let asked = self.asked(model, &key, "delete");
                self.update(asked, table.get_and_delete(&key)).await;
            }
            12 => {
                let ((name, bytes), expected) = (self.value(), self.seen.get(&key).cloned().unwrap_or_default());
                let expected_text = String::from_utf8_lossy(&expected).trim_end_matches('.').to_owned();
                let asked = Asked { condition: "value", expected_text, value: name, ..self.asked(model, &key, "put") };
                self.update(asked, table.compare_and_put(&key, expected, &bytes)).await;
            }
            4..7 => {
                let mut asked = self.asked(model, &key, "put");
                let (name, bytes) = self.value();
                asked.value = name;
                self.update(asked, table.put(&key, &bytes)).await;
            }
            7 => {
                let (name, bytes) = self.value();
                let asked = Asked { condition: "absent", value: name, ..self.asked(model, &key, "put") };
                self.update(asked, table.put_if_absent(&key, &bytes)).await;
            }
            8 => match seen {
                Some(version) if self.rng.chance(1, 4) => {
                    let asked = Asked { condition: "version", expected: version, ..self.asked(model, &key, "delete") };
                    self.update(asked, table.delete_if_version(&key, version)).await;
                }
                _ => {
                    let asked = self.asked(model, &key, "delete");
                    self.update(asked, table.delete(&key)).await;
                }
            },
            _ => {
                let version = seen.unwrap_or(1);
                let (name, bytes) = self.value();
                let condition = Asked { condition: "version", expected: version, ..self.asked(model, &key, "put") };
                let asked = Asked { value: name, ..condition };
                self.update(asked, table.put_if_version(&key, version, &bytes)).await;
            }
        }
    }

    async fn use_counter(&mut self) {
        let key = self.key(1, "counter");
        if self.rng.chance(1, 3) {
            return self.get("counter", &key).await;
        }
        let asked = Asked { delta: 1, ..self.asked("counter", &key, "increment") };
        self.update(asked, self.table.clone().increment(&key, 1)).await;
    }

    /// The operation keys are drawn from few, so that most are used again, also by other tasks; sometimes with another
    /// request.
    async fn use_operation_key(&mut self) {
        let key = self.key(2, "once");
        let which = self.rng.below(ONCE_KEYS);
        let other = self.rng.chance(1, 16);
        let delta = i64::try_from(which % 3).expect("small") + 1 + i64::from(other);
        let once = format!("order-{which}");
        let call = self.table.clone().increment(&key, delta).once(&once);
        let asked = Asked { delta, once, ..self.asked("counter", &key, "increment") };
        self.update(asked, call).await;
    }

    async fn use_sum(&mut self) {
        let key = format!("sum:{}", self.rng.below(SUMS));
        let asked = Asked { delta: 1, ..self.asked("counter", &key, "increment") };
        self.update(asked, self.table.clone().increment(&key, 1)).await;
    }

    async fn get(&mut self, model: &'static str, key: &str) {
        let asked = self.shared.book.ask(self.asked(model, key, "get"));
        let mut read = self.table.get(key);
        if let Patience::Short(deadline) = self.patience() {
            read = read.deadline(deadline);
        }
        match read.await {
            Ok(value) => {
                if let Some(value) = &value {
                    self.check_padding(key, &value.bytes);
                    self.versions.insert(key.to_owned(), value.version);
                    self.seen.insert(key.to_owned(), value.bytes.clone());
                }
                self.answered();
                self.shared.book.write(asked, Ended::Executed, value.into());
            }
            Err(Error::Failed(_)) => self.shared.book.write(asked, Ended::NotExecuted, Told::default()),
            Err(error) => self.shared.book.complain(format!("reading {key}: {error}")),
        }
    }

    /// A value consists of its name and points.
    fn check_padding(&self, key: &str, bytes: &[u8]) {
        let name = bytes.iter().take_while(|byte| **byte != b'.');
        let (name, points) = bytes.split_at(name.count());
        let is_name = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
        if !name.iter().all(is_name) || points.iter().any(|byte| *byte != b'.') {
            self.shared.book.complain(format!("{key} holds what nobody put: {:?}", String::from_utf8_lossy(bytes)));
        }
    }

    fn answered(&self) {
        self.shared.done[self.number as usize].fetch_add(1, Ordering::Relaxed);
    }

    async fn update<T: Into<Told> + Debug + Send + 'static>(&mut self, asked: Asked, call: UpdateCall<T>) {
        let asked = self.shared.book.ask(asked);
        let patience = self.patience();
        let call = match patience {
            Patience::Long | Patience::Leaves(_) => call,
            Patience::Short(deadline) => call.deadline(deadline),
            Patience::Cancels(deadline) => call.deadline(deadline).cancel_on_deadline(),
        };
        let answer = match patience {
            Patience::Leaves(after) => tokio::time::timeout(after, call.into_future()).await.ok(),
            Patience::Long | Patience::Short(_) | Patience::Cancels(_) => Some(call.await),
        };
        let book = &self.shared.book;
        match answer {
            Some(Ok(told)) => {
                let told = told.into();
                self.versions.insert(asked.key.clone(), told.version);
                self.answered();
                self.shared.book.write(asked, Ended::Executed, told);
            }
            Some(Err(Error::Rejected(Rejection::OperationKeyMismatch))) => {
                self.answered();
                book.write(asked, Ended::Executed, Told::mismatch());
            }
            Some(Err(Error::NotExecuted(_))) => book.write(asked, Ended::NotExecuted, Told::default()),
            Some(Err(Error::Unknown { call, .. })) => self.resolve(asked, call),
            Some(Err(error)) => book.complain(format!("{asked:?}: {error}")),
            None => book.write(asked, Ended::Unknown, Told::default()),
        }
    }

    /// Keeps asking for the outcome of a call, while the task goes on.
    fn resolve(&self, asked: Asked, call: UnknownCall) {
        let shared = Arc::clone(&self.shared);
        shared.open.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let book = &shared.book;
            match call.resolve().await {
                Ok(Resolved::Executed(outcome)) => match told_late(&asked, &outcome) {
                    Some(told) => book.write(asked, Ended::Executed, told),
                    None => book.complain(format!("{asked:?} came to {outcome:?}")),
                },
                Ok(Resolved::NotExecuted(_)) => book.write(asked, Ended::NotExecuted, Told::default()),
                Ok(Resolved::Never(_)) => book.write(asked, Ended::Unknown, Told::default()),
                Ok(other @ Resolved::Table(_)) => book.complain(format!("{asked:?} came to {other:?}")),
                Err(error) => book.complain(format!("{asked:?}: {error}")),
            }
            shared.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}
