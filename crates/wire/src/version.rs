//! Versions of the wire: which of them a program speaks, and on which one two programs agree.
//!
//! Whoever dials says in its `Hello` which versions it speaks; the other side chooses the latest that both speak, and its `Welcome` names
//! that one. Every frame behind the handshake is of the version that was agreed on. The frames of the handshake are of one version for
//! ever ([`WireVersion::HANDSHAKE`]), and a `Hello` may have more fields behind those that are known: so programs of any two later
//! versions understand each other well enough to agree, or to say why they cannot.

use std::fmt;

use crate::{DecodeError, Reader, Wire};

/// A version of every layout in this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WireVersion(pub u8);

/// The version that this crate's layouts are of.
pub const WIRE_VERSION: WireVersion = WireVersion(12);

impl WireVersion {
    /// The version of a `Hello`, of the answer to it, and of a `Goodbye` that comes before any agreement.
    pub const HANDSHAKE: Self = Self(11);
}

impl fmt::Display for WireVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Wire for WireVersion {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(from.take()?))
    }
}

/// The versions that a program speaks: all from the least to the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireVersions {
    least: WireVersion,
    latest: WireVersion,
}

impl WireVersions {
    /// Those of this crate.
    pub const OURS: Self = Self { least: WIRE_VERSION, latest: WIRE_VERSION };

    /// `None`: they are in the wrong order.
    #[must_use]
    pub const fn new(least: WireVersion, latest: WireVersion) -> Option<Self> {
        if least.0 <= latest.0 { Some(Self { least, latest }) } else { None }
    }

    /// The version, if there is only one: then nothing has to be agreed on before it is spoken.
    #[must_use]
    pub fn only(self) -> Option<WireVersion> {
        (self.least == self.latest).then_some(self.latest)
    }

    /// Whether this version is one of them.
    #[must_use]
    pub fn include(self, version: WireVersion) -> bool {
        self.least <= version && version <= self.latest
    }

    /// The latest version that both speak. `None`: they have none in common.
    #[must_use]
    pub fn agreed_with(self, other: Self) -> Option<WireVersion> {
        let latest = self.latest.min(other.latest);
        (latest >= self.least.max(other.least)).then_some(latest)
    }
}

impl Default for WireVersions {
    fn default() -> Self {
        Self::OURS
    }
}

impl fmt::Display for WireVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.least == self.latest {
            true => write!(f, "wire version {}", self.latest),
            false => write!(f, "wire versions {} to {}", self.least, self.latest),
        }
    }
}

impl Wire for WireVersions {
    fn put(&self, out: &mut Vec<u8>) {
        self.least.put(out);
        self.latest.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::new(from.take()?, from.take()?).ok_or(DecodeError::Invalid("versions in the wrong order"))
    }
}

/// A level: which messages, fields, commands, log entries and formats of files may be used (R7.6).
///
/// Wire versions say how two programs talk; the level says what all processes of a cluster may say and write. It is committed, and rises
/// when an operator says so and every process can. So nothing is said, or written into a file, that a process of the cluster cannot read, and
/// until the level rises an older program can take the place of a newer one.
///
/// A later level only adds: messages and fields ([`Later`]), commands, entries, formats. Each says in its row which level it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u16);

impl Level {
    /// The level of everything that names no other one.
    pub const FIRST: Self = Self(1);

    /// The one that adds commands of the Redis protocol to operations, and the unix time of ClusterTime 0 to configurations.
    pub const COMMANDS: Self = Self(2);
}

/// The level of a row of a table: the first one, unless the row says another.
macro_rules! level {
    () => {
        $crate::version::Level::FIRST
    };
    ($level:literal) => {
        $crate::version::Level($level)
    };
}
pub(crate) use level;

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "level {}", self.0)
    }
}

impl Wire for Level {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(from.take()?))
    }
}

/// The levels that a program can work at: all from the least to the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    least: Level,
    latest: Level,
}

impl Levels {
    /// Those of this crate.
    pub const OURS: Self = Self { least: Level::FIRST, latest: Level::COMMANDS };

