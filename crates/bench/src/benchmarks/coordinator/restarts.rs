//! All members are killed and started again, five times within one boot: a value that spans all of that must not end too soon.
//!
//! Its primary, and the client that put it, go on meanwhile. Each restart that moved ClusterTime ahead would take from the value.

use std::thread::sleep;
use std::time::Duration;

use anyhow::ensure;

use super::apart::Apart;
use crate::harness::Run;
use crate::harness::lifetime::Ending;
use crate::limits;
use crate::section::{Cell, Section, Table};

const RESTARTS: u32 = 5;
/// Between the first answer of a leader and the next kill.
const APART: Duration = Duration::from_millis(300);
/// Longer than the restarts take.
const LIFETIME: Duration = Duration::from_secs(8);
/// That of a value that the same client puts afterwards.
const LIFETIME_AFTER: Duration = Duration::from_secs(1);

pub(super) fn measure(run: &Run<'_>, apart: &mut Apart, section: &mut Section) -> anyhow::Result<()> {
    let value = Ending::put(&mut apart.client, apart.table, "restarts", LIFETIME)?;
    let members: Vec<_> = apart.group().nodes().collect();
    let mut table = Table::new("All members are killed and started again", &["", "s to a leader", "longer by ms"]);
    for restart in 1..=RESTARTS {
        run.say(&format!("all members are killed and started again for the {restart}. time"));
        members.iter().try_for_each(|&member| apart.arm.children.kill(member))?;
        let killed = kasha_runtime::Clock::now();
        members.iter().try_for_each(|&member| apart.arm.children.restart(member))?;
        let (_, led) = apart.group().wait_for_leader(limits::REPAIR)?;
        let seconds = led.since(killed).as_secs_f64();
        table.row([Cell::from(format!("restart {restart}")), Cell::Number(seconds, 2), Cell::Nothing]);
        sleep(APART);
    }
    let took = value.age();
    ensure!(took < LIFETIME, "the restarts took {took:?}: a value of {LIFETIME:?} does not span them");
    let by = value.longer_by_ms(value.wait(&mut apart.client, apart.table)?);
    table.row([
        Cell::from(format!("a value of {LIFETIME:?} that spans all of them")),
        Cell::Nothing,
        Cell::Number(by, 1),
    ]);
    apart.heal()?;
    let value = Ending::put(&mut apart.client, apart.table, "after restarts", LIFETIME_AFTER)?;
    let after = value.longer_by_ms(value.wait(&mut apart.client, apart.table)?);
    table.row([Cell::from(format!("a value of {LIFETIME_AFTER:?} afterwards")), Cell::Nothing, Cell::Number(after, 1)]);
    section.tables.push(table);
    section.ratio("coordinator.restarts.lifetime_shorter_by_ms", (-by).max(0.0));
    section.ratio("coordinator.restarts.lifetime_longer_by_ms", by.max(0.0));
    section.ratio("coordinator.restarts.lifetime_afterwards_off_by_ms", after.abs());
    Ok(())
}
