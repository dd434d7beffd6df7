//! Clients that asked for a newer configuration than the one in force. They are told as soon as there is a newer one,
//! so that a client which waits for a fail-over does not have to ask again and again.
//!
//! There is at most one entry for each accepted connection, and it goes when the connection closes. A turn tells a
//! limited number of clients, however many wait, so that the shell's loop can serve others in between.

use std::collections::BTreeMap;

use kasha_types::planted::{self, Bug};
use kasha_types::{ConfigVersion, ConnId};

/// Bytes of configurations that one turn sends to waiting clients.
pub const TOLD_BYTES_MAX: usize = 1024 * 1024;

/// Connections whose clients wait for a newer configuration.
#[derive(Debug, Default)]
pub struct Askers {
    /// The version that each waiting client has.
    waiting: BTreeMap<ConnId, ConfigVersion>,
    /// There is a newer configuration, and some clients have not been told yet.
    is_telling: bool,
}

impl Askers {
    /// Remembers a client that asked; there is nothing newer than what it has.
    pub fn wait(&mut self, who: ConnId, have: ConfigVersion) {
        self.waiting.insert(who, have);
    }

    /// The connection is closed: nobody waits on it any more.
    pub fn forget(&mut self, who: ConnId) {
        self.waiting.remove(&who);
    }

    /// There is a new configuration.
    pub fn announce(&mut self) {
        self.is_telling = !self.waiting.is_empty();
    }

    /// Whether some clients are still to be told.
    #[must_use]
    pub fn is_telling(&self) -> bool {
        self.is_telling
    }

    /// The clients to tell in this turn, for a configuration of this version and encoded length. They wait no longer.
    /// Lowest connections come first. A client that has this version or a newer one goes on waiting.
    pub fn take(&mut self, version: ConfigVersion, bytes: usize) -> Vec<ConnId> {
        if planted::is_on(Bug::NewsUntold) {
            self.is_telling = false;
            return Vec::new();
        }
        let most = (TOLD_BYTES_MAX / bytes.max(1)).max(1);
        let lack = self.waiting.iter().filter(|(_, have)| **have < version).map(|(&who, _)| who);
        let told: Vec<ConnId> = lack.take(most).collect();
        for who in &told {
            self.waiting.remove(who);
        }
        self.is_telling = told.len() == most;
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_who_lacks_it_is_told_once_and_some_in_each_turn() {
        let mut askers = Askers::default();
        for number in 0..10 {
            askers.wait(ConnId(number), ConfigVersion(if number == 3 { 8 } else { 5 }));
        }
        askers.forget(ConnId(0));
        assert!(!askers.is_telling(), "nothing is new");
        askers.announce();
        let mut told = Vec::new();
        while askers.is_telling() {
            let some = askers.take(ConfigVersion(8), TOLD_BYTES_MAX / 3);
            assert!(some.len() <= 3);
            told.extend(some);
        }
        let expected: Vec<_> = [1, 2, 4, 5, 6, 7, 8, 9].map(ConnId).to_vec();
        assert_eq!(told, expected);
        askers.announce();
        assert_eq!(askers.take(ConfigVersion(9), 2 * TOLD_BYTES_MAX), [ConnId(3)], "one is told however long it is");
    }
}
