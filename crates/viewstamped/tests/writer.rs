//! Records on their way to the files: whatever is lost with the process or with the power, nothing durable is, and nothing passes for damage.

use kasha_machine::Rng;
use kasha_viewstamped::journal::{Journal, Owner, Step, read};
use kasha_viewstamped::{Entry, Lists, MemberId, OpNumber, Record, Stored, View, WriteNumber, Writer};

const OWNER: Owner = Owner { group: 7, member: MemberId(1), boot: 3, file_bytes: 8 * 1024 };
const REBOOTED: Owner = Owner { boot: 4, ..OWNER };
const PAGE: usize = 512;

type Files = [Vec<u8>; 2];

fn write(files: &mut Files, file: usize, offset: usize, bytes: &[u8]) {
    let content = &mut files[file];
    content.resize(content.len().max(offset + bytes.len()), 0);
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// A writer, its files, and what was to be written.
struct World {
    rng: Rng,
    writer: Writer,
    fsynced: Files,
    /// Writes that no fsync has followed: file, offset, bytes.
    loose: Vec<(usize, usize, Vec<u8>)>,
    /// What the disk holds after each write.
    history: Vec<Stored>,
    durable: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let (_, journal): (_, Journal) = read(OWNER, &[], &[]).expect("empty files are new ones");
        let mut stored = Stored::new(Lists::new([MemberId(1)]), vec![9; 300]);
        (stored.view, stored.log_view) = (view(1), view(1));
        let mut world = Self {
            rng: Rng::new(seed),
            writer: Writer::new(journal),
            fsynced: Files::default(),
            loose: Vec::new(),
            history: vec![stored.clone()],
            durable: 0,
        };
        world.writer.push(WriteNumber(0), Record::Whole(stored));
        world.settle();
        world
    }

    fn last(&self) -> &Stored {
        self.history.last().expect("it begins with one")
    }

    /// Another record, as a replica would want it.
    fn push(&mut self) {
        let last = self.last().clone();
        let end = OpNumber(last.snapshot.op.0 + last.entries.len() as u64);
        let record = match self.rng.below(12) {
            0 => Record::Entered(view(last.view.number + 1)),
            1 => Record::Committed(OpNumber(self.rng.between(last.committed.0, end.0))),
            2 => {
                let cut = self.rng.below(last.entries.len() as u64 + 1);
                let entries = last.entries.iter().take(usize::try_from(cut).expect("few")).cloned().collect();
                Record::Whole(Stored { log_view: last.view, committed: last.snapshot.op, entries, ..last.clone() })
            }
            _ => {
                let bytes = usize::try_from(self.rng.between(1, 700)).expect("few");
                Record::Appended { behind: end, entries: vec![Entry::Operation(vec![0; bytes])] }
            }
        };
        self.push_record(record);
        if self.writer.is_full() {
            let mut anew = self.last().clone();
            anew.snapshot.op = OpNumber(anew.snapshot.op.0 + anew.entries.len() as u64);
            anew.committed = anew.snapshot.op;
            anew.entries.clear();
            self.push_record(Record::Whole(anew));
            assert!(!self.writer.is_full(), "it begins anew already");
        }
    }

    fn push_record(&mut self, record: Record) {
        self.writer.push(WriteNumber(self.history.len() as u64), record.clone());
        self.history.push(self.last().clone().after(record).expect("records follow each other"));
    }

    fn begin(&mut self) {
        for step in self.writer.next_steps() {
            match step {
                Step::Write { file, offset, bytes } => {
                    self.loose.push((file as usize, usize::try_from(offset).expect("small"), bytes));
                }
                Step::Sync => assert!(self.writer.next_steps().is_empty(), "one fsync at a time"),
            }
        }
    }

    fn finish(&mut self) {
        for (file, offset, bytes) in self.loose.drain(..) {
            write(&mut self.fsynced, file, offset, &bytes);
        }
        if let Some(WriteNumber(number)) = self.writer.on_synced() {
            self.durable = usize::try_from(number).expect("few");
        }
    }

    /// Until everything is durable.
    fn settle(&mut self) {
        loop {
            self.begin();
            if self.loose.is_empty() {
                break;
            }
            self.finish();
        }
        assert_eq!(self.durable, self.history.len() - 1);
    }

    fn check(&self, files: &Files, owner: Owner) {
        let found = read(owner, &files[0], &files[1]).unwrap_or_else(|damage| panic!("{damage}")).0;
        let found = found.expect("the first record is durable");
        assert!(self.history[self.durable..].contains(&found), "behind write {}", self.durable);
    }

    /// The process is killed in the middle of its writes.
    fn killed(&mut self) {
        let mut files = self.fsynced.clone();
        let whole = usize::try_from(self.rng.below(self.loose.len() as u64 + 1)).expect("few");
        for (index, (file, offset, bytes)) in self.loose.iter().enumerate().take(whole + 1) {
            let cut = self.rng.below(bytes.len() as u64 + 1);
            let cut = if index < whole { bytes.len() } else { usize::try_from(cut).expect("few") };
            write(&mut files, *file, *offset, &bytes[..cut]);
        }
        self.check(&files, OWNER);
    }

    /// Power is lost: of what was not fsynced, any page may be on the platter.
    fn blacked_out(&mut self) {
        let mut files = self.fsynced.clone();
        for (file, offset, bytes) in &self.loose {
            let mut at = 0;
            while at < bytes.len() {
                let end = (((offset + at) / PAGE + 1) * PAGE - offset).min(bytes.len());
                if self.rng.chance(1, 2) {
                    write(&mut files, *file, offset + at, &bytes[at..end]);
                }
                at = end;
            }
        }
        self.check(&files, REBOOTED);
    }
}

fn view(number: u64) -> View {
    View { number, leader: MemberId(1) }
}

#[test]
fn what_is_durable_survives_and_records_share_an_fsync() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        for _ in 0..150 {
            for _ in 0..world.rng.below(4) {
                world.push();
            }
            if world.loose.is_empty() {
                world.begin();
            }
            world.killed();
            world.blacked_out();
            if !world.loose.is_empty() && world.rng.chance(1, 2) {
                world.finish();
            }
        }
        if !world.loose.is_empty() {
            world.finish();
        }
        world.settle();
    }
}

#[test]
fn what_waits_for_an_fsync_is_one_record() {
    let mut world = World::new(1);
    for round in 0..3 {
        for _ in 0..10 {
            let behind = OpNumber(world.last().entries.len() as u64);
            world.push_record(Record::Appended { behind, entries: vec![Entry::Operation(vec![round; 20])] });
        }
        world.begin();
        assert_eq!(world.writer.waiting(), 0);
        world.finish();
        assert_eq!(world.durable, world.history.len() - 1, "ten records, one fsync");
    }
}
