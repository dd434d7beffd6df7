//! The steps.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisError, ScanOptions, cmd, pipe};
use tokio::time::sleep;

use crate::Failure;

pub const ALL: [&str; 8] = ["connect", "strings", "expiry", "pipeline", "multi", "watch", "scan", "errors"];

const NAMES: [&str; 8] = ["a", "b", "ends", "pipe", "m1", "m2", "watched", "text"];

type Connection = MultiplexedConnection;

/// Runs a step by its name.
pub async fn run(step: &str, one: &mut Connection, other: &mut Connection) -> Result<(), Failure> {
    match step {
        "connect" => connect(one).await,
        "strings" => strings(one).await,
        "expiry" => expiry(one).await,
        "pipeline" => pipeline(one).await,
        "multi" => multi(one).await,
        "watch" => watch(one, other).await,
        "scan" => scan(one).await,
        _ => errors(one).await,
    }
}

fn key(name: &str) -> String {
    format!("steps:redis-rs:{name}")
}

/// How many seconds more than are left TTL may tell.
fn late() -> i64 {
    i64::from(std::env::args().all(|word| word != "exact-ends"))
}

fn expect<T: PartialEq + Debug>(found: T, wanted: T) -> Result<(), Failure> {
    if found == wanted { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}").into()) }
}

fn expect_error(found: Result<String, RedisError>, text: &str) -> Result<(), Failure> {
    match found {
        Err(error) if error.to_string().contains(text) => Ok(()),
        other => Err(format!("{other:?} instead of {text:?}").into()),
    }
}

async fn connect(one: &mut Connection) -> Result<(), Failure> {
    let pong: String = one.ping().await?;
    expect(&*pong, "PONG")?;
    let _deleted: i64 = one.del(NAMES.map(key).as_slice()).await?;
    Ok(())
}

async fn strings(one: &mut Connection) -> Result<(), Failure> {
    let (a, b, none) = (&key("a"), &key("b"), &key("none"));
    for value in [b"text".to_vec(), (0..=255).collect(), Vec::new()] {
        let _: () = one.set(a, &value).await?;
        let found: Vec<u8> = one.get(a).await?;
        expect(found, value)?;
    }
    expect(one.append(a, "12").await?, 2)?;
    expect(one.incr(a, 30).await?, 42)?;
    let _: () = one.mset(&[(a, "1"), (b, "2")]).await?;
    let found: Vec<Option<String>> = one.mget(&[a, none, b]).await?;
    expect(found, vec![Some("1".into()), None, Some("2".into())])?;
    expect(one.del(&[a, none, b]).await?, 2)
}

async fn expiry(one: &mut Connection) -> Result<(), Failure> {
    let ends = &key("ends");
    let _: () = one.pset_ex(ends, "v", 150).await?;
    let left: i64 = one.pttl(ends).await?;
    expect((1..=150 + 1000 * late()).contains(&left), true)?;
    for _ in 0..250 {
        let value: Option<String> = one.get(ends).await?;
        if value.is_none() {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    let gone: Option<String> = one.get(ends).await?;
    expect(gone, None)?;
    let _: () = one.set(ends, "v").await?;
    expect(one.expire(ends, 100).await?, 1)?;
    let left: i64 = one.ttl(ends).await?;
    expect((90..=100 + late()).contains(&left), true)?;
    expect(one.persist(ends).await?, 1)?;
    expect(one.ttl(ends).await?, -1)
}

async fn pipeline(one: &mut Connection) -> Result<(), Failure> {
    let mut pipeline = pipe();
    for _ in 0..100 {
        pipeline.incr(key("pipe"), 1);
    }
    let found: Vec<i64> = pipeline.query_async(one).await?;
    expect(found, (1..=100).collect())
}

async fn multi(one: &mut Connection) -> Result<(), Failure> {
    let mut transaction = pipe();
    transaction.atomic().set(key("m1"), "1").incr(key("m2"), 1).get(key("m1"));
    let found: (String, i64, String) = transaction.query_async(one).await?;
    expect(found, ("OK".into(), 1, "1".into()))
}

async fn watch(one: &mut Connection, other: &mut Connection) -> Result<(), Failure> {
    let watched = &key("watched");
    let _: () = one.set(watched, "5").await?;
    let _: () = cmd("WATCH").arg(watched).query_async(one).await?;
    let found: String = one.get(watched).await?;
    expect(&*found, "5")?;
    let _: () = other.set(watched, "5").await?;
    let refused: Option<(String,)> = pipe().atomic().set(watched, "6").query_async(one).await?;
    expect(refused, None)?;
    let _: () = cmd("WATCH").arg(watched).query_async(one).await?;
    let done: Option<(String,)> = pipe().atomic().set(watched, "7").query_async(one).await?;
    expect(done, Some(("OK".into(),)))?;
    let found: String = one.get(watched).await?;
    expect(&*found, "7")
}

async fn scan(one: &mut Connection) -> Result<(), Failure> {
    let names: BTreeSet<String> = (0..200).map(|number| key(&format!("scan:{number}"))).collect();
    let pairs: Vec<_> = names.iter().map(|name| (name, "v")).collect();
    let _: () = one.mset(&pairs).await?;
    let options = ScanOptions::default().with_pattern(key("scan:*")).with_count(30);
    let mut found = BTreeSet::new();
    let mut pages = one.scan_options::<String>(options).await?;
    while let Some(name) = pages.next().await {
        found.insert(name?);
    }
    drop(pages);
    expect(&found, &names)?;
    let keys: BTreeSet<String> = one.keys(key("scan:*")).await?;
    expect(&keys, &names)?;
    let (seconds, _micros): (u64, u64) = cmd("TIME").query_async(one).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    expect(seconds.abs_diff(now) < 60, true)
}

async fn errors(one: &mut Connection) -> Result<(), Failure> {
    let text = &key("text");
    let _: () = one.set(text, "text").await?;
    expect_error(cmd("INCR").arg(text).query_async(one).await, "value is not an integer or out of range")?;
    expect_error(cmd("NOSUCH").arg("x").query_async(one).await, "unknown command 'NOSUCH'")?;
    expect_error(cmd("GET").query_async(one).await, "wrong number of arguments for 'get' command")?;
    let found: String = one.get(text).await?;
    expect(&*found, "text")
}
