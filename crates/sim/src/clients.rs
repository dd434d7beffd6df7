//! Simulated client programs: each drives a session with the run's workload, and writes into the history what it was
//! told.
//!
//! Programs also find some violations themselves: `nothing_cancelled` and `deletes_go_on`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use kasha_client::session::{CallId, CallOptions, Completion, Session, SessionOptions, TimeToLive, WhyNot, WhyUnknown};
use kasha_machine::{Effects, Rng};
use kasha_reference::Part;
use kasha_types::{TableId, Tick};
use kasha_wire::Outcome;
use kasha_wire::message::TableOutcome;
use kasha_wire::outcome::Shape;

use crate::checkers::time_goes_on::TimeTold;
use crate::clock::{SimTime, millis};
use crate::history::{Action, History, Key, Operation, OperationId, Told};
use crate::interactive::Program;
use crate::probes::Probes;
use crate::process::Actor;
use crate::redis::Redis;
use crate::workload::{Ask, Mix};

/// Longer than any run: an operation key never expires in a simulation unless a test asks for that.
const OPERATION_KEY_TTL_MILLIS: u64 = 3_600_000;

/// How often a program asks for the outcome of an update whose deadline has passed.
const RESOLVE_EVERY: u64 = millis(40);

/// The state that all clients of a run share.
pub struct Stage {
    /// What clients asked for and were told.
    pub history: History,
    /// The workloads of the run.
    pub mix: Mix,
    /// Draws when clients ask, and what some scenarios do to the cluster.
    pub rng: Rng,
    /// The load has ended: nothing more is asked for.
    pub stopped: bool,
    /// Keys that the auditor still has to read.
    pub to_read: VecDeque<(TableId, Key)>,
    /// The violations that clients found.
    pub violations: Vec<String>,
    /// Counts of what was reached.
    pub probes: Probes,
    /// What clients were told of the ends of values.
    pub times_told: Vec<TimeTold>,
    /// What programs that use fronts share.
    pub redis: Redis,
    /// Calls that are not over: they were told nothing, or "unknown" and are not resolved yet.
    pub unresolved: usize,
}

/// A client program.
pub struct Client {
    index: usize,
    session: Session,
    stage: Rc<RefCell<Stage>>,
    waiting: Vec<(CallId, OperationId)>,
    detached: Vec<(CallId, OperationId)>,
    /// Interactive transactions under way.
    programs: Vec<Program>,
    concurrency: usize,
    pause: (u64, u64),
    next_at: SimTime,
    task: Task,
}

/// The task of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Makes the calls of the load.
    Load,
    /// Makes the reads of the load, and does not wait long, so that updates that hang do not stop it from reading.
    Reads,
    /// Reads, at the end, everything that is to be read.
    Audit,
}

/// The longest and the shortest time that a program which only reads waits, in milliseconds.
const READER_PATIENCE_MILLIS: (u64, u64) = (20, 400);

/// Draws from the load until there is a read among them.
const READ_DRAWS_MAX: usize = 40;

impl Client {
    /// A program with `concurrency` calls at a time.
    pub fn new(
        index: usize,
        options: SessionOptions,
        stage: Rc<RefCell<Stage>>,
        (concurrency, pause): (usize, (u64, u64)),
        task: Task,
        now: Tick,
        out: &mut Effects,
    ) -> Self {
        let session = Session::new(options, now, out);
        Self {
            index,
            session,
            stage,
            waiting: Vec::new(),
            detached: Vec::new(),
            programs: Vec::new(),
            concurrency,
            pause,
            next_at: SimTime(0),
            task,
        }
    }

    fn collect(&mut self, stage: &mut Stage, now: Tick, at: SimTime) {
        while let Some((call, completion)) = self.session.poll_completed() {
            if let Some(program) = self.programs.iter_mut().find(|program| program.waits_for(call)) {
                program.on_completed(&mut self.session, stage, &completion, (now, at));
                continue;
            }
            let Some(place) = self.waiting.iter().position(|(waiting, _)| *waiting == call) else { continue };
            let (_, operation) = self.waiting.swap_remove(place);
            match &completion {
                Completion::Unknown(WhyUnknown::DeadlinePassed) => {
                    stage.probes.hit("told unknown: deadline");
                    self.detached.push((call, operation));
                }
                _ => {
                    stage.unresolved -= 1;
                    told(stage, operation, &completion, at);
                }
            }
        }
        let session = &mut self.session;
        self.detached.retain(|&(call, operation)| match session.resolve(call) {
            None => true,
            Some(completion) => {
                stage.probes.hit("resolved after the deadline");
                stage.unresolved -= 1;
                told(stage, operation, &completion, at);
                false
            }
        });
        self.programs.iter_mut().for_each(|program| program.resolve(&mut self.session, stage, at));
    }

