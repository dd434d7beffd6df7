//! Keys that are looked up soon.
//!
//! A look-up waits for memory twice: for a line of the index, and for an entry of the log. Where the keys of many commands are known before the
//! first of them runs, these waits overlap: a processor that meets one miss goes on to the next, as long as none needs what another brings.

use std::hint::black_box;

use kasha_log::Log;
use kasha_types::KeyHash;

use crate::Store;

/// Keys whose waits overlap. A processor has about ten misses under way, and what was brought must still be there when it is used.
const TOGETHER: usize = 64;

impl Store {
    /// Brings the index lines and the entries of these keys into the processor's cache. Changes nothing, and may be left out.
    pub fn bring_near(&self, log: &Log, keys: impl IntoIterator<Item = KeyHash>) {
        let mut keys = keys.into_iter();
        let mut some = [KeyHash(0); TOGETHER];
        loop {
            let mut count = 0;
            for hash in keys.by_ref().take(TOGETHER) {
                some[count] = hash;
                count += 1;
            }
            // In loops of their own: between two misses there must be fewer instructions than the processor looks ahead. And the compiler must not
            // find out that nobody wants what is read.
            let some = some[..count].iter().copied();
            black_box(some.clone().fold(0, |touched, hash| touched ^ self.index.touch(hash)));
            let entries = some.filter_map(|hash| self.index.candidate(hash));
            black_box(entries.fold(0, |touched, at| touched ^ log.touch(at)));
            if count < TOGETHER {
                return;
            }
        }
    }
}
