//! One connection, as a program sees it: what it has said, and what each reply may be.
//!
//! It finds violations itself: `replies_in_order`, each request has a reply that such a request can have, in the order of the requests (R10.1);
//! `reply_forms`, each is in the protocol that the connection spoke at that place (R10.4); `multi_is_one`, no command refuses an `EXEC`, and
//! what one account loses another one has (R10.6); `watch_sees`, nothing runs whose keys could not be watched (R10.7).

use std::collections::VecDeque;
use std::net::SocketAddr;

use kasha_reference::redis::Reply;

use super::history::{Commands, Told, What};
use super::reader::Read;
use super::{Words, draw};
use crate::clock::SimTime;

/// What errors begin with that say that nothing was executed, and that drivers repeat a request for (R10.2).
const NOT_EXECUTED: [&str; 10] = [
    "TRYAGAIN ",
    "OOM ",
    "LOADING ",
    "READONLY ",
    "MASTERDOWN ",
    "CLUSTERDOWN ",
    "NOREPLICAS ",
    "MOVED ",
    "ASK ",
    "ERR max number of clients",
];

/// Requests that a violation tells with the one that is wrong.
const TOLD_BEFORE: usize = 12;

/// Whether requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replies {
    On,
    Off,
    /// The next one is not.
    SkipNext,
}

/// Requests since `MULTI`.
#[derive(Debug, Default)]
struct Queued {
    commands: Vec<Words>,
    is_spoiled: bool,
}

