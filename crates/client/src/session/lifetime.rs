//! How long a value lives, as programs say it (0038).

use std::time::Duration;

use kasha_wire::operation::Lifetime;

use super::WhyNot;

/// Milliseconds, rounded up: nothing ends before the time that was asked for.
///
/// # Errors
/// [`WhyNot::Lifetime`]: a value that lives for no time is none.
pub fn lifetime_of(time: Duration) -> Result<Lifetime, WhyNot> {
    let millis = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    Lifetime::from_millis(millis).ok_or(WhyNot::Lifetime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_never_shorter_than_what_was_asked_for() {
        let millis = |time| lifetime_of(time).map(Lifetime::millis);
        assert_eq!(millis(Duration::from_nanos(1)), Ok(1));
        assert_eq!(millis(Duration::from_micros(1500)), Ok(2));
        assert_eq!(millis(Duration::MAX), Ok(u64::MAX));
        assert_eq!(millis(Duration::ZERO), Err(WhyNot::Lifetime));
    }
}
