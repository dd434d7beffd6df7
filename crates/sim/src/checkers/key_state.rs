//! A key as the searches for an order see it: the versions of unknown changes are known only as far as reads tell them.

use kasha_reference::{Branch, Effect, Ends, Part, Requires, Says, branches};
use kasha_wire::outcome::Outcome;

use crate::history::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Version {
    Exactly(u64),
    Above(u64),
}

impl Version {
    /// A lower bound: the version of the next change is above it.
    fn floor(self) -> u64 {
        match self {
            Self::Exactly(version) => version,
            Self::Above(version) => version + 1,
        }
    }

    fn may_be(self, version: u64) -> bool {
        match self {
            Self::Exactly(own) => own == version,
            Self::Above(floor) => version > floor,
        }
    }

    /// After a change whose version is known or not.
    fn changed(self, version: Option<u64>) -> Option<Self> {
        match version {
            Some(version) => (version > self.floor()).then_some(Self::Exactly(version)),
            None => Some(Self::Above(self.floor())),
        }
    }
}

/// What an order of operations leaves of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyState {
    value: Option<Value>,
    version: Version,
    /// The number of the operation that gave the value an end.
    ends: Option<usize>,
}

impl Default for KeyState {
    /// A key that was never written.
    fn default() -> Self {
        Self { value: None, version: Version::Exactly(0), ends: None }
    }
}

impl KeyState {
    fn with(&self, value: Option<Value>, version: Option<u64>, ends: Option<usize>) -> Option<Self> {
        Some(Self { value, version: self.version.changed(version)?, ends })
    }

    /// The state after the end that this operation gave the value. `None`: the value ends otherwise, or never.
    pub(crate) fn ended(&self, by: usize) -> Option<Self> {
        if self.ends == Some(by) { self.with(None, None, None) } else { None }
    }

    fn bound(&self, version: u64) -> Option<Self> {
        let may_be = self.version.may_be(version);
        may_be.then(|| Self { value: self.value.clone(), version: Version::Exactly(version), ends: self.ends })
    }

    /// The state, if this requirement on its version can hold in it.
    fn meeting(&self, requires: Requires) -> Option<Self> {
        match requires {
            Requires::Nothing => Some(self.clone()),
            Requires::Version(version) => self.bound(version),
            Requires::AnotherVersion(version) => (self.version != Version::Exactly(version)).then(|| self.clone()),
        }
    }

    /// The state after the operation of this number on the key, and what the operation says. `told`: its result, if it is
    /// known. `None`: the operation cannot have this result here.
    pub(crate) fn after(&self, number: usize, part: &Part<'_>, told: Option<&Outcome>) -> Option<(Self, Says)> {
        if let Some(Outcome::Expiry(_, ends)) = told
            && ends.is_some() != self.ends.is_some()
        {
            return None;
        }
        branches(part, self.value.as_deref()).into_iter().find_map(|Branch { requires, effect, says }| {
            let (old, new) = told.map_or(Some((None, None)), |outcome| says.versions(outcome))?;
            let before = self.meeting(requires)?;
            let before = match old {
                None => before,
                Some(0) if before.value.is_none() => before,
                Some(old) if before.value.is_some() && requires != Requires::AnotherVersion(old) => {
                    before.bound(old)?
                }
                Some(_) => return None,
            };
            let after = match effect {
                Effect::Keep => Some(before),
                Effect::Put(value, ends) => {
                    let ends = match ends {
                        Ends::Never => None,
                        Ends::AsBefore => before.ends,
                        Ends::After(_) => Some(number),
                    };
                    before.with(Some(value), new, ends)
                }
                Effect::Remove => before.with(None, new, None),
            }?;
            Some((after, says))
        })
    }
}

/// Lists of bytes as text.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('[') {
        let Some(close) = rest[open..].find(']').map(|at| open + at) else { break };
        let bytes: Option<Vec<u8>> =
            rest[open + 1..close].split(", ").filter(|b| !b.is_empty()).map(|b| b.parse().ok()).collect();
        out += &rest[..open];
        match bytes {
            Some(bytes) if bytes.len() > 40 => {
                out += &format!("{:?}… ({} bytes)", String::from_utf8_lossy(&bytes[..16]), bytes.len());
            }
            Some(bytes) => out += &format!("{:?}", String::from_utf8_lossy(&bytes)),
            None => out += &rest[open..=close],
        }
        rest = &rest[close + 1..];
    }
    out + rest
}
