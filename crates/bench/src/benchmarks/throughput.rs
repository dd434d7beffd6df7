//! Updates a second, and the primary's processor time for each, by the number of clients (CURP 5.2, figure 7).
//!
//! All processes of all modes share this machine's processors. So the operations a second of a mode with three backups
//! depend more on the machine than on the mode. A primary with a processor of its own is limited by the time that its
//! event loop works for one update. That time is measured on the primary's own thread.

use crate::harness::keys::Keys;
use crate::harness::load::{Limit, Workload};
use crate::harness::{Arm, BenchOptions, Clients, Measured, Run, in_turns, per, turns};
use crate::plot::{Axis, Plot, Series};
use crate::report::Mode;
use crate::section::{Cell, Section, Table};
use kasha_node::Baseline;

const CLIENTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const CLIENTS_MAX: usize = 64;
const KEYS: u32 = 100_000;
const VALUE_BYTES: usize = 100;
const FAULTS: u8 = 3;

/// One mode's cluster. `latency` measures the same.
pub(crate) fn start(run: &Run<'_>, mode: Mode, faults: u8, clients: usize) -> anyhow::Result<Arm> {
    let (faults, baseline) = match mode {
        Mode::Unreplicated => (0, Baseline::Unreplicated),
        Mode::Sync => (faults, Baseline::Synced),
        Mode::Kasha => (faults, Baseline::None),
    };
    let spec = crate::ClusterSpec { baseline, ..run.spec(&format!("f{faults}-{}", mode.name()), faults) };
    Arm::start(mode.name(), spec, Clients::new(clients, mode == Mode::Kasha))
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let faults = options.faults.unwrap_or(FAULTS);
    let run = Run::begin("throughput", options);
    let workload = Workload::puts(VALUE_BYTES, Keys::Uniform(KEYS));
    let mut arms = Vec::new();
    for mode in Mode::ALL {
        run.say(&format!("starting {}", mode.name()));
        let mut arm = start(&run, mode, faults, CLIENTS_MAX)?;
        arm.warm(CLIENTS_MAX, &workload, KEYS)?;
        arms.push((arm, vec![Measured::new(); CLIENTS.len()]));
    }
    let limit = Limit::Time(options.round / 2);
    let rounds = run.rounds(|round| {
        for (index, clients) in CLIENTS.into_iter().enumerate() {
            in_turns(round, &mut arms, |(arm, measured)| {
                arm.round_into(clients, &workload, limit, &mut measured[index])
            })?;
        }
        Ok(())
    })?;
    let measured: Vec<Vec<Measured>> = arms.into_iter().map(|(_, measured)| measured).collect();
    let mut section = Section::new(
        "throughput",
        format!(
            "closed loops of 1 to {CLIENTS_MAX} clients, puts of {VALUE_BYTES} bytes to {KEYS} keys, f = {faults}; CPU is \
             the time of the primary's event loop for one update"
        ),
    );
    section.tables.push(table(&measured));
    note_ratios(&mut section, faults, &measured);
    let longest = Mode::ALL.into_iter().zip(&measured).flat_map(|(mode, points)| {
        CLIENTS.into_iter().zip(points).map(move |(clients, point)| {
            let figure = format!("throughput.f{faults}.c{clients}.{}.longest_turn_us", mode.name());
            (format!("{}, {clients} clients", mode.name()), figure, &point.longest_turn)
        })
    });
    turns::show(&mut section, "Longest turns of the primary's event loop", turns::micros, longest);
    section.plots = plots(&measured);
    Ok(section.took(run.end()?, rounds))
}

