//! The findings of a benchmark: tables for people, ratios for the record of measurements, and plots.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json};

pub(crate) use crate::figure::rounded;
use crate::figure::{Figure, Spread};
use crate::plot::Plot;

/// One cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text, aligned to the left.
    Text(String),
    /// A number, and the number of digits behind the point to show.
    Number(f64, usize),
    /// A share, shown in percent.
    Share(f64),
    /// The cell does not apply.
    Nothing,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(number as f64, 0)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number, digits) => write!(f, "{number:.digits$}"),
            Self::Share(share) => write!(f, "{:.2} %", share * 100.0),
            Self::Nothing => f.write_str("-"),
        }
    }
}

impl Cell {
    fn to_json(&self) -> Json {
        match self {
            Self::Text(text) => Json::from(text.as_str()),
            Self::Number(number, digits) if *digits == 0 && *number >= 0.0 => Json::from(number.round() as u64),
            Self::Number(number, digits) => Json::from(rounded(*number, *digits)),
            Self::Share(share) => Json::from(rounded(*share, 4)),
            Self::Nothing => Json::Null,
        }
    }
}

/// Digits behind the point of a figure and of its range.
pub(crate) const RATIO_DIGITS: usize = 4;

/// A range as it is shown.
pub(crate) fn range(spread: Option<Spread>) -> String {
    match spread {
        Some(Spread::Within([from, to])) => format!("{from}–{to}"),
        Some(Spread::Anywhere) | None => "-".to_owned(),
    }
}

fn file_names<S: Serializer>(plots: &[Plot], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(plots.iter().map(|plot| &plot.file))
}

/// A table. In JSON each row is an object with the columns' names as keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The title of the table.
    pub title: String,
    /// The names of the columns, with their units.
    pub columns: Vec<String>,
    /// The rows, with one cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Without rows yet.
    pub(crate) fn new(title: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        Self { title: title.to_owned(), columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns.len(), "{}: a cell for each column", self.title);
        self.rows.push(cells);
    }

    /// Whether a column has text, which is aligned to the left, and no figures, which are aligned to the right.
    pub(crate) fn is_text(&self, column: usize) -> bool {
        self.rows.iter().all(|row| matches!(row[column], Cell::Text(_)))
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = |cells: &Vec<Cell>| -> Json {
            let named = self.columns.iter().zip(cells).map(|(name, cell)| (name.clone(), cell.to_json()));
            Json::Object(named.collect::<Map<_, _>>())
        };
        let rows: Vec<Json> = self.rows.iter().map(row).collect();
        serde_json::json!({ "title": self.title, "columns": self.columns, "rows": rows }).serialize(serializer)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<Vec<String>> = self.rows.iter().map(|row| row.iter().map(Cell::to_string).collect()).collect();
        let width = |column: usize| {
            let cells = shown.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(self.columns[column].chars().count())
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        writeln!(f, "{}", self.title)?;
        let line = |f: &mut fmt::Formatter<'_>, cells: &[String]| {
            for (column, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
                let is_last = column + 1 == cells.len();
                match (self.is_text(column), is_last) {
                    (true, false) => write!(f, "  {cell:<width$}")?,
                    (true, true) => write!(f, "  {cell}")?,
                    (false, _) => write!(f, "  {cell:>width$}")?,
                }
            }
            writeln!(f)
        };
        line(f, &self.columns)?;
        shown.iter().try_for_each(|row| line(f, row))
    }
}

/// What a benchmark took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Took {
    pub(crate) time: Duration,
    /// The share of the processors that the host took away meanwhile.
    pub(crate) stolen: f64,
}

impl Took {
    /// What was measured meanwhile decides nothing, if this is something.
    pub(crate) fn obstacle(self) -> Option<String> {
        let percent = self.stolen * 100.0;
        let text = || format!("NO VERDICT: the host of this machine took {percent:.0} % of its processors away");
        (self.stolen >= STOLEN_MAX).then(text)
    }
}

/// Of the processors' time: with more that is stolen, no figure decides anything.
const STOLEN_MAX: f64 = 0.1;

/// The findings of one benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Its name on the command line.
    pub name: &'static str,
    /// What was measured and how, in a sentence or two.
    pub about: String,
    /// The time that the benchmark took.
    pub seconds: f64,
    /// Rounds of each mode; 0 if there are no rounds.
    pub rounds: u32,
    /// Why no target is judged, if none is.
    #[serde(skip)]
    pub(crate) obstacle: Option<String>,
    /// The tables, in the order in which they are shown.
    pub tables: Vec<Table>,
    /// Figures to be compared with targets and with other runs, by name.
    pub ratios: BTreeMap<String, f64>,
    /// Where those figures may lie that are medians of rounds, or that decide nothing.
    pub spreads: BTreeMap<String, Spread>,
    /// Names of figures that are not shown below the tables, because a table has them.
    #[serde(rename = "in_tables")]
    details: BTreeSet<String>,
    /// The plots of the tables; in JSON only the names of their files.
    #[serde(serialize_with = "file_names")]
    pub plots: Vec<Plot>,
}

