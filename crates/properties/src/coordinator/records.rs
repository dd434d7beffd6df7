//! Records of the coordinator's log with any content, under right checksums: in files of format 4, and in a journal. The
//! coordinator takes them and goes on, or refuses them with a text. A record that decodes is written as it was read.

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_coordinator::{Command, StartError, State};
use kasha_wire::{Reader, Wire};

use super::common::Files;
use super::files::{HEADER_BYTES, Known, RECORD_HEAD_BYTES, one, start};
use super::journal;
use crate::damage::Damage;
use crate::draw;
use crate::property::Property;

/// Of any payload. The golden snapshots are shorter.
const PAYLOAD_BYTES_MAX: usize = 1000;

/// What becomes of a log's payloads. Places are taken modulo their number.
#[derive(Debug)]
enum Spoil {
    Damage {
        at: u8,
        damage: Damage,
    },
    /// A record of the log, perhaps with other fields, comes where it never was.
    Copy {
        from: u8,
        to: u8,
        damage: Vec<Damage>,
    },
    Remove {
        at: u8,
    },
    /// A record of one command, of any bytes.
    Command {
        at: u8,
        bytes: Vec<u8>,
    },
}

impl<'a> Arbitrary<'a> for Spoil {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let kind = draw::weighted(u, &[4, 4, 1, 2])?;
        let at = u.arbitrary()?;
        Ok(match kind {
            0 => Self::Damage { at, damage: u.arbitrary()? },
            1 => Self::Copy { from: at, to: u.arbitrary()?, damage: draw::up_to(u, 2)? },
            2 => Self::Remove { at },
            _ => Self::Command { at, bytes: draw::bytes(u, 60)? },
        })
    }
}

impl Spoil {
    /// `pool`: the records of a log. `only`: the record of one command.
    fn apply(&self, payloads: &mut Vec<Vec<u8>>, pool: &[Vec<u8>], only: impl Fn(&[u8]) -> Vec<u8>) {
        let place = |at: u8, len: usize| usize::from(at) % len.max(1);
        let len = payloads.len();
        match self {
            Self::Copy { from, to, damage } => {
                let mut record = pool[place(*from, pool.len())].clone();
                damage.iter().for_each(|damage| damage.apply(&mut record));
                payloads.insert(place(*to, len + 1), record);
            }
            Self::Command { at, bytes } => {
                payloads.insert(place(*at, len + 1), only(bytes));
            }
            _ if len == 0 => {}
            Self::Damage { at, damage } => damage.apply(&mut payloads[place(*at, len)]),
            Self::Remove { at } => drop(payloads.remove(place(*at, len))),
        }
    }
}

#[derive(Debug)]
enum Records {
    /// One by itself: the snapshot of a file, and a batch behind one.
    Payload(Vec<u8>),
    /// The golden file of many batches, or that of one long snapshot; the sequence it begins with; what becomes of it.
    Log { snapshot: bool, first: u64, spoils: Vec<Spoil> },
}

/// See the module.
#[derive(Debug)]
pub struct CoordinatorRecords(Records);

impl<'a> Arbitrary<'a> for CoordinatorRecords {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        if draw::one_in(u, 4)? {
            return Ok(Self(Records::Payload(draw::rest(u)?)));
        }
        let snapshot = u.arbitrary()?;
        let first = match draw::weighted(u, &[12, 1, 1])? {
            0 => 1,
            1 => u64::MAX >> u.int_in_range(0..=2)?,
            _ => u.arbitrary()?,
        };
        Ok(Self(Records::Log { snapshot, first, spoils: draw::up_to(u, 3)? }))
    }
}

fn payloads_of(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut payloads, mut at) = (Vec::new(), HEADER_BYTES);
    while at < file.len() {
        let len = u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes")) as usize;
        at += RECORD_HEAD_BYTES + len;
        payloads.push(file[at - len..at].to_vec());
    }
    payloads
}

/// The batch of one command, of any bytes.
fn one_command(command: &[u8]) -> Vec<u8> {
    [&1_u32.to_le_bytes(), command].concat()
}

/// A file of these payloads, as its layout says.
fn sealed(first: u64, payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Known::get().first[..HEADER_BYTES].to_vec();
    for (number, payload) in (0..).zip(payloads) {
        let covered = [&first.wrapping_add(number).to_le_bytes(), &payload[..]].concat();
        file.extend_from_slice(&u32::try_from(payload.len()).expect("few bytes").to_le_bytes());
        file.extend_from_slice(&crc32c::crc32c(&covered).to_le_bytes());
        file.extend_from_slice(&covered);
    }
    file
}

