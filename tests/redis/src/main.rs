//! Random streams of commands to Kasha, through a proxy, and to Redis: the replies must be equal, but for the differences that are named here, each
//! with its reason. `cargo xtask redis-oracle`.

// A program: threads and the clock are its business.
#![allow(clippy::disallowed_methods)]

mod draw;
mod link;
mod reply;
mod servers;
#[cfg(test)]
mod tests;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use kasha_commands::keys::positions;
use kasha_commands::{Command, find};
use kasha_machine::Rng;

use draw::{Drawer, is_flush, is_of_no_key, why_not};
use link::Link;
use reply::{Reply, shown, words};

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

/// Requests that are sent in one piece, at most: of one stream one of these. Most replies are compared where many come at once.
const PIPELINES: [u64; 5] = [4, 16, 64, 64, 256];

/// How often it is told how far the comparison has come.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Whether a difference of the replies to a request has a reason.
fn is_named(words: &[Vec<u8>], kasha: &Reply, redis: &Reply) -> bool {
    let is_error = |reply: &Reply, begin: &str| matches!(reply, Reply::Error(text) if text.starts_with(begin));
    // A database of Redis is not a place to copy to: SELECT chooses it (docs/redis.md).
    let copies_away =
        words[0].eq_ignore_ascii_case(b"copy") && words.iter().any(|word| word.eq_ignore_ascii_case(b"db"));
    // A second may have ended between the two. What EXPIRE begins it begins by the clock of each.
    let may_differ_by = match &words[0].to_ascii_lowercase()[..] {
        b"ttl" | b"expiretime" => 1,
        b"pttl" | b"pexpiretime" => 1000,
        // Kasha does not know (docs/redis.md).
        b"object" => 60 * 60,
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
    let (mut before, mut kept, mut is_flushed) = (BTreeSet::new(), Vec::new(), false);
    for words in requests {
        let row = find(&words[0]);
        let keys = row.into_iter().flat_map(|row| positions(row, words.len())).map(|(at, _)| words[at].clone());
        let keys: Vec<_> = keys.collect();
        let moves = row.is_some_and(|row| matches!(row.name, "rename" | "renamenx" | "copy" | "bitop" | "msetnx"));
        is_flushed |= row.is_some_and(is_flush);
        if !(moves && (is_flushed || keys.iter().any(|key| before.contains(key)))) {
            before.extend(keys);
            kept.push(words);
        }
    }
    kept
}

/// A request, and before it, if it watches keys, others that give them values.
fn with_watched_made(words: Vec<Vec<u8>>) -> Vec<Vec<Vec<u8>>> {
    let watched = if words[0].eq_ignore_ascii_case(b"watch") { &words[1..] } else { &[] };
    let made = watched.iter().map(|key| vec![b"SETNX".to_vec(), key.clone(), b"1".to_vec()]);
    made.collect::<Vec<_>>().into_iter().chain([words]).collect()
}

/// The last requests before one that makes a difference, and all earlier ones that name a key of it, for people.
fn asked_before(asked: &[Vec<Vec<u8>>], words: &[Vec<u8>]) -> Vec<String> {
    const LAST: usize = 30;
    let has_key = |other: &[Vec<u8>]| other[1..].iter().any(|word| word.starts_with(b"k") && words.contains(word));
    let is_shown = |(at, other): &(usize, &Vec<Vec<u8>>)| at + LAST >= asked.len() || has_key(other);
    asked.iter().enumerate().filter(is_shown).map(|(_, other)| shown(other)).collect()
}

/// Runs one stream. Returns how many replies were compared.
fn run((seed, is_spread): (u64, bool), kasha: &mut Link, redis: &mut Link) -> Result<u64> {
    let mut rng = Rng::new(seed);
    let mut drawer = Drawer::new(rng.fork());
    let flush: Vec<Vec<u8>> = (0..12).map(|key| format!("k{key}").into_bytes()).collect();
    let flush = [vec![b"del".to_vec()], flush].concat();
    let pipeline = *rng.pick(&PIPELINES);
    let is_resp3 = rng.chance(1, 2);
    for link in [&mut *kasha, &mut *redis] {
        if is_resp3 && !matches!(link.ask(&words("HELLO 3"))?, Reply::Map(_)) {
            bail!("a server does not speak RESP3");
        }
        link.ask(&flush)?;
    }
    let (mut asked, mut compared) = (Vec::new(), 0);
    while asked.len() < STREAM {
        let count = rng.between(1, pipeline);
        let is_multi = rng.chance(1, 6);
        let mut requests: Vec<_> = (0..count).map(|_| drawer.request()).collect();
        // A key that has no value when it is watched, is made, and is deleted again counts as unchanged (R10.7).
        requests = requests.into_iter().flat_map(with_watched_made).collect();
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
        // WATCH is not, in MULTI, and nothing is behind RESET.
        let mut queued = Vec::new();
        // All are heard before one is judged: what is under way must not meet the next stream.
        let mut replies = Vec::new();
        for words in &requests {
            replies.push((in_order(words, kasha.hear()?), in_order(words, redis.hear()?)));
        }
        for (words, (ours, theirs)) in requests.into_iter().zip(replies) {
            compared += 1;
            if !are_alike(&words, &queued, &ours, &theirs) {
                let before = asked_before(&asked, &words);
                bail!(
                    "stream {seed}, request {compared}: {}\n  kasha: {ours:?}\n  redis: {theirs:?}\nbefore:\n  {}",
                    shown(&words),
                    before.join("\n  ")
                );
            }
            if matches!(&ours, Reply::Word(word) if word == "QUEUED") {
                queued.push(words.clone());
            }
            asked.push(words);
        }
    }
    compared += whole::compare(&mut rng, kasha, redis).with_context(|| format!("stream {seed}, at its end"))?;
    Ok(compared)
}

/// Names the commands that are not drawn.
fn tell_what_is_left_out() {
    let mut left_out: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in Command::ALL {
        if let Some(why) = why_not(row.command) {
            left_out.entry(why).or_default().push(row.name);
        }
    }
    for (why, names) in left_out {
        println!("left out, {why}: {}", names.join(" "));
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    tell_what_is_left_out();
    std::fs::create_dir_all(&arguments.folder)?;
    let redis = servers::redis(&arguments.folder)?;
    let (kasha, mut cluster) = servers::kasha(&arguments.kasha, &arguments.folder, arguments.spread)?;
    let until = Instant::now() + Duration::from_secs(60 * arguments.minutes);
    let (mut compared, mut seed, mut differences) = (0_u64, arguments.seed, 0);
    let (begun, mut told) = (Instant::now(), Instant::now());
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
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            let seconds = begun.elapsed().as_secs().max(1);
            println!("{compared} replies compared, {} a second; {differences} differed", compared / seconds);
        }
    }
    let _ = cluster.kill();
    let _ = cluster.wait();
    println!("{compared} replies were equal, of {} streams; {differences} differed", seed - arguments.seed);
    if differences > 0 { bail!("Kasha and Redis tell different things") } else { Ok(()) }
}
