//! The reason why there is no comparison. A machine that cannot run it ([`Obstacle::NotHere`]) is distinguished from a
//! store or program that broke ([`Obstacle::Failed`]).

use std::fmt;

/// The reason why there is no comparison. It is not an `Error`, so that `?` cannot turn one of the two cases into the
/// other.
#[derive(Debug)]
pub enum Obstacle {
    /// This machine lacks something that the comparison needs. Nothing is broken, and nothing was measured.
    NotHere(Skipped),
    /// A store or a program failed.
    Failed(anyhow::Error),
}

impl Obstacle {
    pub(crate) fn not_here(why: impl Into<String>) -> Self {
        Self::NotHere(Skipped { why: why.into() })
    }
}

impl From<anyhow::Error> for Obstacle {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// The notice that is printed instead of the figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    why: String,
}

impl Skipped {
    /// The beginning of every such notice, and of nothing else.
    pub const PREFIX: &str = "SKIPPED the comparison with other stores: ";
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.why)
    }
}
