//! Money that programs of Redis move between two keys in one `EXEC`, and a counter of the moves.
//!
//! The two keys sum up to nothing in every reply (R10.6): nobody sees half of a move. No two moves have one number, and in the end the counter is
//! at least the number of moves that were told and at most that plus the unknown ones.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pairs of keys.
pub const GROUPS: usize = 4;

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Half of a move is there.
    Half(String),
    /// A move is lost, or there twice.
    Wrong(String),
}

/// The moves of a round.
#[derive(Debug, Default)]
pub struct Accounts([Mutex<Group>; GROUPS]);

#[derive(Debug, Default)]
struct Group {
    /// The numbers that moves were told.
    told: BTreeSet<i64>,
    unknown: i64,
}

/// Two accounts, and the counter of their moves. In every other group they are of whatever shards, if the database is spread.
#[must_use]
pub fn keys(group: usize) -> [String; 3] {
    let tag =
        |name| if group.is_multiple_of(2) { format!("{{acc:{group}}}:{name}") } else { format!("acc:{group}:{name}") };
    ["from", "to", "moves"].map(tag)
}

impl Accounts {
    fn group(&self, group: usize) -> MutexGuard<'_, Group> {
        self.0[group].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A move was told these numbers.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn moved(&self, group: usize, [from, to, number]: [i64; 3]) -> Result<(), Problem> {
        let is_new = self.group(group).told.insert(number);
        let text = format!("move {number} of group {group} left {from} and {to}");
        if from + to != 0 {
            return Err(Problem::Half(text));
        }
        if is_new { Ok(()) } else { Err(Problem::Wrong(format!("{text}, and is the second with this number"))) }
    }

    /// Nobody knows what became of a move.
    pub fn unknown(&self, group: usize) {
        self.group(group).unknown += 1;
    }

    /// The last move that was told.
    #[must_use]
    pub fn last(&self, group: usize) -> i64 {
        self.group(group).told.last().copied().unwrap_or(0)
    }

    /// These numbers were seen by who knew of the move `before`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn seen(&self, group: usize, [from, to, moves]: [i64; 3], before: i64) -> Result<(), Problem> {
        let text = format!("group {group} is seen with {from} and {to} after {moves} moves");
        if from + to != 0 {
            return Err(Problem::Half(text));
        }
        if moves < before { Err(Problem::Wrong(format!("{text}; told before: {before}"))) } else { Ok(()) }
    }

    /// These numbers are there in the end.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn ended(&self, group: usize, numbers: [i64; 3]) -> Result<(), Problem> {
        self.seen(group, numbers, 0)?;
        let (least, moves) = (i64::try_from(self.group(group).told.len()).expect("few"), numbers[2]);
        let most = least + self.group(group).unknown;
        match (least..=most).contains(&moves) {
            true => Ok(()),
            false => Err(Problem::Wrong(format!("group {group} ends after {moves} moves, of {least} to {most}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_move_is_noticed_and_so_is_one_that_is_lost_or_doubled() {
        let accounts = Accounts::default();
        assert_eq!(accounts.moved(0, [-5, 5, 1]), Ok(()));
        assert!(matches!(accounts.moved(0, [-7, 5, 2]), Err(Problem::Half(_))));
        assert!(matches!(accounts.moved(0, [-7, 7, 1]), Err(Problem::Wrong(_))), "its number was told before");
        assert_eq!((accounts.last(0), accounts.seen(0, [-7, 7, 2], 2)), (2, Ok(())));
        assert!(matches!(accounts.seen(0, [-5, 5, 1], 2), Err(Problem::Wrong(_))), "a move is not there any more");
        assert!(matches!(accounts.seen(0, [-7, 5, 2], 2), Err(Problem::Half(_))));
        let ends = |moves| accounts.ended(0, [-7, 7, moves]).is_ok();
        assert_eq!([1, 2, 3].map(ends), [false, true, false]);
        accounts.unknown(0);
        assert_eq!([1, 2, 3, 4].map(ends), [false, true, true, false]);
    }
}
