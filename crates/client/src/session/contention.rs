//! Whether a transaction over several shards in which nothing can fail is tried with locks first ([0034]).
//!
//! With locks it takes one round trip if nobody else uses its keys ([0032]); if somebody does, it is refused, and sent again
//! without locks, which takes two and a half, and never fails. So a session tries locks where it has met nobody, and after a
//! conflict leaves them for a while: the longer, the more often locks have failed there.
//!
//! [0032]: ../../../../docs/decisions/0032-one-round-trip-without-a-decision.md
//! [0034]: ../../../../docs/decisions/0034-locks-first-where-nobody-is-met.md

use kasha_types::KeyHash;

/// Keys share buckets. A key beside a hot one in its bucket only loses a round trip and a half.
const BUCKETS: usize = 256;
/// At most so many transactions (2 to this power) go without locks after a conflict.
const LEVEL_MAX: u8 = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Grows with each conflict, and shrinks when locks were free.
    level: u8,
    /// Transactions that still go without locks.
    left: u16,
}

/// What a session has met, by keys.
#[derive(Debug)]
pub(super) struct Contention(Box<[Bucket; BUCKETS]>);

impl Default for Contention {
    fn default() -> Self {
        Self(Box::new([Bucket::default(); BUCKETS]))
    }
}

impl Contention {
    fn bucket(&mut self, key: KeyHash) -> &mut Bucket {
        &mut self.0[usize::from(key.0.to_le_bytes()[7])]
    }

    /// Whether the next transaction on these keys takes locks.
    pub(super) fn tries_locks(&mut self, keys: &[KeyHash]) -> bool {
        let mut are_free = true;
        for &key in keys {
            let bucket = self.bucket(key);
            are_free &= bucket.left == 0;
            bucket.left = bucket.left.saturating_sub(1);
        }
        are_free
    }

    /// One of them was locked.
    pub(super) fn met_others(&mut self, keys: &[KeyHash]) {
        for &key in keys {
            let bucket = self.bucket(key);
            bucket.level = (bucket.level + 1).min(LEVEL_MAX);
            bucket.left = 1 << bucket.level;
        }
    }

    /// All of them were free.
    pub(super) fn met_nobody(&mut self, keys: &[KeyHash]) {
        for &key in keys {
            let bucket = self.bucket(key);
            bucket.level = bucket.level.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOT: KeyHash = KeyHash(1 << 56);
    const COLD: KeyHash = KeyHash(2 << 56);

    #[test]
    fn locks_are_left_where_they_were_taken_and_tried_again_later() {
        let mut contention = Contention::default();
        assert!(contention.tries_locks(&[HOT, COLD]));
        contention.met_others(&[HOT]);
        assert!(contention.tries_locks(&[COLD]), "nobody was met there");
        let without = (0..100).take_while(|_| !contention.tries_locks(&[HOT, COLD])).count();
        assert_eq!(without, 2);
        contention.met_others(&[HOT]);
        let without = (0..100).take_while(|_| !contention.tries_locks(&[HOT])).count();
        assert_eq!(without, 4);
        for _ in 0..20 {
            contention.met_others(&[HOT]);
        }
        let without = (0..1000).take_while(|_| !contention.tries_locks(&[HOT])).count();
        assert_eq!(without, 256);
        for _ in 0..8 {
            contention.met_nobody(&[HOT]);
        }
        contention.met_others(&[HOT]);
        assert_eq!((0..100).take_while(|_| !contention.tries_locks(&[HOT])).count(), 2);
    }
}
