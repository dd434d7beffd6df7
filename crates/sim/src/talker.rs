//! A program that speaks lines of text with a front, as whoever uses a driver does.
//!
//! It says several lines before it has an answer. It may end its side behind the last one, hang up at once, or say `QUIT`; when
//! its connection breaks, or nothing is answered for long, it goes on with the next front. Answers have no number: they are taken in the
//! order of the lines. What has no answer when a connection ends is unknown, and is never said again.
//!
//! It finds a violation itself: `replies_in_order` (R10.1). A line is answered by what no such line can have for an answer.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use kasha_machine::{Effect, Effects, Endpoint, Gate, Input, Machine};
use kasha_reference::Part;
use kasha_types::{LogSlice, Tick};
use kasha_wire::Outcome;
use kasha_wire::{Read, Update};

use crate::clients::Stage;
use crate::clock::{SimTime, millis};
use crate::history::{Action, OperationId, Told};
use crate::process::Actor;

/// How long a program waits for an answer: longer than a front does for the outcome of one command.
const PATIENCE: u64 = millis(3_000);

/// What the program has said, and waits for.
#[derive(Debug)]
enum Said {
    /// A command, which is in the history.
    Command(OperationId),
    /// No command.
    Nonsense,
    /// `QUIT`.
    Quit,
}

/// One connection, as the program's machine hears it.
#[derive(Debug, Default)]
struct Ear {
    peer: Option<Endpoint>,
    heard: VecDeque<Vec<u8>>,
    is_lost: bool,
}

impl Machine for Ear {
    fn step(&mut self, _: Tick, input: Input<'_>, _: &mut Effects) {
        match input {
            Input::Frame { from, payload, .. } if self.peer == Some(from) => self.heard.push_back(payload.to_vec()),
            Input::Unreachable(peer) => self.is_lost |= self.peer == Some(peer),
            Input::Frame { .. } | Input::Tick => {}
            Input::Request { .. }
            | Input::RequestsEnd { .. }
            | Input::Closed(_)
            | Input::Durable(_)
            | Input::LogsFlushed
            | Input::UnixTime(_) => {
                unreachable!("it listens to nobody, and has no files")
            }
        }
    }
    fn end_turn(&mut self, _: Tick, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Tick> {
        None
    }
    fn is_open(&self, gate: Gate) -> bool {
        gate == Gate::Now
    }
    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        unreachable!("it has no log: {slice:?}")
    }
}

/// The program.
pub struct Talker {
    index: usize,
    ear: Ear,
    stage: Rc<RefCell<Stage>>,
    fronts: Vec<SocketAddr>,
    /// Connections so far: each has a name of its own, so that news of an earlier one are not taken for news of this one.
    connections: u16,
    waiting: VecDeque<Said>,
    /// Nothing more is said on this connection.
    has_ended: bool,
    moved: SimTime,
    most: usize,
    pause: (u64, u64),
    next_at: SimTime,
}

impl Talker {
    /// A program that says at most so many lines before it has answers.
    #[must_use]
    pub fn new(
        index: usize,
        fronts: Vec<SocketAddr>,
        stage: Rc<RefCell<Stage>>,
        (most, pause): (usize, (u64, u64)),
    ) -> Self {
        Self {
            index,
            ear: Ear::default(),
            stage,
            fronts,
            connections: 0,
            waiting: VecDeque::new(),
            has_ended: false,
            moved: SimTime(0),
            most,
            pause,
            next_at: SimTime(0),
        }
    }

