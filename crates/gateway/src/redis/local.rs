//! Commands that a front answers from what it knows: connections, and the server.

use kasha_commands::{Command as Name, Item, ReplyWriter, Row, describe};
use kasha_types::UnixMillis;

use kasha_client::session::Session;
use kasha_wire::ShardPhase;

use super::connection::{Connection, Replies};
use super::counts::Counts;
use super::options::RedisOptions;
use super::rows::shown;
use super::tables::DATABASES;
use super::whole::tell_time;
use super::{info, settings};
use crate::resp::Protocol;

/// The version of Redis that a front says it is: drivers and programs look at it (REDIS 3).
pub const REDIS_VERSION: &str = "7.2.4";

/// What is known of the cluster, and of the front.
#[derive(Clone, Copy, Debug)]
pub struct Known<'k> {
    pub session: &'k Session,
    pub options: &'k RedisOptions,
    /// Connections that there are.
    pub clients: usize,
    pub counts: &'k Counts,
    /// The unix time, if it is known.
    pub unix: Option<UnixMillis>,
}

impl Known<'_> {
    fn faults(&self) -> u8 {
        self.session.configuration().map_or(0, |known| known.faults)
    }

    /// What keeps requests from being executed, for people. `None`: nothing, as far as the session knows.
    pub fn waits_for(&self) -> Option<String> {
        waits_for(self.session, self.counts.is_silent)
    }
}

/// What keeps requests of a session from being executed, for people.
pub fn waits_for(session: &Session, is_silent: bool) -> Option<String> {
    let Some(configuration) = session.configuration() else {
        return Some("the cluster, which has not answered yet".to_owned());
    };
    if is_silent {
        return Some("the cluster, of which nobody answers".to_owned());
    }
    let mut away = configuration.shards.iter().filter(|shard| shard.phase != ShardPhase::Serving);
    let first = away.next()?;
    Some(format!("{} and {} more shards, which have no primary now", first.shard, away.count()))
}

/// The reply to a command of one or more words whose arity is right.
pub fn answer(row: &Row, words: &[&[u8]], known: Known<'_>, connection: &mut Connection, out: &mut ReplyWriter<'_>) {
    match row.command {
        Name::Ping => match words.get(1) {
            None => out.item(Item::Word("PONG")),
            Some(said) if words.len() == 2 => out.item(Item::Bytes(said)),
            Some(_) => wrong_number(row.name, out),
        },
        Name::Echo => out.item(Item::Bytes(words[1])),
        Name::Select => select(words[1], connection, out),
        Name::Hello => hello(words, known, connection, out),
        Name::Auth => auth(words, known, connection, out),
        Name::Reset => {
            connection.reset(known.options.password.is_none());
            out.item(Item::Word("RESET"));
        }
        // EXEC, which runs UNWATCH, has forgotten what was watched.
        Name::Quit | Name::ReadOnly | Name::ReadWrite | Name::Asking | Name::Unwatch => out.item(Item::Ok),
        Name::CommandAll if words.len() == 1 => describe::all(out),
        Name::Client
        | Name::CommandAll
        | Name::Config
        | Name::SlowLog
        | Name::Latency
        | Name::Object
        | Name::Cluster => {
            no_subcommand(row, words, out);
        }
        Name::Time => match known.unix {
            Some(unix) => tell_time(unix, out),
            None => out.item(Item::Error("TRYAGAIN the cluster does not know the time of day yet")),
        },
        Name::Info => info::info(&words[1..], known, out),
        // R10.16: what is answered is durable on all machines that it has to be on.
        Name::Wait => wait(words, known, out),
        Name::SwapDb => out.item(Item::Error("ERR SWAPDB is not known here: a database's keys stay where they are")),
        _ if row.container().is_some() => answer_sub(row, words, known, connection, out),
        other => out.item(Item::Error(&format!("ERR '{}' is not known here yet", other.row().name))),
    }
}

/// The reply to a container without one of its subcommands.
fn no_subcommand(container: &Row, words: &[&[u8]], out: &mut ReplyWriter<'_>) {
    let Some(name) = words.get(1) else { return wrong_number(container.name, out) };
    if container.command == Name::Cluster {
        // As INFO says: `cluster_enabled:0`.
        return out.item(Item::Error("ERR This instance has cluster support disabled"));
    }
    let container = container.name.to_ascii_uppercase();
    out.item(Item::Error(&format!("ERR unknown subcommand '{}'. Try {container} HELP.", shown(name))));
}

