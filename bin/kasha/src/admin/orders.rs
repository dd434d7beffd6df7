//! Orders to the coordinator that say what is to be. An order is given again until it is so: whoever leads by then sees to it.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kasha_runtime::say;
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