fn table(measured: &[Vec<Measured>]) -> Table {
    let columns =
        ["mode", "clients", "updates/s", "p50 µs", "p99 µs", "CPU µs", "updates/turn", "allocations", "fast path"];
    let mut table = Table::new("Updates by mode and clients", &columns);
    for (mode, points) in Mode::ALL.into_iter().zip(measured) {
        for (clients, point) in CLIENTS.into_iter().zip(points) {
            table.row([
                Cell::from(mode.name()),
                Cell::from(clients as u64),
                Cell::Number(point.throughput(), 0),
                Cell::Number(point.percentile_us(50.0), 1),
                Cell::Number(point.percentile_us(99.0), 1),
                Cell::Number(point.cpu_us(), 2),
                Cell::Number(point.batch(), 1),
                Cell::Number(per(point.usage.allocations as f64, point.operations()), 3),
                if mode == Mode::Kasha { Cell::Share(point.fast_path_rate()) } else { Cell::Nothing },
            ]);
        }
    }
    table
}

fn note_ratios(section: &mut Section, faults: u8, measured: &[Vec<Measured>]) {
    let [unreplicated, sync, kasha] = measured else { unreachable!("three modes") };
    for (index, clients) in CLIENTS.into_iter().enumerate() {
        let kasha = &kasha[index];
        for (name, points) in [("unreplicated", unreplicated), ("sync", sync)] {
            let other = &points[index];
            let cpu = other.relative_to(kasha, |round| round.cpu_us);
            section.detail(format!("throughput.f{faults}.c{clients}.{name}/kasha.cpu"), cpu);
            let throughput = kasha.relative_to(other, |round| round.throughput);
            section.detail(format!("throughput.f{faults}.c{clients}.kasha/{name}.updates"), throughput);
            if clients == CLIENTS_MAX {
                section.ratio(format!("throughput.f{faults}.{name}/kasha.cpu"), cpu);
                let alike = per(cpu_at(points, kasha.batch()), kasha.cpu_us());
                section.ratio(format!("throughput.f{faults}.{name}/kasha.cpu_at_equal_batch"), alike);
                section.ratio(format!("throughput.f{faults}.kasha/{name}.updates"), throughput);
            }
        }
    }
    let (mut fast, mut updates) = (0, 0);
    for point in kasha {
        (fast, updates) = (fast + point.tally.fast, updates + point.tally.updates);
    }
    section.ratio(format!("throughput.f{faults}.kasha.fast_path"), per(fast as f64, updates as f64));
}

/// The cost of an update of a mode when this many updates come in a turn. The cost of a turn is shared by its updates,
/// so the cost of one is linear in the reciprocal of their number. Interpolates between the measured points; beyond
/// them, takes the last point.
fn cpu_at(points: &[Measured], batch: f64) -> f64 {
    let mut points: Vec<(f64, f64)> = points.iter().map(|point| (1.0 / point.batch(), point.cpu_us())).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    interpolated(&points, 1.0 / batch)
}

fn interpolated(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|&(at, _)| at < x);
    match (after.checked_sub(1).map(|before| points[before]), points.get(after)) {
        (Some((x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
        (Some((_, y)), None) | (None, Some(&(_, y))) => y,
        (None, None) => f64::NAN,
    }
}

fn plots(measured: &[Vec<Measured>]) -> Vec<Plot> {
    let series = |of: fn(&Measured) -> f64| -> Vec<Series> {
        let modes = Mode::ALL.into_iter().zip(measured);
        let line = |points: &Vec<Measured>| CLIENTS.into_iter().map(|n| n as f64).zip(points.iter().map(of)).collect();
        modes.map(|(mode, points)| Series { name: mode.name().to_owned(), points: line(points) }).collect()
    };
    let plot = |file: &str, title: &str, y, series| Plot {
        file: file.to_owned(),
        title: title.to_owned(),
        x: "clients",
        y,
        axis: Axis::Logarithmic,
        series,
    };
    vec![
        plot("throughput", "Updates a second", "updates/s", series(Measured::throughput)),
        plot("throughput-cpu", "The primary's processor time", "µs for an update", series(Measured::cpu_us)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_points_lies_the_line_through_them() {
        let points = [(0.1, 1.0), (0.2, 3.0), (1.0, 4.0)];
        for (x, y) in [(0.0, 1.0), (0.1, 1.0), (0.15, 2.0), (0.6, 3.5), (2.0, 4.0)] {
            assert!((interpolated(&points, x) - y).abs() < 1e-9, "{x}");
        }
    }
}
