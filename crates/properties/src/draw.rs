//! Draws inputs from a fuzzer's bytes. Every byte string is an input: missing bytes read as zeros. So a shorter string
//! is a simpler input, and sequences end where the bytes end.

use arbitrary::{Arbitrary, Result, Unstructured};

/// All that is left.
pub(crate) fn rest(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let len = u.len();
    Ok(u.bytes(len)?.to_vec())
}

/// Values until the bytes are used up, at most `max`.
pub(crate) fn until_empty<'a, T: Arbitrary<'a>>(u: &mut Unstructured<'a>, max: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    while !u.is_empty() && values.len() < max {
        values.push(u.arbitrary()?);
    }
    Ok(values)
}

/// At most `max` values, their number first.
pub(crate) fn up_to<'a, T: Arbitrary<'a>>(u: &mut Unstructured<'a>, max: usize) -> Result<Vec<T>> {
    (0..below(u, max + 1)?).map(|_| u.arbitrary()).collect()
}

/// At most `max` bytes, fewer at the end of the input.
pub(crate) fn bytes(u: &mut Unstructured<'_>, max: usize) -> Result<Vec<u8>> {
    let len = below(u, max + 1)?.min(u.len());
    Ok(u.bytes(len)?.to_vec())
}

/// A number below `end`.
pub(crate) fn below(u: &mut Unstructured<'_>, end: usize) -> Result<usize> {
    u.int_in_range(0..=end - 1)
}

/// An index into `weights`, as often as its weight says.
pub(crate) fn weighted(u: &mut Unstructured<'_>, weights: &[u16]) -> Result<usize> {
    let mut point = u.int_in_range(1..=weights.iter().sum::<u16>())?;
    let found = weights.iter().position(|&weight| {
        let is_here = point <= weight;
        point = point.saturating_sub(weight);
        is_here
    });
    Ok(found.expect("the point lies within the sum"))
}

/// True once in `n`, and where the input has ended.
pub(crate) fn one_in(u: &mut Unstructured<'_>, n: u8) -> Result<bool> {
    Ok(u.int_in_range(0..=n - 1)? == 0)
}

/// Bytes without any order, always the same of a seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = kasha_machine::Rng::new(seed);
    (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect()
}
