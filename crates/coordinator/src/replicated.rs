//! The state as what a group replicates: commands as operations, and snapshots (R9.11).
//!
//! ```text
//! snapshot   4 format version · 8 digest · 8 next member · 1 members wanted · former members · the state · members that leave · 2 level ·
//!            invitations that ended · unix time of ClusterTime 0 · timing
//! ```
//!
//! What stands behind the state came later, piece by piece: in a snapshot without it the level is the first one, nobody leaves, every
//! invitation goes on, and no leader has read the clock on the wall.
//!
//! The digest is a chain: that of all commands before, of the bytes of the next one, and of what that one has changed. So to keep it
//! costs as much as the command and its shard are long, and not as much as the state is. Two states with one digest come from the
//! same commands, and each of these did the same in both.

use kasha_types::{MemberId, UnixMillis};
use kasha_wire::{Level, Reader, Wire, wire_struct};

use crate::start_error::FORMAT_VERSION;
use crate::state::EndedInvitation;
use crate::timing::Timing;
use crate::{Command, State};

/// The format version that a snapshot names.
pub(crate) fn version_of(snapshot: &[u8]) -> Option<u32> {
    Reader::new(snapshot).take().ok()
}

/// A command as an operation of the log.
pub(crate) fn operation(command: &Command) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.put(&mut bytes);
    bytes
}

fn command(operation: &[u8]) -> Result<Command, String> {
    whole(Reader::new(operation))
}

fn whole<T: Wire>(mut reader: Reader<'_>) -> Result<T, String> {
    let value = reader.take().map_err(|error| error.to_string())?;
    reader.finish().map_err(|error| error.to_string())?;
    Ok(value)
}

/// What stands before the state in a snapshot, since files of format 4 lack it.
#[derive(Debug)]
struct Beside {
    digest: u64,
    next_member: MemberId,
    group_wanted: u8,
    former_members: Vec<u32>,
}

/// What stands behind the state.
#[derive(Debug)]
struct Behind {
    leaving: Vec<MemberId>,
    level: Level,
}

/// What stands behind that.
#[derive(Debug)]
struct FurtherBehind {
    ended_invitations: Vec<EndedInvitation>,
    unix_origin: Option<UnixMillis>,
    timing: Option<Timing>,
}

wire_struct! {
    Beside { digest, next_member, group_wanted, former_members }
    Behind { leaving, level }
    FurtherBehind { ended_invitations, unix_origin, timing }
}

impl State {
    /// What a command has changed, as far as few bytes show it: the counts, and its shard.
    pub(crate) fn changed_by(&self, command: &Command) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.configuration.version.put(&mut bytes);
        self.time_reserved.put(&mut bytes);
        self.clients_below.put(&mut bytes);
        self.next_table.put(&mut bytes);
        self.next_member.put(&mut bytes);
        self.group_wanted.put(&mut bytes);
        if let Some(shard) = command.shard() {
            self.configuration.shards[usize::from(shard.0)].put(&mut bytes);
        }
        bytes
    }
}

impl kasha_viewstamped::State for State {
    fn permits(&self, operation: &[u8]) -> Result<(), String> {
        Self::permits(self, &command(operation)?)
    }

    fn apply(&mut self, operation: &[u8]) {
        let command = command(operation).expect("R9.11: it was permitted");
        self.perform(&command, operation);
    }

    fn digest(&self) -> u64 {
        self.digest
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        FORMAT_VERSION.put(&mut bytes);
        let &Self { digest, next_member, group_wanted, ref former_members, .. } = self;
        Beside { digest, next_member, group_wanted, former_members: former_members.clone() }.put(&mut bytes);
        self.put(&mut bytes);
        let further = !self.ended_invitations.is_empty() || self.unix_origin.is_some() || self.timing.is_some();
        if further || self.level > Level::FIRST || !self.leaving.is_empty() {
            Behind { leaving: self.leaving.clone(), level: self.level }.put(&mut bytes);
        }
        if further {
            let (ended_invitations, unix_origin) = (self.ended_invitations.clone(), self.unix_origin);
            FurtherBehind { ended_invitations, unix_origin, timing: self.timing }.put(&mut bytes);
        }
        bytes
    }

