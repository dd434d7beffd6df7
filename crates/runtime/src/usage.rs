//! What an event loop's thread has used up, told to whoever asks (`GetUsage`). It costs nothing until then.
//!
//! The question is the loop's and not the machine's: a machine has no clock. It is answered before an injected delay,
//! and never lost by an injected fault, which stand between the sockets and the machine.

use kasha_wire::status::LoopUsage;
use rustix::time::{ClockId, clock_gettime};

use crate::memory::adopted_bytes;
use crate::stats::NetworkStats;

/// What the present thread has allocated, as the program's allocator counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapUse {
    /// Allocations so far.
    pub allocations: u64,
    /// Bytes that it has allocated and not freed.
    pub bytes: u64,
}

/// The use of the present thread.
pub(crate) fn now(stats: &NetworkStats, turns: u64, heap: Option<fn() -> HeapUse>) -> LoopUsage {
    let heap = heap.map_or_else(HeapUse::default, |heap| heap());
    LoopUsage {
        cpu_nanos: thread_cpu_nanos(),
        allocations: heap.allocations,
        heap_bytes: heap.bytes + adopted_bytes(),
        turns,
        frames_received: stats.frames_received,
        frames_sent: stats.frames_sent,
    }
}

/// Processor time of the present thread, in nanoseconds.
#[must_use]
pub fn thread_cpu_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The kernel's counters of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadCounts {
    pub(crate) cpu_nanos: u64,
    /// Times that the thread waited for something.
    pub(crate) waits: u64,
}

/// The counters of the present thread.
///
/// The processor time is the clock's. `rusage` has another, which grows only when the scheduler runs: at its tick, or when
/// another thread gets the processor. Of a turn of half a millisecond `rusage` may say that it took four.
#[expect(unsafe_code, reason = "a system call that rustix does not have")]
pub(crate) fn thread_counts() -> ThreadCounts {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage`, to where there is room for it.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    assert_eq!(result, 0, "RUSAGE_THREAD is known to every kernel that Kasha runs on");
    // SAFETY: zeros are a valid `rusage`, and so is what the kernel wrote.
    let usage = unsafe { usage.assume_init() };
    ThreadCounts { cpu_nanos: thread_cpu_nanos(), waits: u64::try_from(usage.ru_nvcsw).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_waits() {
        let before = thread_counts();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(thread_counts().waits > before.waits);
    }

    /// The processor time of `rusage` is that of the scheduler's last tick, and stands before the first of these two.
    #[test]
    fn processor_time_is_that_of_now() {
        for _ in 0..100 {
            let before = thread_cpu_nanos();
            let counted = thread_counts().cpu_nanos;
            assert!((before..=thread_cpu_nanos()).contains(&counted));
        }
    }

    #[test]
    fn a_thread_that_works_uses_processor_time() {
        let before = thread_cpu_nanos();
        let mut sum = 0u64;
        while thread_cpu_nanos() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(thread_cpu_nanos() > before);
    }
}
