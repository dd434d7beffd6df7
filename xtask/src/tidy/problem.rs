//! What the checks return, and which files are tests.

use std::fmt;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    pub(super) path: String,
    pub(super) line: usize,
    /// What is wrong, why, and what to do.
    text: String,
}

impl Problem {
    pub(super) fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.text)
    }
}

/// Whether only tests and benchmarks use a file: it is in one of cargo's folders for them, or it is a `tests` module in
/// a file of its own.
pub(super) fn is_test_file(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}
