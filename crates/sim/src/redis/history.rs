//! What programs asked fronts for, and were told.
//!
//! One operation is a command, all commands of a `MULTI`, or one key of a `WATCH`. What was answered by nothing, or by `UNKNOWN`, may have
//! been executed at any moment since, or never; what was answered by an error that drivers repeat for was not (R10.2).

use std::net::SocketAddr;

use kasha_reference::redis::{self, Reply};

use super::Words;
use crate::clock::SimTime;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// One command.
    Command(Words),
    /// What stood between `MULTI` and `EXEC`, and the watched keys: operations that came before.
    Exec {
        /// The commands.
        commands: Vec<Words>,
        /// The keys that were watched.
        watched: Vec<usize>,
    },
    /// From now on a change of this key keeps the next `EXEC` of the connection from running.
    Watch(Vec<u8>),
}

/// What was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing, or `UNKNOWN`.
    Unknown,
    /// It was not executed and never will be.
    NotExecuted,
    /// This is its result.
    Result(Reply),
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The connection, of all that there were.
    pub connection: u64,
    /// What was asked for.
    pub what: What,
    /// When.
    pub asked: SimTime,
    /// What was told.
    pub told: Told,
    /// When; `None`: it is not known.
    pub told_at: Option<SimTime>,
    /// When `UNKNOWN` was told.
    pub unknown_at: Option<SimTime>,
    /// Which start of which front told it something, if that is sure.
    pub front: Option<(SocketAddr, u64)>,
}

impl Operation {
    /// Its keys. `all`: every operation.
    #[must_use]
    pub fn keys<'h>(&'h self, all: &'h [Self]) -> Vec<&'h [u8]> {
        match &self.what {
            What::Command(words) => redis::keys(words),
            What::Watch(key) => vec![key],
            What::Exec { commands, watched } => {
                let watched = watched.iter().flat_map(|&watch| all[watch].keys(all));
                commands.iter().flat_map(|words| redis::keys(words)).chain(watched).collect()
            }
        }
    }

    /// Whether it may end the values of all keys.
    #[must_use]
    pub fn flushes(&self) -> bool {
        self.commands().any(|words| matches!(&words[0][..], b"FLUSHDB" | b"FLUSHALL"))
    }

    /// Every command, with its words.
    pub fn commands(&self) -> impl Iterator<Item = &Words> {
        let (one, several) = match &self.what {
            What::Command(words) => (Some(words), &[][..]),
            What::Exec { commands, .. } => (None, &commands[..]),
            What::Watch(_) => (None, &[][..]),
        };
        one.into_iter().chain(several)
    }
}

/// All operations of a run.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    operations: Vec<Operation>,
    connections: u64,
}

impl Commands {
    /// A number for a new connection.
    pub fn connect(&mut self) -> u64 {
        self.connections += 1;
        self.connections
    }

    /// A program asks for something on a connection. Returns the operation's number.
    pub fn ask(&mut self, connection: u64, what: What, asked: SimTime) -> usize {
        let (told, told_at, unknown_at, front) = (Told::Unknown, None, None, None);
        self.operations.push(Operation { connection, what, asked, told, told_at, unknown_at, front });
        self.operations.len() - 1
    }

    /// The operation with this number is told something.
    pub fn tell(&mut self, operation: usize, told: Told, at: SimTime, front: Option<(SocketAddr, u64)>) {
        let operation = &mut self.operations[operation];
        assert!(operation.told_at.is_none() && operation.unknown_at.is_none(), "a reply is told once");
        let place = if told == Told::Unknown { &mut operation.unknown_at } else { &mut operation.told_at };
        *place = Some(at);
        (operation.told, operation.front) = (told, front);
    }

    /// All operations, in the order in which they were asked for.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }
}
