//! The tables of the databases: found, or made when they are first needed.

use std::collections::BTreeMap;

use kasha_client::session::{CallId, Completion, Session};
use kasha_machine::Effects;
use kasha_types::{TableId, Tick};
use kasha_wire::message::{Placement, TableOutcome};

/// The databases that `SELECT` knows.
pub const DATABASES: u8 = 16;

/// How far a table has come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The session asks for the newest configuration: the table may be there.
    Looked,
    /// It is made.
    Made,
    /// The session asks for the configuration that has it.
    Heard,
}

/// What became of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// More has to come.
    NotYet(CallId),
    /// It is there.
    There,
    /// It is not, for this reason.
    Not(String),
}

/// Tables that are looked for: one call for each, however many connections wait for it.
#[derive(Debug, Default)]
pub struct Tables {
    placement: Placement,
    looked_for: BTreeMap<u8, Stage>,
}

/// The name of a database's table.
fn name(database: u8) -> String {
    format!("redis:{database}")
}

/// The table of a database, as far as the session knows.
pub fn table(database: u8, session: &Session) -> Option<TableId> {
    let name = name(database);
    session.configuration()?.tables.iter().find(|info| info.name == name).map(|info| info.table)
}

impl Tables {
    /// Databases that are made are placed like this.
    pub fn new(placement: Placement) -> Self {
        Self { placement, looked_for: BTreeMap::new() }
    }

    /// Looks for a table, unless that is under way.
    pub fn look_for(&mut self, now: Tick, database: u8, session: &mut Session, out: &mut Effects) -> Option<CallId> {
        if self.looked_for.contains_key(&database) {
            return None;
        }
        self.looked_for.insert(database, Stage::Looked);
        Some(session.refresh(now, out))
    }

    /// A call for a table has ended.
    pub fn on_completed(
        &mut self,
        now: Tick,
        database: u8,
        completion: &Completion,
        session: &mut Session,
        out: &mut Effects,
    ) -> Found {
        let stage = self.looked_for.get(&database).cloned().expect("it is looked for");
        let is_there = table(database, session).is_some();
        let next = match (stage, completion) {
            (_, Completion::Refreshed) if is_there => Err(Found::There),
            (Stage::Looked, Completion::Refreshed) => {
                Ok((Stage::Made, session.create_table_at(now, &name(database), self.placement, out)))
            }
            (Stage::Made, Completion::Table(TableOutcome::Created(_) | TableOutcome::Exists(_))) => {
                Ok((Stage::Heard, session.refresh(now, out)))
            }
            (Stage::Made, Completion::Table(TableOutcome::Refused(why))) => Err(Found::Not(format!("ERR {why}"))),
            _ => Err(Found::Not("TRYAGAIN the cluster does not answer; nothing was executed".to_owned())),
        };
        match next {
            Ok((stage, call)) => {
                self.looked_for.insert(database, stage);
                Found::NotYet(call)
            }
            Err(found) => {
                self.looked_for.remove(&database);
                found
            }
        }
    }
}
