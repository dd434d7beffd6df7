//! Where a listing of a table's keys goes on.

use kasha_types::Slot;
use kasha_types::limits::SLOTS;

/// A place in the order in which a table's keys are listed: everything before it was listed. The order is by tablets; within one it
/// is the order of the keys' hashes, which is the same on every replica. So a cursor is good for any primary, and for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScanCursor {
    /// The first slot of what is not listed whole.
    pub slot: Slot,
    /// Of the keys in this slot's tablet, those before here were listed.
    pub position: u32,
}

impl ScanCursor {
    /// Nothing was listed.
    pub const START: Self = Self { slot: Slot(0), position: 0 };

    /// As a number below 2^46. Only [`Self::START`] is 0.
    #[must_use]
    pub fn number(self) -> u64 {
        u64::from(self.slot.0) << 32 | u64::from(self.position)
    }

    /// `None`: it is the number of no cursor.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        let slot = u16::try_from(number >> 32).ok().filter(|&slot| slot < SLOTS)?;
        Some(Self { slot: Slot(slot), position: number as u32 })
    }

    /// The begin of what follows a tablet. `None`: nothing does.
    #[must_use]
    pub fn behind(last: Slot) -> Option<Self> {
        let slot = last.0 + 1;
        (slot < SLOTS).then_some(Self { slot: Slot(slot), position: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_its_number() {
        for cursor in [ScanCursor::START, ScanCursor { slot: Slot(SLOTS - 1), position: u32::MAX }] {
            assert_eq!(ScanCursor::from_number(cursor.number()), Some(cursor));
        }
        assert_eq!(ScanCursor::from_number(u64::from(SLOTS) << 32), None);
        assert_eq!(ScanCursor::from_number(u64::MAX), None);
        assert_eq!(ScanCursor::behind(Slot(SLOTS - 1)), None);
    }
}
