//! Who has waited longest goes first (0047): no update is overtaken for ever by others that want its keys.
//!
//! An update *overtakes* another one if it was asked for later, and answered earlier, and both name a key. Until an update has lost twice
//! nobody gives way to it, so that some overtake it; what is bounded is their number.

use std::collections::BTreeSet;

use crate::history::{History, Operation, Told};

/// More never overtake: what twenty callers do while the update loses for the first time, comes again, and finds those that have
/// waited longer.
pub const OVERTAKEN_AT_MOST: usize = 150;

/// The violations, and how many updates were looked at.
#[must_use]
pub fn check(history: &History) -> (Vec<String>, u64) {
    let updates: Vec<&Operation> = history.operations().iter().filter(|one| one.action.update().is_some()).collect();
    let keys: Vec<BTreeSet<&[u8]>> = updates.iter().map(|one| one.action.keys().into_iter().collect()).collect();
    let (mut violations, mut looked_at) = (Vec::new(), 0);
    for (index, update) in updates.iter().enumerate() {
        let (Some(told), Told::Executed { .. }) = (update.told_at, &update.told) else { continue };
        looked_at += 1;
        let later = updates.iter().zip(&keys).skip(index + 1).take_while(|(other, _)| other.asked < told);
        let overtakes = later.filter(|(other, others)| {
            let is_told_earlier = other.told_at.is_some_and(|at| at < told);
            is_told_earlier && matches!(other.told, Told::Executed { .. }) && !others.is_disjoint(&keys[index])
        });
        let count = overtakes.count();
        if count > OVERTAKEN_AT_MOST {
            let (asked, keys) = (update.asked, keys[index].len());
            violations.push(format!(
                "oldest_first: {count} updates overtook one of {keys} keys, asked for at {asked} and told at {told} (0047)"
            ));
        }
    }
    (violations, looked_at)
}

#[cfg(test)]
mod tests {
    use kasha_wire::Outcome;

    use super::*;
    use crate::clock::SimTime;
    use crate::history::Action;

    /// One update that takes long, and others that are asked for and answered meanwhile.
    fn history(others: usize, key: &str) -> History {
        let mut history = History::default();
        let done = || Told::Executed { outcome: Outcome::Conflict, bytes: Vec::new() };
        let slow = history.ask(0, Action::multi_delete(&[b"a".to_vec(), b"b".to_vec()]), None, SimTime(0));
        for at in 0..others as u64 {
            let other = history.ask(1, Action::multi_delete(&[key.as_bytes().to_vec()]), None, SimTime(10 * at + 1));
            history.tell(other, done(), SimTime(10 * at + 2)).expect("told once");
        }
        history.tell(slow, done(), SimTime(10 * others as u64 + 3)).expect("told once");
        history
    }

    #[test]
    fn who_is_overtaken_too_often_is_named() {
        assert_eq!(check(&history(OVERTAKEN_AT_MOST, "b")).0, [""; 0]);
        assert_eq!(check(&history(OVERTAKEN_AT_MOST + 1, "b")).0.len(), 1);
        assert_eq!(check(&history(OVERTAKEN_AT_MOST + 1, "c")).0, [""; 0], "they share no key");
    }
}
