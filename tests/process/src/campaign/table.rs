//! The table of the seconds from a fault to service, by kind of fault, which the campaign prints at its end.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::alone::Kind;

/// The measurements so far.
#[derive(Debug, Default)]
pub struct Table {
    rows: BTreeMap<Kind, Row>,
}

#[derive(Debug, Default)]
struct Row {
    service: Vec<Duration>,
    /// The same times, in leases of the cluster.
    leases: Vec<f64>,
    others: Vec<Duration>,
}

impl Table {
    /// Adds one fault: the time until the last key was answered, and the longest pause of a key whose shard had no part
    /// on the struck nodes, in a session that it shared with keys of struck shards.
    pub fn enter(&mut self, kind: Kind, lease: Duration, service: Duration, others: Option<Duration>) {
        let row = self.rows.entry(kind).or_default();
        row.service.push(service);
        row.leases.push(service.as_secs_f64() / lease.as_secs_f64());
        row.others.extend(others);
    }

    /// Whether nothing was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Median and most, in seconds.
fn figures(times: &[Duration]) -> String {
    let mut times = times.to_vec();
    times.sort();
    match times.last() {
        None => "| | |".to_owned(),
        Some(most) => format!("| {:.2} | {:.2} |", times[(times.len() - 1) / 2].as_secs_f64(), most.as_secs_f64()),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| fault | from its | times | median s | most s | median leases | untouched shards: median s | most s |"
        )?;
        write!(f, "|---|---|---|---|---|---|---|---|")?;
        for (kind, Row { service, leases, others }) in &self.rows {
            let from = if kind.counts_from_end() { "end" } else { "beginning" };
            let (service_figures, others) = (figures(service), figures(others));
            let mut leases = leases.clone();
            leases.sort_by(f64::total_cmp);
            let lease = leases[(leases.len() - 1) / 2];
            write!(f, "\n| {kind} | {from} | {} {service_figures} {lease:.1} {others}", service.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_median_and_most() {
        let mut table = Table::default();
        for second in [3, 1, 2] {
            let lease = Duration::from_secs(2);
            table.enter(Kind::KillNode, lease, Duration::from_secs(second), (second == 1).then_some(Duration::ZERO));
        }
        table.enter(Kind::StopAll, Duration::from_secs(1), Duration::from_secs(1), None);
        let text = table.to_string();
        assert!(text.contains("| kill-node | beginning | 3 | 2.00 | 3.00 | 1.0 | 0.00 | 0.00 |"), "{text}");
        assert!(text.contains("| stop-all | end | 1 | 1.00 | 1.00 | 1.0 | | |"), "{text}");
    }
}
