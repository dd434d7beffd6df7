//! The program of redis-rs: see ../README.md.

// A program: the clock is its business.
#![allow(clippy::disallowed_methods)]

mod counting;
mod steps;

use std::process::ExitCode;

use redis::Client;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

const DRIVER: &str = "redis-rs";

/// The driver does not tell its version; the manifest asks for exactly this one.
const VERSION: &str = "1.8.1";

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn steps(client: &Client, features: &[String]) -> Result<ExitCode, Failure> {
    let mut one = client.get_multiplexed_async_connection().await?;
    let mut other = client.get_multiplexed_async_connection().await?;
    let (mut passed, mut skipped, mut failed) = (Vec::new(), Vec::new(), serde_json::Map::new());
    for step in steps::ALL {
        if step == "scan" && !features.iter().any(|feature| feature == "scan") {
            skipped.push(step);
            continue;
        }
        match steps::run(step, &mut one, &mut other).await {
            Ok(()) => passed.push(step),
            Err(why) => drop(failed.insert(step.into(), why.to_string().into())),
        }
    }
    let code = if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let said = json!({"driver": DRIVER, "version": VERSION, "passed": passed, "skipped": skipped, "failed": failed});
    println!("{said}");
    Ok(code)
}

/// The driver repeats no command by itself, so nothing has to be switched off.
async fn incr(client: &Client, connections: usize) -> Result<ExitCode, Failure> {
    let mut managers = Vec::new();
    for _ in 0..connections {
        managers.push(client.get_connection_manager().await?);
    }
    println!("{}", json!({"driver": DRIVER, "version": VERSION, "connections": connections}));
    let mut lines = BufReader::new(stdin()).lines();
    let mut round = None;
    while let Some(line) = lines.next_line().await? {
        if let Some(prefix) = line.strip_prefix("count ") {
            round = Some(counting::Round::begin(&managers, prefix));
        } else if let Some(round) = round.take() {
            println!("{}", round.stop().await?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[tokio::main]
async fn main() -> Result<ExitCode, Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [mode, host, port, features @ ..] if mode == "steps" => {
            steps(&Client::open(format!("redis://{host}:{port}"))?, features).await
        }
        [mode, host, port, connections, _repeats] if mode == "incr" => {
            incr(&Client::open(format!("redis://{host}:{port}"))?, connections.parse()?).await
        }
        _ => Err("usage: steps HOST PORT [FEATURE…] | incr HOST PORT CONNECTIONS default|off".into()),
    }
}
