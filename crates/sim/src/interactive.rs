//! Programs that run a transaction interactively: they read, and then write and commit, with the session's own code (0029). A try that was
//! lost is followed by another.
//!
//! The history has what a program makes of a commit: one transaction of what it has read and what it has written, with what it was
//! told of each. That is not what the session sends. So the checkers judge whether a commit means what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kasha_client::limits::DEADLINE;
use kasha_client::session::{
    BodyEnd, CallId, CallOptions, Commit, CommitEnd, Completion, Found, Interactive, Next, NoCommit, Session, ToCommit,
    Tries, WhyUnknown,
};
use kasha_machine::Effects;
use kasha_types::{TableId, Tick};
use kasha_wire::operation::{Bounds, PartOperation, Parts, PartsBuffer};
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Read, Update};

use crate::clients::{Stage, tell, told};
use crate::clock::SimTime;
use crate::history::{Action, Key, OperationId, Told};
use crate::workload::{Ask, Interactively};

type Name = (TableId, Key);

/// A program, which has one call at a time.
pub struct Program {
    client: usize,
    ask: Ask,
    how: Interactively,
    tries: Tries,
    this: Try,
    step: Step,
}

/// What has happened in one try.
#[derive(Default)]
struct Try {
    seen: Interactive,
    /// So many parts of the transaction were run.
    run: u32,
    parts: PartsBuffer,
    /// What the program was told of each part, as far as it knows without the commit.
    heard: Vec<Heard>,
    written: BTreeSet<Name>,
    /// A read had no answer, or a number was none: nothing is written.
    failed: Option<BodyEnd>,
}

/// What a program was told of a part.
enum Heard {
    /// It has read this.
    Read(Name, Found),
    /// It sees what it has written itself, whose version is not known before the commit.
    Own(Name, Found),
    /// It writes this key; the sum, if that is a number that it adds to.
    Wrote(Name, Option<i64>),
}

/// What a program waits for.
enum Step {
    /// Nothing.
    Runs,
    /// A read of these keys.
    Reads(CallId, OperationId, TableId, Vec<Key>),
    /// Its commit.
    Commits(CallId, OperationId, ToCommit),
    /// The next try.
    Rests(SimTime),
    /// It was told that the outcome is unknown, and asks what it came to.
    Asks(CallId, OperationId, ToCommit),
    /// It is over.
    IsOver,
}

impl Program {
    /// A program that does what this transaction asks for.
    #[must_use]
    pub fn new(client: usize, ask: Ask, how: Interactively, now: Tick) -> Self {
        let patience = ask.deadline_millis.map_or(DEADLINE, Duration::from_millis);
        let tries = Tries::new(now.after(patience));
        Self { client, ask, how, tries, this: Try::default(), step: Step::Runs }
    }

    /// Whether the program waits for this call.
    #[must_use]
    pub fn waits_for(&self, id: CallId) -> bool {
        matches!(self.step, Step::Reads(call, ..) | Step::Commits(call, ..) if call == id)
    }

    /// Whether a call is open that is to be told, or resolved.
    #[must_use]
    pub fn is_unresolved(&self) -> bool {
        matches!(self.step, Step::Reads(..) | Step::Commits(..) | Step::Asks(..))
    }

