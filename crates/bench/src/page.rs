//! The page of results: the file of a run as Markdown, for the documentation. The file alone makes the page, so nobody types a figure.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::figure::Spread;
use crate::report::Machine;
use crate::section::{Cell, Table, range};
use crate::targets::{self, Bound, Verdict};

const HEAD: &str = "# Figures of one run\n\n\
    This page is made from the file of one run, and nobody edits it: `kasha-lab bench all --json bench.json --svg docs/plots`, then\n\
    `kasha-lab bench page bench.json > docs/results.md`. [benchmarks.md](benchmarks.md) says how the figures were measured, and what\n\
    they mean. Only ratios within a table mean much on another machine.";

/// What the page takes from the file; [`crate::Report`] writes it.
#[derive(Deserialize)]
struct File {
    machine: Machine,
    settings: Settings,
    seconds: f64,
    targets: Vec<Judged>,
    sections: Vec<Section>,
}

#[derive(Deserialize)]
struct Settings {
    version: String,
}

#[derive(Deserialize)]
struct Judged {
    figure: String,
    bound: Bound,
    value: f64,
    about: String,
    found: Option<f64>,
    spread: Option<[f64; 2]>,
    verdict: Verdict,
}

#[derive(Deserialize)]
struct Section {
    name: String,
    about: String,
    tables: Vec<Rows>,
    ratios: BTreeMap<String, f64>,
    spreads: BTreeMap<String, Option<[f64; 2]>>,
    in_tables: BTreeSet<String>,
    plots: Vec<String>,
}

#[derive(Deserialize)]
struct Rows {
    title: String,
    columns: Vec<String>,
    rows: Vec<Map<String, Json>>,
}

/// The page for a file that a run of benchmarks wrote.
///
/// # Errors
/// If it is no such file. (`latency` and `rivals` by themselves write others.)
pub fn page(json: &str) -> anyhow::Result<String> {
    let file: File = serde_json::from_str(json).context("this is no file of `kasha-lab bench all --json`")?;
    let place = format!("Measured by version {} on {}, in {} s.", file.settings.version, file.machine, file.seconds);
    let mut judged = Table::new("Targets", targets::COLUMNS);
    for Judged { figure, bound, value, about, found, spread, verdict } in file.targets {
        let spread = spread.map(Spread::Within);
        judged.row(targets::row(&figure, (bound, value), found, spread, verdict, &about));
    }
    let judged = if judged.rows.is_empty() { String::new() } else { markdown(&judged) };
    let parts: Vec<String> = file.sections.into_iter().map(section).collect();
    let text = format!("{HEAD}\n\n{place}\n\n{judged}{}", parts.concat());
    Ok(text.trim_end().to_owned() + "\n")
}

/// The findings of a benchmark: a heading, its tables, the figures that are in no table, and its plots.
fn section(section: Section) -> String {
    let Section { name, about, tables, ratios, spreads, in_tables, plots } = section;
    let tables: String = tables.iter().map(|rows| markdown(&table(rows))).collect();
    let mut figures = Table::new("Figures", &["figure", "found", "range"]);
    for (name, found) in ratios.iter().filter(|(name, _)| !in_tables.contains(*name)) {
        let spread = spreads.get(name).copied().flatten().map(Spread::Within);
        figures.row([Cell::from(name.as_str()), Cell::from(found.to_string()), Cell::from(range(spread))]);
    }
    let figures = if figures.rows.is_empty() { String::new() } else { markdown(&figures) };
    let plots: String = plots.iter().map(|name| format!("![{name}](plots/{name}.svg)\n\n")).collect();
    format!("## {name}\n\n{about}\n\n{tables}{figures}{plots}")
}

/// The table that was written as these rows. The fractions of a column have as many digits as the longest of them.
fn table(Rows { title, columns, rows }: &Rows) -> Table {
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(title, &names);
    let decimals = |cell: &Json| cell.as_f64().and(cell.to_string().split_once('.').map(|(_, digits)| digits.len()));
    for row in rows {
        table.row(columns.iter().map(|column| match &row[column] {
            Json::String(text) => Cell::from(text.as_str()),
            Json::Number(number) if number.is_f64() => {
                let digits = rows.iter().filter_map(|row| decimals(&row[column])).max();
                Cell::Number(number.as_f64().unwrap_or(f64::NAN), digits.unwrap_or(0))
            }
            Json::Number(number) => Cell::from(number.to_string()),
            _ => Cell::Nothing,
        }));
    }
    table
}

