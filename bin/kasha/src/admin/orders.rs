//! Orders to the coordinator that say what is to be. An order is given again until it is so: whoever leads by then sees to it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kasha_client::{Client, ClientOptions};
use kasha_runtime::say;
use kasha_types::{ClusterId, NodeId};
use kasha_wire::Configuration;
use kasha_wire::link::ToOperator;
use kasha_wire::message::{AdminOrder, AdminOutcome, Administer, Administered, Goodbye};

use crate::talk::Talk;

/// How long the command waits. What has begun goes on without it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(200);

/// Gives the order, says what it waits for whenever that is something else, and ends when the order is done.
pub fn run(configuration: &Configuration, order: AdminOrder) -> Result<()> {
    let (began, mut said) = (Instant::now(), String::new());
    loop {
        let news = match Talk::ask_leader(configuration, &Administer { nonce: 1, order }) {
            Ok(ToOperator::Administered(Administered { outcome, .. })) => match outcome {
                AdminOutcome::Done(text) => {
                    say!("{text}");
                    return Ok(());
                }
                AdminOutcome::Refused(why) => bail!("{why}"),
                AdminOutcome::Later(text) => text,
            },
            Ok(ToOperator::Goodbye(Goodbye { reason })) => bail!("{reason}"),
            Ok(ToOperator::NotLeader(_)) => "the coordinator's group elects a leader".to_owned(),
            Ok(ToOperator::GivenUp(_)) => {
                bail!("the coordinator answers something else: run the same version on both sides (K0206)")
            }
            Err(error) => format!("the coordinator does not answer ({error:#})"),
        };
        if began.elapsed() > PATIENCE {
            bail!(
                "not done yet: {news}. What has begun goes on by itself: see kasha status --verbose, or give the command again (K0510)"
            );
        }
        if news != said {
            say!("{news} …");
            said = news;
        }
        std::thread::sleep(PAUSE);
    }
}

/// What `kasha start` orders when its cluster serves: no members that are gone with their folders, so that others take their places at once; and
/// the level of its release, since all processes are of it, for which all members are asked that there are. That goes on beside everything else,
/// and nothing waits for it: what does not come of it the group does by itself later.
pub fn of_a_start(cluster: ClusterId, members: Vec<SocketAddr>, lost: &[u16]) {
    let removed = lost.iter().map(|&node| AdminOrder::RemoveLost(NodeId(node)));
    let orders: Vec<_> = removed.chain([AdminOrder::Finalize]).collect();
    let gives = move || {
        for order in orders {
            if let Err(error) = give(cluster, &members, order) {
                tracing::warn!("{order:?}: {error:#}");
            }
        }
    };
    let _ = std::thread::Builder::new().name("orders".to_owned()).spawn(gives);
}

fn give(cluster: ClusterId, members: &[SocketAddr], order: AdminOrder) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let options = ClientOptions { cluster: Some(cluster), ..ClientOptions::default() };
    let configuration = runtime.block_on(async {
        let client = Client::connect_with(members.iter().map(ToString::to_string), options).await?;
        Ok::<_, anyhow::Error>(tokio::time::timeout(PATIENCE, client.fresh_configuration()).await??)
    })?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        match Talk::ask_leader(&configuration, &Administer { nonce: 1, order }) {
            Ok(ToOperator::Administered(Administered { outcome, .. })) => match outcome {
                AdminOutcome::Done(_) => return Ok(()),
                AdminOutcome::Refused(why) => bail!("{why}"),
                AdminOutcome::Later(_) => {}
            },
            Ok(ToOperator::Goodbye(_) | ToOperator::NotLeader(_) | ToOperator::GivenUp(_)) | Err(_) => {}
        }
        std::thread::sleep(PAUSE);
    }
    bail!("not done within {PATIENCE:?}; what has begun goes on by itself")
}
