//! A program that uses a front as whoever uses a driver does.
//!
//! It says several requests before it has a reply. It may end its side behind the last one, hang up at once or in the middle of a request, say
//! `QUIT`, or what is no request; it may read late. When its connection breaks, or nothing is answered for long, it goes on with the next front,
//! and now and then says again what was not answered: that is another update then.
//!
//! It finds a violation itself: `nothing_provoked` (R10.2). A front closes no connection on which something has no reply: drivers would repeat it.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use kasha_machine::{Effect, Effects, Endpoint, Gate, Input, Machine};
use kasha_types::{LogSlice, Tick};

use super::dialogue::{Dialogue, Heard};
use super::draw::{self, Pieces};
use super::{Words, reader};
use crate::clients::Stage;
use crate::clock::{SimTime, millis};
use crate::process::Actor;

/// How long a program waits for a reply: longer than a front does for the outcome of one command.
const PATIENCE: u64 = millis(3_000);

/// The longest time for which a program does not read.
const LATE: u64 = millis(400);

/// Requests without a reply, at most, before a program says more.
const WAITING_MAX: usize = 10;

/// One connection, as the program's machine hears it.
#[derive(Debug, Default)]
struct Ear {
    peer: Option<Endpoint>,
    heard: Vec<u8>,
    /// The front has closed it.
    is_closed: bool,
    is_lost: bool,
}

