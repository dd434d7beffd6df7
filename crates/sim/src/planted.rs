//! Bugs that can be switched on for a run, to see that the checkers catch them (feature `planted-bugs`).
//!
//! Each breaks one rule of the design. Those of this list break it in the simulator's shell, where the rule is kept for
//! all machines at once; bugs inside a protocol crate are planted there, behind the same switch.

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// D3: frames leave before their gates open.
    GatesIgnored,
    /// R5.3: a commit is reported although a write before it has not happened.
    WritesLost,
    /// R5.3: an fsync is reported at once, before anything is on the platter.
    FsyncLies,
    /// Section 7: `now` is read before the process is stopped, and used after.
    StaleNow,
}

/// Whether this run has the bug.
#[cfg(feature = "planted-bugs")]
#[must_use]
pub fn is_on(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this run has the bug: never, without the feature.
#[cfg(not(feature = "planted-bugs"))]
#[must_use]
pub fn is_on(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in all runs of this thread, or none.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}