/// A table below its title; figures are aligned to the right.
fn markdown(table: &Table) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    // A bar would end the cell.
    let row = |cells: Vec<String>| line(cells.iter().map(|cell| cell.replace('|', "\\|")).collect());
    let head = row(table.columns.clone());
    let rule = |column| if table.is_text(column) { "---" } else { "---:" }.to_owned();
    let rule = line((0..table.columns.len()).map(rule).collect());
    let rows: String = table.rows.iter().map(|cells| row(cells.iter().map(ToString::to_string).collect())).collect();
    format!("{}:\n\n{head}{rule}{rows}\n", table.title)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Figure;
    use crate::{BenchOptions, Report};

    #[test]
    fn the_file_of_a_run_is_a_page() {
        let mut floor = crate::Section::new("floor", "a test");
        let mut table = Table::new("Something", &["mode", "p50 µs", "updates", "fast"]);
        table.row([Cell::from("one|two"), Cell::Number(12.0, 2), Cell::from(7), Cell::Share(0.5)]);
        table.row([Cell::from("three"), Cell::Number(1.25, 2), Cell::Nothing, Cell::Nothing]);
        floor.tables.push(table);
        let spread = Some(Spread::Within([1.1, 1.3]));
        floor.ratio("floor.update/empty.p50", Figure { value: 1.2, spread });
        floor.ratio("floor.update/empty.p99", 1.5);
        floor.detail("floor.in_the_table", 1.0);
        let mut report = Report::new(&BenchOptions::new("kasha".into()), vec![floor]);
        report.machine = Machine { cores: 2, processor: "a processor".into(), kernel: "6".into() };
        let place = format!(
            "Measured by version {} on 2 processors (a processor), kernel 6, in 0 s.",
            env!("CARGO_PKG_VERSION")
        );
        let expected = format!(
            "{HEAD}\n\n{place}\n\n\
             Targets:\n\n| figure | target | found | range | verdict | what it means |\n\
             | --- | --- | --- | --- | --- | --- |\n\
             | floor.update/empty.p50 | ≤ 1.25 | 1.2 | 1.1–1.3 | undecided | an unreplicated update against an empty request |\n\n\
             ## floor\n\na test\n\n\
             Something:\n\n| mode | p50 µs | updates | fast |\n| --- | ---: | ---: | ---: |\n\
             | one\\|two | 12.00 | 7 | 0.5 |\n| three | 1.25 | - | - |\n\n\
             Figures:\n\n| figure | found | range |\n| --- | --- | --- |\n\
             | floor.update/empty.p50 | 1.2 | 1.1–1.3 |\n| floor.update/empty.p99 | 1.5 | - |\n"
        );
        assert_eq!(page(&report.to_json()).unwrap(), expected);
        assert!(page("{}").is_err());
    }

    /// The committed page has this program's layout, and no verdict that contradicts its figure.
    #[test]
    fn the_committed_page_is_one_of_this_command() {
        let text = include_str!("../../../docs/results.md");
        assert!(text.starts_with(HEAD), "made by another version, or edited");
        let judged = text.split("Targets:\n\n").nth(1).unwrap().split("\n\n").next().unwrap();
        let rows = judged.lines().map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows[0], targets::COLUMNS);
        for row in &rows[2..] {
            let [figure, target, found, range, verdict, _] = row[..] else { panic!("{row:?}") };
            let (sign, value) = target.split_once(' ').unwrap();
            let bound = if sign == "≤" { Bound::AtMost } else { Bound::AtLeast };
            let ends = range.split_once('–').map(|(from, to)| [from, to].map(|end| end.parse().unwrap()));
            let found = found.parse().ok();
            let again = targets::verdict((bound, value.parse().unwrap()), found, ends.map(Spread::Within));
            // A figure that decides nothing shows no range.
            assert!(verdict == again.name() || (verdict, ends) == ("undecided", None), "{figure}: {verdict}");
        }
    }
}
