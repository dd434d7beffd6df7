//! References have two ends. Each error code in the code has its page, and each such page is referred to by code. Each decision that a
//! comment names, as (0047), has its record, and each record has a line in the index of decisions.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, line_of};
use crate::tidy::problem::{Problem, is_test_file};

const DECISIONS: &str = "docs/decisions/";
/// The page that lists the decisions.
pub(super) const INDEX: &str = "docs/decisions/README.md";
const ERRORS: &str = "docs/errors/";

/// References of one kind, by name, with the first place of each.
type Places = BTreeMap<String, (String, usize)>;

/// The pages and references found so far.
#[derive(Default)]
pub(super) struct References {
    /// The number and the file name of each.
    records: BTreeMap<String, String>,
    error_pages: BTreeSet<String>,
    has_error_folder: bool,
    decisions: Places,
    errors: Places,
}

impl References {
    /// Notes a file that is a page.
    pub(super) fn page(&mut self, path: &str) {
        self.has_error_folder |= path.starts_with(ERRORS);
        let page = path.strip_prefix(ERRORS).and_then(|name| name.strip_suffix(".md"));
        self.error_pages.extend(page.filter(|name| *name != "README").map(str::to_owned));
        let record = path.strip_prefix(DECISIONS).filter(|name| *name != "README.md");
        self.records.extend(record.and_then(|name| Some((name.get(..4)?.to_owned(), name.to_owned()))));
    }

    /// Collects the references of a source file.
    pub(super) fn code(&mut self, path: &str, source: &Source<'_>) {
        let comments = source.comments();
        for (at, number) in decisions(&comments) {
            self.decisions.entry(number.to_owned()).or_insert((path.to_owned(), line_of(&comments, at)));
        }
        // The tests of this tool mention codes that do not exist.
        if !is_test_file(path) && !path.starts_with("xtask/") {
            let text = source.production_text();
            for (at, code) in error_codes(&text) {
                self.errors.entry(code.to_owned()).or_insert((path.to_owned(), line_of(&text, at)));
            }
        }
    }

    /// Called after all files: reports the missing ends. `index`: the page that lists the decisions.
    pub(super) fn finish(&self, index: &str, problems: &mut Vec<Problem>) {
        for (number, (path, line)) in self.decisions.iter().filter(|(number, _)| !self.records.contains_key(*number)) {
            let text = format!("({number}) names no record in {DECISIONS}: nobody can look it up; correct the number");
            problems.push(Problem::new(path, *line, text));
        }
        for name in self.records.values().filter(|name| !index.contains(&format!("({name})"))) {
            let text = format!("this decision has no line in {INDEX}, so nobody finds it; add one, with its status");
            problems.push(Problem::new(&format!("{DECISIONS}{name}"), 1, text));
        }
        if self.has_error_folder {
            compare(&self.errors, &self.error_pages, ERRORS, problems);
        }
    }
}

fn compare(places: &Places, pages: &BTreeSet<String>, folder: &str, problems: &mut Vec<Problem>) {
    for (name, (path, line)) in places.iter().filter(|(name, _)| !pages.contains(*name)) {
        let text =
            format!("{name} has no page {folder}{name}.md, so nobody can look it up; write it, or correct the name");
        problems.push(Problem::new(path, *line, text));
    }
    for name in pages.iter().filter(|name| !places.contains_key(*name)) {
        let text = "no code refers to this page, so it will go stale; refer to it, or remove it";
        problems.push(Problem::new(&format!("{folder}{name}.md"), 1, text));
    }
}

/// Every number of four digits in brackets that begins with 0, which no year does.
fn decisions(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("(0").filter_map(|(at, _)| {
        let number = text.get(at + 1..at + 5)?;
        (number.bytes().all(|byte| byte.is_ascii_digit()) && text[at + 5..].starts_with(')')).then_some((at, number))
    })
}

/// Every `K` with four digits, as a word of its own.
fn error_codes(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let bytes = text.as_bytes();
    text.match_indices('K').filter_map(move |(at, _)| {
        let is_code = bytes.len() >= at + 5
            && bytes[at + 1..at + 5].iter().all(u8::is_ascii_digit)
            && !bytes.get(at + 5).is_some_and(is_word)
            && !at.checked_sub(1).and_then(|before| bytes.get(before)).is_some_and(is_word);
        is_code.then(|| (at, &text[at..at + 5]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[&str], text: &str) -> Vec<(String, usize)> {
        let (mut references, mut problems) = (References::default(), Vec::new());
        pages.iter().for_each(|page| references.page(page));
        references.code("a.rs", &Source::new(text));
        references.finish("| [0001](0001-a.md) | a |", &mut problems);
        problems.into_iter().map(|problem| (problem.path, problem.line)).collect()
    }

    #[test]
    fn decisions_have_two_ends() {
        let (listed, lost) = ("docs/decisions/0001-a.md", "docs/decisions/0002-b.md");
        assert_eq!(found(&[listed, INDEX], "// so it is (0001)"), []);
        assert_eq!(found(&[listed], "\n// (0003), (2026), (00045)\nlet a = \"(0004)\";"), [("a.rs".to_owned(), 2)]);
        assert_eq!(found(&[listed, lost], "//"), [(lost.to_owned(), 1)]);
    }

    #[test]
    fn error_codes_have_two_ends() {
        let page = "docs/errors/K0001.md";
        assert_eq!(found(&[page], "let a = \"K0001\";"), []);
        assert_eq!(found(&[page], "K0001\nB::K0002(XK0003, K00045)"), [("a.rs".to_owned(), 2)]);
        assert_eq!(found(&[page], "// K0001\n#[cfg(test)]\nfn a() { K0002 }"), [(page.to_owned(), 1)]);
        assert_eq!(found(&["docs/errors/README.md"], "K0002"), [("a.rs".to_owned(), 1)]);
        assert_eq!(found(&[], "K0002"), [], "before there is a folder for the pages");
    }
}
