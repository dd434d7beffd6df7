//! Clusters whose memory is well filled, and what goes wrong then: the disk runs full while the log is cleaned, nodes are
//! started with too little memory for what lives, results that nobody acknowledges fill the memory, and a bit of the
//! log flips in memory.
//!
//! Each cluster has one shard, so that one primary does all that is said of primaries here.
#![allow(missing_docs)]
// The tests wait, and one of them looks into another process.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use kasha_client::{Client, Error, Table};
use kasha_machine::Rng;
use kasha_process_tests::apart::{Apart, Size, block_on, waiting};
use kasha_process_tests::campaign::ballast::Ballast;
use kasha_process_tests::load::Load;
use kasha_process_tests::place::{SmallDisk, fill};
use kasha_process_tests::process::list;
use kasha_process_tests::{patient, wait_for};
use serde_json::Value as Json;

/// Three nodes: two are members of the shard, and the third is its witness.
const SIZE: Size = Size { nodes: 3, faults: 1, shards: 1, lease: "1s" };
const MEGABYTE: usize = 1_000_000;

fn shard(status: &Json) -> &Json {
    let [shard] = list(&status["shards"]) else { panic!("one shard: {status}") };
    shard
}

fn primary(status: &Json) -> u16 {
    shard(status)["primary"].as_u64().unwrap().try_into().unwrap()
}

fn members(status: &Json) -> Vec<u16> {
    let nodes = list(&shard(status)["members"]).iter().map(|member| member["node"].as_u64().unwrap());
    nodes.map(|node| node.try_into().unwrap()).collect()
}

/// Waits until another node than this is the primary, and serves.
fn wait_for_another_primary(cluster: &Apart, before: u16) {
    // `kasha status` would first wait for the core that is gone; a session waits for the shard.
    block_on(async { table(cluster).await.exists("some key").await }).expect("the shard comes back");
    wait_for("fail-over", || {
        let status = cluster.status()?;
        let is_over = primary(&status) != before && waiting(&status).is_empty();
        if is_over { Ok(()) } else { Err(format!("{:#}", status["shards"])) }
    });
}

/// Waits until the cleaner of the present primary copies something. (Its count begins anew with each term.)
fn wait_until_it_cleans(cluster: &Apart) -> u16 {
    let mut first = None;
    wait_for("cleaning", || {
        let status = cluster.status()?;
        let cleaning = &shard(&status)["status"]["cleaning"];
        let copied = cleaning["copied_bytes"].as_u64().unwrap_or_default();
        let is_cleaning = copied > *first.get_or_insert(copied);
        if is_cleaning { Ok(primary(&status)) } else { Err(cleaning.to_string()) }
    })
}

/// A session of its own.
async fn table(cluster: &Apart) -> Table {
    let client = Client::connect_with(cluster.addresses(), patient()).await.expect("a cluster");
    client.table("default").await.expect("the default table")
}

/// A value of this many bytes, which no other number has.
fn value(number: usize, bytes: usize) -> Vec<u8> {
    let mut value = format!("value {number} ").into_bytes();
    value.resize(bytes, b'.');
    value
}

/// Whether a key holds exactly this value, without printing a megabyte if not.
async fn holds(table: &Table, key: &str, expected: Option<&[u8]>) {
    let found = table.get(key).await.unwrap_or_else(|error| panic!("reading {key}: {error}")).map(|value| value.bytes);
    let begin = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(20)]).into_owned();
    let what = (found.as_deref().map(begin), expected.map(begin));
    assert!(found.as_deref() == expected, "{key} holds what is left here, and should hold what is right: {what:?}");
}

