//! One round: every connection counts until it is stopped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::ConnectionManager;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::{DRIVER, Failure};

#[derive(Default)]
struct Tally {
    acknowledged: i64,
    unknown: i64,
    gave_up: i64,
    refused: i64,
    astray: i64,
}

impl Tally {
    fn to_json(&self) -> Value {
        let Self { acknowledged, unknown, gave_up, refused, astray } = self;
        json!({"acknowledged": acknowledged, "unknown": unknown, "gave_up": gave_up, "refused": refused, "astray": astray})
    }

    fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.gave_up += other.gave_up;
        self.refused += other.refused;
    }
}

/// What one connection was told.
#[derive(Default)]
struct Told {
    own: Tally,
    shared: Tally,
    errors: BTreeMap<String, u64>,
}

pub struct Round {
    stopped: Arc<AtomicBool>,
    connections: Vec<JoinHandle<Told>>,
}

impl Round {
    pub fn begin(managers: &[ConnectionManager], prefix: &str) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let begin = |(number, manager): (usize, &ConnectionManager)| {
            let own = format!("{prefix}:{DRIVER}:{number}");
            tokio::spawn(count(manager.clone(), own, format!("{prefix}:shared"), Arc::clone(&stopped)))
        };
        let connections = managers.iter().enumerate().map(begin).collect();
        Self { stopped, connections }
    }

    pub async fn stop(self) -> Result<Value, Failure> {
        self.stopped.store(true, Ordering::Relaxed);
        let (mut own, mut shared, mut errors) = (Vec::new(), Tally::default(), BTreeMap::new());
        for connection in self.connections {
            let told = connection.await?;
            own.push(told.own.to_json());
            shared.add(&told.shared);
            for (text, count) in told.errors {
                *errors.entry(text).or_insert(0) += count;
            }
        }
        Ok(json!({"own": own, "shared": shared.to_json(), "errors": errors}))
    }
}

async fn count(mut connection: ConnectionManager, own: String, shared: String, stopped: Arc<AtomicBool>) -> Told {
    let Told { own: mut mine, shared: mut ours, mut errors } = Told::default();
    while !stopped.load(Ordering::Relaxed) {
        if let Some(value) = incr(&mut connection, &own, &mut mine, &mut errors).await {
            let may_be = mine.acknowledged..=mine.acknowledged + mine.unknown + mine.gave_up;
            mine.astray += i64::from(!may_be.contains(&value));
        }
        incr(&mut connection, &shared, &mut ours, &mut errors).await;
    }
    Told { own: mine, shared: ours, errors }
}

async fn incr(
    connection: &mut ConnectionManager,
    key: &str,
    tally: &mut Tally,
    errors: &mut BTreeMap<String, u64>,
) -> Option<i64> {
    let error = match connection.incr(key, 1).await {
        Ok(value) => {
            tally.acknowledged += 1;
            return Some(value);
        }
        Err(error) => error,
    };
    match error.code() {
        None if error.is_connection_refusal() => tally.refused += 1,
        None => tally.gave_up += 1,
        Some("UNKNOWN") => tally.unknown += 1,
        Some(_) => tally.refused += 1,
    }
    *errors.entry(error.to_string()).or_insert(0) += 1;
    sleep(Duration::from_millis(10)).await;
    None
}
