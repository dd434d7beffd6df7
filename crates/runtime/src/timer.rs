//! A deadline that wakes the poll to the nanosecond; the poll's own timeout counts milliseconds.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use kasha_types::Tick;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A timer on the clock of [`crate::Clock`].
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
    armed: Option<Tick>,
}

impl Timer {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { fd, armed: None })
    }

    /// Wakes the poll at `deadline` at the latest. A timer that goes off earlier is left as it is: most deadlines are
    /// pushed back long before they are reached, and one needless wake is cheaper than a system call for each push.
    pub(crate) fn arm(&mut self, now: Tick, deadline: Tick) -> io::Result<()> {
        if self.armed.is_some_and(|armed| armed > now && armed <= deadline) {
            return Ok(());
        }
        let armed = deadline;
        #[cfg(feature = "test-faults")]
        let deadline = crate::faults::clock::wake(now, deadline);
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Timespec {
            tv_sec: i64::try_from(deadline.0 / 1_000_000_000).unwrap_or(i64::MAX),
            // An expiry of zero disarms.
            tv_nsec: i64::try_from(deadline.0 % 1_000_000_000).expect("below a second").max(1),
        };
        let expiry = Itimerspec { it_interval: none, it_value: at };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &expiry)?;
        self.armed = Some(armed);
        Ok(())
    }

    pub(crate) fn fired(&mut self) {
        self.armed = None;
    }
}