/// Fills the disks of these nodes for as long as one of the nodes runs: what the cleaner frees is taken, too. Checks that
/// each node says why it ends.
fn end_for_want_of_room(cluster: &mut Apart, nodes: &[u16]) {
    wait_for("end of the nodes on full disks", || {
        nodes.iter().for_each(|&node| fill(&filler(cluster, node)));
        let runs = nodes.iter().find(|&&node| cluster.node(node).is_running());
        runs.map_or(Ok(()), |&node| Err(format!("node-{node} runs")))
    });
    for &node in nodes {
        let name = format!("node-{node}/");
        cluster.take(node).fails_saying(&["cannot", &name, "No space left on device", "free space", "K0106"]);
    }
}

fn filler(cluster: &Apart, node: u16) -> PathBuf {
    cluster.data(node).join("filler")
}

/// First the disk of the primary alone, while its cleaner copies. Then the disks of both members at once, so that what
/// was acknowledged is on nothing but full disks.
#[test]
fn a_disk_runs_full_while_the_log_is_cleaned() {
    const MIB: u32 = 192;
    let mut cluster = Apart::new("cleaned-full", SIZE);
    let mut disks = Vec::new();
    for node in 1..=SIZE.nodes {
        let Some(disk) = SmallDisk::mount(cluster.data(node), MIB) else { return };
        disks.push(disk);
    }
    cluster.start_all();
    cluster.wait_until_healthy();
    // New data may take 48 MiB. The load adds keys all the time, and four fifths would be called "memory low".
    let ballast = Ballast::on_loopback(cluster.addresses(), 28, 1).unwrap();
    let load = Load::start(cluster.addresses());

    let full = wait_until_it_cleans(&cluster);
    end_for_want_of_room(&mut cluster, &[full]);
    load.goes_on(300);
    assert_ne!(wait_until_it_cleans(&cluster), full, "the next primary cleans, too");
    fs::remove_file(filler(&cluster, full)).unwrap();
    cluster.start_node(full);
    let both = members(&cluster.wait_until_healthy());
    load.goes_on(300);

    wait_until_it_cleans(&cluster);
    end_for_want_of_room(&mut cluster, &both);
    both.iter().for_each(|&node| fs::remove_file(filler(&cluster, node)).unwrap());
    cluster.start_all();
    cluster.wait_until_healthy();
    load.goes_on(300);
    println!("{}", ballast.end().unwrap());
    load.ends_exact();
}

/// The nodes stop in good order, and are started with a limit below what lives: the members say so and stop. With the
/// former limit all is there.
#[test]
fn less_memory_than_what_lives_is_an_error_and_loses_nothing() {
    // More than fills what 64 MiB allow a take-over, and a backup.
    const VALUES: usize = 240;
    const BYTES: usize = 500_000;
    let mut cluster = Apart::new("less-memory", SIZE);
    cluster.set_memory_mib(256);
    cluster.start_all();
    cluster.wait_until_healthy();
    block_on(async {
        let table = table(&cluster).await;
        for number in 0..VALUES {
            table.put(format!("key:{number}"), value(number, BYTES)).await.unwrap();
        }
        table.increment("counter", 7).await.unwrap();
    });
    let members = members(&cluster.wait_until_healthy());
    cluster.stop_all();

    cluster.set_memory_mib(64);
    cluster.start_all();
    for &node in &members {
        cluster.take(node).fails_saying(&["shard-0", "memory limit", "raise it and start this node again", "K0407"]);
    }

    cluster.stop_all();
    cluster.set_memory_mib(256);
    cluster.start_all();
    cluster.wait_until_healthy();
    block_on(async {
        let table = table(&cluster).await;
        for number in 0..VALUES {
            holds(&table, &format!("key:{number}"), Some(&value(number, BYTES))).await;
        }
        assert_eq!(table.increment("counter", 1).await.unwrap().value, 8);
    });
}

