//! Kasha: three `kasha server` processes with the default settings (except `--spin`), and the client that programs use.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Context;
use kasha_client::{Client, Table};
use kasha_wire::Durability;
use tokio::runtime::Runtime;

use super::load::{self, Load, Round};
use super::report::Mode;
use super::servers::{Place, Servers};
use super::{RivalsOptions, SERVERS};
use crate::children::program_beside;
use crate::client::is_whole;
use crate::limits;

/// The coordinator's port; clusters use the ones after it.
const FIRST_PORT: u16 = 7000;

const TABLE: &str = "rivals";

/// A running cluster and its clients.
pub(super) struct Kasha {
    clients: Vec<(Client, Table)>,
    pub(super) servers: Servers,
}

impl Kasha {
    pub(super) fn start(
        options: &RivalsOptions,
        place: &Place<'_>,
        runtime: &Runtime,
        mode: Mode,
    ) -> anyhow::Result<Self> {
        let (faults, durability) = match mode {
            Mode::KashaFsync => (1, Durability::Fsync),
            Mode::KashaF2 => (2, Durability::Replicated),
            Mode::KashaF1 | Mode::Etcd | Mode::RedisWait1 | Mode::RedisWait2 => (1, Durability::Replicated),
        };
        // Clusters share the hosts.
        let port = FIRST_PORT + 2 * mode as u16;
        let mut servers = start(place, &options.exe, mode, port, faults, durability)?;
        let seeds: Vec<String> = (0..SERVERS).map(|host| place.address(host, port + 1).to_string()).collect();
        let mut first = None;
        servers.wait(|| {
            runtime.block_on(async {
                if first.is_none() {
                    first = Some(Client::connect(&seeds).await?);
                }
                let client = first.as_ref().expect("connected");
                Ok(is_whole(&client.fresh_configuration().await?))
            })
        })?;
        let first = first.context("a cluster that is whole was asked")?;
        let clients = runtime.block_on(async {
            let mut clients = vec![(first.clone(), first.create_table(TABLE).await?)];
            while clients.len() < options.clients() {
                let client = Client::connect(&seeds).await?;
                let table = client.table(TABLE).await?;
                clients.push((client, table));
            }
            anyhow::Ok(clients)
        });
        Ok(Self { clients: clients?, servers })
    }

    pub(super) fn round(&mut self, runtime: &Runtime, load: &Load) -> anyhow::Result<Round> {
        let before = runtime.block_on(self.fast())?;
        let round = load::run(runtime, load, |caller, end| {
            let (mut keys, value) = (load.keys(caller), load.value.clone());
            let table = self.clients[load.client(caller)].1.clone();
            async move {
                let mut latencies = Vec::new();
                while !end.has_come(&latencies) {
                    let start = Instant::now();
                    table.put(keys.draw(), &value).deadline(limits::OPERATION).await?;
                    latencies.push(load::nanos_since(start));
                }
                Ok(latencies)
            }
        })?;
        Ok(Round { fast: runtime.block_on(self.fast())? - before, ..round })
    }

    /// Updates so far that took one round trip.
    async fn fast(&self) -> anyhow::Result<u64> {
        let mut fast = 0;
        for (client, _) in &self.clients {
            fast += client.stats().await?.fast;
        }
        Ok(fast)
    }
}

fn start(
    place: &Place<'_>,
    exe: &Path,
    mode: Mode,
    port: u16,
    faults: u8,
    durability: Durability,
) -> anyhow::Result<Servers> {
    let mut servers = Servers::new(mode.name(), &place.folder);
    let durability = match durability {
        Durability::Replicated => "replicated",
        Durability::Fsync => "fsync",
    };
    for host in 0..SERVERS {
        let mut command = Command::new(program_beside(exe)?);
        command.arg("server").arg("--data").arg(place.folder(mode.name(), host)?);
        command.args(["--node", &(host + 1).to_string()]);
        command.args(["--listen", &place.address(host, port + 1).to_string()]);
        command.args(["--coordinator", &place.address(0, port).to_string()]);
        // The default is for a server that has processors of its own. Here it would spin on processors that all
        // processes share.
        command.args(["--spin", "0"]);
        if host == 0 {
            command.args(["--host-coordinator", "--nodes", &SERVERS.to_string(), "--shards", "1"]);
            command.args(["--faults", &faults.to_string(), "--durability", durability]);
        }
        servers.spawn(place, command)?;
    }
    Ok(servers)
}
