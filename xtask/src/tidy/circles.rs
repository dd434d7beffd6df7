//! Files of a crate that import each other in a circle must be read together. So each crate's largest circle is held
//! against a list that only shrinks.
//!
//! A file imports another one if its code names an item there, by a `use` or by a path. Who names an item through a
//! re-export imports the file that has the item; a file that only re-exports imports nothing. `mod x;` is no import.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use crate::source::{Source, item_end, occurrences, used_paths};
use crate::tidy::problem::Problem;

/// The path of the list: `folder of the crate, files in its largest circle`.
pub(super) const LIST: &str = "xtask/tidy_circles.txt";

/// A circle of this size is one room with its doors; a larger one has a line in the list.
const CIRCLE_MAX: usize = 6;
/// How many re-exports are followed: more than any item has.
const REEXPORTS_MAX: usize = 8;

/// A module, as names from the crate's root.
type Module = Vec<String>;

/// The files of one crate.
#[derive(Default)]
pub(super) struct Crate {
    files: BTreeMap<Module, File>,
}

#[derive(Default)]
struct File {
    /// Paths of items of the crate that the code names, from the root.
    named: Vec<Module>,
    /// Names that it re-exports, and what they are.
    reexports: BTreeMap<String, Module>,
}

impl Crate {
    /// Adds the file at `path`, which is relative to the crate's `src`.
    pub(super) fn add(&mut self, path: &str, source: &Source<'_>) {
        let module = module_of(path);
        let code = source.production_code();
        let mut file = File::default();
        for (at, used) in used_paths(&code) {
            let item = from_root(&module, &used);
            let before = code[..at].trim_end();
            let is_reexport =
                before.ends_with("pub") || before.ends_with("pub(crate)") || before.ends_with("pub(super)");
            match (is_reexport, item.last()) {
                (true, Some(name)) => drop(file.reexports.insert(name.clone(), item)),
                _ => file.named.push(item),
            }
        }
        let code = without_uses(code);
        let children = occurrences(&code, "mod ").map(|at| path_at(&code[at + "mod ".len()..]));
        for start in children.chain(["crate", "super"]).filter(|start| !start.is_empty()) {
            let start = format!("{start}::");
            let places = occurrences(&code, &start).filter(|&at| !code[..at].ends_with("::"));
            file.named.extend(places.map(|at| from_root(&module, path_at(&code[at..]))));
        }
        self.files.insert(module, file);
    }

    /// The files of the largest circle, which has more than one, or none.
    pub(super) fn largest_circle(&self) -> Vec<String> {
        let modules: Vec<&Module> = self.files.keys().collect();
        let index_of = |module: &Module| modules.binary_search(&module).expect("a module of this crate");
        let mut graph: DiGraphMap<usize, ()> = DiGraphMap::new();
        for (module, file) in &self.files {
            let homes = file.named.iter().filter_map(|item| self.home_of(item));
            let imported: BTreeSet<usize> = homes.map(|home| index_of(&home)).collect();
            for to in imported.into_iter().filter(|&to| to != index_of(module)) {
                graph.add_edge(index_of(module), to, ());
            }
        }
        let circles = tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1);
        let mut largest = circles.max_by_key(Vec::len).unwrap_or_default();
        largest.sort_unstable();
        largest.into_iter().map(|index| modules[index].join("/")).collect()
    }

    /// The module whose file has this item. `None`: a crate without a file at its root.
    fn home_of(&self, item: &[String]) -> Option<Module> {
        let mut item = item.to_vec();
        for _ in 0..REEXPORTS_MAX {
            let len = (0..=item.len()).rev().find(|&len| self.files.contains_key(&item[..len]))?;
            let rest = item.split_off(len);
            let reexported = rest.first().and_then(|name| self.files[&item].reexports.get(name));
            match reexported {
                Some(target) => item = target.iter().chain(&rest[1..]).cloned().collect(),
                None => return Some(item),
            }
        }
        None
    }
}

/// The module of a file, whose path is relative to `src`.
fn module_of(path: &str) -> Module {
    let mut names: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(names.last().map(String::as_str), Some("lib" | "main" | "mod")) {
        names.pop();
    }
    names
}

/// A path that a module names, from the root of its crate. A path into another crate leads to the module itself, since no module has
/// its first name.
fn from_root(module: &[String], path: &str) -> Module {
    let path = path.split(" as ").next().unwrap_or_default();
    let mut root = module.to_vec();
    let mut names = path.split("::").map(str::trim).peekable();
    match names.peek() {
        Some(&"crate") => root.clear(),
        Some(&"self") => {}
        Some(&"super") => {
            while names.next_if_eq(&"super").is_some() {
                root.pop();
            }
            return root.into_iter().chain(names.map(str::to_owned)).collect();
        }
        _ => return root.into_iter().chain(names.map(str::to_owned)).collect(),
    }
    root.into_iter().chain(names.skip(1).map(str::to_owned)).collect()
}

