//! Table requests: exactly once by (client, count), one at a time, repeated until answered.

use kasha_machine::{Effects, Endpoint};
use kasha_types::limits::TABLE_NAME_BYTES_MAX;
use kasha_types::{ClientId, Tick};
use kasha_wire::Message;
use kasha_wire::message::{TableCommand, TableOutcome};

use super::call::{Kind, Stage};
use super::{CallId, Completion, Known, Session, WhyNot, send_message};

impl Session {
    pub(super) fn new_table_call(&mut self, kind: Kind, now: Tick, name: &str, out: &mut Effects) -> CallId {
        let _ = &out;
        let has_room = self.calls.has_room(name.len());
        let slot = self.insert(kind, now, None, |bytes| bytes.extend_from_slice(name.as_bytes()));
        let id = self.calls.id(slot);
        if name.is_empty() || name.len() > TABLE_NAME_BYTES_MAX {
            let why = format!("a table's name has 1 to {TABLE_NAME_BYTES_MAX} bytes; choose another");
            self.end(slot, Completion::Table(TableOutcome::Refused(why)));
        } else if has_room {
            self.tables.push_back(id);
        } else {
            self.end(slot, Completion::NotExecuted(WhyNot::Overloaded));
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
            if !self.calls[slot].sent && self.numbered.is_some() {
                self.table_sequence += 1;
                self.send_table_request(slot, now, out);
            }
            return;
        }
    }

    pub(super) fn send_table_request(&mut self, slot: usize, now: Tick, out: &mut Effects) {
        let client = self.client().expect("table requests under way end with their client");
        let patience = self.patience(self.calls[slot].silent);
        let call = &mut self.calls[slot];
        (call.sent, call.attempts) = (true, call.attempts + 1);
        call.silent += 1;
        call.stage = Stage::Backoff { for_configuration: false };
        call.resume = now.after(patience);
        let name = String::from_utf8(call.bytes.clone()).expect("it was a text");
        let command = match call.kind {
            Kind::CreateTable => TableCommand::Create(name),
            Kind::DropTable => TableCommand::Drop(name),
            other => unreachable!("{other:?} in the queue of table requests"),
        };
        let message = Message::TableRequest { client, sequence: self.table_sequence, command };
        send_message(Endpoint::Coordinator, &message, out);
        self.timers.arm(&mut self.calls, slot);
    }

    pub(super) fn on_table_answer(&mut self, client: ClientId, sequence: u64, outcome: TableOutcome) -> Known {
        let slot = self.tables.front().and_then(|&front| self.calls.find(front));
        match slot {
            Some(slot) if self.client() == Some(client) && sequence == self.table_sequence && self.calls[slot].sent => {
                self.tables.pop_front();
                self.cluster.want_configuration();
                self.end(slot, Completion::Table(outcome));
                Known::Yes
            }
            _ => Known::No,
        }
    }
}
