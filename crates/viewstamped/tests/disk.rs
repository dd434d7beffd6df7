//! The files of a member: each byte may rot, each write may be cut short, each page may be missing.

use kasha_machine::Rng;
use kasha_viewstamped::journal::{Damage, File, Journal, Owner, Step, read};
use kasha_viewstamped::{Entry, Lists, MemberId, Message, OpNumber, Record, Stored, View};

const OWNER: Owner = Owner { group: 7, member: MemberId(1), boot: 3, file_bytes: 32 * 1024 };
const REBOOTED: Owner = Owner { boot: 4, ..OWNER };
const PAGE: usize = 4096;

#[derive(Clone, Default)]
struct Files([Vec<u8>; 2]);

impl Files {
    fn apply(&mut self, step: &Step) {
        if let Step::Write { file, offset, bytes } = step {
            self.write(*file, usize::try_from(*offset).expect("small"), bytes);
        }
    }

    fn write(&mut self, file: File, offset: usize, bytes: &[u8]) {
        let content = &mut self.0[file as usize];
        content.resize(content.len().max(offset + bytes.len()), 0);
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, owner: Owner) -> Result<(Option<Stored>, Journal), Damage> {
        read(owner, &self.0[0], &self.0[1])
    }

    fn stored(&self, owner: Owner) -> Result<Option<Stored>, Damage> {
        self.read(owner).map(|(stored, _)| stored)
    }
}

fn whole(view: u64, entries: usize) -> Stored {
    let mut stored = Stored::new(Lists::new([MemberId(1)]), vec![9; 5_000]);
    let view = View { number: view, leader: MemberId(1) };
    (stored.view, stored.log_view) = (view, view);
    stored.entries = vec![Entry::Operation(vec![5; 3_000]); entries];
    stored
}

fn append(stored: &Stored, bytes: usize) -> Record {
    let behind = OpNumber(stored.snapshot.op.0 + stored.entries.len() as u64);
    // The last byte is a zero, as that of a write that was cut short.
    Record::Appended { behind, entries: vec![Entry::Operation(vec![0; bytes])] }
}

/// Records of two laps, and what the disk holds after each.
fn history() -> Vec<(Record, Stored)> {
    let mut all = Vec::new();
    let mut stored = whole(1, 2);
    all.push((Record::Whole(stored.clone()), stored.clone()));
    let entered = Record::Entered(View { number: 2, leader: MemberId(1) });
    let records = [append(&stored, 10), entered, Record::Whole(whole(3, 1)), append(&whole(3, 1), 9_000)];
    for record in records {
        stored = stored.after(record.clone()).expect("records follow each other");
        all.push((record, stored.clone()));
    }
    all
}

#[test]
fn what_was_written_is_read() {
    let mut files = Files::default();
    let (found, mut journal) = files.read(OWNER).expect("empty files are new ones");
    assert_eq!(found, None);
    for (record, expected) in history() {
        journal.write(&record).iter().for_each(|step| files.apply(step));
        assert_eq!(files.stored(OWNER), Ok(Some(expected.clone())));
        assert_eq!(files.stored(REBOOTED), Ok(Some(expected)));
    }
    // The next process goes on in the other file.
    let (found, mut journal) = files.read(REBOOTED).expect("whole");
    let stored = found.expect("something");
    journal.write(&Record::Whole(stored.clone())).iter().for_each(|step| files.apply(step));
    assert_eq!(files.stored(REBOOTED), Ok(Some(stored)));
    let others = Owner { member: MemberId(2), ..OWNER };
    assert!(matches!(files.stored(others), Err(Damage::Others { group: 7, member: MemberId(1), .. })));
}

#[test]
fn what_stands_beside_the_last_record_is_read() {
    let mut files = Files::default();
    let (_, mut journal) = files.read(OWNER).expect("new");
    for ((record, expected), note) in history().into_iter().zip(1..) {
        journal.set_note(vec![note; usize::from(note % 3)]); // some are empty
        journal.write(&record).iter().for_each(|step| files.apply(step));
        let (stored, again) = files.read(OWNER).expect("whole");
        assert_eq!((stored, again.note()), (Some(expected), journal.note()));
    }
}

