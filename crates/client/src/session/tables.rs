//! Table requests: executed exactly once, by (client, sequence). One request runs at a time, and is repeated until it
//! is answered.

use kasha_machine::Effects;
use kasha_types::Tick;
use kasha_types::limits::TABLE_NAME_BYTES_MAX;
use kasha_wire::message::{Placement, TableAnswer, TableCommand, TableOutcome, TableRequest};

use super::call::{Kind, Stage, TableChange};
use super::calls::CallId;
use super::frames::{Known, send_message};
use super::{Completion, Session, WhyNot};

impl Session {
    /// Creates a table.
    pub fn create_table(&mut self, now: Tick, name: &str, out: &mut Effects) -> CallId {
        self.create_table_at(now, name, Placement::Spread, out)
    }

    /// The same for a table whose keys are placed like this; one that exists stays where it is. Below level 2 every table is spread.
    pub fn create_table_at(&mut self, now: Tick, name: &str, at: Placement, out: &mut Effects) -> CallId {
        self.change_tables(TableChange::Create(at), now, name, out)
    }

    /// Drops a table with all it holds.
    pub fn drop_table(&mut self, now: Tick, name: &str, out: &mut Effects) -> CallId {
        self.change_tables(TableChange::Drop, now, name, out)
    }

    fn change_tables(&mut self, change: TableChange, now: Tick, name: &str, out: &mut Effects) -> CallId {
        let slot = self.insert(Kind::Table(change), now, None, |bytes| bytes.extend_from_slice(name.as_bytes()));
        let id = self.calls.id(slot);
        if name.is_empty() || name.len() > TABLE_NAME_BYTES_MAX {
            let why = format!("a table's name has 1 to {TABLE_NAME_BYTES_MAX} bytes; choose another");
            self.end(slot, Completion::Table(TableOutcome::Refused(why)));
        } else if self.calls.has_room_for(slot) {
            self.calls.enqueue(slot, &mut self.tables);
            self.start_table_requests(now, out);
        } else {
            self.end_undone(slot, WhyNot::Overloaded);
        }
        id
    }

    /// Starts the request in front, if it has not been sent.
    pub(super) fn start_table_requests(&mut self, now: Tick, out: &mut Effects) {
        while let Some(&front) = self.tables.front() {
            let Some(slot) = self.calls.find(front) else {
                self.tables.pop_front();
                continue;
            };
            if !self.calls[slot].is_sent()
                && let Some(client) = self.identities.begin_table_request()
            {
                self.table_client = Some(client);
                self.start(slot, now, out);
            }
            return;
        }
    }

    pub(super) fn send_table_request(&mut self, slot: usize, change: TableChange, now: Tick, out: &mut Effects) {
        let identity = self.table_client.and_then(|client| self.identities.of(client));
        let identity = identity.expect("table requests under way end with their client");
        let (client, sequence) = (identity.client, identity.table_sequence);
        let patience = self.patience(self.calls[slot].silent);
        let call = &mut self.calls[slot];
        call.attempts += 1;
        call.silent += 1;
        call.stage = Stage::Backoff { for_configuration: false };
        call.resume = now.after(patience);
        let name = String::from_utf8(call.bytes.clone()).expect("it was a text");
        let command = match change {
            TableChange::Create(Placement::Spread) => TableCommand::Create(name),
            TableChange::Create(at) => TableCommand::CreateAt(name, at),
            TableChange::Drop => TableCommand::Drop(name),
        };
        let message = TableRequest { client, sequence, command };
        send_message(self.cluster.coordinator.ask(now), &message, out);
        self.timers.arm(&mut self.calls, slot);
    }

    pub(super) fn on_table_answer(&mut self, TableAnswer { client, sequence, outcome }: TableAnswer) -> Known {
        let slot = self.tables.front().and_then(|&front| self.calls.find(front));
        let identity = self.identities.of(client).filter(|_| self.table_client == Some(client));
        let is_ours = identity.is_some_and(|identity| identity.table_sequence == sequence);
        match slot {
            Some(slot) if is_ours && self.calls[slot].is_sent() => {
                self.tables.pop_front();
                self.table_client = None;
                self.cluster.want_configuration();
                self.end(slot, Completion::Table(outcome));
                Known::Yes
            }
            _ => Known::No,
        }
    }
}
