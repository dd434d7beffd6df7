//! How long a value of three seconds lives that a connected client puts after five restarts of the coordinator, half a second apart.
//!
//! Each restart used to move ClusterTime ahead, and a connected client did not hear of it before it renewed its lease.

use std::thread::sleep;
use std::time::Duration;

use kasha_client::session::Session;
use kasha_runtime::EventLoop;
use kasha_types::TableId;

use crate::children::{COORDINATOR, Children};
use crate::client::{Connect, create_table};
use crate::harness::Run;
use crate::harness::lifetime::Ending;
use crate::section::{Cell, Section, Table};

const RESTARTS: u32 = 5;
const APART: Duration = Duration::from_millis(500);
const LIFETIME: Duration = Duration::from_secs(3);
/// The coordinator's node comes back, and its shards have all their members again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Puts a value that ends, and looks until it is gone. Returns how long it was there.
fn lives(client: &mut EventLoop<Session>, table: TableId, key: &str) -> anyhow::Result<Duration> {
    Ending::put(client, table, key, LIFETIME)?.wait(client, table)
}

pub(super) fn run(run: &Run<'_>, section: &mut Section) -> anyhow::Result<()> {
    let mut children = Children::start(run.spec("lifetimes", 1))?;
    let mut client = Connect::new("lifetimes", children.seeds()).open()?;
    let table = create_table(&mut client, "lifetimes")?;
    let before = lives(&mut client, table, "before")?;
    for _ in 0..RESTARTS {
        children.kill(COORDINATOR)?;
        children.restart(COORDINATOR)?;
        sleep(APART);
    }
    children.heal(PATIENCE)?;
    let after = lives(&mut client, table, "after")?;
    let mut found = Table::new("A value of 3 s by a connected client", &["", "it lived for, s"]);
    found.row([Cell::from("before"), Cell::Number(before.as_secs_f64(), 3)]);
    found.row([Cell::from("after five restarts of the coordinator"), Cell::Number(after.as_secs_f64(), 3)]);
    section.tables.push(found);
    section.ratio("outsiders.lifetime_after_restarts.seconds", after.as_secs_f64());
    Ok(())
}
