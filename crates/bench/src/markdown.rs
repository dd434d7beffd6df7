//! Writes tables as Markdown, for the documentation.

use crate::section::{Section, Table};

/// The findings of a benchmark: a heading, its tables, and the figures that are in no table.
pub(crate) fn section(section: &Section) -> String {
    let tables: String = section.tables.iter().map(table).collect();
    let figures = section.figures();
    let figures = if figures.rows.is_empty() { String::new() } else { table(&figures) };
    format!("## {}\n\n{}\n\n{tables}{figures}", section.name, section.about)
}

/// A table below its title; figures are aligned to the right.
pub(crate) fn table(table: &Table) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    // A bar would end the cell.
    let row = |cells: Vec<String>| line(cells.iter().map(|cell| cell.replace('|', "\\|")).collect());
    let head = row(table.columns.iter().map(|&name| name.to_owned()).collect());
    let rule = |column| if table.is_text(column) { "---" } else { "---:" }.to_owned();
    let rule = line((0..table.columns.len()).map(rule).collect());
    let rows: String = table.rows.iter().map(|cells| row(cells.iter().map(ToString::to_string).collect())).collect();
    format!("{}:\n\n{head}{rule}{rows}\n", table.title)
}

#[cfg(test)]
mod tests {
    use crate::section::{Cell, Section, Table};

    #[test]
    fn tables_and_figures_are_markdown() {
        let mut found = Section::new("test", "a test");
        let mut table = Table::new("Something", &["mode", "p50 µs"]);
        table.row([Cell::from("one|two"), Cell::Number(12.345, 1)]);
        table.row([Cell::from("three"), Cell::Nothing]);
        found.tables.push(table);
        found.ratio("a/b.p50", 1.5);
        let expected = "## test\n\na test\n\n\
                        Something:\n\n| mode | p50 µs |\n| --- | ---: |\n| one\\|two | 12.3 |\n| three | - |\n\n\
                        Figures:\n\n| figure | found |\n| --- | --- |\n| a/b.p50 | 1.5 |\n\n";
        assert_eq!(super::section(&found), expected);
    }
}
