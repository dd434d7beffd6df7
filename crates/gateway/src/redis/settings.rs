//! `CONFIG`: the settings that drivers and tools ask for. They say what is true of Kasha in Redis' words, and cannot be changed here.

use kasha_commands::glob::matches_in_any_case;
use kasha_commands::{Item, ReplyWriter};

use super::local::Known;
use super::rows::shown;
use super::tables::DATABASES;
use crate::limits::PATTERN_BYTES_MAX;

/// The settings, in order.
fn all(known: Known<'_>) -> [(&'static str, String); 14] {
    let text = |text: &str| text.to_owned();
    [
        ("appendfsync", text("everysec")),
        ("appendonly", text("yes")),
        ("bind", text("")),
        ("databases", DATABASES.to_string()),
        ("maxclients", known.options.clients_max.to_string()),
        ("maxmemory", text("0")),
        ("maxmemory-policy", text("noeviction")),
        ("notify-keyspace-events", text("")),
        ("port", known.options.port.to_string()),
        ("proto-max-bulk-len", kasha_types::limits::VALUE_BYTES_MAX.to_string()),
        ("replica-read-only", text("yes")),
        ("requirepass", known.options.password.clone().unwrap_or_default()),
        ("save", text("")),
        ("timeout", text("0")),
    ]
}

/// `CONFIG GET pattern…`.
pub fn get(patterns: &[&[u8]], known: Known<'_>, out: &mut ReplyWriter<'_>) {
    let found: Vec<_> = all(known)
        .into_iter()
        .filter(|(name, _)| {
            patterns
                .iter()
                .filter(|pattern| pattern.len() <= PATTERN_BYTES_MAX)
                .any(|pattern| matches_in_any_case(pattern, name.as_bytes()))
        })
        .collect();
    out.item(Item::Map(u32::try_from(found.len()).expect("a few")));
    for (name, value) in &found {
        out.each(Item::Bytes(name.as_bytes()), [Item::Bytes(value.as_bytes())]);
    }
}

/// `CONFIG SET name value…`: fine where it changes nothing.
pub fn set(words: &[&[u8]], known: Known<'_>, out: &mut ReplyWriter<'_>) {
    let mut pairs = words.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return out.item(Item::Error("ERR syntax error"));
    }
    for pair in &mut pairs {
        let found = all(known).into_iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(pair[0]));
        let error = match found {
            None => format!("ERR Unknown option or number of arguments for CONFIG SET - '{}'", shown(pair[0])),
            Some((_, value)) if value.as_bytes() == pair[1] => continue,
            Some((name, _)) => {
                format!("ERR CONFIG SET failed (possibly related to argument '{name}') - can't set immutable config")
            }
        };
        return out.item(Item::Error(&error));
    }
    out.item(Item::Ok);
}
