//! Reads Rust source just well enough to tell code, comments, literals and test-only items apart.
//!
//! Parts that a check must not see are replaced by blanks, so that offsets and lines stay the same. The reader knows no
//! grammar beyond tokens and brackets. It relies on rustfmt's layout in one point: `use` and `fn` are followed by one
//! space.

use std::ops::Range;

/// The kind of text that a byte of source belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Code,
    Comment,
    Literal,
}

/// A source file, split into classes.
pub(crate) struct Source<'a> {
    text: &'a str,
    classes: Vec<Class>,
    /// Items under `#[cfg(test)]`.
    tests: Vec<Range<usize>>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        let mut classes = Vec::with_capacity(bytes.len());
        while classes.len() < bytes.len() {
            let (class, end) = token(bytes, classes.len());
            classes.resize(end.min(bytes.len()), class);
        }
        let mut source = Self { text, classes, tests: Vec::new() };
        let code = source.code();
        source.tests = occurrences(&code, "#[cfg(test)]").map(|at| at..item_end(&code, at)).collect();
        source
    }

    /// The text without comments and without the contents of literals.
    pub(crate) fn code(&self) -> String {
        self.blanked(|at| self.classes[at] == Class::Code)
    }

    /// The same, without items that only tests see.
    pub(crate) fn production_code(&self) -> String {
        self.blanked(|at| self.classes[at] == Class::Code && !self.is_test(at))
    }

    /// Code and literals, without items that only tests see.
    pub(crate) fn production_text(&self) -> String {
        self.blanked(|at| self.classes[at] != Class::Comment && !self.is_test(at))
    }

    /// The comments, without the rest of the text.
    pub(crate) fn comments(&self) -> String {
        self.blanked(|at| self.classes[at] == Class::Comment)
    }

    /// Where items are that only tests see.
    pub(crate) fn test_ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.tests.iter().cloned()
    }

    fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    fn blanked(&self, keep: impl Fn(usize) -> bool) -> String {
        let byte = |(at, byte)| if byte == b'\n' || keep(at) { byte } else { b' ' };
        let bytes = self.text.bytes().enumerate().map(byte).collect();
        String::from_utf8(bytes).expect("a token boundary is a character boundary")
    }
}

/// The class of the token at `at`, and its end (which may lie behind the text where a token is not closed).
fn token(bytes: &[u8], at: usize) -> (Class, usize) {
    let rest = &bytes[at..];
    let find = |from: usize, what: u8| (at + from..bytes.len()).find(|&i| bytes[i] == what).unwrap_or(bytes.len());
    match rest[0] {
        b'/' if rest.starts_with(b"//") => (Class::Comment, find(0, b'\n')),
        b'/' if rest.starts_with(b"/*") => (Class::Comment, block_comment_end(bytes, at)),
        b'"' => (Class::Literal, string_end(bytes, at + 1)),
        b'\'' if rest.get(1) == Some(&b'\\') => (Class::Literal, find(3, b'\'') + 1),
        b'\'' => {
            // A quote behind one character closes a literal; otherwise this is a lifetime.
            let width = 1 + rest[1..].iter().skip(1).take_while(|byte| **byte & 0xC0 == 0x80).count();
            if rest.get(1 + width) == Some(&b'\'') { (Class::Literal, at + width + 2) } else { (Class::Code, at + 1) }
        }
        byte if is_word(byte) => {
            let word = rest.iter().take_while(|byte| is_word(**byte)).count();
            let hashes = rest[word..].iter().take_while(|byte| **byte == b'#').count();
            let is_raw = matches!(&rest[..word], b"r" | b"br" | b"cr") && rest.get(word + hashes) == Some(&b'"');
            if is_raw {
                let close = [b"\"", "#".repeat(hashes).as_bytes()].concat();
                let from = at + word + hashes + 1;
                let length = bytes[from..].windows(close.len()).position(|window| window == close);
                (Class::Literal, length.map_or(bytes.len(), |length| from + length + close.len()))
            } else {
                (Class::Code, at + word)
            }
        }
        _ => (Class::Code, at + 1),
    }
}

fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        let step = match &bytes[at..] {
            [b'/', b'*', ..] => 1,
            [b'*', b'/', ..] => -1,
            _ => 0,
        };
        depth += step;
        at += if step == 0 { 1 } else { 2 };
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The end of the item that begins at `at`: behind its closing brace, or its semicolon.
pub(crate) fn item_end(code: &str, at: usize) -> usize {
    let mut depth = 0;
    for (offset, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth < 0 || (depth == 0 && matches!(byte, b'}' | b';')) {
            return offset + 1;
        }
    }
    code.len()
}

/// The offsets at which a token occurs as whole words.
pub(crate) fn occurrences<'a>(text: &'a str, token: &'a str) -> impl Iterator<Item = usize> {
    let bytes = text.as_bytes();
    let bounded = move |outside: Option<&u8>, inside: Option<&u8>| {
        !(outside.copied().is_some_and(is_word) && inside.copied().is_some_and(is_word))
    };
    text.match_indices(token).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        bounded(before, token.as_bytes().first()) && bounded(bytes.get(at + token.len()), token.as_bytes().last())
    })
}

/// The line of an offset, from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
}

/// Every path that a `use` names, written in full, with the offset of its `use`.
pub(crate) fn used_paths(code: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for at in occurrences(code, "use ") {
        let tree = code[at + 4..].split(';').next().unwrap_or_default();
        let mut expanded = Vec::new();
        expand("", tree, &mut expanded);
        paths.extend(expanded.into_iter().map(|path| (at, path)));
    }
    paths
}

fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let (Some(open), Some(close)) = (tree.find('{'), tree.rfind('}')) else {
        return paths.push(format!("{prefix}{tree}"));
    };
    let prefix = format!("{prefix}{}", &tree[..open]);
    let (mut depth, mut start) = (0, open + 1);
    for (offset, byte) in tree.bytes().enumerate().take(close + 1).skip(open + 1) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            b',' | b'}' if depth == 0 => {
                expand(&prefix, &tree[start..offset], paths);
                start = offset + 1;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_told_from_code() {
        let text = "a /* b /* c */ d */ e // f\ng \"h\\\"i\" r#\"j\"k\"# 'l' '\\'' 'é' <'m> b\"n\" o";
        let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(Source::new(text).code()), "a e g <'m> b o");
        assert_eq!(words(Source::new(text).comments()), "/* b /* c */ d */ // f");
        assert_eq!(Source::new("\"open").code(), "     ");
        assert_eq!(Source::new("'").code(), "'");
    }

    #[test]
    fn tests_are_not_production() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\n#[cfg(test)]\nuse c::d;\nfn e() {} // f";
        let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(Source::new(text).production_code()), "fn a() {} fn e() {}");
    }

    #[test]
    fn tokens_are_whole_words() {
        assert_eq!(occurrences("operand::x rand::y", "rand::").collect::<Vec<_>>(), [11]);
        assert_eq!(occurrences("tokio_x tokio x_tokio", "tokio").collect::<Vec<_>>(), [8]);
        assert_eq!(occurrences("f().await", ".await").collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn grouped_imports_are_written_out() {
        let paths = used_paths("use a::{b, c::{d, e}, self};\npub use f;");
        let paths: Vec<_> = paths.iter().map(|(_, path)| path.as_str()).collect();
        assert_eq!(paths, ["a::b", "a::c::d", "a::c::e", "a::self", "f"]);
    }
}
