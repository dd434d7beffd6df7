//! What a counter may come to.

use crate::{DecodeError, Reader};

/// The least and the greatest number that an increment may lead to. The least is not above the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    least: i64,
    most: i64,
}

impl Bounds {
    /// Every number is within these.
    pub const NONE: Self = Self { least: i64::MIN, most: i64::MAX };

    /// `None`: they contradict each other.
    #[must_use]
    pub const fn new(least: i64, most: i64) -> Option<Self> {
        if least <= most { Some(Self { least, most }) } else { None }
    }

    /// The least number.
    #[must_use]
    pub const fn least(self) -> i64 {
        self.least
    }

    /// The greatest number.
    #[must_use]
    pub const fn most(self) -> i64 {
        self.most
    }

    /// The sum, if the increment may lead there. One that grows is held by the greatest number alone, and one that falls by the least:
    /// what is outside, since the bounds were others, may come back in steps.
    #[must_use]
    pub fn add(self, number: i64, delta: i64) -> Option<i64> {
        let sum = number.checked_add(delta)?;
        let is_within = match delta {
            ..0 => sum >= self.least,
            0 => true,
            1.. => sum <= self.most,
        };
        is_within.then_some(sum)
    }

    /// A byte says whether there are any.
    #[inline]
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.take()? {
            false => Ok(Self::NONE),
            true => Self::decode_some(reader),
        }
    }

    #[cold]
    #[inline(never)]
    fn decode_some(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bounds = Self::new(reader.take()?, reader.take()?);
        bounds
            .filter(|bounds| *bounds != Self::NONE)
            .ok_or(DecodeError::Invalid("bounds that bound nothing, or contradict each other"))
    }

    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.push(u8::from(self != Self::NONE));
        if self != Self::NONE {
            out.extend_from_slice(&self.least.to_le_bytes());
            out.extend_from_slice(&self.most.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_increment_crosses_no_bound_in_its_direction() {
        let bounds = Bounds::new(0, 10).expect("in order");
        for (number, delta, sum) in [(9, 1, Some(10)), (10, 1, None), (1, -1, Some(0)), (0, -1, None), (0, 11, None)] {
            assert_eq!(bounds.add(number, delta), sum, "{number} {delta}");
        }
        for (number, delta, sum) in
            [(15, -1, Some(14)), (15, 1, None), (15, 0, Some(15)), (-5, 1, Some(-4)), (-5, -1, None)]
        {
            assert_eq!(bounds.add(number, delta), sum, "{number} {delta}, outside");
        }
        assert_eq!(Bounds::NONE.add(i64::MAX, 1), None);
        assert_eq!(Bounds::new(1, 0), None);
    }
}