/// What may come for a request.
#[derive(Debug)]
enum Waits {
    /// This word.
    Word(&'static str),
    /// These bytes.
    Bytes(Vec<u8>),
    /// An error that begins so.
    Refusal(&'static str),
    /// What the server says of itself.
    Greeting,
    /// The result of this operation.
    Command(usize),
    /// These keys are watched.
    Watch(Vec<usize>),
    /// The results of all commands, or of none.
    Exec(usize),
}

#[derive(Debug)]
struct Said {
    words: Words,
    /// What the connection speaks when this is answered.
    protocol: u8,
    waits: Waits,
}

/// A connection.
#[derive(Debug)]
pub struct Dialogue {
    number: u64,
    /// Who is at the other end: an address, and which start of the front there.
    front: (SocketAddr, u64),
    protocol: u8,
    replies: Replies,
    queued: Option<Queued>,
    watched: Vec<usize>,
    waiting: VecDeque<Said>,
    /// The last requests that had a reply.
    before: VecDeque<String>,
    /// Nothing more is said.
    pub has_ended: bool,
}

/// What was heard of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The reply to a request that is no operation.
    Local,
    /// An operation was told this, in one word.
    Operation(&'static str),
}

impl Dialogue {
    /// A connection on which nothing was said yet.
    #[must_use]
    pub fn new(number: u64, front: (SocketAddr, u64)) -> Self {
        Self {
            number,
            front,
            protocol: 2,
            replies: Replies::On,
            queued: None,
            watched: Vec::new(),
            waiting: VecDeque::new(),
            before: VecDeque::new(),
            has_ended: false,
        }
    }

    /// Requests without a reply.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Operations among them.
    #[must_use]
    pub fn open(&self) -> usize {
        self.waiting.iter().filter(|said| said.is_operation()).count()
    }

    /// Commands among them that stand alone.
    #[must_use]
    pub fn unanswered(&self) -> Vec<Words> {
        let alone = self.waiting.iter().filter(|said| matches!(said.waits, Waits::Command(_)));
        alone.map(|said| said.words.clone()).collect()
    }

    /// Says a request. Returns how many operations it opens.
    pub fn say(&mut self, words: &Words, history: &mut Commands, at: SimTime) -> usize {
        let is_answered = self.is_answered();
        let Some(waits) = self.waits(words, history, at) else { return 0 };
        if !is_answered && !matches!(&waits, Waits::Word("OK") if words[..] == draw::words("CLIENT REPLY ON")[..]) {
            return 0;
        }
        let said = Said { words: words.clone(), protocol: self.protocol, waits };
        let opened = usize::from(said.is_operation());
        self.waiting.push_back(said);
        opened
    }

    /// What came is no request: it is refused, and the connection ends.
    pub fn say_nonsense(&mut self) {
        let waits = Waits::Refusal("ERR Protocol error");
        self.waiting.push_back(Said { words: draw::words("*1 +x"), protocol: self.protocol, waits });
        self.has_ended = true;
    }

    fn is_answered(&mut self) -> bool {
        let now = self.replies;
        if now == Replies::SkipNext {
            self.replies = Replies::On;
        }
        now == Replies::On
    }

    /// What may come for it; `None`: nothing does.
    fn waits(&mut self, words: &Words, history: &mut Commands, at: SimTime) -> Option<Waits> {
        Some(match (&words[0][..], &mut self.queued) {
            (b"MULTI", None) => {
                self.queued = Some(Queued::default());
                Waits::Word("OK")
            }
            (b"DISCARD", Some(_)) => {
                (self.queued, self.watched) = (None, Vec::new());
                Waits::Word("OK")
            }
            (b"EXEC", Some(_)) => {
                let Queued { commands, is_spoiled } = self.queued.take().expect("matched");
                let watched = std::mem::take(&mut self.watched);
                match is_spoiled {
                    true => Waits::Refusal("EXECABORT "),
                    false => Waits::Exec(history.ask(self.number, What::Exec { commands, watched }, at)),
                }
            }
            (b"QUIT", _) => {
                self.has_ended = true;
                Waits::Word("OK")
            }
            (b"NONSENSE", queued) => {
                queued.iter_mut().for_each(|queued| queued.is_spoiled = true);
                Waits::Refusal("ERR unknown command ")
            }
            (_, Some(queued)) => {
                queued.commands.push(words.clone());
                Waits::Word("QUEUED")
            }
            (b"WATCH", None) => {
                let mut watch = |key: &Vec<u8>| history.ask(self.number, What::Watch(key.clone()), at);
                let watches: Vec<_> = words[1..].iter().map(&mut watch).collect();
                self.watched.extend(&watches);
                Waits::Watch(watches)
            }
            (b"UNWATCH", None) => {
                self.watched.clear();
                Waits::Word("OK")
            }
            (b"PING", None) => Waits::Word("PONG"),
            (b"ECHO", None) => Waits::Bytes(words[1].clone()),
            (b"HELLO", None) => {
                self.protocol = words[1][0] - b'0';
                Waits::Greeting
            }
            (b"CLIENT", None) => {
                self.replies = match &words[2][..] {
                    b"ON" => Replies::On,
                    b"OFF" => Replies::Off,
                    _ => Replies::SkipNext,
                };
                return (self.replies == Replies::On).then_some(Waits::Word("OK"));
            }
            (_, None) => Waits::Command(history.ask(self.number, What::Command(words.clone()), at)),
        })
    }

    /// A reply has come. `life`: how often the front at that address has started by now.
    ///
    /// # Errors
    /// What is wrong with it, as a violation.
    pub fn hear(&mut self, read: &Read, history: &mut Commands, now: (SimTime, u64)) -> Result<Heard, String> {
        let asked = self.waiting.front().map_or_else(String::new, Said::to_string);
        let heard = self.hear_one(read, history, now);
        if self.before.len() == TOLD_BEFORE {
            self.before.pop_front();
        }
        self.before.push_back(format!("\n    {asked}: {:?}", read.reply));
        heard.map_err(|text| {
            let before: String = self.before.iter().map(String::as_str).collect();
            format!("{text}; connection {}, before that:{before}", self.number)
        })
    }

    fn hear_one(&mut self, read: &Read, history: &mut Commands, (at, life): (SimTime, u64)) -> Result<Heard, String> {
        let reply = &read.reply;
        let said = self.waiting.pop_front();
        let Some(said) = said else { return Err(format!("replies_in_order: {reply:?} answers nothing (R10.1)")) };
        if if said.protocol == 2 { read.is_new } else { read.is_old } {
            let protocol = said.protocol;
            return Err(format!(
                "reply_forms: {said} was answered {read:?}, on a connection with RESP{protocol} (R10.4)"
            ));
        }
        let front = (life == self.front.1).then_some(self.front);
        let is_fine = match &said.waits {
            Waits::Word(word) => matches!(reply, Reply::Word(told) if told == word),
            Waits::Bytes(bytes) => matches!(reply, Reply::Bytes(told) if told == bytes),
            Waits::Refusal(text) => matches!(reply, Reply::Error(told) if told.starts_with(text)),
            Waits::Greeting => matches!(reply, Reply::List(told) if told.len() == 14),
            Waits::Command(operation) => {
                let told = told_of(reply).unwrap_or_else(|| Told::Result(reply.clone()));
                let is_fine = !matches!(told, Told::Result(_)) || can_answer(&said.words, reply);
                sum_is_zero(&said.words, reply)?;
                let heard = heard(&told);
                history.tell(*operation, told, at, front);
                return if is_fine { Ok(heard) } else { Err(said.misanswered(reply)) };
            }
            Waits::Watch(watches) => {
                let told = told_of(reply).unwrap_or_else(|| Told::Result(reply.clone()));
                let is_fine = !matches!(told, Told::Result(_)) || *reply == Reply::Word("OK".to_owned());
                let heard = heard(&told);
                watches.iter().for_each(|&watch| history.tell(watch, told.clone(), at, front));
                return if is_fine { Ok(heard) } else { Err(said.misanswered(reply)) };
            }
            Waits::Exec(operation) => {
                let told = told_of_exec(*operation, reply, history)?;
                let heard = heard(&told);
                history.tell(*operation, told, at, front);
                return Ok(heard);
            }
        };
        if is_fine { Ok(Heard::Local) } else { Err(said.misanswered(reply)) }
    }
}

impl Said {
    fn is_operation(&self) -> bool {
        matches!(self.waits, Waits::Command(_) | Waits::Watch(_) | Waits::Exec(_))
    }

    fn misanswered(&self, reply: &Reply) -> String {
        format!("replies_in_order: {self} was answered {reply:?} (R10.1)")
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.words.join(&b' ').escape_ascii())
    }
}

fn heard(told: &Told) -> Heard {
    Heard::Operation(match told {
        Told::Unknown => "UNKNOWN",
        Told::NotExecuted => "not executed",
        Told::Result(_) => "result",
    })
}

/// What an error says that is none of the command's own.
fn told_of(reply: &Reply) -> Option<Told> {
    let Reply::Error(text) = reply else { return None };
    if text.starts_with("UNKNOWN ") {
        return Some(Told::Unknown);
    }
    // Kasha's own refusals have numbers.
    (is_to_repeat(reply) || text.contains("(K0")).then_some(Told::NotExecuted)
}

fn is_to_repeat(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if NOT_EXECUTED.iter().any(|word| text.starts_with(word)))
}

