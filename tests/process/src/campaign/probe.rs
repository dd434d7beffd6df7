//! Clients that ask for one key repeatedly, to measure when there was an answer: one session for each shard, and one
//! session that asks for keys of all shards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kasha_client::{Client, ClientOptions, Table};
use kasha_types::slot_of;

use super::net::Net;
use super::{Failure, broken, wait_for};

/// Time between two calls of a key.
const PAUSE: Duration = Duration::from_millis(30);
/// Keys of each shard in the shared session.
const SHARED: usize = 2;
/// No call is given up before its phase ends.
const PATIENCE: Duration = Duration::from_secs(180);

/// The answers that the caller of a key got.
#[derive(Debug)]
pub struct Seen {
    /// The shard of the key.
    pub shard: u64,
    /// Whether the session also asked for keys of other shards.
    pub is_shared: bool,
    /// The times of the answers.
    answers: Vec<Instant>,
}

impl Seen {
    /// The longest time without an answer that ended after this moment, counted from this moment at the earliest.
    #[must_use]
    pub fn pause_after(&self, moment: Instant) -> Duration {
        let pauses = self.answers.windows(2).filter(|pair| pair[1] > moment);
        pauses.map(|pair| pair[1] - pair[0].max(moment)).max().unwrap_or_default()
    }

    /// The number of answers between two moments.
    #[must_use]
    pub fn answers_between(&self, from: Instant, to: Instant) -> u64 {
        self.answers.iter().filter(|answer| (from..to).contains(answer)).count() as u64
    }
}

/// The probes of a phase.
#[derive(Debug)]
pub struct Probe {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    thread: JoinHandle<Result<Vec<Seen>, String>>,
}

impl Probe {
    /// Begins to ask, and waits until each key was answered. The name makes the keys new ones.
    ///
    /// # Errors
    /// If a key is not answered.
    pub fn start(net: &Net, name: String) -> Result<Self, Failure> {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(usize::MAX)));
        let (seeds, theirs, count) = (net.seeds(), Arc::clone(&stop), Arc::clone(&answered));
        let job = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(ask(seeds, name, theirs, count))
        };
        let thread = net.thread("probe", job).map_err(broken("no thread"))?;
        let probe = Self { stop, answered, thread };
        let is_answered = || probe.answered.load(Ordering::Relaxed) == 0;
        match wait_for(&probe.thread, PATIENCE, "a probe's key is not answered", is_answered)? {
            true => Ok(probe),
            false => probe.end().map(|_| unreachable!("it ends when it is told")),
        }
    }

    /// Stops asking.
    ///
    /// # Errors
    /// If a key is not answered any more.
    pub fn end(self) -> Result<Vec<Seen>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.thread.join().map_err(|_| Failure::Broken("a probe panicked".to_owned()))?;
        seen.map_err(Failure::Stuck)
    }
}

async fn connect(seeds: &[String]) -> Result<(Client, Table), String> {
    let options = ClientOptions { connect_timeout: PATIENCE, deadline: PATIENCE, ..ClientOptions::default() };
    let client = Client::connect_with(seeds, options).await.map_err(|error| error.to_string())?;
    let table = client.table("default").await.map_err(|error| error.to_string())?;
    Ok((client, table))
}

async fn ask(
    seeds: Vec<String>,
    name: String,
    stop: Arc<AtomicBool>,
    unanswered: Arc<AtomicUsize>,
) -> Result<Vec<Seen>, String> {
    let (client, shared) = connect(&seeds).await?;
    let configuration = client.fresh_configuration().await.map_err(|error| error.to_string())?;
    let id = configuration.table("default").ok_or("no table")?;
    let mut keys = Vec::new();
    for shard in &configuration.shards {
        let mut names = (0u32..).map(|salt| format!("{name}:{salt}"));
        let mut next = || {
            let is_its = |key: &String| configuration.owner(id, slot_of(key.as_bytes())) == Some(shard.shard);
            names.find(is_its).expect("a key of each shard")
        };
        let number = u64::from(shard.shard.0);
        keys.push((number, false, next(), connect(&seeds).await?.1));
        keys.extend((0..SHARED).map(|_| (number, true, next(), shared.clone())));
    }
    unanswered.store(keys.len(), Ordering::Relaxed);
    let tasks: Vec<_> = keys
        .into_iter()
        .map(|(shard, is_shared, key, table)| {
            tokio::spawn(ask_for(shard, is_shared, key, table, Arc::clone(&stop), Arc::clone(&unanswered)))
        })
        .collect();
    let mut seen = Vec::new();
    for task in tasks {
        seen.push(task.await.map_err(|error| error.to_string())??);
    }
    Ok(seen)
}

/// Counts a key of its own, so that each answer must be greater than the one before.
async fn ask_for(
    shard: u64,
    is_shared: bool,
    key: String,
    table: Table,
    stop: Arc<AtomicBool>,
    unanswered: Arc<AtomicUsize>,
) -> Result<Seen, String> {
    let (mut answers, mut last) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        match table.increment(&key, 1).await {
            Ok(counter) if counter.value > last => last = counter.value,
            Ok(counter) => return Err(format!("{key} was {last} and then {}", counter.value)),
            Err(error) => return Err(format!("the probe of shard-{shard} ended: {error}")),
        }
        if answers.is_empty() {
            unanswered.fetch_sub(1, Ordering::Relaxed);
        }
        answers.push(Instant::now());
        tokio::time::sleep(PAUSE).await;
    }
    Ok(Seen { shard, is_shared, answers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_counts_from_the_fault() {
        let begin = Instant::now();
        let at = |seconds: &[u64]| seconds.iter().map(|second| begin + Duration::from_secs(*second)).collect();
        let seen = Seen { shard: 0, is_shared: false, answers: at(&[0, 9, 10, 14, 15]) };
        let pause = |second| seen.pause_after(begin + Duration::from_secs(second)).as_secs();
        assert_eq!([0, 5, 9, 11, 14, 20].map(pause), [9, 4, 4, 3, 1, 0]);
        let between = |from, to| {
            let [from, to] = [from, to].map(|second| begin + Duration::from_secs(second));
            seen.answers_between(from, to)
        };
        assert_eq!([between(1, 9), between(1, 15), between(15, 60)], [0, 3, 1]);
    }
}
