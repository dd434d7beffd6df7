//! Orders to the coordinator that say what is to be. An order is given again until it is so: whoever leads by then sees to it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kasha_client::Client;
use kasha_runtime::say;
use kasha_types::NodeId;
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

/// What `kasha start` orders when its cluster serves, once: the level of its release, since all processes are of it; and no members that
/// are gone with their folders, so that others take their places at once. If nothing comes of it, the group does the rest by itself later.
pub fn of_a_start(members: &[SocketAddr], lost: &[u16]) {
    let removed = lost.iter().map(|&node| AdminOrder::RemoveMember(NodeId(node)));
    for order in [AdminOrder::Finalize].into_iter().chain(removed) {
        let given = configuration(members).and_then(|known| Talk::ask_leader(&known, &Administer { nonce: 1, order }));
        if let Err(error) = given {
            tracing::warn!("{order:?} was not heard by the coordinator: {error:#}");
        }
    }
}

fn configuration(members: &[SocketAddr]) -> Result<Configuration> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::connect(members.iter().map(ToString::to_string)).await?;
        Ok(client.fresh_configuration().await?)
    })
}
