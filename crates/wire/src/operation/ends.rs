//! When the value ends that a change leaves.

use super::arguments::Source;
use super::lifetime::Lifetime;

/// When the value of a change ends. Encoded as a number, among the bits of [`super::Axes`], and a lifetime's milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// As the operation says: the value of a put never ends; every other change keeps the end that is there.
    #[default]
    Usual,
    /// After this lifetime.
    After(Lifetime),
    /// After this lifetime if the key had no value. A value that is there keeps its end.
    AfterMade(Lifetime),
    /// Never.
    Never,
}

impl Ends {
    /// The one with this number, its lifetime taken from `source`.
    ///
    /// # Errors
    /// If the source has no lifetime, or there is no such number.
    #[inline]
    pub(super) fn build<'a, S: Source<'a>>(code: u8, source: &mut S) -> Result<Self, S::Error> {
        Ok(match code {
            0 => Self::Usual,
            1 => Self::After(source.lifetime()?),
            2 => Self::AfterMade(source.lifetime()?),
            3 => Self::Never,
            _ => return Err(S::no_such_operation("when a value ends")),
        })
    }

    /// Its number on the wire and in logs.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Usual => 0,
            Self::After(_) => 1,
            Self::AfterMade(_) => 2,
            Self::Never => 3,
        }
    }

    /// The lifetime that it gives a value, or may.
    #[must_use]
    #[inline]
    pub fn lifetime(self) -> Option<Lifetime> {
        match self {
            Self::After(lifetime) | Self::AfterMade(lifetime) => Some(lifetime),
            Self::Usual | Self::Never => None,
        }
    }
}
