//! Random streams of commands to Kasha, through a proxy, and to Redis: the replies must be equal, but for the differences that are named here, each
//! with its reason. `cargo xtask redis-oracle`.

// A program: threads and the clock are its business.
#![allow(clippy::disallowed_methods)]

mod draw;
mod link;
mod reply;
mod servers;
mod whole;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use kasha_commands::find;
use kasha_commands::keys::positions;
use kasha_machine::Rng;

use draw::{Drawer, is_of_no_key};
use link::Link;
use reply::{Reply, shown};

#[derive(Parser)]
struct Arguments {
    /// The program to judge.
    #[arg(long)]
    kasha: PathBuf,
    /// Where the servers write.
    #[arg(long)]
    folder: PathBuf,
    /// How long streams are drawn.
    #[arg(long, default_value_t = 1)]
    minutes: u64,
    /// The seed of the first stream.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Kasha's database is spread over four shards.
    #[arg(long)]
    spread: bool,
}

/// Requests of one stream.
const STREAM: usize = 400;

/// Requests that are sent in one piece, at most.
const PIPELINE: u64 = 16;

/// Whether a difference of the replies to a request has a reason.
fn is_named(words: &[Vec<u8>], kasha: &Reply, redis: &Reply) -> bool {
    let is_error = |reply: &Reply, begin: &str| matches!(reply, Reply::Error(text) if text.starts_with(begin));
    // A database of Redis is not a place to copy to: SELECT chooses it (docs/redis.md).
    let copies_away =
        words[0].eq_ignore_ascii_case(b"copy") && words.iter().any(|word| word.eq_ignore_ascii_case(b"db"));
    // A second may have ended between the two. What EXPIRE begins it begins by the clock of each.
    let may_differ_by = match &words[0].to_ascii_lowercase()[..] {
        b"ttl" | b"expiretime" => 1,
        b"pexpiretime" => 1000,
        _ => 0,
    };
    let is_near = matches!((kasha, redis), (Reply::Number(ours), Reply::Number(theirs)) if ours.abs_diff(*theirs) <= may_differ_by);
    // Redis counts a value whose time is over until somebody looks at it. `whole` compares the numbers when it has looked at all.
    let has_forgotten = matches!((kasha, redis), (Reply::Number(ours), Reply::Number(theirs)) if ours < theirs)
        && words[0].eq_ignore_ascii_case(b"dbsize");
    // Numbers of INCRBYFLOAT have up to 4,933 digits: more than a million cells for two of them (docs/redis.md).
    let is_long = words[0].eq_ignore_ascii_case(b"lcs") && is_error(kasha, "ERR Insufficient memory");
    is_near || has_forgotten || is_long || copies_away && is_error(kasha, "ERR")
        // The strings of the two have other limits.
        || is_error(kasha, "ERR string exceeds maximum allowed size") && !is_error(redis, "ERR")
}

/// Whether the replies to a request are equal, or differ as they may. `queued`: what EXEC has run.
fn are_alike(words: &[Vec<u8>], queued: &[Vec<Vec<u8>>], ours: &Reply, theirs: &Reply) -> bool {
    match (ours, theirs) {
        (Reply::List(ours), Reply::List(theirs))
            if words[0].eq_ignore_ascii_case(b"exec") && [ours.len(), theirs.len()] == [queued.len(); 2] =>
        {
            let mut pairs = queued.iter().zip(ours.iter().zip(theirs));
            pairs.all(|(words, (ours, theirs))| ours == theirs || is_named(words, ours, theirs))
        }
        _ => ours == theirs || is_named(words, ours, theirs),
    }
}

/// A reply with its list in order, if the command tells names in no order.
fn in_order(words: &[Vec<u8>], mut reply: Reply) -> Reply {
    if let (true, Reply::List(names)) = (words[0].eq_ignore_ascii_case(b"keys"), &mut reply) {
        names.sort_by_key(|name| format!("{name:?}"));
    }
    reply
}