    /// Whether nothing is left to do, but perhaps to ask what came of the commit.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.step, Step::Asks(..) | Step::IsOver)
    }

    /// Whether the program may be forgotten.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.step, Step::IsOver)
    }

    /// When the next try begins, if it waits for that.
    #[must_use]
    pub fn wake(&self) -> Option<SimTime> {
        match self.step {
            Step::Rests(until) => Some(until),
            Step::Runs | Step::Reads(..) | Step::Commits(..) | Step::Asks(..) | Step::IsOver => None,
        }
    }

    /// Asks what came of a commit whose outcome was unknown.
    pub fn resolve(&mut self, session: &mut Session, stage: &mut Stage, at: SimTime) {
        if let Step::Asks(call, operation, commit) = &self.step
            && let Some(completion) = session.resolve(*call)
        {
            stage.probes.hit("resolved after the deadline");
            self.this.tell(stage, *operation, commit, &completion, at);
            stage.unresolved -= 1;
            self.step = Step::IsOver;
        }
    }

    /// The call that the program waits for has ended.
    pub fn on_completed(
        &mut self,
        session: &mut Session,
        stage: &mut Stage,
        completion: &Completion,
        (now, at): (Tick, SimTime),
    ) {
        match std::mem::replace(&mut self.step, Step::Runs) {
            Step::Reads(_, operation, table, keys) => {
                stage.unresolved -= 1;
                told(stage, operation, completion, at);
                let found = match completion {
                    Completion::Read { result } => stage.history.operation(operation).action.decode(result),
                    _ => None,
                };
                let values = match found {
                    Some(Outcome::Value(version, value)) => Some(vec![Some((version, value))]),
                    Some(Outcome::NotFound) => Some(vec![None]),
                    Some(Outcome::Values(values)) => Some(values),
                    _ => None,
                };
                match values {
                    Some(values) => self.this.seen.on_read(table, keys.iter().map(Vec::as_slice).zip(values)),
                    None => self.this.failed = Some(BodyEnd::Failed { read_failed: true }),
                }
            }
            Step::Commits(call, operation, commit) => {
                let ended = CommitEnd::of(completion, &commit);
                self.this.tell(stage, operation, &commit, completion, at);
                let body = self.this.failed.unwrap_or(BodyEnd::Done);
                let next = self.tries.on_end((ended, &commit), body, now, stage.rng.next_u64());
                stage.probes.hit(&format!("interactive: {ended:?}"));
                match next {
                    Next::Again(pause) => {
                        stage.unresolved -= 1;
                        session.abandon(call); // nobody asks what came of it
                        let nanos = u64::try_from(pause.as_nanos()).expect("short");
                        self.step = Step::Rests(at.after(nanos));
                    }
                    _ if matches!(completion, Completion::Unknown(WhyUnknown::DeadlinePassed)) => {
                        self.step = Step::Asks(call, operation, commit);
                    }
                    Next::Return | Next::Fail | Next::GiveUp => {
                        stage.unresolved -= 1;
                        self.step = Step::IsOver;
                    }
                }
            }
            step @ (Step::Runs | Step::Rests(_) | Step::Asks(..) | Step::IsOver) => self.step = step,
        }
    }

    /// Goes on until it waits.
    pub fn run(&mut self, session: &mut Session, stage: &mut Stage, (now, at): (Tick, SimTime), out: &mut Effects) {
        if stage.stopped && !self.is_unresolved() {
            self.step = Step::IsOver; // nothing was written
        }
        if let Step::Rests(_) = self.step
            && self.wake().is_some_and(|until| until <= at)
        {
            (self.this, self.step) = (Try::default(), Step::Runs);
        }
        while let Step::Runs = self.step {
            let Some(Update::Transaction { parts }) = self.ask.action.update() else { unreachable!("it is one") };
            let part = parts.iter().nth(self.this.run as usize).filter(|_| self.this.failed.is_none());
            let Some(part) = part else { return self.commit(session, stage, (now, at), out) };
            let Some(missing) = self.this.run(part.table, part.operation) else { continue };
            let keys = match self.how {
                Interactively::OneByOne => vec![missing],
                Interactively::Together => self.this.unread(&parts, part.table, missing),
            };
            let action = if let [key] = &keys[..] { Action::get(key) } else { Action::multi_get(&keys) };
            let read = action.read().expect("a read");
            let call = session.read(now, part.table, &read, Some(self.tries.until()), out);
            let operation = stage.history.ask_in(part.table, self.client, action, None, at);
            stage.unresolved += 1;
            self.step = Step::Reads(call, operation, part.table, keys);
        }
    }

    fn commit(&mut self, session: &mut Session, stage: &mut Stage, (now, at): (Tick, SimTime), out: &mut Effects) {
        if self.this.failed.is_some() {
            self.this.forget_writes();
        }
        let commit = self.this.seen.to_commit();
        self.step = Step::IsOver;
        let Some((table, operation)) = &commit.operation else { return };
        let options = CallOptions {
            deadline: Some(self.tries.until()),
            operation_key: None,
            said: None,
            cancel_on_deadline: self.ask.cancel,
            again: self.tries.again(session, now),
        };
        let operation = operation.as_ref().expect("within its limits");
        let call = session.update_encoded(now, *table, operation, &options, out);
        let parts = self.this.parts.as_parts();
        let Some(table) = parts.first_table() else {
            // It has read several keys, and made nothing of any.
            return session.abandon(call);
        };
        let action = Update::Transaction { parts }.into();
        let asked = stage.history.ask_in(table, self.client, action, None, at);
        if self.ask.abandon {
            stage.probes.hit("abandoned");
            return session.abandon(call);
        }
        stage.unresolved += 1;
        self.step = Step::Commits(call, asked, commit);
    }
}

