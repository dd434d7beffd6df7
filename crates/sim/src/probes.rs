//! Counts of what a run reached. A simulation that never gets to the rare paths proves nothing.

use std::collections::BTreeMap;

/// Named counters, in order of name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probes(BTreeMap<String, u64>);

impl Probes {
    /// Adds one to a counter.
    pub fn hit(&mut self, name: &str) {
        self.add(name, 1);
    }

    /// Adds to a counter.
    pub fn add(&mut self, name: &str, count: u64) {
        match self.0.get_mut(name) {
            Some(counter) => *counter += count,
            None if count > 0 => drop(self.0.insert(name.to_owned(), count)),
            None => {}
        }
    }

    /// Adds to a counter, perhaps 0: it appears in reports in any case.
    pub fn list(&mut self, name: &str, count: u64) {
        *self.0.entry(name.to_owned()).or_default() += count;
    }

    /// The value of a counter; 0 if it was never hit.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Self) {
        for (name, &count) in &other.0 {
            self.list(name, count);
        }
    }

    /// All counters, in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, &count)| (name.as_str(), count))
    }
}
