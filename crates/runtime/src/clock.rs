//! The machine's clock, boot id and randomness.

use std::io;

use kasha_types::{BootId, Tick};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};

/// The machine's clock: `CLOCK_BOOTTIME`, which goes on while the machine is suspended, so that no lease outlives a
/// closed lid (section 7).
#[derive(Clone, Copy, Debug)]
pub struct Clock;

impl Clock {
    /// The present time.
    #[must_use]
    pub fn now() -> Tick {
        #[cfg(feature = "test-faults")]
        return Tick(crate::faults::clock::shown(boot_time()));
        #[cfg(not(feature = "test-faults"))]
        Tick(boot_time())
    }
}

/// Nanoseconds since the machine was booted.
pub(crate) fn boot_time() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanoseconds
}

/// The kernel's boot id: another one than the stored one means that the page cache was lost (R5.5).
///
/// # Errors
/// If the kernel does not say.
pub fn boot_id() -> io::Result<BootId> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    #[cfg(feature = "test-faults")]
    let read = || crate::faults::boot_id().map_or_else(|| std::fs::read_to_string(PATH), Ok);
    #[cfg(not(feature = "test-faults"))]
    let read = || std::fs::read_to_string(PATH);
    let text = read()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16)
        .map(BootId)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{PATH} holds no boot id: {text:?}")))
}

/// 64 bits of the system's randomness: for identities and seeds.
///
/// # Panics
/// If the kernel has no random numbers, which no supported one does.
#[must_use]
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    loop {
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            // Up to 256 bytes come whole.
            Ok(len) if len == bytes.len() => return u64::from_le_bytes(bytes),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel gives no random numbers: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_on_and_ids_differ() {
        let first = Clock::now();
        assert!(Clock::now() >= first);
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
        assert_ne!(random_u64(), random_u64());
    }
}