/// The process is killed in the middle of a write: what was fsynced is there, or the record as well.
#[test]
fn a_write_that_is_cut_short_anywhere_takes_nothing_with_it() {
    let mut files = Files::default();
    let (_, mut journal) = files.read(OWNER).expect("new");
    let mut before = None;
    for (record, after) in history() {
        for step in journal.write(&record) {
            if let Step::Write { file, offset, bytes } = &step {
                let ends = (0..bytes.len()).filter(|end| *end < 9_000 || end % PAGE == 0 || *end + 2 > bytes.len());
                for end in ends.step_by(11) {
                    let mut cut = files.clone();
                    cut.write(*file, usize::try_from(*offset).expect("small"), &bytes[..end]);
                    let found = cut.stored(OWNER).unwrap_or_else(|damage| panic!("cut at {end} of {file:?}: {damage}"));
                    assert!(found == before || found.as_ref() == Some(&after), "cut at {end}");
                }
            }
            files.apply(&step);
        }
        before = Some(after);
    }
}

/// The first start is cut short, and so is each start after it, in one boot or another: there was never a log, so that each begins anew.
#[test]
fn a_first_start_that_is_cut_short_twice_is_a_first_start_again() {
    cut_twice(OWNER);
    cut_twice(REBOOTED);
    cut_twice(Owner { boot: 0, ..OWNER });
}

fn cut_twice(later: Owner) {
    let first = Record::Whole(whole(1, 2));
    let mut files = Files::default();
    let (_, mut journal) = files.read(OWNER).expect("new");
    for step in journal.write(&first) {
        if let Step::Write { file, offset, bytes } = &step {
            for end in (0..bytes.len()).step_by(997) {
                let mut cut = files.clone();
                cut.write(*file, usize::try_from(*offset).expect("small"), &bytes[..end]);
                let Ok((None, mut again)) = cut.read(later) else { continue };
                for step in again.write(&first) {
                    if let Step::Write { file, offset, bytes } = &step {
                        for end in (0..bytes.len()).step_by(1_021) {
                            let mut twice = cut.clone();
                            twice.write(*file, usize::try_from(*offset).expect("small"), &bytes[..end]);
                            let found = twice.stored(later);
                            assert!(found.is_ok(), "cut at {end} from {offset}: {found:?}");
                        }
                    }
                    cut.apply(&step);
                }
            }
        }
        files.apply(&step);
    }
}

/// The older file is being spent when the power goes, in whatever order its pages reach the platter. If the newer one is lost as well, that is
/// damage: neither a new group, nor what the older lap had.
#[test]
fn a_spent_file_never_passes_for_the_last_lap() {
    let mut files = Files::default();
    let (_, mut journal) = files.read(OWNER).expect("new");
    journal.write(&Record::Whole(whole(1, 2))).iter().for_each(|step| files.apply(step));
    journal.tidy().expect("a file for the next lap").iter().for_each(|step| files.apply(step));
    let steps = journal.write(&Record::Whole(whole(2, 2)));
    let (record, spent) = steps.split_at(steps.iter().position(|step| *step == Step::Sync).expect("an fsync") + 1);
    record.iter().for_each(|step| files.apply(step));
    let mut is_marked = false;
    for step in spent.iter().cloned().chain(journal.tidy().expect("zeros")) {
        if let Step::Write { file, offset, bytes } = &step {
            assert_eq!(*file, File::Odd);
            let offset = usize::try_from(*offset).expect("small");
            for first in (0..bytes.len()).step_by(PAGE).filter(|_| is_marked) {
                let mut torn = files.clone();
                torn.write(*file, offset + first, &bytes[first..]);
                torn.0[File::Even as usize].clear();
                let found = torn.stored(REBOOTED);
                assert!(matches!(found, Err(Damage::Bytes { .. })), "from page {first}: {found:?}");
            }
        }
        is_marked |= step == Step::Sync;
        files.apply(&step);
    }
    assert!(journal.tidy().is_none());
}

