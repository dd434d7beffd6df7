//! How often a client sends: no faster than the machine answers. Else all would wait in queues for seconds, and the demonstration would show a
//! flood. What a stopped shard has under way has no answer, and so does not slow down the load of the others.

use std::collections::VecDeque;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    shortest: Duration,
    /// How long the last updates with an answer took, the newest last.
    latest: VecDeque<Duration>,
}

impl Pace {
    const LATEST: usize = 31;
    /// Updates that are under way at a time, if all take as long as the median.
    const TOGETHER: u32 = 4;
    const LONGEST: Duration = Duration::from_millis(50);

    pub(super) fn new(shortest: Duration) -> Self {
        Self { shortest, latest: VecDeque::new() }
    }

    pub(super) fn note(&mut self, took: Duration) {
        if self.latest.len() == Self::LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(took);
    }

    pub(super) fn interval(&self) -> Duration {
        let mut sorted: Vec<_> = self.latest.iter().copied().collect();
        sorted.sort_unstable();
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        (median / Self::TOGETHER).clamp(self.shortest, Self::LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_follows_what_most_updates_take() {
        let mut pace = Pace::new(Duration::from_millis(2));
        assert_eq!(pace.interval(), Duration::from_millis(2));
        (0..31).for_each(|_| pace.note(Duration::from_millis(40)));
        assert_eq!(pace.interval(), Duration::from_millis(10));
        (0..15).for_each(|_| pace.note(Duration::from_secs(5)));
        assert_eq!(pace.interval(), Duration::from_millis(10), "a shard was stopped");
        (0..31).for_each(|_| pace.note(Duration::from_secs(5)));
        assert_eq!(pace.interval(), Pace::LONGEST);
        (0..31).for_each(|_| pace.note(Duration::from_micros(300)));
        assert_eq!(pace.interval(), Duration::from_millis(2));
    }
}