/// If the bytes decode, the value encodes to the same bytes.
fn check_codec<T: Wire>(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    if let Ok(value) = reader.take::<T>() {
        let (mut again, read) = (Vec::new(), bytes.len() - reader.rest().len());
        value.put(&mut again);
        assert_eq!(again, &bytes[..read]);
    }
}

/// Starts from a log of format 4 with any content.
fn check_log(first: u64, payloads: &[Vec<u8>]) -> Option<State> {
    for payload in payloads {
        check_codec::<State>(payload);
        check_codec::<Vec<Command>>(payload);
    }
    check_start(one(1, &sealed(first, payloads)))
}

/// Starts from any files. If the start succeeds, the coordinator goes on, and a later start takes what this one wrote.
fn check_start(files: Files) -> Option<State> {
    let mut world = match start(files) {
        Ok(world) => world,
        // Options that are fixed at creation are compared with the snapshot's, which may be others.
        Err(StartError::Damaged { .. } | StartError::Fixed { .. } | StartError::Version { .. }) => return None,
        Err(error) => panic!("{error}"),
    };
    let state = world.coordinator.state().clone();
    for id in 1..=3 {
        world.add_node(id, 1);
        world.node(id).starts = 9;
    }
    world.run(300);
    world.node(1).up = false;
    world.run(2_000);
    let before = world.config();
    match start(world.disk.durable.clone()) {
        Ok(again) => {
            let now = again.config();
            assert!(now.version > before.version || now == before, "D3: a restart knows what was told");
        }
        // It began just below.
        Err(error) => assert!(error.to_string().contains("a count is near its end"), "{error}"),
    }
    Some(state)
}

impl Property for CoordinatorRecords {
    const NAME: &'static str = "coordinator_records";
    const INPUT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 1;

    fn hold(self) {
        let known = Known::get();
        match self.0 {
            Records::Payload(payload) => {
                check_codec::<Command>(&payload);
                let snapshot = payloads_of(&known.second).remove(0);
                check_log(1, std::slice::from_ref(&payload));
                check_log(1, &[snapshot, payload]);
            }
            Records::Log { snapshot, first, spoils } => {
                let original = payloads_of(if snapshot { &known.second } else { &known.first });
                let mut payloads = original.clone();
                let batches = payloads_of(&known.first);
                spoils.iter().for_each(|spoil| spoil.apply(&mut payloads, &batches, one_command));
                let state = check_log(first, &payloads);
                if payloads == original && first < 1 << 32 {
                    let (_, last) = known.prefixes.last().expect("many");
                    assert_eq!(state.as_ref(), Some(if snapshot { &known.last } else { last }));
                }
            }
        }
    }

    fn seeds() -> Vec<Vec<u8>> {
        let known = Known::get();
        let payloads = [payloads_of(&known.first), payloads_of(&known.second)].concat();
        let payload = |payload: Vec<u8>| [&[0], &payload[..]].concat();
        // Every kind of spoil, in both logs.
        let one = |kind: u8, snapshot: u8| vec![1, snapshot, 0, 1, kind, 3, 5, 1, 0, 0, 5, 7, 9, 11, 13, 17, 19];
        let spoils = (0..11).flat_map(|kind| [one(kind, 0), one(kind, 1)]);
        payloads.into_iter().map(payload).chain(spoils).collect()
    }
}

/// The same in a journal: its first lap, or the one that the next start began. See the module.
#[derive(Debug, Arbitrary)]
pub struct CoordinatorOperations {
    second: bool,
    /// Records follow one another as they are, and not in the order of their numbers.
    as_they_are: bool,
    spoils: Spoils,
}

#[derive(Debug)]
struct Spoils(Vec<Spoil>);

impl<'a> Arbitrary<'a> for Spoils {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        draw::up_to(u, 3).map(Self)
    }
}

impl Property for CoordinatorOperations {
    const NAME: &'static str = "coordinator_operations";
    const INPUT_BYTES_MAX: usize = 200;

    fn hold(self) {
        let known = journal::Known::get();
        let lap = if self.second { &known.second } else { &known.first };
        let (original, pool) = (lap.payloads(), known.first.payloads());
        let mut payloads = original.clone();
        self.spoils.0.iter().for_each(|spoil| spoil.apply(&mut payloads, &pool, journal::one_command));
        if !self.as_they_are {
            payloads = lap.numbered(&payloads);
        }
        let state = check_start(lap.sealed(&payloads));
        assert!(payloads != original || state.is_some(), "what was written is taken");
    }

    fn seeds() -> Vec<Vec<u8>> {
        let one = |kind: u8, second: u8| vec![second, 0, 1, kind, 3, 5, 1, 0, 0, 5, 7, 9, 11, 13, 17, 19];
        (0..11).flat_map(|kind| [one(kind, 0), one(kind, 1)]).collect()
    }
}
