//! Tables for people, as wide as their terminal.
//!
//! Columns are as wide as their cells. The last column takes what is left, and its text is wrapped. If too little is left for
//! that, each row becomes a small list: its first cell, and below it the other cells with their names.

use std::fmt::Write;

/// A last column that is narrower than this is no column.
const LAST_WIDTH_MIN: usize = 16;
/// Between two columns.
const GAP: &str = "  ";

/// How a column's cells stand in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// A table: the names of its columns, and its rows, each with as many cells.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table whose columns have these names. A name that begins with `>` is of a column of numbers, which stand right.
    pub fn new<const N: usize>(names: [&'static str; N]) -> Self {
        let column = |name: &'static str| match name.strip_prefix('>') {
            Some(name) => (name, Align::Right),
            None => (name, Align::Left),
        };
        Self { columns: names.into_iter().map(column).collect(), rows: Vec::new() }
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(N, self.columns.len(), "a cell for each column");
        self.rows.push(cells.into());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, no line of it wider than `width`.
    pub fn render(&self, width: usize) -> String {
        let last = self.columns.len() - 1;
        let widths: Vec<usize> = (0..last).map(|column| self.width_of(column)).collect();
        let before: usize = widths.iter().map(|width| width + GAP.len()).sum();
        let wanted = self.width_of(last);
        let left = width.saturating_sub(before);
        if left < wanted.min(LAST_WIDTH_MIN) { self.as_lists(width) } else { self.as_table(&widths, left.min(wanted)) }
    }

    fn width_of(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.chain([self.columns[column].0.chars().count()]).max().unwrap_or(0)
    }

    fn as_table(&self, widths: &[usize], last_width: usize) -> String {
        let mut out = String::new();
        let names: Vec<String> = self.columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        for row in std::iter::once(&names).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, &width), (_, align)) in row.iter().zip(widths).zip(&self.columns) {
                let _ = match align {
                    Align::Left => write!(line, "{cell:width$}{GAP}"),
                    Align::Right => write!(line, "{cell:>width$}{GAP}"),
                };
            }
            let indent = line.chars().count();
            let (cell, align) = (&row[widths.len()], self.columns[widths.len()].1);
            for (index, part) in wrapped(cell, last_width.max(1)).iter().enumerate() {
                if index > 0 {
                    line = " ".repeat(indent);
                }
                let _ = match align {
                    Align::Left => write!(line, "{part}"),
                    Align::Right => write!(line, "{part:>last_width$}"),
                };
                out.push_str(line.trim_end());
                out.push('\n');
            }
        }
        out
    }

    fn as_lists(&self, width: usize) -> String {
        let mut out = String::new();
        for row in &self.rows {
            for ((name, _), cell) in self.columns.iter().zip(row) {
                let is_first = cell == &row[0] && *name == self.columns[0].0;
                let text = if is_first { cell.clone() } else { format!("{}: {cell}", name.to_lowercase()) };
                let indent = if is_first { "" } else { GAP };
                for (index, part) in wrapped(&text, width.saturating_sub(indent.len() + 2).max(1)).iter().enumerate() {
                    let deeper = if index > 0 { GAP } else { "" };
                    let _ = writeln!(out, "{indent}{deeper}{part}");
                }
            }
        }
        out
    }
}

/// Lines of at most `width` characters, cut between words; a word that is longer is cut itself. At least one line.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line, mut length) = (Vec::new(), String::new(), 0);
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let letters: Vec<char> = word.chars().collect();
        if length > 0 && length + 1 + letters.len() > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        for letter in letters {
            if length == width {
                lines.push(std::mem::take(&mut line));
                length = 0;
            }
            line.push(letter);
            length += 1;
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn a_table_is_never_wider_than_its_terminal() {
        let mut table = Table::new(["SHARD", ">OBJECTS", "STATE"]);
        table.row(["shard-0".into(), "12".into(), "healthy".into()]);
        table.row([
            "shard-17".into(),
            "1234567".into(),
            "waits for node-2, which does not answer; start it again".into(),
        ]);
        table.row(["shard-2".into(), "0".into(), "copies-of-a-word-without-any-space-in-it-at-all-µ".into()]);
        for width in 12..120 {
            let text = table.render(width);
            assert!(widest(&text) <= width, "{width}:\n{text}");
            for word in ["shard-17", "1234567", "answer;", "again"] {
                assert!(text.contains(word), "{word} at {width}:\n{text}");
            }
        }
        assert_eq!(table.render(40).lines().next(), Some("SHARD     OBJECTS  STATE"));
        assert!(table.render(40).contains("\nshard-0        12  healthy\n"), "{}", table.render(40));
        assert_eq!(table.render(20).lines().nth(1), Some("  objects: 12"));
    }

    #[test]
    fn words_are_wrapped_and_long_ones_cut() {
        assert_eq!(wrapped("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrapped("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(wrapped("µµµµµ", 4), ["µµµµ", "µ"]);
    }
}
