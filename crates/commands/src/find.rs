//! A command by its name.

use crate::{Command, Row};

/// Places of the table by hash: at least twice as many as there are commands, so that a search is short.
const PLACES: usize = 512;
const _: () = assert!(PLACES.is_power_of_two() && Command::ALL.len() * 2 <= PLACES);

const NOBODY: u16 = u16::MAX;

/// FNV-1a over the name in lower case.
const fn hash(name: &[u8]) -> usize {
    let (mut hash, mut at) = (0x811c_9dc5_u32, 0);
    while at < name.len() {
        hash = (hash ^ name[at].to_ascii_lowercase() as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash as usize
}

const fn placed() -> [u16; PLACES] {
    let (mut places, mut number) = ([NOBODY; PLACES], 0);
    while number < Command::ALL.len() {
        let mut at = hash(Command::ALL[number].name.as_bytes()) % PLACES;
        while places[at] != NOBODY {
            at = (at + 1) % PLACES;
        }
        places[at] = number as u16;
        number += 1;
    }
    places
}

static BY_NAME: [u16; PLACES] = placed();

/// The command that a request with this first word means, in any case. No subcommand is meant by one word.
#[must_use]
pub fn find(name: &[u8]) -> Option<&'static Row> {
    find_told(name).filter(|row| row.container().is_none())
}

/// The command or subcommand (`container|name`) that has this name in what `COMMAND` tells, in any case.
#[must_use]
pub fn find_told(name: &[u8]) -> Option<&'static Row> {
    let mut at = hash(name) % PLACES;
    while BY_NAME[at] != NOBODY {
        let row = &Command::ALL[usize::from(BY_NAME[at])];
        if row.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(row);
        }
        at = (at + 1) % PLACES;
    }
    None
}

const fn containers() -> [bool; Command::ALL.len()] {
    let (mut have_subs, mut number) = ([false; Command::ALL.len()], 0);
    while number < Command::ALL.len() {
        let mut other = 0;
        while other < Command::ALL.len() {
            have_subs[number] |= is_in(Command::ALL[other].name.as_bytes(), Command::ALL[number].name.as_bytes());
            other += 1;
        }
        number += 1;
    }
    have_subs
}

/// Whether a name is `container|…`.
const fn is_in(name: &[u8], container: &[u8]) -> bool {
    if name.len() <= container.len() || name[container.len()] != b'|' {
        return false;
    }
    let mut at = 0;
    while at < container.len() {
        if name[at] != container[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The commands that have subcommands, by their places.
static CONTAINERS: [bool; Command::ALL.len()] = containers();

/// The subcommand of a container, by its name in any case.
#[must_use]
pub fn find_sub(container: &Row, name: &[u8]) -> Option<&'static Row> {
    if !CONTAINERS[container.command as usize] {
        return None; // nearly always
    }
    subcommands(container).find(|row| row.container().is_some_and(|(_, own)| own.as_bytes().eq_ignore_ascii_case(name)))
}

/// All subcommands of a container; a command that is none has none.
pub(crate) fn subcommands(container: &Row) -> impl Iterator<Item = &'static Row> {
    let name = container.name;
    Command::ALL.iter().filter(move |row| row.container().is_some_and(|(of, _)| of == name))
}
