//! A trace as text: for each step the machine that acts, the function of the code, and the result.

use crate::check::Step;
use crate::updates::program::Kind;
use crate::updates::state::{Attempt, CallIx, Entry, Outcome, Stage, State, Term};
use crate::updates::{Action, Updates};

fn outcome(outcome: Outcome) -> String {
    match outcome {
        Outcome::Count(count) => count.to_string(),
        Outcome::Mismatch => "operation key mismatch".into(),
        Outcome::Cancelled => "cancelled".into(),
    }
}

impl Updates {
    /// Client and sequence, as transcripts write them.
    pub fn name(&self, call: CallIx) -> String {
        let plan = self.plan(call);
        format!("c{}.{}", plan.client, plan.sequence)
    }

    fn entry(&self, entry: &Entry) -> String {
        match entry {
            Entry::Record(record) => {
                let key = self.plan(record.call).key;
                let what = if record.executed { format!("{key}+1 = ") } else { String::new() };
                format!("{} {what}{}", self.name(record.call), outcome(record.outcome))
            }
            Entry::Floor(lease) => format!("expiry floor {lease}"),
            Entry::KeyDropped(time) => format!("operation key expired at {time}"),
        }
    }

    fn log(&self, term: &Term) -> String {
        let entries: Vec<_> = term.log.iter().map(|entry| self.entry(entry)).collect();
        format!("[{}], {} synced", entries.join("; "), term.synced)
    }

    /// The entries that a step appended.
    fn appended(&self, before: &Term, after: &Term) -> String {
        let new: Vec<_> = after.log[before.log.len()..].iter().map(|entry| self.entry(entry)).collect();
        if new.is_empty() { "nothing is recorded".into() } else { format!("recorded: {}", new.join("; ")) }
    }

    fn told(&self, after: &State, call: CallIx) -> String {
        let name = self.name(call);
        match after.call(call).stage {
            Stage::Executed(told) => format!("{name} is reported as executed: {}", outcome(told)),
            Stage::NotExecuted => format!("{name} is reported as not executed"),
            Stage::Unknown => format!("{name} is reported as unknown: its lease is over"),
            Stage::Waiting | Stage::Running => format!("{name} goes on"),
        }
    }

    fn sent(&self, before: &State, call: CallIx, attempt: Attempt) -> String {
        let (name, plan, epoch) = (self.name(call), self.plan(call), before.epoch_of(attempt));
        let what = match plan.kind {
            Kind::Increment => format!("{}+1", plan.key),
            Kind::Read => format!("read {}", plan.key),
        };
        let once = plan.once.map_or(String::new(), |until| format!(" under operation key k until {until}"));
        let is_first = before.call(call).stage == Stage::Waiting;
        let attempt = match (is_first, attempt.list()) {
            (_, 0) => format!("to P{epoch} alone"),
            (_, list) => format!("to P{epoch} and the witnesses of list {list}"),
        };
        if is_first { format!("{name} ({what}{once}) {attempt}") } else { format!("{name} again, {attempt}") }
    }

    fn names(&self, order: &[CallIx]) -> String {
        let names: Vec<_> = order.iter().map(|&call| self.name(call)).collect();
        if names.is_empty() { "nothing".into() } else { names.join(", then ") }
    }

    fn tell_client(&self, before: &State, action: &Action, after: &State) -> Option<Step> {
        let client = |call: CallIx| format!("client {}", self.plan(call).client);
        let step = match *action {
            Action::StartUpdate { call, attempt } => {
                Step::new(client(call), "updates::start_update", self.sent(before, call, attempt))
            }
            Action::OnAnswer { call, list } => {
                let current = before.call(call).current.list();
                let how = if list == current {
                    format!("answered and accepted under list {list}")
                } else {
                    format!("answered under list {list}, accepted under list {current}")
                };
                Step::new(client(call), "replies::judge", format!("{how}; {}", self.told(after, call)))
            }
            Action::OnSyncedAnswer { call, epoch } => {
                let text = format!("P{epoch}'s gated answer; {}", self.told(after, call));
                Step::new(client(call), "replies::on_answer", text)
            }
            Action::OnHit { call, epoch } => {
                let text = format!("P{epoch}'s answer from the operation key; {}", self.told(after, call));
                Step::new(client(call), "replies::on_answer", text)
            }
            Action::OnSynced { call, list, epoch } => {
                let text = format!("P{epoch} confirms the answer under list {list}; {}", self.told(after, call));
                Step::new(client(call), "replies::on_synced", text)
            }
            Action::OnRefused { call } => Step::new(client(call), "replies::on_refused", self.told(after, call)),
            Action::Cancel { call } => {
                Step::new(client(call), "updates::cancel", format!("{} is given up", self.name(call)))
            }
            Action::OnReadSynced { call } => Step::new(client(call), "reads::on_answer", self.told(after, call)),
            _ => return None,
        };
        Some(step)
    }

