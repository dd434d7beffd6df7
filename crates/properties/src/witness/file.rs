//! A witness's file in any state (R5.5). It is loaded or refused. Every request that a load hands out is complete, and
//! none belongs to another instance or slot.

use std::collections::BTreeSet;

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_witness::{FILE_HEADER_BYTES, FILE_SLOT_BYTES, Sizes, Witness};

use super::common::{IDENTITY, flush, held, new_file, record, small};
use crate::damage::{Burst, Damage};
use crate::draw;
use crate::property::Property;

const SLOTS: usize = 8;
const SLOT_HEADER_BYTES: usize = 64;
const IDENTITY_BYTES: usize = 40;

#[derive(Debug)]
enum Spoil {
    /// A write that was torn: from here on the slot holds what another one does, or zeros.
    Torn {
        slot: u8,
        from: u16,
        other: Option<u8>,
    },
    Burst {
        slot: u8,
        burst: Burst,
    },
    /// Any fields, and a right checksum.
    Sealed {
        slot: u8,
        copied_from: u8,
        damage: Vec<Damage>,
    },
    Header(Damage),
    Cut(u16),
}

impl<'a> Arbitrary<'a> for Spoil {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let kind = draw::weighted(u, &[4, 4, 8, 1, 1])?;
        let slot = u.int_in_range(0..=7)?;
        Ok(match kind {
            0 => Self::Torn { slot, from: u.int_in_range(0..=200)?, other: u.arbitrary()? },
            1 => Self::Burst { slot, burst: u.arbitrary()? },
            2 => Self::Sealed { slot, copied_from: u.int_in_range(0..=7)?, damage: draw::up_to(u, 3)? },
            3 => Self::Header(u.arbitrary()?),
            _ => Self::Cut(u.arbitrary()?),
        })
    }
}

/// See the module.
#[derive(Debug)]
pub struct WitnessFile {
    /// Requests with two keys each.
    recorded: Vec<u8>,
    spoils: Vec<Spoil>,
}

impl<'a> Arbitrary<'a> for WitnessFile {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self { recorded: draw::up_to(u, 8)?, spoils: draw::until_empty(u, 12)? })
    }
}

fn slot_of(number: u8) -> std::ops::Range<usize> {
    let at = FILE_HEADER_BYTES + usize::from(number) % SLOTS * FILE_SLOT_BYTES;
    at..at + FILE_SLOT_BYTES
}

/// The checksum of a slot's fields, as the file's layout says.
fn seal(file: &mut [u8], number: u8) {
    let identity = crc32c::crc32c(&file[..IDENTITY_BYTES]);
    let slot = &mut file[slot_of(number)];
    let body = usize::from(u16::from_le_bytes([slot[8], slot[9]]));
    let end = (SLOT_HEADER_BYTES + body).min(slot.len());
    let crc = crc32c::crc32c_append(identity, &u32::from(number).to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &slot[4..end]);
    slot[..4].copy_from_slice(&crc.to_le_bytes());
}

impl Spoil {
    fn apply(&self, file: &mut [u8]) {
        match self {
            Self::Torn { slot, from, other } => {
                let behind = other.map_or_else(|| vec![0; FILE_SLOT_BYTES], |other| file[slot_of(other)].to_vec());
                let from = usize::from(*from);
                file[slot_of(*slot)][from..].copy_from_slice(&behind[from..]);
            }
            Self::Burst { slot, burst } => drop(burst.apply(&mut file[slot_of(*slot)])),
            Self::Sealed { slot, copied_from, damage } => {
                let mut fields = file[slot_of(*copied_from)][..SLOT_HEADER_BYTES + 16].to_vec();
                damage.iter().for_each(|damage| damage.apply(&mut fields));
                fields.resize(SLOT_HEADER_BYTES + 16, 0);
                let place = slot_of(*slot);
                file[place.start..place.start + fields.len()].copy_from_slice(&fields);
                seal(file, *slot);
            }
            Self::Header(damage) => {
                let mut header = file[..FILE_HEADER_BYTES].to_vec();
                damage.apply(&mut header);
                header.resize(FILE_HEADER_BYTES, 0);
                file[..FILE_HEADER_BYTES].copy_from_slice(&header);
            }
            // Only what is done last may change the length.
            Self::Cut(_) => {}
        }
    }
}

/// The requests of which a slot is not what it was, by their sequences.
fn spoiled(original: &[u8], file: &[u8]) -> BTreeSet<u64> {
    let mut lost = BTreeSet::new();
    for number in 0..8 {
        let (slot, now) = (&original[slot_of(number)], &file[slot_of(number)]);
        let used = SLOT_HEADER_BYTES + usize::from(u16::from_le_bytes([slot[8], slot[9]]));
        if slot[..used] != now[..used] {
            lost.insert(u64::from_le_bytes(slot[32..40].try_into().expect("eight bytes")));
        }
    }
    lost
}

impl Property for WitnessFile {
    const NAME: &'static str = "witness_file";
    const INPUT_BYTES_MAX: usize = 150;

    fn hold(self) {
        let mut witness = small();
        for (sequence, &hash) in (1..).zip(&self.recorded) {
            let hash = u64::from(hash % 40);
            let _ = record(&mut witness, sequence, &[hash, hash + 1], &sequence.to_le_bytes());
        }
        let mut file = new_file(&witness);
        flush(&mut witness, &mut file);
        let before: BTreeSet<_> = held(&witness).into_iter().collect();
        let original = file.clone();
        self.spoils.iter().for_each(|spoil| spoil.apply(&mut file));
        if let Some(Spoil::Cut(at)) = self.spoils.last() {
            file.truncate(usize::from(*at) % (file.len() + 1));
        }
        let Ok(mut loaded) = Witness::load(IDENTITY, Sizes::new(8, 2), &file, false) else { return };
        loaded.assert_invariants();
        let now: BTreeSet<_> = held(&loaded).into_iter().collect();
        if !self.spoils.iter().any(|spoil| matches!(spoil, Spoil::Sealed { .. })) {
            let lost = spoiled(&original, &file);
            let whole: BTreeSet<_> = before.into_iter().filter(|(sequence, _)| !lost.contains(sequence)).collect();
            assert_eq!(now, whole, "R5.5: whole requests, and nothing else");
        }
        // Every slot that was not taken over goes from the file, so that a second load sees the same.
        flush(&mut loaded, &mut file);
        let again = Witness::load(IDENTITY, Sizes::new(8, 2), &file, false).expect("its own file");
        again.assert_invariants();
        assert_eq!(held(&again).into_iter().collect::<BTreeSet<_>>(), now);
        assert_eq!((again.stats().torn_at_load, again.stats().incomplete_at_load), (0, 0));
    }

    fn seeds() -> Vec<Vec<u8>> {
        (0..18).map(|kind| vec![4, 1, 9, 17, 23, kind, 2, 3, 1, 0, 5, 0, 0, 0, 1, kind, 1, 5, 9]).collect()
    }
}
