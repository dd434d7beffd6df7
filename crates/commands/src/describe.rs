//! `COMMAND` and its subcommands, out of the rows.

use crate::find::subcommands;
use crate::keys::{self, KeySpec};
use crate::reply::{Item, ReplyWriter};
use crate::{Command, Once, Row, find, find_told};

/// `COMMAND`: what is said of every command.
pub fn all(out: &mut ReplyWriter<'_>) {
    out.item(Item::List(count_of(commands())));
    commands().for_each(|row| info(row, out));
}

/// `COMMAND COUNT`: how many commands there are, without subcommands.
pub fn count(out: &mut ReplyWriter<'_>) {
    out.item(Item::Number(i64::from(count_of(commands()))));
}

/// `COMMAND LIST`: the names of all commands, without subcommands.
pub fn list(out: &mut ReplyWriter<'_>) {
    out.each(Item::List(count_of(commands())), commands().map(|row| Item::Bytes(row.name.as_bytes())));
}

/// `COMMAND INFO name…`: what is said of these, nothing of an unknown one.
pub fn info_of<'a>(names: impl ExactSizeIterator<Item = &'a [u8]>, out: &mut ReplyWriter<'_>) {
    out.item(Item::List(u32::try_from(names.len()).expect("a request has fewer words")));
    for name in names {
        match find_told(name) {
            Some(row) => info(row, out),
            None => out.item(Item::Nil),
        }
    }
}

/// `COMMAND DOCS [name…]`: what these commands do, or all. An unknown one is left out.
pub fn docs<'a>(names: impl ExactSizeIterator<Item = &'a [u8]>, out: &mut ReplyWriter<'_>) {
    let rows: Vec<_> = match names.len() {
        0 => commands().collect(),
        _ => names.filter_map(find_told).collect(),
    };
    out.item(Item::Map(count_of(rows.iter())));
    for row in rows {
        out.item(Item::Bytes(row.name.as_bytes()));
        doc(row, out);
    }
}

/// Why `COMMAND GETKEYS` has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoKeys {
    /// There is no such command.
    #[error("ERR Invalid command specified")]
    NoCommand,
    /// Its arity forbids so many words.
    #[error("ERR Invalid number of arguments specified for command")]
    Words,
    /// The command has no keys.
    #[error("ERR The command has no key arguments")]
    None,
}

/// `COMMAND GETKEYS request…`: the keys of a request, in order.
///
/// # Errors
/// If it is none, or has none.
pub fn keys_of(request: &[&[u8]], out: &mut ReplyWriter<'_>) -> Result<(), NoKeys> {
    let positions = positions_in(request)?;
    out.each(Item::List(count_of(positions.iter())), positions.iter().map(|&(at, _)| Item::Bytes(request[at])));
    Ok(())
}

/// `COMMAND GETKEYSANDFLAGS request…`: the same, and what the command does with each.
///
/// # Errors
/// If it is none, or has none.
pub fn keys_and_flags_of(request: &[&[u8]], out: &mut ReplyWriter<'_>) -> Result<(), NoKeys> {
    let positions = positions_in(request)?;
    out.item(Item::List(count_of(positions.iter())));
    for (at, flags) in positions {
        out.item(Item::List(2));
        out.item(Item::Bytes(request[at]));
        out.each(Item::Set(flags.count()), flags.names().map(Item::Word));
    }
    Ok(())
}

fn positions_in(request: &[&[u8]]) -> Result<Vec<(usize, crate::KeyFlags)>, NoKeys> {
    let row = request.first().and_then(|name| find(name)).ok_or(NoKeys::NoCommand)?;
    if row.command == Command::KashaOnce {
        return positions_in_once(row, request);
    }
    let row = match request.get(1) {
        Some(name) if subcommands(row).next().is_some() => crate::find_sub(row, name).ok_or(NoKeys::NoCommand)?,
        Some(_) | None => row,
    };
    if row.keys.is_empty() {
        return Err(NoKeys::None);
    }
    if !row.arity.allows(request.len()) {
        return Err(NoKeys::Words);
    }
    Ok(keys::positions(row, request.len()).collect())
}

/// The keys of the command that `KASHA.ONCE` names. It names none of its own kind.
fn positions_in_once(row: &Row, request: &[&[u8]]) -> Result<Vec<(usize, crate::KeyFlags)>, NoKeys> {
    if !row.arity.allows(request.len()) {
        return Err(NoKeys::Words);
    }
    let command = Once::of(request).command;
    if find(command[0]).is_some_and(|named| named.command == row.command) {
        return Err(NoKeys::None);
    }
    let before = request.len() - command.len();
    Ok(positions_in(command)?.into_iter().map(|(at, flags)| (before + at, flags)).collect())
}

/// The rows that are no subcommands.
fn commands() -> impl Iterator<Item = &'static Row> {
    Command::ALL.iter().filter(|row| row.container().is_none())
}

fn count_of(items: impl Iterator) -> u32 {
    u32::try_from(items.count()).expect("a handful")
}

fn info(row: &Row, out: &mut ReplyWriter<'_>) {
    let (first, last, step) = keys::range(row);
    out.item(Item::List(10));
    out.item(Item::Bytes(row.name.as_bytes()));
    out.item(Item::Number(row.arity.number()));
    out.each(Item::Set(row.flags.count()), row.flags.names().map(Item::Word));
    for number in [first, last, step] {
        out.item(Item::Number(number));
    }
    let categories = row.categories();
    out.each(Item::Set(categories.count()), categories.names().map(Item::Word));
    out.each(Item::Set(count_of(row.tips.iter())), row.tips.iter().map(|tip| Item::Bytes(tip.as_bytes())));
    out.item(Item::Set(count_of(row.keys.iter())));
    row.keys.iter().for_each(|spec| key_spec(spec, out));
    // Redis tells no subcommands as a set, and some as a list.
    match count_of(subcommands(row)) {
        0 => out.item(Item::Set(0)),
        count => out.item(Item::List(count)),
    }
    subcommands(row).for_each(|sub| info(sub, out));
}

fn key_spec(spec: &KeySpec, out: &mut ReplyWriter<'_>) {
    let name = |name: &'static str| Item::Bytes(name.as_bytes());
    out.item(Item::Map(3));
    out.item(name("flags"));
    out.each(Item::Set(spec.flags.count()), spec.flags.names().map(Item::Word));
    out.item(name("begin_search"));
    out.each(Item::Map(2), [name("type"), name("index"), name("spec"), Item::Map(1)]);
    out.each(name("index"), [Item::Number(i64::from(spec.first))]);
    out.item(name("find_keys"));
    out.each(Item::Map(2), [name("type"), name("range"), name("spec"), Item::Map(3)]);
    let numbers = [("lastkey", i64::from(spec.last)), ("keystep", i64::from(spec.step)), ("limit", 0)];
    for (what, number) in numbers {
        out.each(name(what), [Item::Number(number)]);
    }
}

fn doc(row: &Row, out: &mut ReplyWriter<'_>) {
    let facts = [("summary", row.summary), ("since", row.since), ("group", row.group.name())];
    let subs = count_of(subcommands(row));
    out.item(Item::Map(facts.len() as u32 + u32::from(subs > 0)));
    for (name, fact) in facts {
        out.each(Item::Bytes(name.as_bytes()), [Item::Bytes(fact.as_bytes())]);
    }
    if subs > 0 {
        out.each(Item::Bytes(b"subcommands"), [Item::Map(subs)]);
        for sub in subcommands(row) {
            out.item(Item::Bytes(sub.name.as_bytes()));
            doc(sub, out);
        }
    }
}