    fn tell_node(&self, before: &State, action: &Action, after: &State) -> Option<Step> {
        let primary = |epoch: u8| format!("P{epoch}");
        let step = match *action {
            Action::OnRequest { call, attempt } => {
                let (epoch, list) = (before.epoch_of(attempt), usize::from(attempt.list()));
                let (name, spoke) =
                    (self.name(call), after.call(call).answers[list] != before.call(call).answers[list]);
                let appended = self.appended(before.term(epoch), after.term(epoch));
                let release = match (after.call(call).stage, spoke) {
                    (Stage::Unknown, _) if before.call(call).stage == Stage::Running => "refused: its lease is over",
                    (_, true) => "answered at once",
                    (_, false) => "the answer waits for a sync",
                };
                Step::new(primary(epoch), "request::run", format!("{name}: {appended}; {release}"))
            }
            Action::OnRead { call, epoch } => {
                let waits = after.call(call).stage == Stage::Running;
                let text = if waits { "the answer waits for a sync".into() } else { self.told(after, call) };
                Step::new(primary(epoch), "reads::execute", format!("{}: {text}", self.name(call)))
            }
            Action::OnRecord { call, list, witness } => Step::new(
                format!("w{}/{list}", witness + 1),
                "witnessing::record",
                format!("{}: accepted", self.name(call)),
            ),
            Action::Advance { epoch, .. } => {
                Step::new(primary(epoch), "shipping::advance", format!("log {}", self.log(after.term(epoch))))
            }
            Action::OnGc { epoch, call, list, witness } => {
                let text = format!("P{epoch} says so: {} is dropped", self.name(call));
                Step::new(format!("w{}/{list}", witness + 1), "witnessing::on_gc", text)
            }
            Action::OnSuspect { call, epoch } => {
                let text = format!("{}: {}", self.name(call), self.appended(before.term(epoch), after.term(epoch)));
                Step::new(primary(epoch), "request::on_suspect", text)
            }
            Action::OnLeaseVerdict { epoch } => {
                let text =
                    format!("client 1's lease is over; {}", self.appended(before.term(epoch), after.term(epoch)));
                Step::new(primary(epoch), "leases::on_verdict", text)
            }
            Action::Restart { list, witness } => {
                let text = "restarts: what it had dropped is on its file still";
                Step::new(format!("w{}/{list}", witness + 1), "persistence::load", text.into())
            }
            Action::LosePower { list, witness } => {
                let text = "its machine loses power: it forgets what it held";
                Step::new(format!("w{}/{list}", witness + 1), "witnessing::load", text.into())
            }
            _ => return None,
        };
        Some(step)
    }

    fn tell_cluster(&self, before: &State, action: &Action, after: &State) -> Step {
        let coordinator = |function, text: String| Step::new("coordinator".into(), function, text);
        let newest = |function, text: String| Step::new(format!("P{}", after.epoch()), function, text);
        match action {
            Action::CloseList => coordinator("Command::CloseList", format!("list {} is to be closed", before.list())),
            Action::ObeyClosing => {
                newest("Serving::update", format!("list {} is refused, every answer gated", before.newest().list))
            }
            Action::OpenList => coordinator("Command::OpenList", format!("list {} is committed", after.list())),
            Action::ObeyOpened => newest("Serving::update", format!("serves under list {}", after.list())),
            Action::Promote { from, .. } => {
                let log = self.log(after.newest());
                newest("replica::begin_term", format!("fences the others, takes over of P{from}'s log {log}"))
            }
            Action::OnWitnessHolds { witness, order } => {
                let text = format!(
                    "freezes w{}/{}, replays {}; {}",
                    witness + 1,
                    before.list(),
                    self.names(order),
                    self.appended(before.newest(), after.newest())
                );
                newest("primary::on_witness_holds", text)
            }
            Action::SkipWitness => newest("beginning::end_replay", "goes on without a witness's word".into()),
            Action::Recovered => {
                coordinator("Command::Recovered", format!("P{} serves under list {}", after.epoch(), after.list()))
            }
            Action::LeaseBack => coordinator("clients::grant", "client 1 is back, with a later lease".into()),
            _ => coordinator("time", format!("ClusterTime is {}", after.time)),
        }
    }
}

impl crate::check::Tell for Updates {
    fn tell(&self, before: &State, action: &Action, after: &State) -> Step {
        (self.tell_client(before, action, after))
            .or_else(|| self.tell_node(before, action, after))
            .unwrap_or_else(|| self.tell_cluster(before, action, after))
    }

    fn epilogue(&self, last: &State) -> String {
        let newest = last.newest();
        format!("P{}'s log is {}", last.epoch(), self.log(newest))
    }
}
