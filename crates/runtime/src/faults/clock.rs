//! A clock that a test can make jump and drift.
//!
//! `KASHA_TEST_CLOCK` names a file, `JUMP PPM`: nanoseconds that the clock has jumped in all, and by how many
//! millionths it runs fast (or slow, below 0). It is looked at every few milliseconds; time never goes back.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use kasha_types::Tick;

const MILLION: i128 = 1_000_000;

/// Between two looks at the file.
const LOOK: Duration = Duration::from_millis(5);

/// The longest that a loop sleeps: after a jump its deadline has come, whatever was armed.
const NAP: u64 = 20_000_000;

/// Shown time as a line through one point.
#[derive(Clone, Copy)]
struct Line {
    real: u64,
    shown: u64,
    jumped: u64,
    ppm: i64,
}

impl Line {
    fn at(&self, real: u64) -> u64 {
        let elapsed = i128::from(real.saturating_sub(self.real)) * (MILLION + i128::from(self.ppm)) / MILLION;
        self.shown + u64::try_from(elapsed).expect("no clock runs backwards")
    }

    fn turn(&self, real: u64, jumped: u64, ppm: i64) -> Self {
        Self { real, shown: self.at(real) + jumped.saturating_sub(self.jumped), jumped, ppm }
    }
}

fn line() -> Option<MutexGuard<'static, Line>> {
    static LINE: OnceLock<Option<Mutex<Line>>> = OnceLock::new();
    let line = LINE.get_or_init(|| {
        let file = PathBuf::from(std::env::var_os("KASHA_TEST_CLOCK")?);
        let real = crate::clock::boot_time();
        let looks = move || loop {
            std::thread::sleep(LOOK);
            look(&file);
        };
        std::thread::Builder::new().name("test-clock".into()).spawn(looks).expect("a thread");
        Some(Mutex::new(Line { real, shown: real, jumped: 0, ppm: 0 }))
    });
    line.as_ref().map(|line| line.lock().unwrap_or_else(PoisonError::into_inner))
}

fn look(file: &std::path::Path) {
    let Ok(text) = std::fs::read_to_string(file) else { return };
    let mut fields = text.split_whitespace();
    let jumped = fields.next().and_then(|field| field.parse().ok());
    let ppm = fields.next().and_then(|field| field.parse().ok());
    let (Some(jumped), Some(ppm), Some(mut line)) = (jumped, ppm, line()) else { return };
    if (line.jumped, line.ppm) != (jumped, ppm) {
        *line = line.turn(crate::clock::boot_time(), jumped, ppm);
    }
}

/// What the clock shows at a time of the real one.
pub(crate) fn shown(real: u64) -> u64 {
    line().map_or(real, |line| line.at(real))
}

/// When to wake, on the real clock, to be there at a time that the clock shows.
pub(crate) fn wake(now: Tick, deadline: Tick) -> Tick {
    if line().is_none() {
        return deadline;
    }
    let nap = deadline.0.saturating_sub(now.0).min(NAP);
    Tick(crate::clock::boot_time() + nap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_jumps_and_drifts_and_never_goes_back() {
        let start = Line { real: 100, shown: 100, jumped: 0, ppm: 0 };
        let jumped = start.turn(1100, 5000, 0);
        assert_eq!(jumped.at(1100), 6100);
        let slow = jumped.turn(2100, 5000, -500_000);
        assert_eq!((slow.at(2100), slow.at(4100)), (7100, 8100));
        let back = slow.turn(4100, 0, 0);
        assert_eq!(back.at(4100), 8100, "a smaller jump is none");
        assert_eq!(back.at(4000), 8100);
    }
}