    /// Calls and programs that are under way.
    fn busy(&self) -> usize {
        self.waiting.len() + self.programs.iter().filter(|program| !program.has_ended()).count()
    }

    fn ask(&mut self, stage: &mut Stage, ask: Ask, now: Tick, at: SimTime, out: &mut Effects) {
        if let Some(how) = ask.interactively {
            let mut program = Program::new(self.index, ask, how, now);
            program.run(&mut self.session, stage, (now, at), out);
            return self.programs.push(program);
        }
        let deadline = ask.deadline_millis.map(|millis| now.after(Duration::from_millis(millis)));
        let time_to_live = ask.time_to_live_millis.unwrap_or(OPERATION_KEY_TTL_MILLIS);
        let operation_key = ask.operation_key.map(|number| format!("operation-{number}").into_bytes());
        let options = CallOptions {
            deadline,
            operation_key: operation_key.as_deref().map(|key| (key, time_to_live)),
            cancel_on_deadline: ask.cancel,
            ..CallOptions::default()
        };
        let (session, table) = (&mut self.session, ask.table);
        let call = match &ask.action {
            Action::CreateTable(name) => session.create_table(now, name, out),
            Action::DropTable(name) => session.drop_table(now, name, out),
            action => match action.operation() {
                Some(Part::Update(update)) => session.update(now, table, &update, &options, out),
                Some(Part::Read(read)) => session.read(now, table, &read, deadline, out),
                Some(Part::Check(_) | Part::Remove) | None => unreachable!("{action:?} is an operation"),
            },
        };
        let operation = stage.history.ask_in(table, self.index, ask.action, ask.operation_key, at);
        if ask.time_to_live_millis.is_some() {
            stage.history.expires(operation);
        }
        if ask.abandon {
            stage.probes.hit("abandoned");
            self.session.abandon(call);
        } else {
            stage.unresolved += 1;
            self.waiting.push((call, operation));
        }
    }
}

/// The next read of the load.
fn next_read(stage: &mut Stage) -> Option<Ask> {
    let draws = std::iter::repeat_with(|| stage.mix.draw());
    let ask = draws.take(READ_DRAWS_MAX).find(|ask| ask.action.is_read())?;
    let (least, most) = READER_PATIENCE_MILLIS;
    Some(Ask { deadline_millis: Some(stage.rng.between(least, most)), ..ask })
}

