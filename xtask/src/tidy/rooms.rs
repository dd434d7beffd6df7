//! What `cargo xtask tidy` prints of each crate: files, the largest circle of them, and lines.
//!
//! Lines of the product are code and comments of what users run. What judges it is counted apart: tests, and all of the crates
//! that exist for them.

use std::fmt;

use crate::source::{Source, line_of};
use crate::tidy::circles::Crate;
use crate::tidy::problem::is_test_file;
use crate::workspace::Package;

/// Crates that exist to judge the others.
const JUDGES: &[&str] = &[
    "crates/sim",
    "crates/bench",
    "crates/netlab",
    "crates/properties",
    "crates/reference",
    "spec",
    "tests/",
    "xtask",
];

struct Room {
    folder: String,
    files: usize,
    circle: Crate,
    product: usize,
    judges: usize,
}

/// All crates, in order of their folders.
pub(super) struct Rooms {
    rooms: Vec<Room>,
}

impl Rooms {
    pub(super) fn new(packages: &[Package]) -> Self {
        let room = |package: &Package| Room {
            folder: package.folder.clone(),
            files: 0,
            circle: Crate::default(),
            product: 0,
            judges: 0,
        };
        let mut rooms: Vec<Room> = packages.iter().map(room).collect();
        rooms.sort_by(|a, b| a.folder.cmp(&b.folder));
        Self { rooms }
    }

    /// Counts a file of Rust code.
    pub(super) fn add(&mut self, path: &str, text: &str, source: &Source<'_>) {
        let inside = |room: &&mut Room| path.strip_prefix(&room.folder).is_some_and(|rest| rest.starts_with('/'));
        let Some(room) = self.rooms.iter_mut().filter(inside).max_by_key(|room| room.folder.len()) else { return };
        let lines = text.lines().count();
        let of_tests = source.test_ranges().map(|range| line_of(text, range.end - 1) - line_of(text, range.start) + 1);
        let of_tests = of_tests.sum::<usize>();
        let is_judge = is_test_file(path) || JUDGES.iter().any(|judge| room.folder.starts_with(judge));
        let tests = if is_judge { lines } else { of_tests };
        (room.files, room.judges, room.product) = (room.files + 1, room.judges + tests, room.product + lines - tests);
        let name = path.strip_prefix(&room.folder).and_then(|rest| rest.strip_prefix("/src/"));
        if let Some(name) = name.filter(|_| !is_test_file(path)) {
            room.circle.add(name, source);
        }
    }

    /// The largest circle of each crate.
    pub(super) fn circles(&self) -> Vec<(&str, Vec<String>)> {
        self.rooms.iter().map(|room| (room.folder.as_str(), room.circle.largest_circle())).collect()
    }
}

impl fmt::Display for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<22} {:>6} {:>15} {:>9} {:>9}", "crate", "files", "largest circle", "product", "judges")?;
        for room in &self.rooms {
            let circle = room.circle.largest_circle().len();
            writeln!(f, "{:<22} {:>6} {:>15} {:>9} {:>9}", room.folder, room.files, circle, room.product, room.judges)?;
        }
        let sum = |count: fn(&Room) -> usize| self.rooms.iter().map(count).sum::<usize>();
        let (files, product, judges) = (sum(|room| room.files), sum(|room| room.product), sum(|room| room.judges));
        writeln!(f, "{:<22} {files:>6} {:>15} {product:>9} {judges:>9}", "all", "")
    }
}
