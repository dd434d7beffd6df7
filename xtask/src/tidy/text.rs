//! Checks the layout of text files, the headers of modules, and paths that mean something on one machine only.

use crate::source::occurrences;
use crate::tidy::problem::{Problem, is_test_file};

const HEADER_LINES_MAX: usize = 25;

/// Folders of one machine. They are written in pieces, because this file is checked too.
const MACHINE_PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/t", "mp/target")];
const TEMPORARY: &str = concat!("/t", "mp");

/// Checks white space and absolute paths.
pub(super) fn check(path: &str, text: &str, problems: &mut Vec<Problem>) {
    let is_laid_out = [".rs", ".md", ".toml"].iter().any(|ending| path.ends_with(ending));
    for (index, line) in text.split('\n').enumerate() {
        let mut report = |text: &str| problems.push(Problem::new(path, index + 1, text));
        if is_laid_out && line.ends_with(char::is_whitespace) {
            report("white space at the end of the line, noise in every diff; remove it");
        }
        if is_laid_out && line.contains('\t') {
            report("a tab, shown differently everywhere; use spaces");
        }
        if MACHINE_PATHS.iter().any(|path| names_path(line, path)) {
            report("a path of one machine, which nobody else has; say it relative to the repository");
        } else if path.ends_with(".rs") && names_path(line, TEMPORARY) && occurrences(line, TEMPORARY).next().is_some()
        {
            report("a fixed temporary folder, which two runs would share; use std::env::temp_dir");
        }
    }
    if is_laid_out && !text.ends_with('\n') {
        let line = text.split('\n').count();
        problems.push(Problem::new(path, line, "no newline at the end, so the next change touches this line; add one"));
    }
}

/// Whether a line names this absolute path, and not a longer path that contains it.
fn names_path(line: &str, path: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.}".contains(&byte);
    line.match_indices(path).any(|(at, _)| at == 0 || !is_part(line.as_bytes()[at - 1]))
}

/// Every module begins with a header that says what it does. An example in the header does not count as header.
pub(super) fn check_header(path: &str, text: &str, problems: &mut Vec<Problem>) {
    let (mut lines, mut is_example) = (0, false);
    for line in text.lines().map_while(|line| line.strip_prefix("//!")) {
        let is_fence = line.trim_start().starts_with("```");
        is_example ^= is_fence;
        lines += usize::from(!is_example && !is_fence);
    }
    if lines == 0 && !is_test_file(path) {
        let text =
            "no `//!` header on the first line: a reader starts there; say what the module does and refuses to know";
        problems.push(Problem::new(path, 1, text));
    }
    if lines > HEADER_LINES_MAX {
        let text = format!(
            "a header of {lines} lines, more than {HEADER_LINES_MAX}, goes unread; move the rest to docs/decisions"
        );
        problems.push(Problem::new(path, 1, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let mut problems = Vec::new();
        check(path, text, &mut problems);
        problems.iter().map(|problem| problem.line).collect()
    }

    fn has_good_header(path: &str, text: &str) -> bool {
        let mut problems = Vec::new();
        check_header(path, text, &mut problems);
        problems.is_empty()
    }

    #[test]
    fn white_space_is_plain() {
        assert_eq!(lines("a.rs", "a\n b\n"), [0; 0]);
        assert_eq!(lines("a.md", "a \nb\r\nc\td\ne"), [1, 2, 3, 4]);
        assert_eq!(lines("golden.txt", "a \nb\tc"), [0; 0]);
    }

    #[test]
    fn machine_paths_are_found() {
        let [work, root, target] = MACHINE_PATHS;
        let text = format!("{work}a\nb \"{root}c\"\nexport D={target}-e\n");
        assert_eq!(lines("a.txt", &text), [1, 2, 3]);
        assert_eq!(lines("a.txt", &format!("https://a.b{work}\ncrates{root}\n{TEMPORARY}/a\n")), [0; 0]);
        assert_eq!(lines("a.rs", &format!("\"{TEMPORARY}/a\" {TEMPORARY}x\n{TEMPORARY}x\n")), [1]);
    }

    #[test]
    fn headers_are_there_and_short() {
        assert!(has_good_header("src/a.rs", "//! Does.\n//!\n//! Why.\n\nfn a() {}\n"));
        assert!(has_good_header("tests/a.rs", "fn a() {}\n"));
        assert!(!has_good_header("src/a.rs", "use b;\n//! Late.\n"));
        assert!(has_good_header("src/a.rs", &"//! a\n".repeat(25)));
        assert!(!has_good_header("src/a.rs", &"//! a\n".repeat(26)));
        assert!(has_good_header("src/a.rs", &format!("//! a\n//! ```\n{}//! ```\n", "//! b\n".repeat(30))));
    }
}
