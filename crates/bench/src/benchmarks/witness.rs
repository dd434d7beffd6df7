//! Witnesses: records a second on one thread (CURP 5.2), and how many records a table takes before it must reject one,
//! by slots and ways (CURP C.2, figure 14).
//!
//! The production `Witness` is driven directly, without sockets. With its file, the storage of a node's event loop makes
//! the file, performs each turn's writes and commits them, without fsync, as under `replicated` durability. A turn has 50
//! records, or one. Where the file is flushed, that happens beside the records, as often as a node does it.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::Context;
use kasha_machine::{FileName, Rng};
use kasha_runtime::limits::Limits;
use kasha_runtime::{Clock, FolderDisk, Storage};
use kasha_types::{ClientId, ClusterId, ClusterTime, KeyHash, ListVersion, LocalPosition, RpcId, Sequence, ShardId};
use kasha_witness::{Identity, Recorded, Sizes, Witness};

use crate::harness::{BenchOptions, Run, in_turns, per};
use crate::plot::{Axis, Plot, Series};
use crate::section::{Cell, Section, Table};

const IDENTITY: Identity = Identity { cluster: ClusterId(1), shard: ShardId(0), list: ListVersion(1) };
/// Records between two garbage collections, as in CURP's measurement.
const GC: u64 = 50;
/// Bytes of a request's body: a put of 100 bytes.
const BODY_BYTES: usize = 170;
const SLOTS: [u32; 5] = [512, 1024, 2048, 4096, 8192];
const WAYS: [u8; 4] = [1, 2, 4, 8];
/// A node's default.
const FLUSH: Duration = Duration::from_millis(100);
/// Tables filled for each size.
const TRIALS: u64 = 400;

/// One way to run the table.
struct Point {
    name: &'static str,
    key: &'static str,
    body_bytes: usize,
    /// Records in a turn, after which they are written; `None`: no file.
    turn: Option<u64>,
    /// How often the file is flushed.
    flush: Option<Duration>,
    records: u64,
    rejected: u64,
    time: Duration,
}

impl Point {
    fn rate(&self) -> f64 {
        per(self.records as f64, self.time.as_secs_f64())
    }
}

fn points() -> Vec<Point> {
    let point = |name, key, body_bytes, turn| Point {
        name,
        key,
        body_bytes,
        turn,
        flush: None,
        records: 0,
        rejected: 0,
        time: Duration::ZERO,
    };
    vec![
        point("in memory", "memory", BODY_BYTES, None),
        point("with its file, 50 a turn", "file", BODY_BYTES, Some(GC)),
        point("with its file, 1 a turn", "file_alone", BODY_BYTES, Some(1)),
        Point {
            flush: Some(FLUSH),
            ..point("with its file, 50 a turn, flushed", "file_flushed", BODY_BYTES, Some(GC))
        },
        point("in memory, 2 KiB", "memory_2k", 2048, None),
        point("with its file, 50 a turn, 2 KiB", "file_2k", 2048, Some(GC)),
    ]
}

pub(super) fn run(options: &BenchOptions) -> anyhow::Result<Section> {
    let run = Run::begin("witness", options);
    let mut points = points();
    let mut file = WitnessFile::make(&run)?;
    let rounds = run.rounds(|round| {
        in_turns(round, &mut points, |point| record(point, &mut file, u64::from(round) << 40, options.round))
    })?;
    drop(file);
    let about = format!(
        "the witness's table alone, on one thread: {} slots in {} ways, a gc of {GC} keys after as many records",
        Sizes::default().slots(),
        Sizes::default().ways()
    );
    let mut section = Section::new("witness", about);
    let mut table = Table::new("Records a second", &["table", "body bytes", "records/s", "rejected"]);
    for point in &points {
        let rate = point.rate();
        let rejected = per(point.rejected as f64, point.records as f64);
        table.row([
            Cell::from(point.name),
            Cell::from(point.body_bytes as u64),
            Cell::Number(rate, 0),
            Cell::Share(rejected),
        ]);
        section.detail(format!("witness.{}.records_per_second", point.key), rate.round());
        if let Some(memory) = points.iter().find(|of| of.turn.is_none() && of.body_bytes == point.body_bytes)
            && point.turn.is_some()
        {
            section.ratio(format!("witness.{}/{}.records", point.key, memory.key), rate / memory.rate());
        }
    }
    section.tables.push(table);
    run.say("filling tables");
    associativity(&mut section);
    Ok(section.took(run.end()?, rounds))
}

/// An instance's file, in the hands of a node's storage.
struct WitnessFile {
    storage: Storage,
    committed: LocalPosition,
    news: Receiver<()>,
}

impl WitnessFile {
    const NAME: FileName = FileName::Witness { shard: IDENTITY.shard, list: IDENTITY.list };

    /// As a node begins an instance: no record comes before all this is durable.
    fn make(run: &Run<'_>) -> anyhow::Result<Self> {
        let folder = run.folder("core");
        FolderDisk::open(&folder)?;
        let (wake, news) = channel();
        let wake = move || wake.send(()).unwrap_or(());
        let storage = Storage::new("bench", Some(folder), Limits::default(), None, wake)?;
        let mut this = Self { storage, committed: LocalPosition(0), news };
        let witness = Witness::new(IDENTITY, Sizes::default());
        this.storage.write(Self::NAME, 0, &witness.header_bytes());
        this.storage.truncate(Self::NAME, witness.sizes().file_bytes());
        this.commit(true)?;
        Ok(this)
    }

