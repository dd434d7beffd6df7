//! Chooses the keys that a load touches: one key, all keys equally often, or some far more often than others.

use kasha_machine::Rng;

/// A way to choose keys.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    /// Always the first key: a hot key.
    One,
    /// Each in turn, from the first.
    Each,
    /// Any of this many keys, all equally often.
    Uniform(u32),
    /// By Zipf's law.
    Zipf(Zipf),
}

impl Keys {
    /// The key's number for the operation with this number in its load.
    pub(crate) fn draw(&self, operation: u64, rng: &mut Rng) -> u64 {
        match self {
            Self::One => 0,
            Self::Each => operation,
            Self::Uniform(keys) => rng.below(u64::from(*keys)),
            Self::Zipf(zipf) => zipf.draw(rng),
        }
    }
}

/// Zipf's law over this many keys: the n-th most wanted key is wanted as often as `1 / n^skew`.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    /// Sums of the weights up to each key, scaled to all of `u64`.
    up_to: Vec<u64>,
}

impl Zipf {
    pub(crate) fn new(keys: u32, skew: f64) -> Self {
        let weights = (1..=keys).map(|rank| f64::from(rank).powf(-skew));
        let mut sum = 0.0;
        let add = |weight| {
            sum += weight;
            sum
        };
        let sums: Vec<f64> = weights.map(add).collect();
        // A float that is too large becomes the greatest integer.
        let up_to = sums.into_iter().map(|up_to| (up_to / sum * u64::MAX as f64) as u64).collect();
        Self { up_to }
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let drawn = rng.next_u64();
        let rank = self.up_to.partition_point(|&up_to| up_to < drawn);
        rank.min(self.up_to.len() - 1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(keys: &Keys, draws: u64, of: usize) -> Vec<u64> {
        let (mut rng, mut counts) = (Rng::new(1), vec![0; of]);
        for operation in 0..draws {
            counts[keys.draw(operation, &mut rng) as usize] += 1;
        }
        counts
    }

    #[test]
    fn zipf_follows_its_law() {
        let counts = counts(&Keys::Zipf(Zipf::new(1000, 0.99)), 1_000_000, 1000);
        for (low, high) in [(0usize, 1usize), (0, 9), (9, 99)] {
            let wanted = ((high + 1) as f64 / (low + 1) as f64).powf(0.99);
            let seen = counts[low] as f64 / counts[high] as f64;
            assert!((seen / wanted - 1.0).abs() < 0.1, "{low}/{high}: {seen} instead of {wanted}");
        }
        assert!(counts.iter().all(|&count| count > 0), "every key is wanted at times");
    }

    #[test]
    fn the_others_do_what_they_say() {
        assert_eq!(counts(&Keys::One, 10, 3), [10, 0, 0]);
        assert_eq!(counts(&Keys::Each, 3, 3), [1, 1, 1]);
        assert!(counts(&Keys::Uniform(3), 3000, 3).iter().all(|&count| (900..1100).contains(&count)));
    }
}