impl Try {
    /// Runs a part. Returns the key that is to be read first, if there is one.
    fn run(&mut self, table: TableId, operation: PartOperation<'_>) -> Option<Key> {
        let key = operation.first_key();
        let seen = self.seen.seen(table, key);
        let name = (table, key.to_vec());
        let is_own = self.written.contains(&name);
        let heard = match (operation, seen) {
            (PartOperation::Read(_) | PartOperation::Update(Update::Increment { .. }), None) => return Some(name.1),
            (PartOperation::Read(Read::Get { .. }), Some(found)) if is_own => Heard::Own(name, found),
            (PartOperation::Read(Read::Get { .. }), Some(found)) => Heard::Read(name, found),
            // One write of each key: of several the session sends one, and the version would be another one.
            (PartOperation::Update(_), _) if is_own => {
                self.run += 1;
                return None;
            }
            (PartOperation::Update(Update::Put { value, .. }), _) => {
                self.seen.put(table, key, value);
                Heard::Wrote(name, None)
            }
            (PartOperation::Update(Update::Delete { .. }), _) => {
                self.seen.delete(table, key);
                Heard::Wrote(name, None)
            }
            (PartOperation::Update(Update::Increment { delta, .. }), Some(found)) => {
                match self.seen.increment(table, key, delta, Bounds::NONE) {
                    Ok(Some(sum)) => Heard::Wrote(name, Some(sum)),
                    Ok(None) | Err(_) => {
                        self.failed = Some(BodyEnd::Failed { read_failed: false });
                        self.heard.push(Heard::Read(name, found));
                        return None;
                    }
                }
            }
            (other, _) => unreachable!("no program does {other:?}"),
        };
        self.run += 1;
        if let Heard::Wrote(name, _) = &heard {
            self.written.insert(name.clone());
        }
        self.heard.push(heard);
        self.parts.push(table, &operation);
        None
    }

    /// The keys of a table that the transaction reads and has not read.
    fn unread(&self, parts: &Parts<'_>, table: TableId, first: Key) -> Vec<Key> {
        let mut keys = vec![first];
        for part in parts.iter().filter(|part| part.table == table) {
            let key = part.operation.first_key();
            let is_read = matches!(part.operation, PartOperation::Read(_));
            if is_read && self.seen.seen(table, key).is_none() && !keys.iter().any(|known| known == key) {
                keys.push(key.to_vec());
            }
        }
        keys
    }

    /// What is left of a transaction whose program failed: what it has read.
    fn forget_writes(&mut self) {
        self.seen.forget_writes();
        (self.parts, self.written) = (PartsBuffer::default(), BTreeSet::new());
        self.heard.retain(|heard| matches!(heard, Heard::Read(..)));
        for heard in &self.heard {
            let Heard::Read((table, key), _) = heard else { unreachable!("only these are left") };
            self.parts.push(*table, &PartOperation::Read(Read::Get { key }));
        }
    }

    /// Writes into the history what came of a commit.
    fn tell(&self, stage: &mut Stage, operation: OperationId, commit: &ToCommit, completion: &Completion, at: SimTime) {
        let Completion::Executed { result, path, attempts } = completion else {
            return told(stage, operation, completion, at);
        };
        stage.probes.hit(&format!("executed: {path:?}"));
        stage.probes.add("attempts", u64::from(*attempts));
        let outcome = Outcome::decode(Shape::Parts, result);
        let came_to = match &outcome {
            Ok(outcome) => commit.commit_of(outcome).map(|commit| (commit, outcome)),
            Err(_) => Err(NoCommit::Invalid),
        };
        let says = match came_to {
            Ok((Commit::Committed, Outcome::Parts(results))) => {
                let outcome = self.outcomes(results).map(Outcome::Parts);
                outcome.map(|outcome| Told::Executed { outcome, bytes: result.clone() })
            }
            Ok((Commit::Conflict(_), _)) | Err(NoCommit::TooLarge) => Some(Told::NotExecuted),
            Ok((Commit::Committed, _)) | Err(NoCommit::Invalid) => None,
        };
        match says {
            Some(says) => tell(stage, operation, says, at),
            None => stage.violations.push(format!("interactive: a commit was answered with {outcome:?}")),
        }
    }

    /// What the program was told, part by part. The results of the writes come last, in the order of their keys.
    fn outcomes(&self, results: &[Outcome]) -> Option<Vec<Outcome>> {
        let first = results.len().checked_sub(self.written.len())?;
        let written: BTreeMap<_, _> = self.written.iter().zip(&results[first..]).collect();
        let of = |heard: &Heard| match heard {
            Heard::Read(_, None) | Heard::Own(_, None) => Some(Outcome::NotFound),
            Heard::Read(_, Some((version, value))) => Some(Outcome::Value(*version, value.clone())),
            Heard::Own(name, Some((_, value))) => match written.get(name)? {
                Outcome::Version(version) | Outcome::Number(_, version) => {
                    Some(Outcome::Value(*version, value.clone()))
                }
                _ => None,
            },
            Heard::Wrote(name, sum) => match (*written.get(name)?, sum) {
                (Outcome::Number(_, version), Some(sum)) => Some(Outcome::Number(*sum, *version)),
                (outcome @ (Outcome::Version(_) | Outcome::NotFound), None) => Some(outcome.clone()),
                _ => None,
            },
        };
        self.heard.iter().map(of).collect()
    }
}
