//! `kasha status`: what a cluster is doing. docs/running.md explains the columns and the states.
//!
//! All cores are asked at once. A core that does not answer in time is silent, and its shards are not well.

mod health;
mod json;
mod screen;
mod table;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, ValueEnum};
use kasha_client::Client;
use kasha_runtime::say;
use kasha_types::CoreId;
use kasha_wire::GroupMember;
use tokio::task::JoinSet;

use self::health::{Cluster, Core};
use crate::connect::{Address, connect, connect_at_once};
use crate::stderr::complain;
use crate::talk::Talk;

#[derive(Args)]
pub struct StatusArguments {
    #[command(flatten)]
    cluster: Address,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print all that primaries and event loops count, too.
    #[arg(long, short)]
    verbose: bool,
    /// Wait until the cluster is there and every shard is healthy; say on standard error what is waited for.
    #[arg(long)]
    wait: Option<WaitFor>,
    /// How long to wait at most.
    #[arg(long, default_value = "60s", value_parser = crate::duration::parse, requires = "wait")]
    wait_at_most: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WaitFor {
    /// Every shard is healthy, and the coordinator answers.
    Healthy,
}

/// Whether all is well; the exit code depends on it.
pub enum IsWell {
    Yes,
    No,
}

/// How long a core may take to answer with its status.
const PATIENCE: Duration = Duration::from_millis(1500);
/// The same for a core that the coordinator calls lost.
const PATIENCE_WITH_LOST: Duration = Duration::from_millis(200);
/// Between two looks while waiting.
const LOOKS_EVERY: Duration = Duration::from_millis(250);
/// The width if nobody says how wide the terminal is.
const WIDTH: usize = 120;
/// In less than that nothing can be read.
const WIDTH_MIN: usize = 20;

pub fn run(arguments: &StatusArguments) -> Result<IsWell> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cluster = runtime.block_on(async {
        match arguments.wait {
            Some(WaitFor::Healthy) => wait_until_healthy(arguments).await,
            None => {
                let client = connect(&arguments.cluster, Duration::from_secs(10)).await?;
                look(&client, arguments).await
            }
        }
    })?;
    if arguments.json {
        say!("{:#}", json::to_json(&cluster));
    } else {
        let width = width();
        let rest = if arguments.verbose { screen::rest(&cluster, width) + "\n" } else { String::new() };
        say!("{}", (rest + &screen::first(&cluster, width)).trim_end());
    }
    Ok(if cluster.is_well() { IsWell::Yes } else { IsWell::No })
}

/// The width of the terminal: what `COLUMNS` says, or the terminal itself.
fn width() -> usize {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    let of_terminal = || {
        let out = std::io::stdout();
        let size = if out.is_terminal() { rustix::termios::tcgetwinsize(&out).ok() } else { None };
        size.map(|size| usize::from(size.ws_col))
    };
    said.or_else(of_terminal).filter(|&width| width > 0).map_or(WIDTH, |width| width.max(WIDTH_MIN))
}

/// Looks again and again, and says what it waits for whenever that changes.
async fn wait_until_healthy(arguments: &StatusArguments) -> Result<Cluster> {
    let until = Instant::now() + arguments.wait_at_most;
    let (mut client, mut told) = (None, String::new());
    loop {
        let looked = match &client {
            Some(client) => look(client, arguments).await,
            None => match connect_at_once(&arguments.cluster).await {
                Ok(new) => look(client.insert(new), arguments).await,
                Err(error) => Err(error),
            },
        };
        let is_over = Instant::now() >= until;
        let waits_for = match &looked {
            Ok(cluster) if cluster.is_well() => return looked,
            Ok(cluster) => cluster.summary(),
            Err(_) => "no cluster answers yet".to_owned(),
        };
        if waits_for != told {
            complain(&format!("waiting: {waits_for}"));
            told = waits_for;
        }
        if is_over {
            return looked;
        }
        tokio::time::sleep(LOOKS_EVERY.min(until.saturating_duration_since(Instant::now()))).await;
    }
}

/// What the coordinator and all cores say now.
async fn look(client: &Client, arguments: &StatusArguments) -> Result<Cluster> {
    let fresh = tokio::time::timeout(PATIENCE, client.fresh_configuration()).await;
    let (configuration, coordinator) = match fresh {
        Ok(Ok(configuration)) => (configuration, true),
        Ok(Err(_)) | Err(_) => match client.configuration().await? {
            Some(configuration) => (configuration, false),
            None => anyhow::bail!("nobody knows the cluster's configuration yet: try again when it is up (K0208)"),
        },
    };
    let with_turns = arguments.json || arguments.verbose;
    let mut asked = JoinSet::new();
    for info in &configuration.nodes {
        let is_lost = coordinator && !info.alive;
        let patience = if is_lost { PATIENCE_WITH_LOST } else { PATIENCE };
        for (core, _) in (0..).zip(&info.cores) {
            asked.spawn(ask(client.clone(), CoreId { node: info.node, core }, patience, with_turns));
        }
    }
    let mut members = JoinSet::new();
    let has_answered = |of: &GroupMember| coordinator && of.address == configuration.coordinator;
    for of in configuration.group.iter().filter(|of| configuration.group.len() > 1 && !has_answered(of)) {
        let (of, cluster) = (*of, configuration.cluster);
        members.spawn_blocking(move || (of.member, Talk::is_there(of.address, cluster)));
    }
    let cores = asked.join_all().await.into_iter().flatten().map(|core| (core.status.core, core)).collect();
    let answered = members.join_all().await;
    let silent_members = answered.into_iter().filter(|(_, is_there)| !is_there).map(|(member, _)| member).collect();
    let mut cluster = Cluster { configuration, coordinator, cores, silent_members };
    let mut again = JoinSet::new();
    for core in cluster.to_be_asked_again() {
        again.spawn(ask(client.clone(), core, PATIENCE, false));
    }
    for core in again.join_all().await.into_iter().flatten() {
        cluster.is_newer(core.status);
    }
    Ok(cluster)
}

/// What a core says of itself, if it answers in time.
async fn ask(client: Client, core: CoreId, patience: Duration, with_turns: bool) -> Option<Core> {
    let status = tokio::time::timeout(patience, client.status(core)).await.ok()?.ok()?;
    let turns = match with_turns {
        true => tokio::time::timeout(patience, client.turns(core)).await.ok().and_then(Result::ok),
        false => None,
    };
    Some(Core { status, turns })
}
