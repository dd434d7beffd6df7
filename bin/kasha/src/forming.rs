//! Waiting for a new cluster to serve.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use kasha_client::{Client, ClientOptions};
use kasha_types::ClusterId;
use kasha_wire::ShardPhase;

use crate::stopping::StopRequest;

/// How often it is checked whether this cluster can still come up.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How the wait for a cluster ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Formed {
    Serving,
    AskedToStop,
}

/// Waits until every shard serves, the operator asks to stop, or `check` fails. If that takes long, prints what it waits for.
pub fn wait_until_serving(
    cluster: ClusterId,
    members: &[SocketAddr],
    asked: &StopRequest,
    mut check: impl FnMut() -> Result<()>,
) -> Result<Formed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Another cluster may listen at these addresses by now.
        let connect_timeout = Duration::from_secs(60);
        let options = ClientOptions { connect_timeout, cluster: Some(cluster), ..ClientOptions::default() };
        let mut connecting = std::pin::pin!(Client::connect_with(members.iter().map(ToString::to_string), options));
        let client = loop {
            match tokio::time::timeout(Duration::from_millis(50), &mut connecting).await {
                Ok(client) => break client.context("the cluster does not come up")?,
                Err(_) if asked.came() => return Ok(Formed::AskedToStop),
                Err(_) => check()?,
            }
        };
        let mut told = std::time::Instant::now();
        loop {
            if asked.came() {
                return Ok(Formed::AskedToStop);
            }
            check()?;
            // A coordinator that has lost its memory tells no configuration (R9.13).
            let Ok(configuration) = tokio::time::timeout(LOOK_EVERY, client.fresh_configuration()).await else {
                continue;
            };
            let configuration = configuration?;
            let waiting: Vec<_> = configuration
                .shards
                .iter()
                .filter(|shard| shard.phase != ShardPhase::Serving)
                .map(|s| s.shard)
                .collect();
            if !configuration.shards.is_empty() && waiting.is_empty() {
                return Ok(Formed::Serving);
            }
            if told.elapsed() > Duration::from_secs(3) {
                told = std::time::Instant::now();
                let _ = writeln!(
                    crate::stderr::Log,
                    "kasha: waiting for {waiting:?} to be recovered; `kasha status` shows what each waits for"
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}
