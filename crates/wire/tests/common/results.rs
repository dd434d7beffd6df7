//! Result bytes as a store writes them; also included by `crates/properties`.

use kasha_wire::outcome::{ScannedPage, Shape};
use kasha_wire::{Outcome, OutcomeCode, Wire};

fn encoded(value: &impl Wire) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// Each with its version, 0 for a key that has none.
fn encoded_values(values: &[Option<(u64, Vec<u8>)>]) -> Vec<u8> {
    let mut out = (values.len() as u32).to_le_bytes().to_vec();
    for value in values {
        let (version, value) = value.as_ref().map_or((0, &[][..]), |(version, value)| (*version, value));
        out.extend(version.to_le_bytes());
        out.extend((value.len() as u32).to_le_bytes());
        out.extend(value);
    }
    out
}

fn encoded_page<T>(page: &ScannedPage<T>, parts: impl Fn(&T) -> (u64, &[u8], Option<&[u8]>)) -> Vec<u8> {
    let mut out = page.next.map_or(0, |next| next.number()).to_le_bytes().to_vec();
    out.extend(page.in_shard.to_le_bytes());
    out.extend((page.keys.len() as u32).to_le_bytes());
    for (version, key, value) in page.keys.iter().map(parts) {
        out.extend(version.to_le_bytes());
        out.extend((key.len() as u16).to_le_bytes());
        out.extend(key);
        if let Some(value) = value {
            out.extend((value.len() as u32).to_le_bytes());
            out.extend(value);
        }
    }
    out
}

fn encoded_observed(observed: &[(u64, Option<Vec<u8>>)]) -> Vec<u8> {
    let mut out = (observed.len() as u32).to_le_bytes().to_vec();
    for (version, value) in observed {
        out.extend(version.to_le_bytes());
        out.push(u8::from(value.is_some()));
        out.extend((value.as_ref().map_or(0, Vec::len) as u32).to_le_bytes());
        out.extend(value.iter().flatten());
    }
    out
}

/// Result bytes as a store writes them.
pub fn encoded_outcome(shape: Shape, outcome: &Outcome) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |code: OutcomeCode, fields: &[&[u8]]| {
        out.push(code as u8);
        fields.iter().for_each(|field| out.extend_from_slice(field));
    };
    let item = |index: &u32| if matches!(shape, Shape::Numbers) { index.to_le_bytes().to_vec() } else { Vec::new() };
    let done = OutcomeCode::Done;
    match outcome {
        Outcome::Version(version) => put(done, &[&version.to_le_bytes()]),
        Outcome::Number(value, version) => put(done, &[&value.to_le_bytes(), &version.to_le_bytes()]),
        Outcome::Length(len, version) => put(done, &[&len.to_le_bytes(), &version.to_le_bytes()]),
        Outcome::Versions(versions) => put(done, &[&encoded(versions)]),
        Outcome::Flags(flags) if matches!(shape, Shape::Flag) => put(done, &[&[u8::from(flags[0])]]),
        Outcome::Flags(flags) => put(done, &[&encoded(flags)]),
        Outcome::Numbers(numbers) => put(done, &[&encoded_numbers(numbers)]),
        Outcome::Value(version, value) => put(done, &[&version.to_le_bytes(), value]),
        Outcome::Replaced(version, old) => {
            let (old, value) = old.as_ref().map_or((0, &[][..]), |(old, value)| (*old, value));
            put(done, &[&version.to_le_bytes(), &old.to_le_bytes(), value])
        }
        Outcome::Values(values) => put(done, &[&encoded_values(values)]),
        Outcome::Observed(observed) => put(done, &[&encoded_observed(observed)]),
        Outcome::Keys(page) => put(done, &[&encoded_page(page, |(version, key)| (*version, key, None))]),
        Outcome::KeysAndValues(page) => {
            put(done, &[&encoded_page(page, |(version, key, value)| (*version, key, Some(value)))]);
        }
        Outcome::Reply(reply) => put(done, &[reply]),
        Outcome::Expiry(version, ends) => {
            put(done, &[&version.to_le_bytes(), &ends.map_or(0, |ends| ends.0).to_le_bytes()]);
        }
        Outcome::ConditionFailed(version) => put(OutcomeCode::ConditionFailed, &[&version.to_le_bytes()]),
        Outcome::NotReplaced(found) => {
            let (version, value) = found.as_ref().map_or((0, &[][..]), |(version, value)| (*version, value));
            put(OutcomeCode::ConditionFailed, &[&version.to_le_bytes(), value]);
        }
        Outcome::NotFound => put(OutcomeCode::NotFound, &[]),
        Outcome::Conflict => put(OutcomeCode::Conflict, &[]),
        Outcome::RefusedElsewhere => put(OutcomeCode::RefusedElsewhere, &[]),
        Outcome::Overflow(index) => put(OutcomeCode::Overflow, &[&item(index)]),
        Outcome::OutOfBounds(value, version) => {
            put(OutcomeCode::OutOfBounds, &[&value.to_le_bytes(), &version.to_le_bytes()]);
        }
        Outcome::NotANumber(index) => put(OutcomeCode::NotANumber, &[&item(index)]),
        Outcome::TooLarge => put(OutcomeCode::TooLarge, &[]),
        Outcome::Cancelled => put(OutcomeCode::Cancelled, &[]),
        Outcome::OperationKeyMismatch => put(OutcomeCode::OperationKeyMismatch, &[]),
        Outcome::Parts(parts) => {
            put(done, &[&(parts.len() as u32).to_le_bytes()]);
            for part in parts {
                let (shape, bytes) = encoded_part(part);
                out.push(shape);
                out.extend((bytes.len() as u32).to_le_bytes());
                out.extend(bytes);
            }
        }
        Outcome::NotCommitted(index, part) => {
            let (shape, bytes) = encoded_part(part);
            put(OutcomeCode::NotCommitted, &[&index.to_le_bytes(), &[shape], &bytes]);
        }
    }
    out
}

fn encoded_numbers(numbers: &[(i64, u64)]) -> Vec<u8> {
    let mut out = (numbers.len() as u32).to_le_bytes().to_vec();
    for (value, version) in numbers {
        out.extend(value.to_le_bytes());
        out.extend(version.to_le_bytes());
    }
    out
}

/// The code of an operation that can come to this, and the result bytes.
fn encoded_part(part: &Outcome) -> (u8, Vec<u8>) {
    let shape = match part {
        Outcome::Number(..) | Outcome::OutOfBounds(..) | Outcome::Overflow(_) | Outcome::NotANumber(_) => Shape::Number,
        Outcome::Length(..) | Outcome::TooLarge => Shape::Length,
        Outcome::Value(..) | Outcome::NotFound => Shape::Value,
        Outcome::Replaced(..) | Outcome::NotReplaced(_) => Shape::Replaced,
        Outcome::Flags(_) => Shape::Flag,
        Outcome::Reply(_) => Shape::Reply,
        _ => Shape::Version,
    };
    (shape as u8, encoded_outcome(shape, part))
}
