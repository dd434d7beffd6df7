//! Protocol code is deterministic (DESIGN section 3): time, randomness, files and sockets are inputs and effects.
//!
//! `clippy.toml` refuses the calls that clippy can resolve. This check refuses the words, so that no `allow` gets
//! around the rule.

use std::collections::BTreeSet;

use crate::source::{Source, line_of, occurrences, used_paths};
use crate::tidy::direction::PROTOCOLS;
use crate::tidy::problem::{Problem, is_test_file};

const TAKE_NOW: &str = "take `now: Tick` as an argument";
const SEEDED: &str = "take a seed and use kasha-machine's Rng";
const FIXED_HASH: &str = "use hashbrown with a fixed seed, or a BTreeMap";
const EFFECT: &str = "make it an input or an effect";
const QUIET: &str = "return a value and let the caller show it";
const WORDS: &[(&str, &str)] = &[
    ("std::thread", EFFECT),
    ("std::fs", EFFECT),
    ("TcpStream", EFFECT),
    ("TcpListener", EFFECT),
    ("UdpSocket", EFFECT),
    ("tokio", EFFECT),
    ("async", EFFECT),
    (".await", EFFECT),
    ("Instant::now", TAKE_NOW),
    ("SystemTime", TAKE_NOW),
    ("rand::", SEEDED),
    ("getrandom", SEEDED),
    ("std::collections::HashMap", FIXED_HASH),
    ("std::collections::HashSet", FIXED_HASH),
    ("print!", QUIET),
    ("println!", QUIET),
    ("eprint!", QUIET),
    ("eprintln!", QUIET),
    ("dbg!", QUIET),
];

/// Whether a file belongs to a protocol: all files of the protocol crates, and those of the client except its
/// asynchronous shell.
fn is_protocol(path: &str) -> bool {
    let Some((name, inside)) = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) else {
        return false;
    };
    match name {
        "client" => !inside.starts_with("tokio_") && !inside.starts_with("asynchronous"),
        _ => PROTOCOLS.contains(&name),
    }
}

pub(super) fn check(path: &str, source: &Source<'_>, problems: &mut Vec<Problem>) {
    if !is_protocol(path) || is_test_file(path) {
        return;
    }
    let code = source.production_code();
    let paths = used_paths(&code);
    for (word, instead) in WORDS {
        // A grouped import names the same path as one that is written in full. The latter is then found twice in its
        // line.
        let imported = paths.iter().filter(|(_, path)| occurrences(path, word).next().is_some()).map(|(at, _)| *at);
        let lines: BTreeSet<_> = occurrences(&code, word).chain(imported).map(|at| line_of(&code, at)).collect();
        for line in lines {
            let text = format!("`{word}` in protocol code, which must be deterministic; {instead}");
            problems.push(Problem::new(path, line, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let mut problems = Vec::new();
        check(path, &Source::new(text), &mut problems);
        problems.iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn clocks_threads_and_the_like_are_refused() {
        let text = "use std::{fmt, collections::{BTreeMap, HashMap}};\nuse std::thread;\nlet a = x.await;\nprintln!();";
        let mut found = lines("crates/node/src/a.rs", text);
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3, 4]);
        assert_eq!(lines("crates/client/src/session.rs", "async fn a() {}"), [1]);
    }

    #[test]
    fn what_only_looks_like_it_is_not() {
        let text = "// std::thread\nlet a = \"tokio\"; operand::b(); hashbrown::HashMap::new();
            #[cfg(test)]\nmod tests {\n    use std::fs;\n}";
        assert_eq!(lines("crates/log/src/a.rs", text), [0; 0]);
        for path in ["crates/log/tests/a.rs", "crates/runtime/src/a.rs", "crates/client/src/tokio_client.rs"] {
            assert_eq!(lines(path, "use std::fs;"), [0; 0]);
        }
    }
}
