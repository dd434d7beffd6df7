//! Transactions of many keys among writers of few of them, callers that give up, and programs that read before they write: all of
//! them end, and each sees one moment.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kasha_client::{Client, Error, Table, TransactionOutcome};
use kasha_process_tests::cluster::Cluster;
use tokio::task::JoinHandle;

const SHARDS: u16 = 4;
const KEYS: usize = 20;
const WRITERS: usize = 8;
const READS: usize = 20;
const PROGRAMS: usize = 12;
const COMMITS: usize = 8;
/// So often a program may have to begin anew until one of its commits finds nothing changed. Whoever has lost twice comes by age, so this
/// does not grow with what others commit meanwhile.
const TRIES_MAX: usize = 40;

fn key(index: usize) -> String {
    format!("wide:{}", index % KEYS)
}

async fn connect(cluster: &Cluster) -> (Client, Table) {
    let client = Client::connect(cluster.addresses()).await.expect("a cluster");
    let table = client.table("wide").await.expect("a table");
    (client, table)
}

/// Moves one from a key to another. Every third caller soon gives up; what it asked for happens or does not.
async fn write_pairs((client, table): (Client, Table), writer: usize) -> Result<(), Error> {
    for step in 0.. {
        let mut pair = client.transaction();
        pair.increment(&table, key(writer + step), 1);
        pair.increment(&table, key(writer + step + 1 + step % (KEYS - 1)), -1);
        let patience = if step % 3 == 0 { Duration::from_millis(2) } else { Duration::from_secs(60) };
        if let Ok(outcome) = tokio::time::timeout(patience, pair.commit().into_future()).await {
            outcome?;
        }
    }
    Ok(())
}

#[test]
fn a_transaction_of_all_keys_gets_through_and_sees_one_moment() {
    let cluster = Cluster::start("wide", "1s", SHARDS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Client::connect(cluster.addresses()).await.expect("a cluster");
        let table = client.create_table("wide").await.expect("a table");
        let mut writers: Vec<JoinHandle<Result<(), Error>>> = Vec::new();
        for writer in 0..WRITERS {
            writers.push(tokio::spawn(write_pairs(connect(&cluster).await, writer)));
        }
        for round in 0..READS {
            let mut all = client.transaction();
            let parts: Vec<_> = (0..KEYS).map(|index| all.get(&table, key(index))).collect();
            let outcome = all.commit().await.expect("who has waited longest goes first");
            let TransactionOutcome::Committed(results) = outcome else { panic!("nothing in it can fail: {outcome:?}") };
            let number = |value: kasha_client::Value| -> i64 {
                String::from_utf8(value.bytes).expect("text").parse().expect("a number")
            };
            let sum: i64 = parts.into_iter().filter_map(|part| results.of(part)).map(number).sum();
            assert_eq!(sum, 0, "read {round} saw half of a pair");
        }
        for writer in writers {
            assert!(!writer.is_finished(), "a writer has failed");
            writer.abort();
        }
    });
}

#[test]
fn programs_that_read_two_numbers_and_put_both_all_commit() {
    let cluster = Cluster::start("wide-programs", "1s", SHARDS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Client::connect(cluster.addresses()).await.expect("a cluster");
        let table = client.create_table("wide").await.expect("a table");
        let mut programs = Vec::new();
        for _ in 0..PROGRAMS {
            let (client, table) = connect(&cluster).await;
            programs.push(tokio::spawn(async move {
                for _ in 0..COMMITS {
                    let tries = AtomicUsize::new(0);
                    let (table, tries_so_far) = (&table, &tries);
                    let both = client.in_transaction(|both| async move {
                        tries_so_far.fetch_add(1, Ordering::Relaxed);
                        let left = both.get_number(table, "left").await?.unwrap_or(0);
                        let right = both.get_number(table, "right").await?.unwrap_or(0);
                        both.put(table, "left", (left + 1).to_string());
                        both.put(table, "right", (right - 1).to_string());
                        Ok::<_, Error>(())
                    });
                    both.await?;
                    let tries = tries.into_inner();
                    assert!(tries <= TRIES_MAX, "a program read {tries} times until it could commit");
                }
                Ok::<_, Error>(())
            }));
        }
        for program in programs {
            program.await.expect("it does not panic").expect("it commits before its deadline");
        }
        let (left, right) = (table.get_number("left").await, table.get_number("right").await);
        let committed = i64::try_from(PROGRAMS * COMMITS).expect("few");
        let number = |found: Result<Option<kasha_client::Counter>, Error>| found.expect("an answer").expect("a number");
        assert_eq!((number(left).value, number(right).value), (committed, -committed), "each commit counts once");
    });
}
