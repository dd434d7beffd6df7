//! References have two ends: each note and each error code in the code has its page, and each page is referred to by
//! code.
//!
//! The label that refers to a note is used for nothing else. A comment without a note needs no label.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, line_of, occurrences};
use crate::tidy::problem::{Problem, is_test_file};

const NOTES: &str = "docs/notes/";
const ERRORS: &str = "docs/errors/";

/// References of one kind, by name, with the first place of each.
type Places = BTreeMap<String, (String, usize)>;

/// The pages and references found so far.
#[derive(Default)]
pub(super) struct References {
    note_pages: BTreeSet<String>,
    error_pages: BTreeSet<String>,
    has_error_folder: bool,
    notes: Places,
    errors: Places,
}

impl References {
    /// Notes a file that is a page.
    pub(super) fn page(&mut self, path: &str) {
        self.has_error_folder |= path.starts_with(ERRORS);
        for (folder, pages) in [(NOTES, &mut self.note_pages), (ERRORS, &mut self.error_pages)] {
            let page = path.strip_prefix(folder).and_then(|name| name.strip_suffix(".md"));
            pages.extend(page.filter(|name| *name != "README").map(str::to_owned));
        }
    }

    /// Collects the references of a source file.
    pub(super) fn code(&mut self, path: &str, source: &Source<'_>, problems: &mut Vec<Problem>) {
        let comments = source.comments();
        for at in occurrences(&comments, "Note: ") {
            let rest = comments[at + 6..].trim_start_matches('`');
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
            let name = rest.split(|c| !is_name(c)).next().unwrap_or_default();
            let line = line_of(&comments, at);
            if name.is_empty() {
                let text = "a `Note:` without a note's name: the label is for docs/notes; name one, or drop the label";
                problems.push(Problem::new(path, line, text));
            } else {
                self.notes.entry(name.to_owned()).or_insert((path.to_owned(), line));
            }
        }
        // The tests of this tool mention codes that do not exist.
        if !is_test_file(path) && !path.starts_with("xtask/") {
            let text = source.production_text();
            for (at, code) in error_codes(&text) {
                self.errors.entry(code.to_owned()).or_insert((path.to_owned(), line_of(&text, at)));
            }
        }
    }

    /// Called after all files: reports the missing ends.
    pub(super) fn finish(&self, problems: &mut Vec<Problem>) {
        compare(&self.notes, &self.note_pages, NOTES, problems);
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
        references.code("a.rs", &Source::new(text), &mut problems);
        references.finish(&mut problems);
        problems.into_iter().map(|problem| (problem.path, problem.line)).collect()
    }

    #[test]
    fn notes_have_two_ends() {
        let page = "docs/notes/gates.md";
        assert_eq!(found(&[page, "docs/notes/README.md"], "// Note: gates."), []);
        assert_eq!(found(&[page], "//"), [(page.to_owned(), 1)]);
        assert_eq!(found(&[], "\n// Note: `gates`\nlet a = \"Note: b\";"), [("a.rs".to_owned(), 2)]);
        assert_eq!(found(&[], "// Note: This is so."), [("a.rs".to_owned(), 1)]);
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