    fn restore(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader::new(bytes);
        let version: u32 = reader.take().map_err(|error| error.to_string())?;
        if version != FORMAT_VERSION {
            return Err(format!("a snapshot of format version {version}"));
        }
        let Beside { digest, next_member, group_wanted, former_members } =
            reader.take().map_err(|error| error.to_string())?;
        let mut state: Self = reader.take().map_err(|error| error.to_string())?;
        if !reader.rest().is_empty() {
            let Behind { leaving, level } = reader.take().map_err(|error| error.to_string())?;
            (state.leaving, state.level) = (leaving, level);
        }
        if !reader.rest().is_empty() {
            let FurtherBehind { ended_invitations, unix_origin, timing } = whole(reader)?;
            (state.ended_invitations, state.unix_origin, state.timing) = (ended_invitations, unix_origin, timing);
        }
        (state.digest, state.next_member) = (digest, next_member);
        (state.group_wanted, state.former_members) = (group_wanted, former_members);
        state.check()?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{ClientId, ClusterId, NodeId};
    use kasha_viewstamped::State as Replicated;
    use kasha_wire::{GroupMember, Levels};

    use super::*;
    use crate::CoordinatorOptions;

    fn after(operations: &[Vec<u8>]) -> State {
        let mut options = CoordinatorOptions::new(ClusterId(1), 3, 2, 1, ([127, 0, 0, 1], 1).into());
        options.levels = Levels::new(Level::FIRST, Level::FIRST).unwrap();
        let mut state = State::new(&options);
        for bytes in operations {
            Replicated::permits(&state, bytes).unwrap();
            Replicated::apply(&mut state, bytes);
        }
        state
    }

    #[test]
    fn r9_11_states_with_one_digest_come_from_the_same_commands() {
        let below = |below| operation(&Command::ReserveClients { below: ClientId(below) });
        let one = after(&[below(5), below(9)]);
        let other = after(&[below(7), below(9)]);
        assert_eq!(one.clients_below(), other.clients_below());
        assert_ne!(
            one.digest(),
            other.digest(),
            "whoever has applied other commands is found out, even if nothing shows"
        );
        assert_ne!(one.digest(), after(&[below(5)]).digest());
        let mut same = after(&[]);
        [5, 9].into_iter().for_each(|below| same.apply(&Command::ReserveClients { below: ClientId(below) }));
        assert_eq!(one, same);
    }

    #[test]
    fn r9_11_a_command_that_does_something_else_is_found_out() {
        let bytes = operation(&Command::ReserveClients { below: ClientId(5) });
        let mut state = after(&[]);
        let ours = after(std::slice::from_ref(&bytes));
        state.next_table.0 += 1; // what another program might have made of an earlier command
        Replicated::apply(&mut state, &bytes);
        assert_ne!(state.digest(), ours.digest());
    }

    #[test]
    fn a_snapshot_has_the_digest_and_goes_on_with_it() {
        let bytes = operation(&Command::ReserveClients { below: ClientId(5) });
        let mut state = after(std::slice::from_ref(&bytes));
        let mut again = <State as Replicated>::restore(&state.snapshot()).unwrap();
        assert_eq!((again.digest(), &again), (state.digest(), &state));
        Replicated::apply(&mut state, &bytes);
        Replicated::apply(&mut again, &bytes);
        assert_eq!(again.digest(), state.digest());
    }

    #[test]
    fn what_is_no_operation_or_snapshot_is_refused() {
        let state = after(&[]);
        let mut long = operation(&Command::ReserveClients { below: ClientId(5) });
        long.push(0);
        for bytes in [&[][..], &[99], &long, &operation(&Command::ReserveClients { below: ClientId(0) })] {
            assert!(Replicated::permits(&state, bytes).is_err(), "{bytes:?}");
        }
        let of = GroupMember { member: MemberId(7), node: NodeId(2), folder: 9, address: ([127, 0, 0, 1], 2).into() };
        let snapshot = state.snapshot();
        assert!((0..snapshot.len()).all(|len| <State as Replicated>::restore(&snapshot[..len]).is_err()));
        // What came later: without it a snapshot is one of before.
        let mut raised = after(&[operation(&Command::Raise { level: Level(2) })]);
        raised.leaving.push(MemberId(1));
        let later = raised.snapshot();
        assert_eq!(<State as Replicated>::restore(&later), Ok(raised));
        let restored: Vec<_> =
            (0..later.len()).filter(|&len| <State as Replicated>::restore(&later[..len]).is_ok()).collect();
        assert_eq!(restored, [snapshot.len()]);
        let mut invited = after(&[operation(&Command::MemberAt { of })]);
        Replicated::apply(&mut invited, &operation(&Command::InvitationEnds { member: of.member }));
        assert_eq!(invited.was_invited_as(of.folder), Some(of.member));
        assert_eq!(<State as Replicated>::restore(&invited.snapshot()), Ok(invited));
        assert_eq!(version_of(&snapshot), Some(FORMAT_VERSION));
    }
}
