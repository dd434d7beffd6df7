//! Data that fills the shards of a round, and a client that overwrites the data all the time: so the cleaner of each shard
//! is at work while faults strike.
//!
//! Each key belongs to one task, so that a value is judged without a search: it is the last that its task was told of, or
//! one of those whose outcome is unknown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kasha_client::{Client, ClientOptions, Error, Resolved, Table};
use kasha_machine::Rng;

use super::net::Net;
use super::plan::Shape;
use super::{Failure, broken, wait_for};

/// The memory for each log of a round with ballast, in MiB: the least that a node takes.
pub const MEMORY_MIB: u64 = 64;
/// What of it lives, in MiB. New data may fill 48 MiB, and 92 % of that may live.
const LIVE_MIB: u64 = 34;
const VALUE_BYTES: u64 = 32 * 1024;
const TASKS: u64 = 2;
/// Keys that a task fills at once.
const FILLED_AT_ONCE: usize = 8;
/// Pause of a task after each update; under `fsync`, where every write is kept in a journal, longer.
const PAUSE: Duration = Duration::from_millis(15);
const PAUSE_FSYNC: Duration = Duration::from_millis(60);
/// How long a call may take. Longer than any fault lasts.
const PATIENCE: Duration = Duration::from_secs(180);

/// What the tasks share with the round.
#[derive(Debug, Default)]
struct Shared {
    filled: AtomicU64,
    overwritten: AtomicU64,
    stop: AtomicBool,
}

/// The client of a round that fills and overwrites.
#[derive(Debug)]
pub struct Ballast {
    shared: Arc<Shared>,
    keys: u64,
    thread: JoinHandle<Result<(), String>>,
}

/// What the client's thread does.
type Job = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// What a key may hold: numbers of values.
#[derive(Debug, Default)]
struct Values {
    told: u64,
    unknown: Vec<u64>,
}

/// Keys whose values take so much.
fn keys(live_mib: u64) -> u64 {
    (live_mib << 20) / VALUE_BYTES
}

impl Ballast {
    /// Fills the shards, and goes on to overwrite.
    ///
    /// # Errors
    /// If the shards are not filled.
    pub fn start(net: &Net, shape: &Shape, seed: u64) -> Result<Self, Failure> {
        let pause = if shape.fsync { PAUSE_FSYNC } else { PAUSE };
        let keys = keys(u64::from(shape.shards) * LIVE_MIB);
        Self::fill(net.seeds(), keys, pause, seed, |job| net.thread("ballast", job))
    }

    /// The same for a test of its own on loopback: so many MiB live, and there is hardly a pause.
    ///
    /// # Errors
    /// If the shards are not filled.
    pub fn on_loopback(addresses: Vec<String>, live_mib: u64, seed: u64) -> Result<Self, Failure> {
        let pause = Duration::from_millis(2);
        Self::fill(addresses, keys(live_mib), pause, seed, |job| std::thread::Builder::new().spawn(job))
    }

    fn fill(
        seeds: Vec<String>,
        keys: u64,
        pause: Duration,
        seed: u64,
        spawn: impl FnOnce(Job) -> std::io::Result<JoinHandle<Result<(), String>>>,
    ) -> Result<Self, Failure> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let job = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(fill_and_overwrite(seeds, keys, pause, Rng::new(seed ^ 0xBA11), theirs))
        };
        let thread = spawn(Box::new(job)).map_err(broken("no thread"))?;
        let ballast = Self { shared, keys, thread };
        let is_filled = || ballast.shared.filled.load(Ordering::Relaxed) == keys;
        match wait_for(&ballast.thread, PATIENCE, "the shards are not filled", is_filled)? {
            true => Ok(ballast),
            false => ballast.end().map(|_| unreachable!("it ends when it is told")),
        }
    }

    /// Stops, and compares every key with what its task knows. Says how much there was.
    ///
    /// # Errors
    /// If a call failed, or a key holds what it must not.
    pub fn end(self) -> Result<String, Failure> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join().map_err(|_| Failure::Broken("the ballast panicked".to_owned()))?;
        ended.map_err(Failure::Wrong)?;
        let overwritten = self.shared.overwritten.load(Ordering::Relaxed);
        Ok(format!("{} keys of {VALUE_BYTES} bytes, overwritten {overwritten} times", self.keys))
    }
}

async fn fill_and_overwrite(
    seeds: Vec<String>,
    keys: u64,
    pause: Duration,
    mut rng: Rng,
    shared: Arc<Shared>,
) -> Result<(), String> {
    let options = ClientOptions { connect_timeout: PATIENCE, deadline: PATIENCE, ..ClientOptions::default() };
    let client = Client::connect_with(&seeds, options).await.map_err(|error| error.to_string())?;
    let table = client.table("default").await.map_err(|error| error.to_string())?;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let keys = (0..keys).filter(|key| key % TASKS == task).map(|key| (key, Values::default())).collect();
            let task = Task { table: table.clone(), keys, pause, rng: rng.fork(), shared: Arc::clone(&shared) };
            tokio::spawn(task.run())
        })
        .collect();
    for task in tasks {
        task.await.map_err(|error| error.to_string())??;
    }
    Ok(())
}