    fn hear(&mut self, stage: &mut Stage, at: SimTime) {
        while let Some(line) = self.ear.heard.pop_front() {
            self.moved = at;
            let Some(said) = self.waiting.pop_front() else {
                let text = format!("replies_in_order: {:?} answers nothing (R10.1)", line.escape_ascii().to_string());
                stage.violations.push(text);
                return;
            };
            stage.probes.hit("lines answered");
            let is_right = match said {
                Said::Command(operation) => {
                    stage.unresolved -= 1;
                    told(stage, operation, &line, at)
                }
                Said::Nonsense => line.starts_with(b"ERR "),
                Said::Quit => line == b"BYE",
            };
            if !is_right {
                let line = line.escape_ascii();
                let asked = match said {
                    Said::Command(operation) => format!("{:?}", stage.history.operation(operation).action),
                    Said::Nonsense | Said::Quit => format!("{said:?}"),
                };
                stage.violations.push(format!("replies_in_order: {asked} was answered \"{line}\" (R10.1)"));
            }
        }
    }

    /// The connection is over. What was not answered may have happened, or may still happen.
    fn forget(&mut self, stage: &mut Stage) {
        let commands = self.waiting.drain(..).filter(|said| matches!(said, Said::Command(_))).count();
        stage.unresolved -= commands;
        stage.probes.add("lines without an answer", commands as u64);
        self.ear = Ear::default();
    }

    fn hang_up(&mut self, stage: &mut Stage, out: &mut Effects) {
        if let Some(peer) = self.ear.peer {
            out.push(Effect::Disconnect(peer));
        }
        self.forget(stage);
    }

    fn dial(&mut self, at: SimTime, out: &mut Effects) -> Endpoint {
        let peer = Endpoint::Seed(self.connections);
        let address = self.fronts[(self.index + usize::from(self.connections)) % self.fronts.len()];
        out.push(Effect::Route { to: peer, address });
        self.connections += 1;
        self.ear = Ear { peer: Some(peer), ..Ear::default() };
        (self.has_ended, self.moved) = (false, at);
        peer
    }

    /// Says some lines at once, and sometimes that these were the last ones.
    fn speak(&mut self, stage: &mut Stage, at: SimTime, out: &mut Effects) {
        let peer = self.ear.peer.unwrap_or_else(|| self.dial(at, out));
        if self.waiting.is_empty() {
            self.moved = at;
        }
        let mut text = Vec::new();
        for _ in 0..stage.rng.between(1, (self.most - self.waiting.len()) as u64) {
            let said = match stage.rng.below(60) {
                0..4 => Said::Nonsense,
                4 => Said::Quit,
                _ => self.command(stage, at, &mut text),
            };
            match said {
                Said::Command(_) => {}
                Said::Nonsense => text.extend_from_slice(b"GET\n"),
                Said::Quit => text.extend_from_slice(b"QUIT\n"),
            }
            self.has_ended = matches!(said, Said::Quit);
            self.waiting.push_back(said);
            if self.has_ended {
                break;
            }
        }
        send(peer, &text, out);
        if !self.has_ended && stage.rng.chance(1, 40) {
            self.has_ended = true;
            send(peer, b"", out);
        }
    }

    fn command(&mut self, stage: &mut Stage, at: SimTime, text: &mut Vec<u8>) -> Said {
        let ask = stage.mix.draw();
        put_line(&ask.action, text);
        stage.unresolved += 1;
        Said::Command(stage.history.ask_in(ask.table, self.index, ask.action, None, at))
    }
}

fn send(to: Endpoint, text: &[u8], out: &mut Effects) {
    let head = out.span(text);
    out.push(Effect::Send { to, head, tail: None, gate: Gate::Now });
}

/// The action as a line.
fn put_line(action: &Action, text: &mut Vec<u8>) {
    let (name, key, rest) = match action.operation() {
        Some(Part::Update(Update::Put { key, value, .. })) => ("PUT", key, Some(value.to_vec())),
        Some(Part::Update(Update::Increment { key, delta, .. })) => ("INCR", key, Some(delta.to_string().into_bytes())),
        Some(Part::Read(Read::Get { key })) => ("GET", key, None),
        other => unreachable!("a front has no line for {other:?}"),
    };
    text.extend_from_slice(format!("{name} default ").as_bytes());
    text.extend_from_slice(key);
    if let Some(rest) = rest {
        text.push(b' ');
        text.extend_from_slice(&rest);
    }
    text.push(b'\n');
}