    /// Ends a turn, and waits until what it wrote holds.
    fn commit(&mut self, fsync: bool) -> anyhow::Result<()> {
        self.committed = self.committed.next();
        self.storage.commit(self.committed, fsync);
        loop {
            self.storage.collect()?;
            if self.storage.next_durable() == Some(self.committed) {
                return Ok(());
            }
            self.news.recv().context("the log thread is gone")?;
        }
    }
}

/// Records distinct random keys for so long.
fn record(point: &mut Point, file: &mut WitnessFile, first: u64, time: Duration) -> anyhow::Result<()> {
    let mut witness = Witness::new(IDENTITY, Sizes::default());
    let (body, mut rng) = (vec![7; point.body_bytes], Rng::new(first));
    let mut entries: Vec<(KeyHash, RpcId)> = Vec::new();
    let began = Clock::now();
    let mut sequence = first;
    let mut flushed = began;
    loop {
        // The clock is read once in fifty records, so that it costs nothing.
        let now = Clock::now();
        if now.since(began) >= time {
            break;
        }
        if point.flush.is_some_and(|interval| now.since(flushed) >= interval) {
            file.storage.flush();
            flushed = now;
        }
        for _ in 0..GC {
            sequence += 1;
            let (rpc, hash) = (RpcId { client: ClientId(1), sequence: Sequence(sequence) }, KeyHash(rng.next_u64()));
            match witness.record(rpc, &[hash], &body, ClusterTime(1)) {
                Recorded::Accepted => entries.push((hash, rpc)),
                Recorded::Rejected(_) => point.rejected += 1,
            }
            if point.turn.is_some_and(|turn| sequence.is_multiple_of(turn)) {
                witness.drain_records(|offset, bytes| file.storage.write(WitnessFile::NAME, offset, bytes));
                file.commit(false)?;
            }
        }
        witness.gc(&entries, ClusterTime(0), &mut |_: RpcId, _: &[u8]| {});
        entries.clear();
    }
    point.time += Clock::now().since(began);
    point.records += sequence - first;
    Ok(())
}

/// Records that a table takes before it rejects the first, on average.
fn associativity(section: &mut Section) {
    let columns = ["slots", "1 way", "2 ways", "4 ways", "8 ways"];
    let mut table = Table::new("Random keys recorded before the first is rejected", &columns);
    let mut series: Vec<Series> = WAYS
        .iter()
        .map(|ways| Series {
            name: if *ways == 1 { "1 way".to_owned() } else { format!("{ways} ways") },
            points: Vec::new(),
        })
        .collect();
    for slots in SLOTS {
        let mut row = vec![Cell::from(u64::from(slots))];
        for (ways, series) in WAYS.into_iter().zip(&mut series) {
            let mean = records_before_rejection(slots, ways);
            series.points.push((f64::from(slots), mean));
            section.detail(format!("witness.slots{slots}.ways{ways}.records"), mean);
            row.push(Cell::Number(mean, 0));
        }
        table.row(row);
    }
    section.tables.push(table);
    section.plots.push(Plot {
        file: "witness".to_owned(),
        title: "Records before the first rejection".to_owned(),
        x: "slots",
        y: "records",
        axis: Axis::Linear,
        series,
    });
}

/// Measures the table's choice of a set only. Which request is in a set does not matter, so bodies are empty.
fn records_before_rejection(slots: u32, ways: u8) -> f64 {
    let mut rng = Rng::new(u64::from(slots) * 16 + u64::from(ways));
    let mut witness = Witness::new(IDENTITY, Sizes::new(slots, ways));
    let (mut taken, mut sequence) = (0, 0);
    let mut entries: Vec<(KeyHash, RpcId)> = Vec::new();
    for _ in 0..TRIALS {
        loop {
            sequence += 1;
            let (rpc, hash) = (RpcId { client: ClientId(1), sequence: Sequence(sequence) }, KeyHash(rng.next_u64()));
            match witness.record(rpc, &[hash], &[], ClusterTime(1)) {
                Recorded::Accepted => entries.push((hash, rpc)),
                Recorded::Rejected(_) => break,
            }
        }
        taken += entries.len();
        witness.gc(&entries, ClusterTime(0), &mut |_: RpcId, _: &[u8]| {});
        entries.clear();
    }
    taken as f64 / TRIALS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_slots_and_more_ways_take_more_records() {
        let at = records_before_rejection;
        assert!(at(512, 1) < at(4096, 1) && at(4096, 1) < at(4096, 2) && at(4096, 2) < at(4096, 4));
        // The birthday paradox: about the square root of pi / 2 times the slots.
        let birthday = (std::f64::consts::FRAC_PI_2 * 4096.0).sqrt();
        assert!((at(4096, 1) / birthday - 1.0).abs() < 0.2, "{} instead of {birthday}", at(4096, 1));
    }
}
