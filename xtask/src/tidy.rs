//! `cargo xtask tidy`: the rules of `docs/style.md` that a program can check.
//!
//! Each check takes texts and returns problems, so that it can be tested with a few lines. A problem is one line:
//! `path:line: what is wrong, why, what to do`.

mod determinism;
mod direction;
mod references;
mod size;
mod text;

use std::fmt;

use anyhow::{Result, bail};

use crate::source::Source;
use crate::workspace::{File, Workspace};

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    path: String,
    line: usize,
    /// What is wrong, why, and what to do.
    text: String,
}

impl Problem {
    fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
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
fn is_test_file(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

/// Checks the whole tree.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let files = workspace.files()?;
    let mut problems = check(workspace, &files);
    problems.sort();
    for problem in &problems {
        println!("{problem}");
    }
    if !problems.is_empty() {
        bail!("problems found: {}", problems.len());
    }
    println!("tidy: {} files", files.len());
    Ok(())
}

fn check(workspace: &Workspace, files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let text_of = |path: &str| files.iter().find(|file| file.path == path).and_then(File::text).unwrap_or_default();
    direction::check(&workspace.packages, text_of, &mut problems);
    let mut ratchet = size::Ratchet::new(text_of(size::EXCEPTIONS), &mut problems);
    let mut references = references::References::default();
    for file in files {
        references.page(&file.path);
        let Some(text) = file.text() else { continue };
        text::check(&file.path, text, &mut problems);
        if file.path.ends_with(".rs") {
            let source = Source::new(text);
            text::check_header(&file.path, text, &mut problems);
            determinism::check(&file.path, &source, &mut problems);
            ratchet.check(&file.path, text, &source.code(), &mut problems);
            references.code(&file.path, &source, &mut problems);
        }
    }
    ratchet.finish(&mut problems);
    references.finish(&mut problems);
    problems
}