fn wait(words: &[&[u8]], known: Known<'_>, out: &mut ReplyWriter<'_>) {
    match (number(words[1]), number(words[2])) {
        (Some(_), Some(..0)) => out.item(Item::Error("ERR timeout is negative")),
        (Some(replicas), Some(_)) => out.item(Item::Number(replicas.clamp(0, i64::from(known.faults())))),
        (None, _) | (_, None) => out.item(Item::Error("ERR value is not an integer or out of range")),
    }
}

/// A number as Redis reads one from a word.
fn number(word: &[u8]) -> Option<i64> {
    kasha_wire::requests::number(word)
}

fn wrong_number(name: &str, out: &mut ReplyWriter<'_>) {
    out.item(Item::Error(&format!("ERR wrong number of arguments for '{name}' command")));
}

fn answer_sub(row: &Row, words: &[&[u8]], known: Known<'_>, connection: &mut Connection, out: &mut ReplyWriter<'_>) {
    match row.command {
        Name::ClientId => out.item(Item::Number(i64::try_from(connection.id).unwrap_or(i64::MAX))),
        Name::ClientGetName if connection.about.name.is_empty() => out.item(Item::Nil),
        Name::ClientGetName => out.item(Item::Bytes(&connection.about.name)),
        Name::ClientSetName => set_name(words[2], connection, out),
        Name::ClientSetInfo => set_info(words[2], words[3], connection, out),
        Name::ClientNoEvict | Name::ClientNoTouch => on_or_off(words[2], out),
        Name::ClientReply => reply_mode(words[2], connection, out),
        Name::ClientInfo => out.item(Item::Text(&format!("{}\n", info::line_of(connection)))),
        Name::CommandCount => describe::count(out),
        Name::CommandList => describe::list(out),
        Name::CommandInfo => describe::info_of(words[2..].iter().copied(), out),
        Name::CommandDocs => describe::docs(words[2..].iter().copied(), out),
        Name::CommandGetKeys => {
            if let Err(why) = describe::keys_of(&words[2..], out) {
                out.item(Item::Error(&why.to_string()));
            }
        }
        Name::CommandGetKeysAndFlags => {
            if let Err(why) = describe::keys_and_flags_of(&words[2..], out) {
                out.item(Item::Error(&why.to_string()));
            }
        }
        Name::ConfigGet => settings::get(&words[2..], known, out),
        Name::ConfigSet => settings::set(&words[2..], known, out),
        Name::ConfigResetStat => out.item(Item::Ok),
        Name::ConfigRewrite => out.item(Item::Error("ERR The server is running without a config file")),
        Name::SlowLogGet | Name::LatencyLatest | Name::LatencyHistory => out.item(Item::List(0)),
        Name::SlowLogLen | Name::LatencyReset => out.item(Item::Number(0)),
        Name::SlowLogReset => out.item(Item::Ok),
        Name::ClientHelp
        | Name::CommandHelp
        | Name::ConfigHelp
        | Name::SlowLogHelp
        | Name::LatencyHelp
        | Name::ObjectHelp => {
            let (container, _) = row.container().expect("the caller looked");
            help(container, out);
        }
        _ => out.item(Item::Error(&format!("ERR '{}' is not known here yet", row.name))),
    }
}

/// What a container can do, from its rows.
fn help(container: &str, out: &mut ReplyWriter<'_>) {
    let subs: Vec<_> = Name::ALL
        .iter()
        .filter_map(|row| row.container().filter(|(of, _)| *of == container).map(|(_, name)| (name, row.summary)))
        .filter(|(name, _)| *name != "help")
        .collect();
    let title = format!("{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", container.to_ascii_uppercase());
    out.item(Item::List(u32::try_from(3 + 2 * subs.len()).expect("a few")));
    out.item(Item::Word(&title));
    for (name, summary) in subs {
        out.item(Item::Word(&name.to_ascii_uppercase()));
        out.item(Item::Word(&format!("    {summary}.")));
    }
    out.each(Item::Word("HELP"), [Item::Word("    Print this help.")]);
}

fn select(word: &[u8], connection: &mut Connection, out: &mut ReplyWriter<'_>) {
    match number(word).map(u8::try_from) {
        None => out.item(Item::Error("ERR value is not an integer or out of range")),
        Some(Ok(database)) if database < DATABASES => {
            connection.database = database;
            out.item(Item::Ok);
        }
        Some(_) => out.item(Item::Error("ERR DB index is out of range")),
    }
}