/// Without what a spread database refuses in `MULTI`: to move between shards what an earlier command of the transaction may have changed
/// (docs/redis.md).
fn without_refused(requests: Vec<Vec<Vec<u8>>>) -> Vec<Vec<Vec<u8>>> {
    let (mut before, mut kept) = (BTreeSet::new(), Vec::new());
    for words in requests {
        let row = find(&words[0]);
        let keys = row.into_iter().flat_map(|row| positions(row, words.len())).map(|(at, _)| words[at].clone());
        let keys: Vec<_> = keys.collect();
        let moves = row.is_some_and(|row| matches!(row.name, "rename" | "renamenx" | "copy" | "bitop" | "msetnx"));
        if !(moves && keys.iter().any(|key| before.contains(key))) {
            before.extend(keys);
            kept.push(words);
        }
    }
    kept
}

/// Runs one stream. Returns how many replies were compared.
fn run((seed, is_spread): (u64, bool), kasha: &mut Link, redis: &mut Link) -> Result<u64> {
    let mut rng = Rng::new(seed);
    let mut drawer = Drawer::new(rng.fork());
    let flush: Vec<Vec<u8>> = (0..12).map(|key| format!("k{key}").into_bytes()).collect();
    let flush = [vec![b"del".to_vec()], flush].concat();
    kasha.ask(&flush)?;
    redis.ask(&flush)?;
    let (mut asked, mut compared) = (Vec::new(), 0);
    while asked.len() < STREAM {
        let count = rng.between(1, PIPELINE);
        let is_multi = rng.chance(1, 6);
        let mut requests: Vec<_> = (0..count).map(|_| drawer.request()).collect();
        if is_multi {
            // Commands of no key are not allowed there (docs/redis.md).
            requests.retain(|words| !is_of_no_key(words));
            if is_spread {
                requests = without_refused(requests);
            }
            requests.insert(0, vec![b"MULTI".to_vec()]);
            requests.push(vec![rng.pick(&[b"EXEC".to_vec(), b"discard".to_vec()]).clone()]);
        }
        kasha.send(&requests)?;
        redis.send(&requests)?;
        let queued = if is_multi { requests[1..requests.len() - 1].to_vec() } else { Vec::new() };
        for words in requests {
            let (ours, theirs) = (in_order(&words, kasha.hear()?), in_order(&words, redis.hear()?));
            compared += 1;
            if !are_alike(&words, &queued, &ours, &theirs) {
                let before: Vec<_> = asked.iter().rev().take(30).rev().map(|words: &Vec<_>| shown(words)).collect();
                bail!(
                    "stream {seed}, request {compared}: {}\n  kasha: {ours:?}\n  redis: {theirs:?}\nbefore:\n  {}",
                    shown(&words),
                    before.join("\n  ")
                );
            }
            asked.push(words);
        }
    }
    compared += whole::compare(&mut rng, kasha, redis).with_context(|| format!("stream {seed}, at its end"))?;
    Ok(compared)
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.folder)?;
    let redis = servers::redis(&arguments.folder)?;
    let (kasha, mut cluster) = servers::kasha(&arguments.kasha, &arguments.folder, arguments.spread)?;
    let until = Instant::now() + Duration::from_secs(60 * arguments.minutes);
    let (mut compared, mut seed, mut differences) = (0, arguments.seed, 0);
    while Instant::now() < until && differences < 20 {
        let (mut ours, mut theirs) = (Link::connect(&kasha.address)?, Link::connect(&redis.address)?);
        match run((seed, arguments.spread), &mut ours, &mut theirs) {
            Ok(replies) => compared += replies,
            Err(why) => {
                differences += 1;
                println!("{why:#}\n");
            }
        }
        seed += 1;
    }
    let _ = cluster.kill();
    let _ = cluster.wait();
    println!("{compared} replies were equal, of {} streams; {differences} differed", seed - arguments.seed);
    if differences > 0 { bail!("Kasha and Redis tell different things") } else { Ok(()) }
}
