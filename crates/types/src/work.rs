//! What a turn of an event loop did besides hearing and answering: a machine notes the kinds, its shell the time, so
//! that a long turn can be explained. Nothing decides by it.

use std::fmt;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Work {
    /// A slice of a log was replayed.
    Replay,
    /// Segments were freed.
    Free,
    /// What led into a segment that goes was taken from the state.
    Forget,
    /// Tombstones were looked at, or let go.
    Graves,
    /// A slice of a dropped or flushed table went.
    DropTable,
    /// A file was removed.
    Remove,
    /// A whole segment came from another replica, or went to one.
    Copy,
    /// A role was taken or lost, a log was cut or begun anew.
    Role,
    /// A configuration was obeyed.
    Configure,
    /// Live entries were moved (the log cleaner).
    Clean,
    /// Values whose time was over were deleted.
    Expire,
}

impl Work {
    /// All of them, in order.
    pub const ALL: [Self; 11] = [
        Self::Replay,
        Self::Free,
        Self::Forget,
        Self::Graves,
        Self::DropTable,
        Self::Remove,
        Self::Copy,
        Self::Role,
        Self::Configure,
        Self::Clean,
        Self::Expire,
    ];

    /// A short name, for status output and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Free => "free",
            Self::Forget => "forget",
            Self::Graves => "graves",
            Self::DropTable => "drop-table",
            Self::Remove => "remove-file",
            Self::Copy => "copy",
            Self::Role => "role",
            Self::Configure => "configure",
            Self::Clean => "clean",
            Self::Expire => "expire",
        }
    }
}

/// Kinds of work.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkSet(u16);

impl WorkSet {
    /// Notes a kind.
    pub fn add(&mut self, work: Work) {
        self.0 |= 1 << work as u8;
    }

    /// Notes all of these.
    pub fn add_all(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether a kind is in it.
    #[must_use]
    pub fn has(self, work: Work) -> bool {
        self.0 & (1 << work as u8) != 0
    }

    /// What is in it, in order.
    pub fn iter(self) -> impl Iterator<Item = Work> {
        Work::ALL.into_iter().filter(move |&work| self.has(work))
    }
}

impl From<Work> for WorkSet {
    fn from(work: Work) -> Self {
        let mut set = Self::default();
        set.add(work);
        set
    }
}

impl fmt::Debug for WorkSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_added() {
        let mut set = WorkSet::default();
        for (index, &work) in Work::ALL.iter().enumerate() {
            assert!(!set.has(work), "{work:?} has a bit of its own");
            set.add(work);
            assert!(set.iter().eq(Work::ALL[..=index].iter().copied()));
        }
    }
}