fn hello(words: &[&[u8]], known: Known<'_>, connection: &mut Connection, out: &mut ReplyWriter<'_>) {
    let mut protocol = connection.protocol;
    let mut rest = words[1..].iter();
    if let Some(version) = rest.next() {
        let Some(version) = number(version) else {
            return out.item(Item::Error("ERR Protocol version is not an integer or out of range"));
        };
        match Protocol::from_number(version) {
            Some(chosen) => protocol = chosen,
            None => return out.item(Item::Error("NOPROTO unsupported protocol version")),
        }
    }
    let mut name = None;
    while let Some(option) = rest.next() {
        match (&option.to_ascii_uppercase()[..], rest.len()) {
            (b"AUTH", 2..) => {
                let (user, password) = (rest.next().expect("counted"), rest.next().expect("counted"));
                if let Some(error) = refused(user, password, known) {
                    return out.item(Item::Error(error));
                }
                connection.is_authenticated = true;
            }
            (b"SETNAME", 1..) => name = rest.next(),
            _ => {
                let text = format!("ERR Syntax error in HELLO option '{}'", shown(option));
                return out.item(Item::Error(&text));
            }
        }
    }
    if !connection.is_authenticated {
        return out.item(Item::Error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        if !is_name(name) {
            return out.item(Item::Error(BAD_NAME));
        }
        connection.about.name = name.to_vec();
    }
    connection.protocol = protocol;
    let bytes = |text: &'static str| Item::Bytes(text.as_bytes());
    out.each(Item::Map(7), [bytes("server"), bytes("redis"), bytes("version"), bytes(REDIS_VERSION)]);
    out.each(bytes("proto"), [Item::Number(protocol.number())]);
    out.each(bytes("id"), [Item::Number(i64::try_from(connection.id).unwrap_or(i64::MAX))]);
    out.each(bytes("mode"), [bytes("standalone"), bytes("role"), bytes("master"), bytes("modules"), Item::List(0)]);
}

const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// The reply to whoever is not let in. There is one user, `default`; without a password it needs none.
fn refused(user: &[u8], password: &[u8], known: Known<'_>) -> Option<&'static str> {
    let is_right = known.options.password.as_ref().is_none_or(|right| is_same(right.as_bytes(), password));
    (user != b"default" || !is_right).then_some(WRONG_PASS)
}

/// Compares in a time that says nothing of where two secrets differ.
fn is_same(right: &[u8], said: &[u8]) -> bool {
    let differs = right.iter().zip(said).fold(0, |differs, (one, other)| differs | (one ^ other));
    right.len() == said.len() && std::hint::black_box(differs) == 0
}

fn auth(words: &[&[u8]], known: Known<'_>, connection: &mut Connection, out: &mut ReplyWriter<'_>) {
    let (user, password) = match *words {
        [_, _] if known.options.password.is_none() => {
            return out.item(Item::Error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            ));
        }
        [_, password] => (&b"default"[..], password),
        [_, user, password] => (user, password),
        _ => return out.item(Item::Error("ERR syntax error")),
    };
    match refused(user, password, known) {
        Some(error) => out.item(Item::Error(error)),
        None => {
            connection.is_authenticated = true;
            out.item(Item::Ok);
        }
    }
}

const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

fn is_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

fn set_name(name: &[u8], connection: &mut Connection, out: &mut ReplyWriter<'_>) {
    if !is_name(name) {
        return out.item(Item::Error(BAD_NAME));
    }
    connection.about.name = name.to_vec();
    out.item(Item::Ok);
}

fn set_info(what: &[u8], value: &[u8], connection: &mut Connection, out: &mut ReplyWriter<'_>) {
    let place = match &what.to_ascii_uppercase()[..] {
        b"LIB-NAME" => &mut connection.about.library,
        b"LIB-VER" => &mut connection.about.library_version,
        _ => return out.item(Item::Error(&format!("ERR Unrecognized option '{}'", shown(what)))),
    };
    if !is_name(value) {
        let text = format!("ERR {} cannot contain spaces, newlines or special characters.", shown(what));
        return out.item(Item::Error(&text));
    }
    *place = value.to_vec();
    out.item(Item::Ok);
}

fn on_or_off(word: &[u8], out: &mut ReplyWriter<'_>) {
    let is_known = word.eq_ignore_ascii_case(b"on") || word.eq_ignore_ascii_case(b"off");
    out.item(if is_known { Item::Ok } else { Item::Error("ERR syntax error") });
}

fn reply_mode(word: &[u8], connection: &mut Connection, out: &mut ReplyWriter<'_>) {
    match &word.to_ascii_uppercase()[..] {
        b"ON" => {
            connection.replies = Replies::On;
            out.item(Item::Ok);
        }
        b"OFF" => connection.replies = Replies::Off,
        b"SKIP" if connection.replies != Replies::Off => connection.replies = Replies::SkipNext,
        b"SKIP" => {}
        _ => out.item(Item::Error("ERR syntax error")),
    }
}