impl Section {
    /// Findings without tables and figures yet.
    pub(crate) fn new(name: &'static str, about: impl Into<String>) -> Self {
        let (tables, ratios, details, plots) = (Vec::new(), BTreeMap::new(), BTreeSet::new(), Vec::new());
        let spreads = BTreeMap::new();
        let (seconds, rounds, obstacle) = (0.0, 0, None);
        Self { name, about: about.into(), seconds, rounds, obstacle, tables, ratios, spreads, details, plots }
    }

    /// Adds a figure under its name.
    pub(crate) fn ratio(&mut self, name: impl Into<String>, figure: impl Into<Figure>) {
        let (name, Figure { value, spread }) = (name.into(), figure.into().rounded(RATIO_DIGITS));
        if let Some(spread) = spread {
            self.spreads.insert(name.clone(), spread);
        }
        self.ratios.insert(name, value);
    }

    /// The figure with this name says nothing: it decides no target.
    pub(crate) fn refuse(&mut self, name: &str) {
        self.spreads.insert(name.to_owned(), Spread::Anywhere);
    }

    /// Adds a figure that also stands in a table.
    pub(crate) fn detail(&mut self, name: impl Into<String>, figure: impl Into<Figure>) {
        let name = name.into();
        self.details.insert(name.clone());
        self.ratio(name, figure);
    }

    fn shown(&self) -> impl Iterator<Item = (&String, &f64)> {
        self.ratios.iter().filter(|(name, _)| !self.details.contains(*name))
    }

    /// Notes the time and the number of rounds. What was measured while the host took processors away decides nothing.
    pub(crate) fn took(mut self, took: Took, rounds: u32) -> Self {
        (self.seconds, self.rounds) = (rounded(took.time.as_secs_f64(), 1), rounds);
        self.obstacle = took.obstacle();
        if let Some(obstacle) = &self.obstacle {
            self.about += &format!("; {obstacle}");
            self.spreads = self.ratios.keys().map(|name| (name.clone(), Spread::Anywhere)).collect();
        }
        self
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.about)?;
        for table in &self.tables {
            write!(f, "\n{table}")?;
        }
        if self.shown().count() > 0 {
            writeln!(f)?;
        }
        let width = self.shown().map(|(name, _)| name.len()).max().unwrap_or(0);
        self.shown().try_for_each(|(name, value)| writeln!(f, "  {name:<width$}  {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new("Something", &["mode", "p50 µs", "share"]);
        table.row([Cell::from("first"), Cell::Number(12.345, 1), Cell::Share(0.5)]);
        table.row([Cell::from("the second"), Cell::from(7u64), Cell::Nothing]);
        table
    }

    #[test]
    fn tables_are_aligned() {
        let text = table().to_string();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "{text}");
        assert!(lines[1].contains("12.3") && lines[1].contains("50.00 %"), "{text}");
    }

    #[test]
    fn rows_in_json_have_the_columns_names() {
        let mut section = Section::new("test", "a test");
        section.tables.push(table());
        section.ratio("a/b.p50", 1.23456);
        section.detail("a.share", Figure { value: 0.5, spread: Some(Spread::Within([0.4, 0.6])) });
        let text = section.to_string();
        assert!(text.contains("a/b.p50") && !text.contains("a.share"), "{text}");
        let json = serde_json::to_value(&section).unwrap();
        assert_eq!(json["tables"][0]["rows"][0]["p50 µs"], 12.3);
        assert_eq!(json["tables"][0]["rows"][1]["share"], Json::Null);
        assert_eq!(json["ratios"]["a/b.p50"], 1.2346);
        assert_eq!(json["spreads"], serde_json::json!({ "a.share": [0.4, 0.6] }));
    }

    #[test]
    fn what_a_host_disturbed_says_so_and_decides_nothing() {
        let of = |stolen| {
            let mut section = Section::new("test", "a test");
            section.ratio("test.one", 1.0);
            section.took(Took { stolen, ..Took::default() }, 1)
        };
        assert!(of(0.02).spreads.is_empty() && !of(0.02).about.contains("NO VERDICT"));
        assert_eq!(of(0.33).spreads["test.one"], Spread::Anywhere);
        let json = serde_json::to_value(of(0.33)).unwrap();
        assert_eq!(json["spreads"], serde_json::json!({ "test.one": null }));
        assert!(of(0.33).about.ends_with("took 33 % of its processors away"), "{}", of(0.33).about);
    }
}
