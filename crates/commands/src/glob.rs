//! Patterns, as `KEYS`, `SCAN MATCH` and `CONFIG GET` take them: `*`, `?`, `[a-c]`, `[^a]`, and `\` before what is meant as it is.

/// Whether a text has this pattern.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_in(pattern, text, u8::eq)
}

/// The same, whatever the case of letters is.
#[must_use]
pub fn matches_in_any_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_in(pattern, text, u8::eq_ignore_ascii_case)
}

/// Goes back to the last `*` where the rest does not fit: an earlier one can make nothing fit that the last one cannot. So a pattern costs at most
/// its length times the text's.
fn matches_in(pattern: &[u8], text: &[u8], is_same: fn(&u8, &u8) -> bool) -> bool {
    let (mut at, mut place) = (0, 0);
    // Behind the last `*`, and the first byte that it does not take.
    let mut star = None;
    while place < text.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, place));
            continue;
        }
        if let Some((next, true)) = step(pattern, at, text[place], is_same) {
            (at, place) = (next, place + 1);
            continue;
        }
        let Some((behind, taken)) = star else { return false };
        star = Some((behind, taken + 1));
        (at, place) = (behind, taken + 1);
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// Where the pattern goes on behind one byte of the text, and whether it fits; nothing at the pattern's end.
fn step(pattern: &[u8], at: usize, byte: u8, is_same: fn(&u8, &u8) -> bool) -> Option<(usize, bool)> {
    Some(match *pattern.get(at)? {
        b'?' => (at + 1, true),
        b'[' => class(pattern, at + 1, byte, is_same),
        b'\\' if at + 1 < pattern.len() => (at + 2, is_same(&pattern[at + 1], &byte)),
        other => (at + 1, is_same(&other, &byte)),
    })
}

/// A set of bytes; one without an end ends with the pattern.
fn class(pattern: &[u8], mut at: usize, byte: u8, is_same: fn(&u8, &u8) -> bool) -> (usize, bool) {
    let is_negated = pattern.get(at) == Some(&b'^');
    at += usize::from(is_negated);
    let mut has_it = false;
    let in_range = |low: u8, high: u8| {
        let has = |low: u8, high: u8, byte: u8| (low.min(high)..=low.max(high)).contains(&byte);
        match is_same(&b'a', &b'A') {
            true => has(low.to_ascii_lowercase(), high.to_ascii_lowercase(), byte.to_ascii_lowercase()),
            false => has(low, high, byte),
        }
    };
    loop {
        match pattern[at.min(pattern.len())..] {
            [] => return (pattern.len(), has_it != is_negated),
            [b'\\', escaped, ..] => {
                has_it |= is_same(&escaped, &byte);
                at += 2;
            }
            [b']', ..] => return (at + 1, has_it != is_negated),
            [low, b'-', high, ..] => {
                has_it |= in_range(low, high);
                at += 3;
            }
            [one, ..] => {
                has_it |= is_same(&one, &byte);
                at += 1;
            }
        }
    }
}
