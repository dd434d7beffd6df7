//! Commands of no key, whose replies are not equal and yet mean the same: compared where a stream has ended, and both databases hold the same keys.

use anyhow::{Result, bail};
use kasha_machine::Rng;

use crate::link::Link;
use crate::reply::{Reply, shown, words};

/// What two clocks may differ by, in seconds.
const CLOCKS_DIFFER_MAX: u64 = 1;

/// Pages that a listing of a dozen keys may take.
const PAGES_MAX: usize = 1000;

/// All names that SCAN shows with these options, in order. `once`: each comes once, though nothing changes meanwhile.
fn scan(link: &mut Link, options: &str, once: bool) -> Result<Vec<Vec<u8>>> {
    let (mut cursor, mut names) = ("0".to_owned(), Vec::new());
    for _ in 0..PAGES_MAX {
        let reply = link.ask(&words(&format!("SCAN {cursor} {options}")))?;
        let Reply::List(page) = &reply else { bail!("SCAN {cursor} {options}: {reply:?}") };
        let [Reply::Bytes(next), Reply::List(found)] = &page[..] else { bail!("SCAN {cursor} {options}: {reply:?}") };
        for name in found {
            let Reply::Bytes(name) = name else { bail!("SCAN {cursor} {options}: {reply:?}") };
            names.push(name.clone());
        }
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0" {
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            if once && names.len() < all {
                bail!("SCAN {options} showed a key twice: {}", shown(&names));
            }
            return Ok(names);
        }
    }
    bail!("SCAN {options} has no end")
}

fn seconds(link: &mut Link) -> Result<u64> {
    match link.ask(&words("TIME"))? {
        Reply::List(parts) if parts.len() == 2 => match &parts[0] {
            Reply::Bytes(seconds) => Ok(String::from_utf8_lossy(seconds).parse()?),
            other => bail!("TIME: {other:?}"),
        },
        other => bail!("TIME: {other:?}"),
    }
}

/// Compares what the two say of all keys. Returns how many things were compared.
pub fn compare(rng: &mut Rng, kasha: &mut Link, redis: &mut Link) -> Result<u64> {
    let count = rng.pick(&["", "COUNT 1", "count 3", "COUNT 1000", "COUNT 1000000000"]);
    let pattern = rng.pick(&["", "MATCH *", "match k1*", "MATCH k?", "MATCH [^k]*", "MATCH nothing"]);
    let kind = rng.pick(&["", "", "TYPE string", "TYPE STRING", "type list", "TYPE nonsense"]);
    let options = format!("{count} {pattern} {kind}");
    let (ours, theirs) = (scan(kasha, &options, true)?, scan(redis, &options, false)?);
    if ours != theirs {
        bail!("SCAN {options}\n  kasha: {}\n  redis: {}", shown(&ours), shown(&theirs));
    }
    let all = scan(redis, "", false)?;
    for link in [&mut *kasha, &mut *redis] {
        match link.ask(&words("DBSIZE"))? {
            Reply::Number(size) if size == all.len() as i64 => {}
            other => bail!("DBSIZE: {other:?} of {}", shown(&all)),
        }
    }
    match kasha.ask(&words("RANDOMKEY"))? {
        Reply::Bytes(name) if all.contains(&name) => {}
        Reply::Nil if all.is_empty() => {}
        other => bail!("RANDOMKEY: {other:?} of {}", shown(&all)),
    }
    // A place that Redis takes for one, and bytes that are none.
    for cursor in ["18446744073709551615", "4611686018427387904", "123456789012345"] {
        let reply = kasha.ask(&words(&format!("SCAN {cursor}")))?;
        if !matches!(&reply, Reply::List(page) if page.len() == 2) {
            bail!("SCAN {cursor}: {reply:?}");
        }
    }
    for request in [
        "SCAN x",
        "SCAN 0 COUNT 0",
        "SCAN 0 COUNT x",
        "SCAN 0 MATCH",
        "SCAN 0 WHAT k",
        "SCAN -",
        "SCAN 18446744073709551616",
    ] {
        let (ours, theirs) = (kasha.ask(&words(request))?, redis.ask(&words(request))?);
        if ours != theirs {
            bail!("{request}\n  kasha: {ours:?}\n  redis: {theirs:?}");
        }
    }
    let (ours, theirs) = (seconds(kasha)?, seconds(redis)?);
    if ours.abs_diff(theirs) > CLOCKS_DIFFER_MAX {
        bail!("TIME\n  kasha: {ours}\n  redis: {theirs}");
    }
    Ok(12)
}
