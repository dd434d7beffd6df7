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

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let add = |crc, word: &[u8; 8]| _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    let (words, rest) = bytes.as_chunks();
    // Four words a round: the loop itself would be half of the instructions.
    let (rounds, words) = words.as_chunks();
    let long = rounds.iter().fold(u64::from(!crc), |crc, [a, b, c, d]| add(add(add(add(crc, a), b), c), d));
    let long = words.iter().fold(long, add);
    let (halves, rest) = rest.as_chunks();
    // The upper half of what the instruction returns is zero.
    let crc = halves.iter().fold(long as u32, |crc, half| _mm_crc32_u32(crc, u32::from_le_bytes(*half)));
    !rest.iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
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