    /// `None`: they are in the wrong order.
    #[must_use]
    pub const fn new(least: Level, latest: Level) -> Option<Self> {
        if least.0 <= latest.0 { Some(Self { least, latest }) } else { None }
    }

    /// The highest of them.
    #[must_use]
    pub fn latest(self) -> Level {
        self.latest
    }

    /// Whether this level is one of them.
    #[must_use]
    pub fn include(self, level: Level) -> bool {
        self.least <= level && level <= self.latest
    }
}

impl Default for Levels {
    fn default() -> Self {
        Self::OURS
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.least == self.latest {
            true => self.latest.fmt(f),
            false => write!(f, "levels {} to {}", self.least.0, self.latest.0),
        }
    }
}

impl Wire for Levels {
    fn put(&self, out: &mut Vec<u8>) {
        self.least.put(out);
        self.latest.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::new(from.take()?, from.take()?).ok_or(DecodeError::Invalid("levels in the wrong order"))
    }
}

/// The last field of a message, which the level `LEVEL` has added: below that level it is not there, and takes no byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later<const LEVEL: u16, T>(Option<T>);

impl<const LEVEL: u16, T> Later<LEVEL, T> {
    /// The field in a message of a cluster at this level.
    #[must_use]
    pub fn at(level: Level, value: T) -> Self {
        Self((level.0 >= LEVEL).then_some(value))
    }

    /// As a message has it in which nobody says it.
    #[must_use]
    pub const fn absent() -> Self {
        Self(None)
    }

    /// Its value, if the sender's cluster has it.
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<const LEVEL: u16, T: Wire> Wire for Later<LEVEL, T> {
    fn put(&self, out: &mut Vec<u8>) {
        if let Some(value) = &self.0 {
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if from.rest().is_empty() { Ok(Self(None)) } else { from.take().map(|value| Self(Some(value))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(least: u8, latest: u8) -> WireVersions {
        WireVersions::new(WireVersion(least), WireVersion(latest)).expect("in order")
    }

    #[test]
    fn two_programs_agree_on_the_latest_that_both_speak() {
        for (one, other, agreed) in [
            ((11, 11), (11, 11), Some(11)),
            ((11, 12), (12, 13), Some(12)),
            ((11, 14), (12, 13), Some(13)),
            ((11, 12), (13, 14), None),
        ] {
            let (one, other) = (versions(one.0, one.1), versions(other.0, other.1));
            assert_eq!(one.agreed_with(other), agreed.map(WireVersion), "{one} and {other}");
            assert_eq!(other.agreed_with(one), agreed.map(WireVersion), "{other} and {one}");
        }
        assert_eq!(WireVersions::new(WireVersion(12), WireVersion(11)), None);
    }

    #[test]
    fn r7_6_a_field_of_a_later_level_takes_no_byte_below_it() {
        type Field = Later<2, u32>;
        let put = |field: &Field| {
            let mut bytes = Vec::new();
            field.put(&mut bytes);
            bytes
        };
        let (before, since) = (Field::at(Level(1), 7), Field::at(Level(2), 7));
        assert_eq!((before.get(), since.get()), (None, Some(&7)));
        assert_eq!((put(&before).len(), put(&since).len()), (0, 4));
        for field in [before, since] {
            assert_eq!(Reader::new(&put(&field)).take::<Field>(), Ok(field));
        }
        assert!(Reader::new(&[7, 0]).take::<Field>().is_err(), "a part of it");
    }

    #[test]
    fn r7_6_a_program_works_at_the_levels_that_it_says() {
        let levels = Levels::new(Level(2), Level(4)).expect("in order");
        assert!([2, 3, 4].into_iter().all(|level| levels.include(Level(level))));
        assert!([1, 5].into_iter().all(|level| !levels.include(Level(level))));
        assert_eq!(Levels::new(Level(2), Level(1)), None);
        assert_eq!((levels.to_string(), Levels::OURS.to_string()), ("levels 2 to 4".into(), "levels 1 to 2".into()));
        let mut bytes = Vec::new();
        levels.put(&mut bytes);
        assert_eq!(Reader::new(&bytes).take(), Ok(levels));
        bytes.swap(0, 2);
        assert!(Reader::new(&bytes).take::<Levels>().is_err());
    }
}
