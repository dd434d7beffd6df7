//! The rest of a request that is too long: it is read, and not kept.

use super::{BadRequest, LINE_BYTES_MAX, progress};

/// A request that is too long.
#[derive(Debug)]
pub(super) struct Swallow {
    /// What was kept of it.
    pub(super) before: Vec<u8>,
    /// Words whose lengths have not come.
    missing: u32,
    /// Bytes of the word that comes, with its line end.
    skip: usize,
}

impl Swallow {
    pub(super) fn new(before: Vec<u8>, missing: u32) -> Self {
        Self { before, missing, skip: 0 }
    }

    /// Swallows more. Returns how many bytes, and whether the request is over.
    pub(super) fn go_on(&mut self, bytes: &[u8]) -> Result<(usize, bool), BadRequest> {
        let mut used = 0;
        loop {
            let skipped = self.skip.min(bytes.len() - used);
            (self.skip, used) = (self.skip - skipped, used + skipped);
            if self.skip > 0 || self.missing == 0 {
                return Ok((used, self.skip == 0));
            }
            let rest = &bytes[used..];
            let Some(line) = progress::line(rest, 0) else {
                return if rest.len() > LINE_BYTES_MAX { Err(BadRequest::LongLength) } else { Ok((used, false)) };
            };
            self.skip = progress::length(line)? + 2;
            self.missing -= 1;
            used += line.len() + 2;
        }
    }
}
