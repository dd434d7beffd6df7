//! Checks that each file of tests is compiled: cargo looks at `tests/all.rs` only, which names the modules.

use crate::tidy::problem::Problem;
use crate::workspace::File;

/// The one test program of a crate.
const ALL: &str = "tests/all.rs";

/// Compares the files beside each `tests/all.rs` with the modules that it names.
pub(super) fn check(files: &[File], problems: &mut Vec<Problem>) {
    for (crate_folder, all) in files.iter().filter_map(|file| Some((file.path.strip_suffix(ALL)?, file.text()?))) {
        for File { path, .. } in files {
            let module = |rest: &str| {
                let name = rest.strip_suffix("/mod.rs").or_else(|| rest.strip_suffix(".rs"))?;
                (!name.contains('/') && name != "all").then(|| name.to_owned())
            };
            let beside = path.strip_prefix(crate_folder).and_then(|rest| rest.strip_prefix("tests/"));
            let Some(name) = beside.and_then(module) else { continue };
            if !all.lines().any(|line| line == format!("mod {name};")) {
                let text =
                    format!("{crate_folder}{ALL} does not name it, so nobody compiles it; add `mod {name};` there");
                problems.push(Problem::new(path, 1, text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_no_module_names_is_told() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), bytes: text.as_bytes().to_vec() };
        let files = [
            file("crates/log/tests/all.rs", "mod common;\nmod rules;\n"),
            file("crates/log/tests/common/mod.rs", ""),
            file("crates/log/tests/common/more.rs", ""),
            file("crates/log/tests/rules.rs", ""),
            file("crates/log/tests/lost.rs", ""),
            file("crates/wire/tests/alone.rs", ""),
        ];
        let mut problems = Vec::new();
        check(&files, &mut problems);
        let told: Vec<_> = problems.iter().map(|problem| &*problem.path).collect();
        assert_eq!(told, ["crates/log/tests/lost.rs"]);
    }
}
