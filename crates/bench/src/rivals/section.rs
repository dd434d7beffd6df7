//! The comparison as the findings of one benchmark: tables and plots.

use super::report::Mode;
use super::{Figures, RivalsReport};
use crate::plot::{Axis, Plot, Series};
use crate::section::{Cell, Section, Table};

impl RivalsReport {
    /// As a benchmark's findings: a table and a plot for each delay.
    #[must_use]
    pub fn section(&self) -> Section {
        let about = format!("three servers each, values of {} bytes, on a virtual network", self.value_bytes);
        let mut section = Section::new("rivals", about);
        for network in &self.networks {
            let at_delay = || self.results.iter().filter(|result| result.delay_us == network.delay_us);
            let title = format!(
                "Stores side by side, {} µs each way; packets {} µs later than due in the mean",
                network.delay_us, network.late_mean_us
            );
            section.tables.push(table(&title, at_delay()));
            section.plots.extend(plot(network.delay_us, at_delay()));
        }
        self.ratios.iter().for_each(|(name, &value)| section.detail(name, value));
        section.took(self.took, self.rounds)
    }
}

fn table<'a>(title: &str, results: impl Iterator<Item = &'a Figures>) -> Table {
    let columns = ["store", "callers", "p50 µs", "p99 µs", "updates/s", "server CPU µs", "packets", "fast path"];
    let mut table = Table::new(title, &columns);
    for result in results {
        table.row([
            Cell::from(result.mode),
            Cell::from(result.callers.as_str()),
            Cell::Number(result.p50_us, 1),
            Cell::Number(result.p99_us, 1),
            Cell::Number(result.throughput, 0),
            Cell::Number(result.server_cpu_us, 1),
            Cell::Number(result.packets, 1),
            if result.fast_path_rate > 0.0 { Cell::Share(result.fast_path_rate) } else { Cell::Nothing },
        ]);
    }
    table
}

/// Updates a second by callers that have a client each. Callers that share a client are other callers, not more of
/// them. Without two numbers of callers there is no line, and no plot.
fn plot<'a>(delay_us: u64, results: impl Iterator<Item = &'a Figures> + Clone) -> Option<Plot> {
    let line = |mode: Mode| {
        let own = results.clone().filter(|result| result.mode == mode.name());
        let mut points: Vec<_> =
            own.filter_map(|result| Some((result.callers.parse::<f64>().ok()?, result.throughput))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Series { name: mode.name().to_owned(), points }
    };
    let series: Vec<Series> = Mode::ALL.map(line).into();
    series.iter().any(|series| series.points.len() > 1).then(|| Plot {
        file: format!("rivals-{delay_us}us"),
        title: format!("Updates a second, {delay_us} µs each way"),
        x: "callers",
        y: "updates/s",
        axis: Axis::Logarithmic,
        series,
    })
}