/// Writes into the history what a completion means.
pub(crate) fn told(stage: &mut Stage, operation: OperationId, completion: &Completion, at: SimTime) {
    let told = match completion {
        Completion::Executed { result, path, attempts } => {
            stage.probes.hit(&format!("executed: {path:?}"));
            stage.probes.add("attempts", u64::from(*attempts));
            result_of(stage, operation, result)
        }
        Completion::TimeToLive { result, left } => {
            if let (Some(TimeToLive::For(left)), Ok(Outcome::Expiry(_, Some(ends)))) =
                (left, Outcome::decode(Shape::Expiry, result))
            {
                let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
                stage.times_told.push(TimeTold { at, ends, left });
            }
            result_of(stage, operation, result)
        }
        Completion::Read { result } => {
            stage.probes.hit("reads");
            result_of(stage, operation, result)
        }
        Completion::NotExecuted(why) => {
            stage.probes.hit(&format!("not executed: {why:?}"));
            let Operation { action, group, .. } = stage.history.operation(operation);
            // What an operation key keeps is no freeing (R5.16).
            let only_frees = group.is_none() && action.update().is_some_and(|update| update.only_frees());
            if *why == WhyNot::OutOfMemory && only_frees {
                let text = format!("deletes_go_on: {action:?} was refused for lack of memory (section 5)");
                stage.violations.push(text);
            }
            if *why == WhyNot::Cancelled {
                // Only a caller that gave a call up may be told that it was cancelled.
                stage.violations.push(format!("nothing_cancelled: nobody has given {action:?} up, but it was (R4.2)"));
            }
            Some(Told::NotExecuted)
        }
        Completion::Unknown(why) => {
            stage.probes.hit(&format!("unknown: {why:?}"));
            None
        }
        Completion::ReadFailed(why) => {
            stage.probes.hit(&format!("read failed: {why:?}"));
            Some(Told::NotExecuted)
        }
        Completion::Table(TableOutcome::Created(table)) => Some(Told::TableDone(*table)),
        Completion::Table(TableOutcome::Exists(table)) => Some(Told::TableExists(*table)),
        Completion::Table(TableOutcome::Dropped(table)) => Some(Told::TableDone(*table)),
        Completion::Table(TableOutcome::NotFound) => Some(Told::TableNotFound),
        Completion::Table(TableOutcome::Refused(_)) => Some(Told::NotExecuted),
        Completion::Status(_) | Completion::Refreshed => None,
    };
    if let Some(told) = told {
        tell(stage, operation, told, at);
    }
}

/// Tells it to the workloads, too.
pub(crate) fn tell(stage: &mut Stage, operation: OperationId, told: Told, at: SimTime) {
    let action = stage.history.operation(operation).action.clone();
    stage.mix.told(&action, &told);
    if let Err(text) = stage.history.tell(operation, told, at) {
        stage.violations.push(text);
    }
}

fn result_of(stage: &mut Stage, operation: OperationId, result: &[u8]) -> Option<Told> {
    let action = &stage.history.operation(operation).action;
    let outcome = action.decode(result);
    if outcome.is_none() {
        stage.violations.push(format!("{action:?} was answered with {result:?}, which is no result of it"));
    }
    outcome.map(|outcome| Told::Executed { outcome, bytes: result.to_vec() })
}

impl Drop for Client {
    /// The program died: the outcomes that it waited for stay unknown.
    fn drop(&mut self) {
        if let Ok(mut stage) = self.stage.try_borrow_mut() {
            let programs = self.programs.iter().filter(|program| program.is_unresolved()).count();
            stage.unresolved -= self.waiting.len() + self.detached.len() + programs;
        }
    }
}

impl Actor for Client {
    crate::process::machine_is_session!();

    fn drive(&mut self, now: Tick, at: SimTime, out: &mut Effects) {
        let shared = self.stage.clone();
        let stage = &mut *shared.borrow_mut();
        self.collect(stage, now, at);
        self.programs.iter_mut().for_each(|program| program.run(&mut self.session, stage, (now, at), out));
        self.programs.retain(|program| !program.is_over());
        if at < self.next_at {
            return;
        }
        while self.busy() < self.concurrency {
            let ask = match self.task {
                Task::Audit => stage.to_read.pop_front().map(|(table, key)| Ask { table, ..Action::get(&key).into() }),
                Task::Load | Task::Reads if stage.stopped => None,
                Task::Load => Some(stage.mix.draw()),
                Task::Reads => next_read(stage),
            };
            let Some(ask) = ask else { break };
            self.ask(stage, ask, now, at, out);
            if self.pause.1 > 0 {
                break;
            }
        }
        self.next_at = at.after(stage.rng.between(self.pause.0, self.pause.1));
    }

    fn wake(&self) -> Option<SimTime> {
        let stopped = self.stage.borrow().stopped && self.task != Task::Audit;
        let next = (!stopped && self.busy() < self.concurrency).then_some(self.next_at);
        // Outcomes are asked for at fixed moments, so that waking up does not depend on the time of the last turn. A
        // call may also have ended at the moment in which it was made, so that nothing else would wake the program.
        let looks = !self.detached.is_empty() || !self.waiting.is_empty() || !self.programs.is_empty();
        let resolve = looks.then(|| self.next_at.after(RESOLVE_EVERY));
        let rests = self.programs.iter().filter_map(Program::wake);
        next.into_iter().chain(resolve).chain(rests).min()
    }
}
