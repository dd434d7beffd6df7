//! What takes long to let go of, and who lets go of it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Lets go of a machine's large values. To give a gigabyte back to the system takes a tenth of a second, and nothing is
/// heard or answered meanwhile: a shell that has a thread to spare lets go of it there. The usual one does so at once.
/// Nothing depends on when it happens.
#[derive(Clone)]
pub struct Trash(Arc<dyn Fn(Box<dyn Any + Send>) + Send + Sync>);

impl Trash {
    /// Gives what is thrown away to this.
    pub fn new(take: impl Fn(Box<dyn Any + Send>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Throws a value away.
    pub fn throw(&self, value: impl Any + Send) {
        (self.0)(Box::new(value));
    }
}

impl Default for Trash {
    fn default() -> Self {
        Self::new(drop)
    }
}

impl fmt::Debug for Trash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Trash")
    }
}
