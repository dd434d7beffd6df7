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
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use kasha_commands::keys::positions;
use kasha_commands::{Command, find};
use kasha_machine::Rng;

use draw::{Drawer, is_flush, is_of_no_key, why_not};
use link::Link;
use reply::{Reply, shown, words};
use servers::Pair;

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

/// Streams that run side by side, each at its own servers.
const PAIRS_MAX: usize = 4;

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

/// How far all streams have come together.
#[derive(Default)]
struct Counts {
    streams: AtomicU64,
    compared: AtomicU64,
    differences: AtomicU64,
}

/// So many differences are enough to look at.
const DIFFERENCES_MAX: u64 = 20;

/// Runs stream after stream at two servers, until then.
fn run_streams(arguments: &Arguments, pair: &Pair, counts: &Counts, until: Instant) -> Result<()> {
    while Instant::now() < until && counts.differences.load(Relaxed) < DIFFERENCES_MAX {
        let (mut ours, mut theirs) = (Link::connect(&pair.kasha.address)?, Link::connect(&pair.redis.address)?);
        let seed = arguments.seed + counts.streams.fetch_add(1, Relaxed);
        match run((seed, arguments.spread), &mut ours, &mut theirs) {
            Ok(replies) => counts.compared.fetch_add(replies, Relaxed),
            Err(why) => {
                println!("{why:#}\n");
                counts.differences.fetch_add(1, Relaxed)
            }
        };
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    tell_what_is_left_out();
    // A stream waits for one server after the other, and so keeps one processor busy.
    let pairs = std::thread::available_parallelism().map_or(1, NonZero::get).min(PAIRS_MAX);
    let folders = (0..pairs).map(|pair| arguments.folder.join(pair.to_string()));
    let pairs: Vec<_> = folders.map(|folder| Pair::start(&arguments, &folder)).collect::<Result<_>>()?;
    let (counts, begun) = (Counts::default(), Instant::now());
    let until = begun + Duration::from_secs(60 * arguments.minutes);
    std::thread::scope(|scope| {
        let (arguments, counts) = (&arguments, &counts);
        let run = |pair| scope.spawn(move || run_streams(arguments, pair, counts, until));
        let streams: Vec<_> = pairs.iter().map(run).collect();
        let mut told = begun;
        while streams.iter().any(|stream| !stream.is_finished()) {
            std::thread::sleep(Duration::from_millis(100));
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                let (compared, differed) = (counts.compared.load(Relaxed), counts.differences.load(Relaxed));
                let seconds = begun.elapsed().as_secs().max(1);
                println!("{compared} replies compared, {} a second; {differed} differed", compared / seconds);
            }
        }
        streams.into_iter().try_for_each(|stream| stream.join().expect("a stream does not panic"))
    })?;
    let Counts { streams, compared, differences } = counts;
    let (streams, differences) = (streams.into_inner(), differences.into_inner());
    println!("{} replies were equal, of {streams} streams; {differences} differed", compared.into_inner());
    if differences > 0 { bail!("Kasha and Redis tell different things") } else { Ok(()) }
}
