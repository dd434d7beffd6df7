//! What a reply says of a command, as the judges' histories have it.
//!
//! **R10.2** `-UNKNOWN` says that the command may have run, or may run at any time from now on. What drivers repeat a command for, and Kasha's
//! own refusals, say that it certainly never ran. A connection that ends says what `-UNKNOWN` says.

use super::super::book::{Asked, Told, name_of};
use crate::resp::Reply;

/// What errors begin with that drivers repeat a command for.
const REPEATED: [&str; 10] = [
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

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Became {
    /// It ran, and this is its result.
    Ran(Reply),
    /// It did not run and never will.
    NotExecuted,
    /// Nobody knows.
    Unknown,
}

/// What became of a command that got this reply; `None`: the connection ended before there was one.
#[must_use]
pub fn became(reply: Option<Reply>) -> Became {
    match reply {
        None => Became::Unknown,
        Some(Reply::Error(text)) if text.starts_with("UNKNOWN ") => Became::Unknown,
        Some(Reply::Error(text)) if is_refusal(&text) => Became::NotExecuted,
        Some(reply) => Became::Ran(reply),
    }
}

fn is_refusal(text: &str) -> bool {
    // Kasha's own refusals have numbers.
    REPEATED.iter().any(|word| text.starts_with(word)) || text.contains("(K0")
}

/// A result, as the history has it. `None`: no such command has such a result.
#[must_use]
pub fn told_of(asked: &Asked, reply: &Reply) -> Option<Told> {
    let got = |got| Told { got, ..Told::default() };
    Some(match (asked.op, asked.condition, reply) {
        ("get", _, Reply::Text(text)) => Told { text: name_of(text.as_bytes()), ..got("found") },
        ("get", _, Reply::Nil) => got("absent"),
        ("put", _, Reply::Word(word)) if word == "OK" => got("done"),
        ("put", "absent", Reply::Nil) => got("failed"),
        ("put", "", Reply::Nil) => Told { was: "absent", ..got("done") },
        ("put", "", Reply::Text(old)) => Told { was: "found", old_text: name_of(old.as_bytes()), ..got("done") },
        ("delete", _, Reply::Number(0) | Reply::Nil) => got("absent"),
        ("delete", _, Reply::Number(1)) => got("done"),
        ("delete", _, Reply::Text(text)) => Told { text: name_of(text.as_bytes()), ..got("found") },
        ("increment", _, Reply::Number(sum)) => Told { sum: *sum, ..got("done") },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Option<Reply> {
        Some(Reply::Error(text.to_owned()))
    }

    #[test]
    fn r10_2_only_an_unknown_outcome_may_have_run() {
        assert_eq!((became(None), became(error("UNKNOWN the deadline is over"))), (Became::Unknown, Became::Unknown));
        for refusal in REPEATED.into_iter().chain(["ERR memory is full (K0312)"]) {
            assert_eq!(became(error(refusal)), Became::NotExecuted, "{refusal}");
        }
        let wrong = error("ERR value is not an integer or out of range");
        assert_eq!(became(wrong.clone()), Became::Ran(wrong.expect("one")));
    }

    #[test]
    fn a_result_is_that_of_its_command() {
        let asked = |op, condition| Asked { op, condition, ..Asked::default() };
        let text = Reply::Text("7-1....".to_owned());
        let told = |op, condition, reply: &Reply| told_of(&asked(op, condition), reply);
        assert_eq!(told("get", "", &text).map(|told| (told.got, told.text)), Some(("found", "7-1".to_owned())));
        assert_eq!(told("put", "absent", &Reply::Nil).map(|told| told.got), Some("failed"));
        assert_eq!(told("put", "", &Reply::Nil).map(|told| (told.got, told.was)), Some(("done", "absent")));
        assert_eq!(told("put", "", &text).map(|told| told.old_text), Some("7-1".to_owned()));
        assert_eq!(told("increment", "", &Reply::Number(3)).map(|told| told.sum), Some(3));
        for (op, condition, reply) in [
            ("put", "absent", &text),
            ("increment", "", &text),
            ("delete", "", &Reply::Number(2)),
            ("get", "", &Reply::Word("OK".to_owned())),
        ] {
            assert_eq!(told(op, condition, reply), None, "{op} {reply:?}");
        }
    }
}
