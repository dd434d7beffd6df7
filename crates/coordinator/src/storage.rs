//! The files of the log: a journal of two files, which `viewstamped` fills and reads. The files of the format before are read if
//! there is no journal yet, and removed when its first record is durable.
//!
//! **R9.5** Damaged is not missing. A journal that was whole once counts, or the start fails. It never makes room for the older
//! files: a removal need not last, so they may be back after a loss of power.

use std::collections::VecDeque;

use kasha_machine::{Data, Disk, Effect, Effects, FileName};
use kasha_types::{BootId, ClusterId, LocalPosition};
use kasha_viewstamped::journal::{self, Damage, File, Journal, Owner, Step};
use kasha_viewstamped::{Entry, MemberId, OpNumber, Record, State as _, Stored, WriteNumber, Writer};

use crate::ledger::first;
use crate::limits::{COUNT_MAX, JOURNAL_BYTES};
use crate::replicated::version_of;
use crate::start_error::{FORMAT_VERSION, Place, StartError};
use crate::state::FIRST_MEMBER;
use crate::{CoordinatorOptions, State, format4};

/// The owner of a cluster's journal, for who only reads it. Without a boot of the machine nothing that a loss of power may leave passes
/// for damage.
pub(crate) fn reader_of(cluster: ClusterId) -> Owner {
    Owner { group: cluster.0, member: FIRST_MEMBER, boot: 0, file_bytes: JOURNAL_BYTES }
}

/// The owner of a cluster's journal, for who writes it.
pub(crate) fn writer_of(options: &CoordinatorOptions) -> Owner {
    // Zero says that the machine does not tell its boot.
    let boot = options.boot.map_or(0, |BootId(boot)| ((boot ^ (boot >> 64)) as u64).max(1));
    Owner { boot, file_bytes: options.journal_bytes, ..reader_of(options.cluster) }
}

/// What the files hold.
#[derive(Debug)]
pub(crate) struct Found {
    /// The log; `None` for a new cluster.
    pub(crate) log: Option<FoundLog>,
    /// The files, to be written.
    pub(crate) files: Files,
}

/// A log that was found, and the state at its end.
#[derive(Debug)]
pub(crate) struct FoundLog {
    pub(crate) stored: Stored,
    pub(crate) state: State,
}

/// Reads the journal, or the files of the format before.
pub(crate) fn load(disk: &dyn Disk, owner: Owner) -> Result<Found, StartError> {
    let mut found = read_log(disk, owner);
    // Who only looks while a coordinator runs reads one file after the other. Meanwhile a lap ends and the next one begins, or the
    // journal takes the place of the files of format 4.
    if let Err(StartError::Damaged { .. }) | Ok((None, _)) = found {
        found = read_log(disk, owner);
    }
    let (log, journal) = found?;
    Ok(Found { log, files: Files::new(journal, format4::files(disk)) })
}

fn read_log(disk: &dyn Disk, owner: Owner) -> Result<(Option<FoundLog>, Journal), StartError> {
    let cluster = ClusterId(owner.group);
    let (stored, journal) = read_journal(disk, owner)?;
    let before = format4::load(disk, cluster);
    let Some(stored) = stored else {
        let log = before?.map(|state| {
            let stored = first(owner.member, &state);
            FoundLog { stored, state }
        });
        return Ok((log, journal));
    };
    // Beside a journal the files of format 4 count no more, and are removed: but not those of another cluster.
    if let Err(error @ StartError::OtherCluster { .. }) = before {
        return Err(error);
    }
    let state = state_of(&stored, cluster, name(journal.file()))?;
    Ok((Some(FoundLog { stored, state }), journal))
}

/// Reads the journal, of whatever member it is.
fn read_journal(disk: &dyn Disk, owner: Owner) -> Result<(Option<Stored>, Journal), StartError> {
    let read = |file| disk.read(file).map_err(|error| StartError::Read { file, error });
    let [even, odd] = [read(name(File::Even))?.unwrap_or_default(), read(name(File::Odd))?.unwrap_or_default()];
    let member = journal::member_of(owner.group, &even, &odd).unwrap_or(owner.member);
    let owner = Owner { member, ..owner };
    journal::read(owner, &even, &odd).map_err(|damage| error_of(damage, ClusterId(owner.group)))
}

fn name(file: File) -> FileName {
    FileName::Journal(match file {
        File::Even => 0,
        File::Odd => 1,
    })
}