struct Task {
    table: Table,
    keys: BTreeMap<u64, Values>,
    pause: Duration,
    rng: Rng,
    shared: Arc<Shared>,
}

/// What became of a value that was put.
#[derive(Debug)]
enum Put {
    Done,
    Never,
    /// It stays unknown whether the value was put.
    Unknown,
}

fn name(key: u64) -> String {
    format!("ballast:{key}")
}

impl Task {
    async fn run(mut self) -> Result<(), String> {
        let keys: Vec<u64> = self.keys.keys().copied().collect();
        for some in keys.chunks(FILLED_AT_ONCE) {
            let puts: Vec<_> = some.iter().map(|&key| tokio::spawn(put(self.table.clone(), key, 1))).collect();
            for (&key, put) in some.iter().zip(puts) {
                self.note(key, 1, &put.await.map_err(|error| error.to_string())??);
                self.shared.filled.fetch_add(1, Ordering::Relaxed);
            }
        }
        let mut number = 1;
        while !self.shared.stop.load(Ordering::Relaxed) {
            number += 1;
            let key = *self.rng.pick(&keys);
            let became = put(self.table.clone(), key, number).await?;
            self.note(key, number, &became);
            self.shared.overwritten.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(self.pause).await;
        }
        for (&key, values) in &self.keys {
            let found = self.table.get(name(key)).await.map_err(|error| format!("reading {}: {error}", name(key)))?;
            check(key, values, found.as_ref().map(|value| &value.bytes[..]))?;
        }
        Ok(())
    }

    fn note(&mut self, key: u64, number: u64, became: &Put) {
        let values = self.keys.get_mut(&key).expect("a key of this task");
        match became {
            Put::Done => *values = Values { told: number, unknown: Vec::new() },
            Put::Never => {}
            Put::Unknown => values.unknown.push(number),
        }
    }
}

/// Puts the value of this number, and does not go on before its outcome is known, or known to stay unknown.
async fn put(table: Table, key: u64, number: u64) -> Result<Put, String> {
    let digits = number.to_string();
    // One `memset` and one small copy: a loop over the bytes takes a twelfth of a processor in a build for tests.
    let mut bytes = vec![b'.'; usize::try_from(VALUE_BYTES).expect("small")];
    bytes[..digits.len()].copy_from_slice(digits.as_bytes());
    match table.put(name(key), &bytes).await {
        Ok(_) => Ok(Put::Done),
        Err(Error::NotExecuted(_)) => Ok(Put::Never),
        Err(Error::Unknown { call, .. }) => match call.resolve().await {
            Ok(Resolved::Executed(_)) => Ok(Put::Done),
            Ok(Resolved::NotExecuted(_)) => Ok(Put::Never),
            Ok(Resolved::Never(_)) => Ok(Put::Unknown),
            other => Err(format!("{} came to {other:?}", name(key))),
        },
        Err(error) => Err(format!("overwriting {}: {error}", name(key))),
    }
}

/// Whether a key holds one of the values that it may hold.
fn check(key: u64, values: &Values, found: Option<&[u8]>) -> Result<(), String> {
    let digits = found.map(|bytes| bytes.iter().take_while(|byte| byte.is_ascii_digit()).count());
    let number = found.zip(digits).and_then(|(bytes, digits)| std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok());
    let is_whole = found.is_some_and(|bytes| {
        bytes.len() as u64 == VALUE_BYTES && bytes[digits.unwrap_or(0)..].iter().all(|byte| *byte == b'.')
    });
    let may_be_none = values.told == 0;
    match number {
        Some(number) if is_whole && (number == values.told || values.unknown.contains(&number)) => Ok(()),
        None if found.is_none() && may_be_none => Ok(()),
        _ => Err(format!("{} holds value {number:?}, and its task knows {values:?}", name(key))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_holds_what_its_task_knows() {
        let values = Values { told: 7, unknown: vec![9] };
        let mut bytes = vec![b'.'; usize::try_from(VALUE_BYTES).expect("small")];
        let mut holds = |number: &str| {
            bytes[..2].copy_from_slice(format!("{number:.<2}").as_bytes());
            check(1, &values, Some(&bytes)).is_ok()
        };
        assert_eq!(["7", "9", "8", "77"].map(&mut holds), [true, true, false, false]);
        assert!(check(1, &values, None).is_err());
        assert!(check(1, &values, Some(b"7.")).is_err(), "too short");
        assert!(check(1, &Values::default(), None).is_ok());
    }
}
