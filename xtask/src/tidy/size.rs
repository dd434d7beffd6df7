//! Files have at most 800 lines and functions at most 70, except those in a list of exceptions that can only shrink.
//!
//! A line of the list is `path kind limit`. The kind is `file` or `fn:name`, and the limit is the present length. An
//! exception that has grown, that is larger than needed, or that is no longer needed is a problem.

use std::collections::BTreeMap;

use crate::source::{item_end, line_of, occurrences};
use crate::tidy::problem::Problem;

/// The path of the list of exceptions.
pub(super) const EXCEPTIONS: &str = "xtask/tidy_exceptions.txt";

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

struct Exception {
    line: usize,
    limit: usize,
    /// The greatest length that was found under this name.
    found: usize,
}

/// The list, and the lengths that were found.
pub(super) struct Ratchet {
    exceptions: BTreeMap<(String, String), Exception>,
}

impl Ratchet {
    pub(super) fn new(list: &str, problems: &mut Vec<Problem>) -> Self {
        let mut exceptions = BTreeMap::new();
        for (index, text) in list.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let line = index + 1;
            let words: Vec<&str> = text.split(' ').collect();
            let entry = match words[..] {
                [path, kind, limit] => limit.parse().ok().map(|limit| ((path.to_owned(), kind.to_owned()), limit)),
                _ => None,
            };
            let is_new =
                entry.is_some_and(|(key, limit)| exceptions.insert(key, Exception { line, limit, found: 0 }).is_none());
            if !is_new {
                problems.push(Problem::new(EXCEPTIONS, line, "not `path kind limit`, or listed twice; put it right"));
            }
        }
        Self { exceptions }
    }

    pub(super) fn check(&mut self, path: &str, text: &str, code: &str, problems: &mut Vec<Problem>) {
        let split_file = "split it by role or phase";
        self.measure(path, "file", (1, text.lines().count()), FILE_LINES_MAX, split_file, problems);
        for (name, line, lines) in functions(code) {
            let split = "name its parts as functions of their own";
            self.measure(path, &format!("fn:{name}"), (line, lines), FUNCTION_LINES_MAX, split, problems);
        }
    }

    fn measure(
        &mut self,
        path: &str,
        kind: &str,
        (line, found): (usize, usize),
        max: usize,
        advice: &str,
        problems: &mut Vec<Problem>,
    ) {
        let exception = self.exceptions.get_mut(&(path.to_owned(), kind.to_owned()));
        let limit = exception.as_ref().map_or(max, |exception| exception.limit);
        if found > limit {
            let text = format!("{kind} has {found} lines, more than {limit}: nobody can hold it in mind; {advice}");
            problems.push(Problem::new(path, line, text));
        }
        if let Some(exception) = exception.filter(|_| found > max) {
            exception.found = exception.found.max(found);
        }
    }

    /// Called after all files: reports exceptions that are larger than needed, or not needed.
    pub(super) fn finish(&self, problems: &mut Vec<Problem>) {
        for ((path, kind), Exception { line, limit, found }) in &self.exceptions {
            let advice = if *found == 0 { "remove it".to_owned() } else { format!("lower it to {found}") };
            if found < limit {
                let text =
                    format!("the exception of {path} {kind} is larger than needed: the list must shrink; {advice}");
                problems.push(Problem::new(EXCEPTIONS, *line, text));
            }
        }
    }
}

/// The functions of a file: name, line and number of lines, from `fn` to the closing brace.
fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let mut functions = Vec::new();
    for at in occurrences(code, "fn ") {
        let end = item_end(code, at);
        let name = code[at + 3..].split(['(', '<']).next().unwrap_or_default();
        if code[..end].ends_with('}') {
            let line = line_of(code, at);
            functions.push((name, line, line_of(code, end - 1) - line + 1));
        }
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(list: &str, code: &str) -> Vec<(String, usize)> {
        let mut problems = Vec::new();
        let mut ratchet = Ratchet::new(list, &mut problems);
        ratchet.check("a.rs", code, code, &mut problems);
        ratchet.finish(&mut problems);
        problems.into_iter().map(|problem| (problem.path, problem.line)).collect()
    }

    #[test]
    fn functions_are_measured() {
        let code = "trait T {\n fn a(&self) -> [u8; 3];\n}\npub fn b<T>(f: fn(u8)) -> [u8; 2]\nwhere T: C,\n{\n if x {\n }\n}\n";
        assert_eq!(functions(code), [("b", 4, 6)]);
    }

    #[test]
    fn limits_hold() {
        let function = |lines: usize| format!("\nfn f() {{\n{}}}\n", "x;\n".repeat(lines - 2));
        assert_eq!(found("", &function(70)), []);
        assert_eq!(found("", &function(71)), [("a.rs".to_owned(), 2)]);
        assert_eq!(found("", &"\n".repeat(800)), []);
        assert_eq!(found("", &"\n".repeat(801)), [("a.rs".to_owned(), 1)]);
    }

    #[test]
    fn exceptions_only_shrink() {
        let code = "\n".repeat(900);
        let list = |line: usize| [(EXCEPTIONS.to_owned(), line)];
        assert_eq!(found("# why\na.rs file 900", &code), []);
        assert_eq!(found("a.rs file 899", &code), [("a.rs".to_owned(), 1)]);
        assert_eq!(found("\na.rs file 901", &code), list(2));
        assert_eq!(found("a.rs file 900", "\n"), list(1));
        assert_eq!(found("b.rs fn:x 90", "\n"), list(1));
        assert_eq!(found("a.rs file many", "\n"), list(1));
        assert_eq!(found("a.rs file 900\na.rs file 900", &code), list(2));
    }
}
