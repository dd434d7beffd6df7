//! The load of every store: a number of callers, each with one update of a uniformly chosen key at a time.

use std::time::{Duration, Instant};

use kasha_machine::Rng;

use super::{Callers, RivalsOptions};

/// What a store must do in one round.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) callers: Callers,
    pub(super) time: Duration,
    pub(super) value: Vec<u8>,
    keys: u32,
    seed: u64,
}

impl Load {
    pub(super) fn new(options: &RivalsOptions, callers: Callers, seed: u64) -> Self {
        let RivalsOptions { round_time, value_bytes, keys, .. } = *options;
        Self { callers, time: round_time, value: vec![b'v'; value_bytes], keys, seed }
    }

    /// Which of a store's clients a caller uses.
    pub(super) fn client(&self, caller: usize) -> usize {
        if self.callers.is_shared { 0 } else { caller }
    }

    /// The keys of one caller: the same for every store.
    pub(super) fn keys(&self, caller: usize) -> Keys {
        Keys { rng: Rng::new((self.seed << 32) | caller as u64), keys: self.keys, text: String::new() }
    }
}

/// A caller's keys, one after the other.
#[derive(Debug)]
pub(super) struct Keys {
    rng: Rng,
    keys: u32,
    text: String,
}

impl Keys {
    pub(super) fn draw(&mut self) -> &str {
        use std::fmt::Write as _;
        self.text.clear();
        write!(self.text, "key-{:08}", self.rng.below(u64::from(self.keys))).expect("a string takes it");
        &self.text
    }
}

/// The result of a round.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Latency of each update, in nanoseconds.
    pub(super) latencies: Vec<u64>,
    /// Time from the first request to the last answer.
    pub(super) time: Duration,
    /// Updates that completed by their witnesses (Kasha).
    pub(super) fast: u64,
}

/// Operations of a caller, at least: a share of fewer says nothing. A round on a slow machine is longer for that.
const OPERATIONS_MIN: usize = 20;

/// The end of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct End(Instant);

impl End {
    /// Whether a caller is done that has these latencies.
    pub(super) fn has_come(self, latencies: &[u64]) -> bool {
        Instant::now() >= self.0 && latencies.len() >= OPERATIONS_MIN
    }
}

/// Runs callers, each of which runs until the round ends.
pub(super) fn run<F>(
    runtime: &tokio::runtime::Runtime,
    load: &Load,
    mut caller: impl FnMut(usize, End) -> F,
) -> anyhow::Result<Round>
where
    F: Future<Output = anyhow::Result<Vec<u64>>> + Send + 'static,
{
    let start = Instant::now();
    let end = End(start + load.time);
    runtime.block_on(async {
        let mut callers = tokio::task::JoinSet::new();
        (0..load.callers.count).for_each(|number| drop(callers.spawn(caller(number, end))));
        let mut round = Round::default();
        while let Some(done) = callers.join_next().await {
            round.latencies.extend(done??);
        }
        round.time = start.elapsed();
        Ok(round)
    })
}

/// Nanoseconds since then.
pub(super) fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_draw_the_same_keys_for_every_store_and_others_than_each_other() {
        let load = Load::new(&RivalsOptions::new("kasha".into()), Callers::apart(2), 7);
        let drawn = |client| {
            let mut keys = load.keys(client);
            (0..100).map(|_| keys.draw().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(drawn(0), drawn(0));
        assert_ne!(drawn(0), drawn(1));
        assert!(drawn(0).iter().all(|key| key.len() == 12));
    }
}
