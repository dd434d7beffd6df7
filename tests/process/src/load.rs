//! A light load that keeps account: every update that it was told is executed must be there afterwards, once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kasha_client::{Client, Error, Resolved, Table};

use crate::{patient, wait_for};

/// Keys that are counted, each by one task.
const TASKS: u32 = 12;

/// Time between two updates of a task.
const PAUSE: Duration = Duration::from_millis(2);

/// The updates that were told to be executed.
#[derive(Debug, Default)]
struct Account {
    counters: BTreeMap<String, i64>,
    values: BTreeMap<String, String>,
}

/// A client on a thread of its own.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    executed: Arc<AtomicU64>,
    thread: JoinHandle<Account>,
    addresses: Vec<String>,
}

impl Load {
    /// Starts the load.
    #[must_use]
    pub fn start(addresses: Vec<String>) -> Self {
        let (stop, executed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (theirs, count, seeds) = (Arc::clone(&stop), Arc::clone(&executed), addresses.clone());
        let thread = std::thread::spawn(move || {
            block_on(async {
                let table = table(&seeds).await;
                let tasks: Vec<_> = (0..TASKS)
                    .map(|task| tokio::spawn(work(task, table.clone(), Arc::clone(&theirs), Arc::clone(&count))))
                    .collect();
                let mut account = Account::default();
                for task in tasks {
                    let mut part = task.await.expect("no task panics");
                    account.counters.append(&mut part.counters);
                    account.values.append(&mut part.values);
                }
                account
            })
        });
        Self { stop, executed, thread, addresses }
    }

    /// Waits until this many more updates were executed.
    ///
    /// # Panics
    /// If that does not happen in time.
    pub fn goes_on(&self, updates: u64) {
        let until = self.executed.load(Ordering::Relaxed) + updates;
        wait_for("progress of the load", || {
            assert!(!self.thread.is_finished(), "the load has ended");
            let executed = self.executed.load(Ordering::Relaxed);
            if executed >= until { Ok(()) } else { Err(format!("{executed} of {until} updates")) }
        });
    }

    /// Ends the load, and compares what it was told with the values that are there.
    ///
    /// # Panics
    /// If an update is lost or doubled.
    pub fn ends_exact(self) {
        self.stop.store(true, Ordering::Relaxed);
        let account = self.thread.join().expect("the load does not panic");
        assert_eq!(account.counters.len(), TASKS as usize);
        block_on(async {
            let table = table(&self.addresses).await;
            for (key, executed) in &account.counters {
                assert!(*executed > 0, "{key} was never counted");
                assert_eq!(read(&table, key).await, Some(executed.to_string()), "{key}");
            }
            for (key, value) in &account.values {
                assert_eq!(read(&table, key).await.as_ref(), Some(value), "{key}");
            }
        });
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

async fn table(addresses: &[String]) -> Table {
    let client = Client::connect_with(addresses, patient()).await.expect("a cluster");
    client.table("default").await.expect("the default table")
}

/// A key's value as text.
async fn read(table: &Table, key: &str) -> Option<String> {
    let value = table.get(key).await.unwrap_or_else(|error| panic!("reading {key}: {error}"));
    value.map(|value| String::from_utf8(value.bytes).expect("text"))
}

async fn work(task: u32, table: Table, stop: Arc<AtomicBool>, count: Arc<AtomicU64>) -> Account {
    const VALUE_EVERY: i64 = 4;
    let key = format!("load:{task}");
    let (mut account, mut executed) = (Account::default(), 0);
    while !stop.load(Ordering::Relaxed) {
        match table.increment(&key, 1).await {
            Ok(counter) => {
                executed += 1;
                assert_eq!(counter.value, executed, "{key} was counted once for each answer");
            }
            Err(error) => executed += i64::from(became_executed(error).await),
        }
        count.fetch_add(1, Ordering::Relaxed);
        if executed % VALUE_EVERY == 0 {
            let (name, value) = (format!("{key}:{executed}"), format!("{executed:0>200}"));
            let done = match table.put(&name, &value).await {
                Ok(_) => true,
                Err(error) => became_executed(error).await,
            };
            if done {
                account.values.insert(name, value);
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    account.counters.insert(key, executed);
    account
}

/// Whether an update turned out to be executed, although its caller was not told so at first.
async fn became_executed(error: Error) -> bool {
    match error {
        Error::NotExecuted(_) => false,
        Error::Unknown { call, .. } => match call.resolve().await.expect("the client runs") {
            Resolved::Executed(_) => true,
            Resolved::NotExecuted(_) => false,
            other @ (Resolved::Table(_) | Resolved::Never(_)) => panic!("{other:?}"),
        },
        other => panic!("{other}"),
    }
}