/// Swaps the value of one key, each time in a session that leaves right after. Nobody acknowledges the results. Returns
/// the number of the last value, when the next one was refused.
async fn swap_until_refused(cluster: &Apart) -> usize {
    for number in 1.. {
        let swapped = table(cluster).await.get_and_put("swapped", value(number, MEGABYTE)).await;
        match swapped {
            Ok(replaced) => {
                let old = replaced.old.map(|old| old.bytes);
                assert!(old == Some(value(number - 1, MEGABYTE)), "value {} was replaced", number - 1);
            }
            Err(refused @ Error::NotExecuted(_)) => {
                assert!(refused.to_string().contains("K0312"), "{refused}");
                return number - 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("some number is too much");
}

/// A swap takes the room of two megabytes. Takes the last one, too.
async fn put_until_refused(table: &Table) {
    for number in 0.. {
        if let Err(refused) = table.put(format!("last:{number}"), value(number, MEGABYTE)).await {
            return assert!(refused.to_string().contains("K0312"), "{refused}");
        }
        assert!(number < 2, "there is room for another swap");
    }
}

/// Deletes key after key until a megabyte can be put again.
async fn delete_until_there_is_room(table: &Table, keys: &[String]) -> usize {
    for (deleted, key) in keys.iter().enumerate() {
        let put = table.put("more", value(0, MEGABYTE)).await;
        match put {
            Ok(_) => return deleted,
            Err(refused) => assert!(refused.to_string().contains("K0312"), "{refused}"),
        }
        assert!(table.delete(key).await.unwrap().is_some(), "{key} was there");
    }
    panic!("{} keys were deleted, and there is no room", keys.len());
}

/// The results of sessions that are gone are kept until their leases end. So deletes of other keys, and nothing else, make
/// room; before a fail-over and after it.
#[test]
fn results_that_nobody_acknowledges_fill_the_memory_and_survive_a_fail_over() {
    const KEYS: usize = 12;
    let keys: Vec<_> = (0..KEYS).map(|number| format!("key:{number}")).collect();
    let mut cluster = Apart::start("results", SIZE);
    let (last, deleted) = block_on(async {
        let table = table(&cluster).await;
        for (number, key) in keys.iter().enumerate() {
            table.put(key, value(number, MEGABYTE)).await.unwrap();
        }
        table.put("swapped", value(1000, MEGABYTE)).await.unwrap();
        let once = table.get_and_put("swapped", value(0, MEGABYTE)).once("the first swap").await.unwrap();
        assert!(once.old.map(|old| old.bytes) == Some(value(1000, MEGABYTE)));
        assert_eq!(table.increment("counter", 5).once("the increment").await.unwrap().value, 5);

        let last = swap_until_refused(&cluster).await;
        assert!((15..35).contains(&last), "{last} results of a megabyte, besides {KEYS} values, in 64 MiB");
        put_until_refused(&table).await;
        holds(&table, "swapped", Some(&value(last, MEGABYTE))).await;
        (last, delete_until_there_is_room(&table, &keys).await)
    });
    println!("{last} results were kept; {deleted} deletes made room");

    let before = primary(&cluster.status().unwrap());
    cluster.kill(before);
    wait_for_another_primary(&cluster, before);
    block_on(async {
        let table = table(&cluster).await;
        holds(&table, "swapped", Some(&value(last, MEGABYTE))).await;
        holds(&table, "more", Some(&value(0, MEGABYTE))).await;
        for (number, key) in keys.iter().enumerate() {
            let kept = value(number, MEGABYTE);
            holds(&table, key, Some(&kept[..]).filter(|_| number >= deleted)).await;
        }
        holds(&table, "counter", Some(b"5")).await;
        let again = delete_until_there_is_room(&table, &keys[deleted..]).await;
        println!("after the fail-over {again} deletes made room");
        // The results outlived the primary. To tell one again takes a record of it, so there must be room for that.
        for key in &keys[deleted + again..] {
            table.delete(key).await.unwrap();
        }
        let once = table.get_and_put("swapped", value(0, MEGABYTE)).once("the first swap").await.unwrap();
        assert!(once.old.map(|old| old.bytes) == Some(value(1000, MEGABYTE)), "the result from before");
        assert_eq!(table.increment("counter", 5).once("the increment").await.unwrap().value, 5);
        holds(&table, "swapped", Some(&value(last, MEGABYTE))).await;
        holds(&table, "counter", Some(b"5")).await;
    });
    cluster.start_node(before);
    cluster.wait_until_healthy();
}

/// Flips a bit of every copy of these bytes in the memory of a process. Returns how many there were; `None`, with a
/// notice, if this process may not do that.
fn flip_in_memory(process: i32, marker: &[u8]) -> Option<usize> {
    const PIECE: u64 = 1 << 20;
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let Ok(memory) = File::options().read(true).write(true).open(format!("/proc/{process}/mem")) else {
        eprintln!("SKIPPED: this user may not write to the memory of another process");
        return None;
    };
    let (mut flipped, mut piece) = (0, vec![0; usize::try_from(PIECE).unwrap() + marker.len()]);
    // Mapped files are left as they are.
    for line in maps.lines().filter(|line| line.split(' ').nth(1) == Some("rw-p")) {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|address| u64::from_str_radix(address, 16).unwrap());
        // Pieces overlap by the length of what is sought.
        for at in (from..to).step_by(usize::try_from(PIECE).unwrap()) {
            let wanted = usize::try_from(to - at).unwrap().min(piece.len());
            // Memory may have gone meanwhile.
            let Ok(read) = memory.read_at(&mut piece[..wanted], at) else { continue };
            for found in positions(&piece[..read], marker) {
                let place = at + u64::try_from(found).unwrap();
                let mut again = vec![0; marker.len()];
                // It may have gone since it was found.
                if memory.read_exact_at(&mut again, place).is_ok() && again == marker {
                    memory.write_all_at(&[marker[20] ^ 4], place + 20).unwrap();
                    flipped += 1;
                }
            }
        }
    }
    Some(flipped)
}

fn positions(bytes: &[u8], marker: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == marker[0]) {
        from += at;
        if bytes[from..].starts_with(marker) {
            found.push(from);
        }
        from += 1;
    }
    found
}

/// R5.12: the cleaner finds the damage before it copies it, and the node stops. A member that has the right bytes goes on.
#[test]
fn r5_12_a_bit_of_the_log_flips_in_memory() {
    const BYTES: usize = 50_000;
    const PUTS_MAX: usize = 4000;
    let mut cluster = Apart::start("flip", SIZE);
    let before = primary(&cluster.status().unwrap());
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let marker: Vec<u8> = (0..16).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    let is_done = block_on(async {
        let table = table(&cluster).await;
        table.put("marked", &marker).await.unwrap();
        // The second of these is answered when every member has the first, and what was before it.
        table.put("key:0", value(0, BYTES)).await.unwrap();
        table.put("key:0", value(0, BYTES)).await.unwrap();
        let Some(flipped) = flip_in_memory(cluster.node(before).id(), &marker) else { return false };
        assert!(flipped > 0, "the marker is in the primary's memory");
        println!("{flipped} copies were changed");
        // An eighth of each segment stays, or each would be freed without the cleaner. So the cleaner comes to the oldest, where
        // the marker is, when memory gets scarce.
        for number in 0..PUTS_MAX {
            let key = if number % 8 == 0 { format!("stays:{number}") } else { format!("key:{}", number % 8) };
            table.put(key, value(number, BYTES)).await.unwrap();
            if !cluster.node(before).is_running() {
                println!("the cleaner came after {number} puts");
                return true;
            }
        }
        panic!("the cleaner did not come: {:#}", cluster.status().unwrap()["shards"]);
    });
    if !is_done {
        return;
    }
    cluster.take(before).fails_saying(&["shard-0", "the memory of this machine", "test the memory", "K0115"]);
    wait_for_another_primary(&cluster, before);
    block_on(async { holds(&table(&cluster).await, "marked", Some(&marker)).await });
    // The file was written before the bit flipped.
    cluster.start_node(before);
    cluster.wait_until_healthy();
    block_on(async { holds(&table(&cluster).await, "marked", Some(&marker)).await });
}