fn error_of(damage: Damage, cluster: ClusterId) -> StartError {
    match damage {
        Damage::Others { group, .. } if group != cluster.0 => {
            StartError::OtherCluster { stored: ClusterId(group), given: cluster }
        }
        Damage::Others { member, file, .. } => {
            StartError::Damaged { file: name(file), at: Place::Byte(0), what: format!("it belongs to {member}") }
        }
        Damage::Bytes { file, offset, what } => {
            StartError::Damaged { file: name(file), at: Place::Byte(offset), what: what.into() }
        }
    }
}

/// The state at the end of a log. Each operation is checked, since anything may stand under a right checksum.
fn state_of(stored: &Stored, cluster: ClusterId, file: FileName) -> Result<State, StartError> {
    let Stored { view, log_view, snapshot, entries, .. } = stored;
    let damaged = |op: OpNumber, what| StartError::Damaged { file, at: Place::Operation(op.0), what };
    match version_of(&snapshot.state) {
        Some(version) if version != FORMAT_VERSION => return Err(StartError::Version { file, stored: version }),
        Some(_) | None => {}
    }
    let mut state = State::restore(&snapshot.state).map_err(|why| damaged(snapshot.op, why))?;
    if state.configuration.cluster != cluster {
        return Err(damaged(snapshot.op, "a snapshot of another cluster".into()));
    }
    if view.number > COUNT_MAX || snapshot.op.0 > COUNT_MAX {
        return Err(damaged(snapshot.op, format!("a count is near its end: {view}, {}", snapshot.op)));
    }
    if log_view > view {
        return Err(damaged(snapshot.op, format!("the log of {log_view}, which comes after {view}")));
    }
    let mut op = snapshot.op;
    for entry in entries {
        op = op.next();
        match entry {
            Entry::Operation(operation) => {
                kasha_viewstamped::State::permits(&state, operation).map_err(|why| damaged(op, why))?;
                kasha_viewstamped::State::apply(&mut state, operation);
            }
            Entry::Begin | Entry::Lists(_) => {}
        }
    }
    // The check runs once at the end, and not after each command: it costs as much as a snapshot.
    state.check().map_err(|why| damaged(op, why))?;
    Ok(state)
}

/// The files, to be written: one fsync at a time.
#[derive(Debug)]
pub(crate) struct Files {
    writer: Writer,
    /// The last commit that the shell was asked for.
    asked: LocalPosition,
    /// Files of the format before, to be removed when the journal is durable.
    obsolete: VecDeque<u32>,
    /// Whether something is durable.
    has_any: bool,
}

impl Files {
    /// A newcomer has become this member: nothing was durable in its files.
    pub(crate) fn become_member(&mut self, member: MemberId) {
        self.writer.become_member(member);
    }

    /// Whose files these are.
    pub(crate) fn member(&self) -> MemberId {
        self.writer.member()
    }

    fn new(journal: Journal, obsolete: Vec<u32>) -> Self {
        Self { writer: Writer::new(journal), asked: LocalPosition(0), obsolete: obsolete.into(), has_any: false }
    }

    /// Whether a write is durable.
    pub(crate) fn has_any(&self) -> bool {
        self.has_any
    }

    /// A record is to be written.
    pub(crate) fn push(&mut self, number: WriteNumber, record: Record) {
        self.writer.push(number, record);
    }

    /// Whether the log should be written anew.
    pub(crate) fn is_full(&self) -> bool {
        self.writer.is_full()
    }

    /// Whether a record waits to be written.
    pub(crate) fn has_waiting(&self) -> bool {
        self.writer.waiting() > 0
    }

    /// What stands beside the next record.
    pub(crate) fn set_note(&mut self, note: Vec<u8>) {
        self.writer.set_note(note);
    }

    /// What stood beside the last record that was found.
    pub(crate) fn note(&self) -> &[u8] {
        self.writer.note()
    }

    /// Writes what comes next, unless an fsync is under way.
    pub(crate) fn flush(&mut self, out: &mut Effects) {
        for step in self.writer.next_steps() {
            match step {
                Step::Write { file, offset, bytes } => {
                    let data = Data::Span(out.span(&bytes));
                    out.push(Effect::Write { file: name(file), offset, data });
                }
                Step::Sync => {
                    self.asked = self.asked.next();
                    out.push(Effect::Commit { to: self.asked, fsync: true });
                }
            }
        }
    }

    /// A commit is done. Returns the last write that is durable now, if one is.
    pub(crate) fn on_synced(&mut self, position: LocalPosition, out: &mut Effects) -> Option<WriteNumber> {
        assert_eq!(position, self.asked, "one commit at a time");
        let number = self.writer.on_synced()?;
        self.has_any = true;
        for file in self.obsolete.drain(..) {
            out.push(Effect::Remove { file: FileName::Coordinator(file) });
        }
        Some(number)
    }
}