/// Writes into the history what an answer means. Says whether it can be one.
fn told(stage: &mut Stage, operation: OperationId, line: &[u8], at: SimTime) -> bool {
    let mut words = line.splitn(3, |&byte| byte == b' ');
    let (name, first, rest) = (words.next().unwrap_or_default(), words.next(), words.next());
    let number = |word: Option<&[u8]>| std::str::from_utf8(word?).ok()?.parse::<u64>().ok();
    let action = &stage.history.operation(operation).action;
    let outcome = match (action.operation(), name) {
        (_, b"UNKNOWN") => {
            stage.probes.hit("lines answered: UNKNOWN");
            return true;
        }
        (_, b"ERR") => {
            stage.probes.hit("lines answered: ERR");
            None
        }
        (Some(Part::Update(Update::Put { .. })), b"OK") => number(first).map(Outcome::Version),
        (Some(Part::Update(Update::Increment { .. })), b"NUMBER") => {
            let sum = first.and_then(|word| std::str::from_utf8(word).ok()).and_then(|word| word.parse().ok());
            sum.zip(number(rest)).map(|(sum, version)| Outcome::Number(sum, version))
        }
        (Some(Part::Read(Read::Get { .. })), b"NONE") => Some(Outcome::NotFound),
        (Some(Part::Read(Read::Get { key })), b"VALUE") => {
            let value = rest.unwrap_or_default();
            let is_of_key = value.starts_with(key) || value.iter().all(u8::is_ascii_digit);
            number(first).filter(|_| is_of_key).map(|version| Outcome::Value(version, value.to_vec()))
        }
        _ => return false,
    };
    let told = match outcome {
        Some(outcome) => Told::Executed { outcome, bytes: line.to_vec() },
        None if name == b"ERR" => Told::NotExecuted,
        None => return false,
    };
    if let Err(text) = stage.history.tell(operation, told, at) {
        stage.violations.push(text);
    }
    true
}

impl Drop for Talker {
    /// The program died.
    fn drop(&mut self) {
        let stage = self.stage.clone();
        if let Ok(mut stage) = stage.try_borrow_mut() {
            self.forget(&mut stage);
        }
    }
}

impl Actor for Talker {
    fn machine(&self) -> &dyn Machine {
        &self.ear
    }
    fn machine_mut(&mut self) -> &mut dyn Machine {
        &mut self.ear
    }

    fn drive(&mut self, _: Tick, at: SimTime, out: &mut Effects) {
        let shared = self.stage.clone();
        let stage = &mut *shared.borrow_mut();
        self.hear(stage, at);
        if self.ear.is_lost {
            if self.has_ended && self.waiting.is_empty() {
                stage.probes.hit("lines: all answered, and then the end");
            }
            self.forget(stage);
        } else if !self.waiting.is_empty() && at >= self.moved.after(PATIENCE) {
            self.hang_up(stage, out);
        }
        if at < self.next_at {
            return;
        }
        self.next_at = at.after(stage.rng.between(self.pause.0, self.pause.1));
        if stage.stopped {
            return;
        }
        if self.ear.peer.is_some() && stage.rng.chance(1, 100) {
            stage.probes.hit("lines: hung up");
            self.hang_up(stage, out);
        } else if self.waiting.len() < self.most && !(self.ear.peer.is_some() && self.has_ended) {
            self.speak(stage, at, out);
        }
    }

    fn wake(&self) -> Option<SimTime> {
        let patience = (!self.waiting.is_empty()).then(|| self.moved.after(PATIENCE));
        let next = (!self.stage.borrow().stopped).then_some(self.next_at);
        patience.into_iter().chain(next).min()
    }
}