impl Machine for Ear {
    fn step(&mut self, _: Tick, input: Input<'_>, _: &mut Effects) {
        match input {
            Input::Frame { from, payload, .. } if self.peer == Some(from) => {
                self.is_closed |= payload.is_empty();
                self.heard.extend_from_slice(payload);
            }
            Input::Unreachable(peer) => self.is_lost |= self.peer == Some(peer),
            Input::Frame { .. } | Input::Tick => {}
            Input::Request { .. }
            | Input::RequestsEnd { .. }
            | Input::Backlog { .. }
            | Input::Closed(_)
            | Input::Durable(_)
            | Input::LogsFlushed
            | Input::UnixTime(_) => unreachable!("it listens to nobody, and has no files"),
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

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Whatever is drawn, with such pauses.
    Load((u64, u64)),
    /// Reads everything, at the end.
    Audit,
}

/// The program.
pub struct Driver {
    index: usize,
    ear: Ear,
    stage: Rc<RefCell<Stage>>,
    fronts: Vec<SocketAddr>,
    /// Connections so far: each has a name of its own, so that news of an earlier one are not taken for news of this one.
    connections: u16,
    dialogue: Option<Dialogue>,
    /// What is said when everything is answered.
    later: Pieces,
    /// What was not answered on the last connection.
    again: Vec<Words>,
    moved: SimTime,
    deaf_until: SimTime,
    /// When it last looked whether there is anything to do.
    looked: SimTime,
    task: Task,
    next_at: SimTime,
    /// The group that is being read.
    reads: Option<u32>,
}

impl Driver {
    /// A program.
    #[must_use]
    pub fn new(index: usize, fronts: Vec<SocketAddr>, stage: Rc<RefCell<Stage>>, task: Task) -> Self {
        let zero = SimTime(0);
        Self {
            index,
            ear: Ear::default(),
            stage,
            fronts,
            connections: 0,
            dialogue: None,
            later: Vec::new(),
            again: Vec::new(),
            moved: zero,
            deaf_until: zero,
            looked: zero,
            task,
            next_at: zero,
            reads: None,
        }
    }

    fn waiting(&self) -> usize {
        self.dialogue.as_ref().map_or(0, Dialogue::waiting)
    }

    fn hear(&mut self, stage: &mut Stage, at: SimTime) {
        loop {
            let read = match reader::read(&self.ear.heard) {
                Ok(None) => return,
                Ok(Some((read, len))) => {
                    self.ear.heard.drain(..len);
                    read
                }
                Err(why) => {
                    let shown = self.ear.heard.escape_ascii();
                    return stage.violations.push(format!("replies_in_order: {why}: \"{shown}\" (R10.1)"));
                }
            };
            self.moved = at;
            let Some(dialogue) = &mut self.dialogue else { return };
            let open = dialogue.open();
            let front = self.fronts[(self.index + usize::from(self.connections) - 1) % self.fronts.len()];
            let life = stage.redis.life(front);
            let heard = dialogue.hear(&read, &mut stage.redis.history, (at, life));
            stage.unresolved -= open - dialogue.open();
            match heard {
                Ok(Heard::Local) => stage.probes.hit("redis: replies of the front alone"),
                Ok(Heard::Operation(told)) => {
                    stage.probes.hit(&format!("redis: {told}"));
                    let unread = self.reads.take().filter(|_| told != "result");
                    stage.redis.to_read.extend(unread);
                }
                Err(text) => return stage.violations.push(text),
            }
        }
    }

    /// The connection is over. What was not answered may have happened, or may still happen.
    fn forget(&mut self, stage: &mut Stage) {
        if let Some(dialogue) = self.dialogue.take() {
            stage.unresolved -= dialogue.open();
            stage.probes.add("redis: requests without a reply", dialogue.waiting() as u64);
            self.again.extend(dialogue.unanswered());
        }
        stage.redis.to_read.extend(self.reads.take());
        self.later.clear();
        self.ear = Ear::default();
    }

    fn hang_up(&mut self, stage: &mut Stage, out: &mut Effects) {
        if let Some(peer) = self.ear.peer {
            out.push(Effect::Disconnect(peer));
        }
        self.forget(stage);
    }

    fn dial(&mut self, stage: &mut Stage, at: SimTime, out: &mut Effects) -> Endpoint {
        let peer = Endpoint::Seed(self.connections);
        let address = self.fronts[(self.index + usize::from(self.connections)) % self.fronts.len()];
        out.push(Effect::Route { to: peer, address });
        self.connections += 1;
        self.ear = Ear { peer: Some(peer), ..Ear::default() };
        let front = (address, stage.redis.life(address));
        self.dialogue = Some(Dialogue::new(stage.redis.history.connect(), front));
        self.moved = at;
        peer
    }

    /// What comes next, in the order in which it is said.
    fn next(&mut self, stage: &mut Stage) -> Option<Vec<Words>> {
        if self.task == Task::Audit {
            let group = stage.redis.to_read.pop()?;
            self.reads = Some(group);
            return Some(vec![draw::all_values(group)]);
        }
        if self.ear.peer.is_none() && stage.rng.chance(9, 10) {
            // As drivers do: first it is to be seen whether anybody is there.
            return Some(vec![draw::words(if stage.rng.chance(1, 2) { "HELLO 3" } else { "HELLO 2" })]);
        }
        if !self.later.is_empty() {
            return (self.waiting() == 0).then(|| self.later.remove(0));
        }
        let again = std::mem::take(&mut self.again);
        let is_present = |words: &&Words| words.get(1).is_some_and(|key| stage.redis.draw.is_present(key));
        let again: Vec<_> = again.iter().filter(is_present).cloned().collect();
        if !again.is_empty() && stage.rng.chance(1, 2) {
            stage.probes.hit("redis: said again");
            again.iter().for_each(|_| stage.redis.draw.again());
            return Some(again);
        }
        self.later = stage.redis.draw.pieces();
        Some(self.later.remove(0))
    }

    /// Says some requests at once, and sometimes that these were the last ones.
    fn speak(&mut self, stage: &mut Stage, at: SimTime, out: &mut Effects) {
        let Some(mut requests) = self.next(stage) else { return };
        let peer = self.ear.peer.unwrap_or_else(|| self.dial(stage, at, out));
        if self.waiting() == 0 {
            self.moved = at;
        }
        let dialogue = self.dialogue.as_mut().expect("dialled");
        let is_load = self.task != Task::Audit;
        if is_load && stage.rng.chance(1, 60) {
            requests.push(draw::words("QUIT"));
        }
        let mut bytes = Vec::new();
        for words in &requests {
            stage.unresolved += dialogue.say(words, &mut stage.redis.history, at);
            put_request(words, stage.rng.chance(1, 8), &mut bytes);
        }
        if is_load && !dialogue.has_ended && stage.rng.chance(1, 80) {
            dialogue.say_nonsense();
            bytes.extend_from_slice(b"*1\r\n+x\r\n");
        }
        send(peer, &bytes, out);
        if is_load && !dialogue.has_ended && stage.rng.chance(1, 50) {
            stage.probes.hit("redis: ends its side");
            dialogue.has_ended = true;
            send(peer, b"", out);
        }
        if is_load && stage.rng.chance(1, 15) {
            stage.probes.hit("redis: reads late");
            self.deaf_until = at.after(stage.rng.below(LATE));
        }
    }

    /// Hangs up, perhaps in the middle of a request: what has not come whole is not executed.
    fn break_off(&mut self, stage: &mut Stage, out: &mut Effects) {
        stage.probes.hit("redis: hung up");
        let has_ended = self.dialogue.as_ref().is_none_or(|dialogue| dialogue.has_ended);
        if let Some(peer) = self.ear.peer.filter(|_| !has_ended && stage.rng.chance(1, 2)) {
            let words = stage.redis.draw.pieces().remove(0).remove(0);
            let mut bytes = Vec::new();
            put_request(&words, false, &mut bytes);
            bytes.truncate(usize::try_from(stage.rng.between(1, bytes.len() as u64 - 1)).expect("short"));
            send(peer, &bytes, out);
        }
        self.hang_up(stage, out);
    }
}

fn send(to: Endpoint, bytes: &[u8], out: &mut Effects) {
    let head = out.span(bytes);
    out.push(Effect::Send { to, head, tail: None, gate: Gate::Now });
}

/// The request as bytes; `typed`: as a line that a person types.
fn put_request(words: &Words, typed: bool, bytes: &mut Vec<u8>) {
    if typed {
        bytes.extend_from_slice(&words.join(&b' '));
        return bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
}

impl Drop for Driver {
    /// The program died.
    fn drop(&mut self) {
        let stage = self.stage.clone();
        if let Ok(mut stage) = stage.try_borrow_mut() {
            self.forget(&mut stage);
        }
    }
}

impl Actor for Driver {
    fn machine(&self) -> &dyn Machine {
        &self.ear
    }
    fn machine_mut(&mut self) -> &mut dyn Machine {
        &mut self.ear
    }

    fn drive(&mut self, _: Tick, at: SimTime, out: &mut Effects) {
        let shared = self.stage.clone();
        let stage = &mut *shared.borrow_mut();
        self.looked = at;
        if at >= self.deaf_until {
            self.hear(stage, at);
            if self.ear.is_closed || self.ear.is_lost {
                let (waiting, is_closed) = (self.waiting(), self.ear.is_closed);
                if is_closed && waiting > 0 && stage.violations.is_empty() {
                    let text = format!("nothing_provoked: a front closed a connection with {waiting} requests (R10.2)");
                    stage.violations.push(text);
                }
                if is_closed && waiting == 0 {
                    stage.probes.hit("redis: all answered, and then the end");
                }
                self.forget(stage);
            } else if self.waiting() > 0 && at >= self.moved.after(PATIENCE) {
                stage.probes.hit("redis: nothing came for long");
                self.hang_up(stage, out);
            }
        }
        // What is over is noticed when it is read.
        if at < self.next_at || self.ear.is_closed || self.ear.is_lost {
            return;
        }
        let (least, most) = match self.task {
            Task::Load(pause) => pause,
            Task::Audit => (millis(1), millis(2)),
        };
        self.next_at = at.after(stage.rng.between(least, most));
        if stage.stopped && self.task != Task::Audit {
            return;
        }
        let has_ended = self.dialogue.as_ref().is_some_and(|dialogue| dialogue.has_ended);
        // Most programs wait for all replies.
        let most = if self.task != Task::Audit && stage.rng.chance(1, 6) { WAITING_MAX } else { 1 };
        if self.ear.peer.is_some() && self.task != Task::Audit && stage.rng.chance(1, 400) {
            self.break_off(stage, out);
        } else if self.waiting() < most && !has_ended {
            self.speak(stage, at, out);
        }
    }

    fn wake(&self) -> Option<SimTime> {
        let patience = (self.waiting() > 0).then(|| self.moved.after(PATIENCE).max(self.deaf_until));
        let late = (self.deaf_until > self.looked).then_some(self.deaf_until);
        let goes_on = self.task == Task::Audit || !self.stage.borrow().stopped;
        patience.into_iter().chain(late).chain(goes_on.then_some(self.next_at)).min()
    }
}