/// Whether this can be the result of that command.
fn can_answer(words: &Words, reply: &Reply) -> bool {
    match (&words[0][..], reply) {
        (b"GET" | b"GETSET" | b"GETDEL", Reply::Nil | Reply::Bytes(_)) => true,
        (b"MGET", Reply::List(list)) => {
            list.len() == words.len() - 1 && list.iter().all(|each| matches!(each, Reply::Nil | Reply::Bytes(_)))
        }
        (b"SET" | b"MSET" | b"FLUSHDB" | b"FLUSHALL", Reply::Word(word)) => word == "OK",
        (b"SET", Reply::Nil) => words.len() > 3,
        (b"INCR" | b"INCRBY" | b"DECRBY", Reply::Error(text)) => text.starts_with("ERR value is not"),
        (b"INCR" | b"INCRBY" | b"DECRBY" | b"APPEND" | b"DEL" | b"EXISTS", Reply::Number(_)) => true,
        (b"RENAME", Reply::Word(word)) => word == "OK",
        (b"RENAME" | b"RENAMENX", Reply::Error(text)) => text == "ERR no such key",
        (b"RENAMENX" | b"COPY" | b"MSETNX", Reply::Number(0 | 1)) => true,
        (b"BITOP" | b"LCS", Reply::Number(0..)) => true,
        (b"PEXPIRE" | b"PEXPIREAT" | b"PEXPIRETIME" | b"PERSIST" | b"PTTL", Reply::Number(_)) => true,
        (b"PING", Reply::Word(word)) => word == "PONG",
        _ => false,
    }
}

fn told_of_exec(operation: usize, reply: &Reply, history: &Commands) -> Result<Told, String> {
    let What::Exec { commands, watched } = &history.operations()[operation].what else { unreachable!("it is one") };
    let is_unwatched = watched.iter().any(|&watch| history.operations()[watch].told == Told::NotExecuted);
    let wrong = |why: &str| {
        let all: Vec<_> = commands.iter().map(|words| words.join(&b' ').escape_ascii().to_string()).collect();
        Err(format!("{why}: EXEC of {all:?} was answered {reply:?}"))
    };
    match reply {
        Reply::Nil if !watched.is_empty() => Ok(Told::Result(Reply::Nil)),
        Reply::List(_) if is_unwatched => wrong("watch_sees: a key could not be watched (R10.7)"),
        Reply::List(list) if list.len() == commands.len() => {
            for (words, reply) in commands.iter().zip(list) {
                if !can_answer(words, reply) {
                    return wrong("replies_in_order: (R10.1)");
                }
                sum_is_zero(words, reply)?;
            }
            Ok(Told::Result(reply.clone()))
        }
        Reply::Error(text) if is_unwatched && text.starts_with("EXECABORT ") => Ok(Told::NotExecuted),
        reply => match told_of(reply) {
            Some(Told::NotExecuted) if !is_to_repeat(reply) => wrong("multi_is_one: a command refuses it (R10.6)"),
            Some(told) => Ok(told),
            None => wrong("multi_is_one: (R10.6)"),
        },
    }
}

/// Who sees all accounts of a group sees what was there in the beginning: nothing.
fn sum_is_zero(words: &Words, reply: &Reply) -> Result<(), String> {
    let Reply::List(list) = reply else { return Ok(()) };
    if !words[1..].iter().all(|key| draw::is_account(key)) {
        return Ok(());
    }
    let number = |reply: &Reply| match reply {
        Reply::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.parse::<i64>().ok(),
        _ => Some(0),
    };
    match list.iter().map(number).sum::<Option<i64>>() {
        Some(0) => Ok(()),
        _ => Err(format!("multi_is_one: \"{}\" shows {list:?} (R10.6)", words.join(&b' ').escape_ascii())),
    }
}
