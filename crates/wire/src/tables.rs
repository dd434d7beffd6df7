//! What is asked of the coordinator about tables, and what came of it.

use kasha_types::TableId;

use crate::codec::{DecodeError, Reader, Wire};
use crate::version::Level;

/// What to do with a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableCommand {
    /// Create a table of this name.
    Create(String),
    /// Drop the table of this name, with all keys in it.
    Drop(String),
    /// Create a table of this name, whose keys are placed like this. It needs level 2.
    CreateAt(String, Placement),
}

/// Which shards a table's keys belong to: the first of a table's settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Placement {
    /// All of them, each with a part of the slots.
    #[default]
    Spread = 0,
    /// One, which the coordinator chooses: the one that has the fewest tables of its own.
    OneShard = 1,
}

/// What a table request has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableOutcome {
    /// The table was created, and has this number.
    Created(TableId),
    /// Nothing was created: a table of this name exists, and has this number.
    Exists(TableId),
    /// The table with this number was dropped.
    Dropped(TableId),
    /// Nothing was dropped: no table has this name.
    NotFound,
    /// Not possible: why, and what to do.
    Refused(String),
}

impl Wire for Placement {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.take::<u8>()? {
            0 => Self::Spread,
            1 => Self::OneShard,
            _ => return Err(DecodeError::Invalid("a table's placement")),
        })
    }
}

impl TableCommand {
    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Create(name) | Self::Drop(name) | Self::CreateAt(name, _) => name,
        }
    }

    /// The level that it needs (R7.6).
    #[must_use]
    pub fn level(&self) -> Level {
        match self {
            Self::Create(_) | Self::Drop(_) => Level::FIRST,
            Self::CreateAt(..) => Level(2),
        }
    }
}

impl Wire for TableCommand {
    fn put(&self, out: &mut Vec<u8>) {
        let (tag, name) = match self {
            Self::Create(name) => (0u8, name),
            Self::Drop(name) => (1, name),
            Self::CreateAt(name, _) => (2, name),
        };
        tag.put(out);
        name.put(out);
        if let Self::CreateAt(_, placement) = self {
            placement.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.take::<u8>()? {
            0 => Ok(Self::Create(from.take()?)),
            1 => Ok(Self::Drop(from.take()?)),
            2 => Ok(Self::CreateAt(from.take()?, from.take()?)),
            _ => Err(DecodeError::Invalid("a table command")),
        }
    }
}

impl Wire for TableOutcome {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Created(table) => {
                out.push(0);
                table.put(out);
            }
            Self::Exists(table) => {
                out.push(1);
                table.put(out);
            }
            Self::Dropped(table) => {
                out.push(2);
                table.put(out);
            }
            Self::NotFound => out.push(3),
            Self::Refused(why) => {
                out.push(4);
                why.put(out);
            }
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.take::<u8>()? {
            0 => Self::Created(from.take()?),
            1 => Self::Exists(from.take()?),
            2 => Self::Dropped(from.take()?),
            3 => Self::NotFound,
            4 => Self::Refused(from.take()?),
            _ => return Err(DecodeError::Invalid("a table outcome")),
        })
    }
}
