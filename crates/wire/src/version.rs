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
pub const WIRE_VERSION: WireVersion = WireVersion(11);

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
}
