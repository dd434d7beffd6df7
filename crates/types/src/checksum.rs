//! CRC32C, which guards frames, log groups and files.
//!
//! The `crc32c` crate is made for long inputs: of a few dozen bytes, what a frame or an entry group mostly has, it
//! spends more instructions on splitting them than on the checksum. These are done here with the same processor
//! instruction, eight bytes at a time; longer ones go to the crate.

/// Inputs up to here are short: longer ones gain from the crate's three streams.
#[cfg(target_arch = "x86_64")]
const SHORT_BYTES_MAX: usize = 512;

/// The checksum of these bytes.
#[must_use]
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// The checksum of what `crc` is the checksum of, and of these bytes behind it.
#[must_use]
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_BYTES_MAX && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { short(crc, bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

/// The digest of a sequence of byte strings, of which `digest` is that of all before, and `bytes` the next one.
#[must_use]
pub fn chained(digest: u64, bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, digest)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};
    let mut crc = u64::from(!crc);
    let mut rest = bytes;
    // The loop itself would be half of the instructions: eight words a round, and what is left in halves.
    while let Some((words, behind)) = rest.split_first_chunk::<64>() {
        crc = words.as_chunks().0.iter().fold(crc, |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
        rest = behind;
    }
    macro_rules! half {
        ($len:literal) => {
            if let Some((words, behind)) = rest.split_first_chunk::<$len>() {
                crc = words.as_chunks().0.iter().fold(crc, |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
                rest = behind;
            }
        };
    }
    half!(32);
    half!(16);
    half!(8);
    // The upper half of what the instruction returns is zero.
    let mut crc = crc as u32;
    if let Some((word, behind)) = rest.split_first_chunk() {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*word));
        rest = behind;
    }
    if let Some((word, behind)) = rest.split_first_chunk() {
        crc = _mm_crc32_u16(crc, u16::from_le_bytes(*word));
        rest = behind;
    }
    if let [byte] = rest {
        crc = _mm_crc32_u8(crc, *byte);
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_every_cut_agrees_with_the_crate() {
        let bytes: Vec<u8> = (0..700u32).map(|at| (at * 167 + at / 256) as u8).collect();
        for len in 0..bytes.len() {
            let (bytes, cut) = (&bytes[..len], len / 3);
            assert_eq!(crc32c(bytes), crc32c::crc32c(bytes));
            assert_eq!(crc32c_append(crc32c(&bytes[..cut]), &bytes[cut..]), crc32c(bytes));
        }
    }

    #[test]
    fn the_check_value_of_the_polynomial() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }
}
