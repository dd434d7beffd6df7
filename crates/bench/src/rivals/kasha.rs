//! Kasha: three `kasha server`, as they are shipped, and one session with a call under way for each caller.

use std::path::Path as FilePath;
use std::process::Command;
use std::time::Instant;

use anyhow::bail;
use kasha_client::Path;
use kasha_client::session::{CallId, CallOptions, Completion, Session};
use kasha_machine::Effects;
use kasha_runtime::{Application, Clock, Control, EventLoop};
use kasha_types::{TableId, Tick};
use kasha_wire::{Durability, Update};

use super::load::{Keys, Load, Round};
use super::report::Mode;
use super::servers::{Place, Servers};
use super::{SERVERS, load};
use crate::client::{Connect, create_table, is_whole, look};
use crate::limits;

/// The coordinator's port; clusters use the ones after it.
const FIRST_PORT: u16 = 7000;

/// A running cluster and its client.
pub(super) struct Kasha {
    // Dropped first: it talks to the servers.
    client: EventLoop<Session>,
    table: TableId,
    pub(super) servers: Servers,
}

impl Kasha {
    pub(super) fn start(
        place: &Place<'_>,
        exe: &FilePath,
        mode: Mode,
        faults: u8,
        durability: Durability,
    ) -> anyhow::Result<Self> {
        // Clusters share the hosts.
        let port = FIRST_PORT + 2 * mode as u16;
        let mut servers = Servers::new(mode.name(), place);
        for host in 0..SERVERS {
            let mut command = Command::new(exe);
            let durability = match durability {
                Durability::Replicated => "replicated",
                Durability::Fsync => "fsync",
            };
            command.arg("server").arg("--data").arg(place.folder(mode.name(), host)?);
            command.args(["--node", &(host + 1).to_string()]);
            command.args(["--listen", &place.address(host, port + 1).to_string()]);
            command.args(["--coordinator", &place.address(0, port).to_string()]);
            if host == 0 {
                command.args(["--host-coordinator", "--nodes", &SERVERS.to_string(), "--shards", "1"]);
                command.args(["--faults", &faults.to_string(), "--durability", durability]);
            }
            servers.spawn(place, command)?;
        }
        let mut connect = Connect::new(mode.name(), (0..SERVERS).map(|host| place.address(host, port + 1)).collect());
        connect.session.deadline = limits::OPERATION;
        let mut client = connect.open()?;
        servers.wait(|| {
            look(&mut client, limits::LOOK)?;
            let session = client.machine();
            Ok(session.is_open() && session.configuration().is_some_and(is_whole))
        })?;
        let table = create_table(&mut client, "rivals")?;
        Ok(Self { client, table, servers })
    }

    pub(super) fn round(&mut self, load: &Load) -> anyhow::Result<Round> {
        let start = Instant::now();
        let callers = (0..load.clients).map(|client| Caller { keys: load.keys(client), under_way: None }).collect();
        let mut calling = Calling {
            table: self.table,
            load,
            end: start + load.time,
            callers,
            round: Round::default(),
            failure: None,
        };
        self.client.run(&mut calling)?;
        if let Some(failure) = calling.failure {
            bail!("an update was not executed: {failure}");
        }
        Ok(Round { time: start.elapsed(), ..calling.round })
    }
}

#[derive(Debug)]
struct Caller {
    keys: Keys,
    under_way: Option<(CallId, Instant)>,
}

struct Calling<'a> {
    table: TableId,
    load: &'a Load,
    end: Instant,
    callers: Vec<Caller>,
    round: Round,
    failure: Option<String>,
}

impl Calling<'_> {
    fn on_completed(&mut self, call: CallId, completion: Completion, session: &mut Session) {
        let is_its = |caller: &&mut Caller| matches!(caller.under_way, Some((its, _)) if its == call);
        let Some(caller) = self.callers.iter_mut().find(is_its) else { return };
        let Some((_, started)) = caller.under_way.take() else { return };
        match completion {
            Completion::Executed { result, path, .. } => {
                session.recycle(result);
                self.round.latencies.push(load::nanos_since(started));
                self.round.fast += u64::from(path == Path::Fast);
            }
            other => self.failure = Some(format!("{other:?}")),
        }
    }
}

impl Application<Session> for Calling<'_> {
    fn turn(&mut self, _: Tick, session: &mut Session, out: &mut Effects) -> Control {
        while let Some((call, completion)) = session.poll_completed() {
            self.on_completed(call, completion, session);
        }
        if self.failure.is_some() {
            return Control::Exit;
        }
        if Instant::now() < self.end {
            for caller in self.callers.iter_mut().filter(|caller| caller.under_way.is_none()) {
                let update = Update::Put { key: caller.keys.draw().as_bytes(), value: &self.load.value };
                let started = Instant::now();
                let call = session.update(Clock::now(), self.table, &update, &CallOptions::default(), out);
                caller.under_way = Some((call, started));
            }
        }
        if self.callers.iter().all(|caller| caller.under_way.is_none()) { Control::Exit } else { Control::Continue }
    }
}