#[test]
fn a_lap_that_nobody_writes_is_refused() {
    let mut files = Files::default();
    let (_, mut journal) = files.read(OWNER).expect("new");
    journal.write(&Record::Whole(whole(1, 0))).iter().for_each(|step| files.apply(step));
    for lap in [u64::MAX, u64::MAX - 2, (1 << 62) + 1, 0] {
        let mut files = files.clone();
        let header = &mut files.0[1][..44];
        header[24..32].copy_from_slice(&lap.to_le_bytes());
        let crc = kasha_types::crc32c(&header[..40]);
        header[40..].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(files.stored(OWNER), Err(Damage::Bytes { .. })), "{lap}");
    }
}

/// Power is lost in the middle of a write: any of its pages may be missing.
#[test]
fn a_write_that_loses_pages_with_the_power_takes_nothing_with_it() {
    let mut rng = Rng::new(1);
    let mut files = Files::default();
    let (_, mut journal) = files.read(OWNER).expect("new");
    let mut before = None;
    for (index, (record, after)) in history().into_iter().enumerate() {
        for step in journal.write(&record) {
            if let Step::Write { file, offset, bytes } = &step {
                let offset = usize::try_from(*offset).expect("small");
                for _ in 0..40 {
                    let mut torn = files.clone();
                    let mut at = offset;
                    while at < offset + bytes.len() {
                        let end = ((at / PAGE + 1) * PAGE).min(offset + bytes.len());
                        if rng.chance(1, 2) {
                            torn.write(*file, at, &bytes[at - offset..end - offset]);
                        }
                        at = end;
                    }
                    let found =
                        torn.stored(REBOOTED).unwrap_or_else(|damage| panic!("{file:?}, record {index}: {damage}"));
                    assert!(found == before || found.as_ref() == Some(&after), "{file:?}, record {index}");
                }
            }
            files.apply(&step);
        }
        before = Some(after);
    }
}

/// Damaged is not missing: a bit of what was fsynced is another one.
#[test]
fn a_bit_that_rots_never_makes_a_member_forget() {
    let mut files = Files::default();
    let (_, mut journal) = files.read(OWNER).expect("new");
    let mut last = None;
    for (record, after) in history() {
        journal.write(&record).iter().for_each(|step| files.apply(step));
        last = Some(after);
    }
    let used = files.0.each_ref().map(|bytes| bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    let mut found_out = 0;
    for (file, used) in used.into_iter().enumerate() {
        for at in (0..used).step_by(17) {
            let mut rotten = files.clone();
            rotten.0[file][at] ^= 1 << (at % 8);
            match rotten.stored(OWNER) {
                Ok(found) => assert_eq!(found, last, "byte {at} of file {file}"),
                Err(_) => found_out += 1,
            }
        }
    }
    assert!(found_out > 200, "{found_out}");
}

#[test]
fn messages_are_what_they_were_and_nonsense_is_refused() {
    let view = View { number: 3, leader: MemberId(9) };
    let message = Message::Vote { view, log_view: view, end: OpNumber(4), committed: OpNumber(3), memory: vec![1, 2] };
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert_eq!(Message::decode(&bytes), Ok(message));
    for end in 0..bytes.len() {
        assert!(Message::decode(&bytes[..end]).is_err(), "{end}");
    }
    let mut rng = Rng::new(2);
    for _ in 0..20_000 {
        let len = rng.below(60);
        let nonsense: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0] % 14).collect();
        if let Ok(message) = Message::decode(&nonsense) {
            let mut again = Vec::new();
            message.encode(&mut again);
            assert_eq!(Message::decode(&again), Ok(message));
        }
    }
}