/// The code with blanks for each `use`, which is read apart.
fn without_uses(code: String) -> String {
    let uses: Vec<_> = occurrences(&code, "use ").map(|at| at..item_end(&code, at)).collect();
    let byte = |(at, byte)| if uses.iter().any(|range| range.contains(&at)) { b' ' } else { byte };
    String::from_utf8(code.bytes().enumerate().map(byte).collect()).expect("a token boundary is a character boundary")
}

/// The path that the code begins with.
fn path_at(code: &str) -> &str {
    let end = code.find(|letter: char| !letter.is_alphanumeric() && !matches!(letter, '_' | ':')).unwrap_or(code.len());
    code[..end].trim_end_matches(':')
}

/// Holds the largest circle of each crate against the list.
pub(super) fn check(circles: &[(&str, Vec<String>)], list: &str, problems: &mut Vec<Problem>) {
    let mut allowed = BTreeMap::new();
    for (index, text) in list.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let entry = text.split_once(' ').and_then(|(folder, limit)| Some((folder, limit.parse::<usize>().ok()?)));
        match entry {
            Some((folder, limit)) => drop(allowed.insert(folder, (index + 1, limit))),
            None => problems.push(Problem::new(LIST, index + 1, "not `folder limit`; put it right")),
        }
    }
    for (folder, circle) in circles {
        let limit = allowed.get(folder).map_or(CIRCLE_MAX, |&(_, limit)| limit);
        if circle.len() > limit {
            let (found, files) = (circle.len(), circle.join(", "));
            let text = format!(
                "{found} files import each other in a circle, more than {limit}: none can be read alone; move what several of them \
                 need into a file below them: {files}"
            );
            problems.push(Problem::new(&format!("{folder}/src"), 1, text));
        }
    }
    for (folder, (line, limit)) in allowed {
        let found = circles.iter().find(|(other, _)| *other == folder).map_or(0, |(_, circle)| circle.len());
        if found < limit {
            let advice = if found <= CIRCLE_MAX { "remove it".to_owned() } else { format!("lower it to {found}") };
            let text = format!("the largest circle of {folder} is smaller: the list must shrink; {advice}");
            problems.push(Problem::new(LIST, line, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest(files: &[(&str, &str)]) -> Vec<String> {
        let mut files_of = Crate::default();
        files.iter().for_each(|(path, text)| files_of.add(path, &Source::new(text)));
        files_of.largest_circle()
    }

    #[test]
    fn who_names_an_item_imports_its_file() {
        let circle = [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "fn f(_: super::a::A) {}")];
        assert_eq!(largest(&circle), ["a", "b"]);
        let chain = [("a.rs", "use crate::b::B; use kasha_log::a::X;"), ("b.rs", "#[cfg(test)]\nuse crate::a::A;")];
        assert_eq!(largest(&chain), Vec::<String>::new());
        let child = [("a.rs", "mod c;\nfn f() { c::g(); }"), ("a/c.rs", "use super::f;")];
        assert_eq!(largest(&child), ["a", "a/c"]);
    }

    #[test]
    fn a_reexport_is_no_import() {
        let facade = ("a.rs", "mod c; mod d; pub(crate) use c::C; pub use d::{D, E as F};");
        let inside = [facade, ("a/c.rs", "use super::D;"), ("a/d.rs", "")];
        assert_eq!(largest(&inside), Vec::<String>::new());
        let circle = [facade, ("a/c.rs", "use crate::a::D;"), ("a/d.rs", "use super::C;")];
        assert_eq!(largest(&circle), ["a/c", "a/d"]);
    }

    #[test]
    fn the_list_only_shrinks() {
        let found = |list: &str, len: usize| {
            let mut problems = Vec::new();
            check(&[("crates/x", vec![String::new(); len])], list, &mut problems);
            problems.into_iter().map(|problem| problem.path).collect::<Vec<_>>()
        };
        assert_eq!(found("", 6), Vec::<String>::new());
        assert_eq!(found("", 7), ["crates/x/src"]);
        assert_eq!(found("# why\ncrates/x 7", 7), Vec::<String>::new());
        assert_eq!(found("crates/x 7", 6), [LIST]);
        assert_eq!(found("crates/x 9", 8), [LIST]);
        assert_eq!(found("crates/y 9", 0), [LIST]);
        assert_eq!(found("crates/x many", 0), [LIST]);
    }
}
