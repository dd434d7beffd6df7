//! `kasha admin`: what only an operator may decide.

use std::io::{BufRead, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use kasha_bench::say;
use kasha_types::ShardId;
use kasha_wire::{Configuration, Message, ShardConfig, ShardPhase};

use crate::cli::{Address, connect};
use crate::talk::Talk;

#[derive(Args)]
pub struct AdminArguments {
    #[command(flatten)]
    cluster: Address,
    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Subcommand)]
enum AdminCommand {
    /// Let a shard's recovery go on without the witnesses that it waits for. Updates may be lost; says which, and asks.
    GiveUpWitnesses {
        /// The shard's number, as `kasha status` shows it.
        #[arg(long)]
        shard: u16,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}

pub fn run(arguments: &AdminArguments) -> Result<()> {
    let AdminCommand::GiveUpWitnesses { shard, yes } = arguments.command;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let configuration = runtime.block_on(async {
        let client = connect(&arguments.cluster, Duration::from_secs(10)).await?;
        let fresh = tokio::time::timeout(Duration::from_secs(2), client.fresh_configuration()).await;
        fresh
            .ok()
            .and_then(Result::ok)
            .context("the coordinator does not answer, and without it no shard recovers: start it first (K0406)")
    })?;
    let config = (configuration.shard(ShardId(shard))).with_context(|| format!("there is no shard-{shard} (K0506)"))?;
    if config.phase == ShardPhase::Serving {
        bail!("shard-{shard} serves: there is nothing to give up (K0506)");
    }
    say!("{}", warning(config));
    if !yes && !is_confirmed(config.shard)? {
        bail!("nothing was changed");
    }
    give_up(&configuration, config)
}

/// What the command does, and what may be lost by it.
fn warning(config: &ShardConfig) -> String {
    let witnesses: Vec<String> = config.witnesses.iter().map(ToString::to_string).collect();
    let instead = config.served.map_or(String::new(), |served| {
        format!(
            "Start {} instead if you can: it was the last primary, and its files hold every update that was answered.\n",
            served.primary
        )
    });
    format!(
        "The recovery of {} waits for a witness of {}: {}. Giving them up lets it go on with what its members hold.\n\
         {instead}\
         What may be lost: updates that clients were told are executed, in one round trip, and that no backup had yet. That \
         is the last few milliseconds before the last primary stopped, or more if it was cut off from its backups. What \
         was on the backups is not lost, and nothing is executed twice.\n\
         Make sure that the last primary and these witnesses are down, or stay down until the shard serves.",
        config.shard,
        config.list,
        witnesses.join(", "),
    )
}

fn is_confirmed(shard: ShardId) -> Result<bool> {
    let mut out = std::io::stdout();
    write!(out, "Type {shard} to go on: ")?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim() == shard.to_string())
}

fn give_up(configuration: &Configuration, config: &ShardConfig) -> Result<()> {
    let mut talk = Talk::connect(configuration.coordinator).context("the coordinator does not answer (K0406)")?;
    let question = Message::GiveUpWitnesses { nonce: 1, shard: config.shard, list: config.list };
    match talk.ask(&question)? {
        Message::WitnessesGivenUp { refused: None, .. } => {
            say!("{} goes on without its witnesses: see kasha status", config.shard);
            Ok(())
        }
        Message::WitnessesGivenUp { refused: Some(why), .. } => bail!("{why}"),
        Message::Goodbye { reason } => bail!("{reason}"),
        other => bail!("the coordinator answered {}: run the same version on both sides (K0206)", other.name()),
    }
}
