//! Why there is no comparison: a machine that cannot have one is told from one that broke.

use std::fmt;

/// What stands in the way. No `Error`, so that nobody makes one of the two into the other by a question mark.
#[derive(Debug)]
pub enum Obstacle {
    /// This machine cannot have what the comparison needs. Nothing is broken, and nothing was measured.
    NotHere(Skipped),
    /// It broke.
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

/// The notice that takes the place of the figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    why: String,
}

impl Skipped {
    /// What every such notice begins with, and nothing else does.
    pub const PREFIX: &str = "SKIPPED the comparison with other stores: ";
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.why)
    }
}
