//! What an operator orders, and what the coordinator answers.

use kasha_types::NodeId;

use crate::{DecodeError, Reader, Wire};

/// What an operator wants of the coordinator's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminOrder {
    /// The process of this node hosts a member of the group.
    AddMember(NodeId),
    /// The process of this node hosts no member.
    RemoveMember(NodeId),
    /// The process of this node hosts no member: its folder is gone. Refused if that member speaks.
    RemoveLost(NodeId),
    /// The member in the process of this node leads.
    Lead(NodeId),
    /// The group has so many members: an odd number.
    GroupOf(u8),
    /// The cluster works at the highest level that all of its processes can work at.
    Finalize,
    /// Node leases have so many milliseconds (R9.12).
    Lease(u64),
    /// Nothing is to change: how long are node leases?
    SayLease,
    /// A shard takes updates only with so many members beside its primary (R9.12).
    MinBackups(u8),
    /// Nothing is to change: with how many members does a shard take updates?
    SayMinBackups,
}

/// Whether what an operator wants is so. The text is for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminOutcome {
    /// It is so.
    Done(String),
    /// Not yet. The coordinator sees to it: what it waits for.
    Later(String),
    /// It will not become so: why, and what to do. Nothing was changed.
    Refused(String),
}

impl Wire for AdminOrder {
    fn put(&self, out: &mut Vec<u8>) {
        let tag: u8 = match self {
            Self::AddMember(_) => 0,
            Self::RemoveMember(_) => 1,
            Self::Lead(_) => 2,
            Self::GroupOf(_) => 3,
            Self::Finalize => 4,
            Self::RemoveLost(_) => 5,
            Self::Lease(_) => 6,
            Self::SayLease => 7,
            Self::MinBackups(_) => 8,
            Self::SayMinBackups => 9,
        };
        tag.put(out);
        match self {
            Self::AddMember(node) | Self::RemoveMember(node) | Self::RemoveLost(node) | Self::Lead(node) => {
                node.put(out)
            }
            Self::GroupOf(number) | Self::MinBackups(number) => number.put(out),
            Self::Lease(millis) => millis.put(out),
            Self::Finalize | Self::SayLease | Self::SayMinBackups => {}
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.take::<u8>()? {
            0 => Self::AddMember(from.take()?),
            1 => Self::RemoveMember(from.take()?),
            2 => Self::Lead(from.take()?),
            3 => Self::GroupOf(from.take()?),
            4 => Self::Finalize,
            5 => Self::RemoveLost(from.take()?),
            6 => Self::Lease(from.take()?),
            7 => Self::SayLease,
            8 => Self::MinBackups(from.take()?),
            9 => Self::SayMinBackups,
            _ => return Err(DecodeError::Invalid("an operator's order")),
        })
    }
}

impl Wire for AdminOutcome {
    fn put(&self, out: &mut Vec<u8>) {
        let (tag, text) = match self {
            Self::Done(text) => (0u8, text),
            Self::Later(text) => (1, text),
            Self::Refused(text) => (2, text),
        };
        tag.put(out);
        text.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag: u8 = from.take()?;
        let text = from.take()?;
        match tag {
            0 => Ok(Self::Done(text)),
            1 => Ok(Self::Later(text)),
            2 => Ok(Self::Refused(text)),
            _ => Err(DecodeError::Invalid("the outcome of an operator's order")),
        }
    }
}
