//! Where a log gets the memory of its segments.

use std::fmt;
use std::sync::Arc;

/// Gives a log the buffer of its next segment. The usual one asks the allocator, and then the log's own first write to
/// each page pays for that page; a shell that has a thread to spare gives memory that was touched before.
#[derive(Clone)]
pub struct Buffers(Arc<dyn Fn(usize) -> Vec<u8> + Send + Sync>);

impl Buffers {
    /// Takes buffers of the bytes it is asked for, of any content, from here. Asked once for each segment, on the path of
    /// the append that opens it.
    pub fn new(give: impl Fn(usize) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self(Arc::new(give))
    }

    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let buffer = (self.0)(bytes);
        assert_eq!(buffer.len(), bytes, "a segment's buffer");
        buffer
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self::new(|bytes| vec![0; bytes])
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Buffers")
    }
}
