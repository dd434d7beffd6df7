//! Patterns.

use kasha_commands::glob::{matches, matches_in_any_case};
use proptest::prelude::*;

#[test]
fn patterns_are_those_of_redis() {
    let fits = [
        ("*", ""),
        ("*", "abc"),
        ("a*c", "abbc"),
        ("a*c", "ac"),
        ("a?c", "abc"),
        ("[ab]c", "bc"),
        ("[a-c]x", "bx"),
        ("[c-a]x", "bx"),
        ("[^a]x", "bx"),
        ("\\*", "*"),
        ("a\\?", "a?"),
        ("[\\]]", "]"),
        ("**a**", "bab"),
        ("h[ae]llo*", "hello world"),
        ("[a", "a"),
        ("a*b*c", "aXbYbZc"),
    ];
    for (pattern, text) in fits {
        assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
    }
    let not = [
        ("", "a"),
        ("a", ""),
        ("a?", "a"),
        ("[^a]", "a"),
        ("a*c", "abcd"),
        ("\\*", "x"),
        ("A", "a"),
        ("[b-c]", "a"),
        ("?", ""),
        ("[a-]", "-"),
    ];
    for (pattern, text) in not {
        assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
    }
    assert!(matches_in_any_case(b"Max*[A-C]", b"maxmemoryb") && !matches_in_any_case(b"max", b"maxmemory"));
}

/// The same without going back: by all ways.
fn naive(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], text) => text.is_empty(),
        ([b'*', rest @ ..], text) => (0..=text.len()).any(|at| naive(rest, &text[at..])),
        ([b'?', rest @ ..], [_, after @ ..]) => naive(rest, after),
        ([byte, rest @ ..], [other, after @ ..]) => byte == other && naive(rest, after),
        (_, []) => false,
    }
}

proptest! {
    #[test]
    fn stars_fit_where_some_way_fits(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
        prop_assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), naive(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn any_pattern_ends(pattern in prop::collection::vec(any::<u8>(), 0..40), text in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = matches(&pattern, &text);
        let _ = matches_in_any_case(&pattern, &text);
    }
}
