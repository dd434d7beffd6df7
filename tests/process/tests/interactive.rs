//! Interactive transactions of the client against three servers: many programs that read and write the same keys of several
//! shards lose nothing, and what a program has read was so at one moment.
#![allow(missing_docs)]

use std::time::Duration;

use kasha_client::{Client, Commit, Error, Rejection, Table, TimeToLive, Value, WhyFailed, WhyNot};
use kasha_process_tests::cluster::Cluster;

const SHARDS: u16 = 4;
/// Their keys are of different shards.
const ACCOUNTS: [&str; 4] = ["account:1", "account:2", "account:3", "account:4"];
const PROGRAMS: usize = 8;
const MOVES: usize = 25;

/// What a program that uses transactions may fail with.
enum Failed {
    Kasha(Error),
    NotEnough,
    /// The sum that a program has read.
    Torn(i64),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Kasha(error)
    }
}

fn number(value: Option<Value>) -> i64 {
    value.map_or(0, |value| value.as_i64().expect("a number"))
}

/// Moves one from an account to another, if there is one. Fails if the sum of all is not 0: nobody may see that.
async fn transfer(client: &Client, [from, to]: [&str; 2]) -> Result<(), Failed> {
    let accounts = client.table("accounts").await?;
    let accounts = &accounts;
    let moved = client.in_transaction(|transaction| async move {
        let mut sum = 0;
        for account in ACCOUNTS {
            sum += number(transaction.get(accounts, account).await?);
        }
        if sum != 0 {
            return Err(Failed::Torn(sum));
        }
        let left = number(transaction.get(accounts, from).await?) - 1;
        if left < -10 {
            return Err(Failed::NotEnough);
        }
        let more = number(transaction.get(accounts, to).await?) + 1;
        transaction.put(accounts, from, left.to_string());
        transaction.put(accounts, to, more.to_string());
        Ok(())
    });
    moved.await
}

#[test]
fn programs_that_read_and_write_the_same_keys_see_one_another_whole() {
    let cluster = Cluster::start("interactive", "1s", SHARDS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Client::connect(cluster.addresses()).await.expect("a cluster");
        sees_its_own_writes(&client).await.expect("answers");
        let numbers = client.create_table("numbers").await.expect("a table");
        increments(&client, &numbers).await.expect("answers");
        // Deltas add up, however many programs add at once.
        let counted = |client: Client, numbers: Table| async move {
            for _ in 0..MOVES {
                let added = client.in_transaction(|transaction| {
                    let numbers = &numbers;
                    async move { transaction.increment(numbers, "together", 1).await }
                });
                added.await.expect("a sum");
            }
        };
        tokio::join!(counted(client.clone(), numbers.clone()), counted(client.clone(), numbers.clone()));
        let together = numbers.get("together").await.expect("a value");
        assert_eq!(number(together), 2 * MOVES as i64, "once each");
        let mut programs = Vec::new();
        for program in 0..PROGRAMS {
            let client = Client::connect(cluster.addresses()).await.expect("a cluster");
            programs.push(tokio::spawn(async move {
                let (mut moved, mut refused) = (0, 0);
                for step in 0..MOVES {
                    let (from, to) = (ACCOUNTS[(program + step) % 4], ACCOUNTS[(program + step * 3 + 1) % 4]);
                    match transfer(&client, [from, to]).await {
                        _ if from == to => {}
                        Ok(()) => moved += 1,
                        Err(Failed::NotEnough) => refused += 1,
                        Err(Failed::Torn(sum)) => panic!("the accounts held {sum} together"),
                        Err(Failed::Kasha(error)) => panic!("{error}"),
                    }
                }
                (moved, refused)
            }));
        }
        let mut moved = 0;
        for program in programs {
            moved += program.await.expect("no program fails").0;
        }
        assert!(moved > 0, "something was moved");
        let accounts = client.table("accounts").await.expect("the table");
        let values = accounts.multi_get(&ACCOUNTS).await.expect("values");
        let sum: i64 = values.into_iter().map(number).sum();
        assert_eq!(sum, 0, "after {moved} moves");
    });
}

async fn sees_its_own_writes(client: &Client) -> Result<(), Error> {
    let (accounts, names) = (client.create_table("accounts").await?, client.create_table("names").await?);
    let first = client.begin();
    assert_eq!(first.get(&accounts, "a").await?, None);
    first.put(&accounts, "a", "1");
    first.put(&names, "b", "2");
    let own = first.get(&accounts, "a").await?;
    assert_eq!(own, Some(Value { version: 0, bytes: b"1".to_vec() }), "its own write");
    assert_eq!(accounts.get("a").await?, None, "nobody else sees it");

    // Somebody is faster.
    let second = client.begin();
    assert_eq!(second.get_many(&accounts, &["a", "c"]).await?, [None, None]);
    second.put(&accounts, "c", "3");
    assert_eq!(first.commit().await?, Commit::Committed);
    let Commit::Conflict(conflict) = second.commit().await? else { panic!("it has read what was changed") };
    assert_eq!((conflict.key.as_slice(), conflict.read, conflict.found.is_some()), (&b"a"[..], None, true));
    assert_eq!(accounts.get("c").await?, None, "nothing of it happened");

    // A delete, and what was not there before.
    let third = client.begin();
    assert_eq!(third.get(&names, "b").await?, names.get("b").await?, "as the table gives it");
    third.delete(&names, "b");
    assert_eq!(third.get(&names, "b").await?, None);
    assert_eq!(third.commit().await?, Commit::Committed);
    assert_eq!(names.get("b").await?, None);
    assert_eq!(client.begin().commit().await?, Commit::Committed, "nothing to do");
    Ok(())
}

/// Increments see what the transaction has written, and a number that somebody else has changed is a conflict.
async fn increments(client: &Client, table: &Table) -> Result<(), Error> {
    table.put("n", "40").expires_in(Duration::from_secs(3600)).await?;
    let first = client.begin();
    assert_eq!(first.increment(table, "n", 1).await?, 41);
    assert_eq!(first.increment_within(table, "n", 2, ..=42).await?, None, "43 is too much");
    assert_eq!(first.increment_within(table, "n", 1, ..=42).await?, Some(42));
    assert_eq!(first.get(table, "n").await?, Some(Value { version: 0, bytes: b"42".to_vec() }));
    assert_eq!(first.increment(table, "fresh", -7).await?, -7, "what is not there counts as 0");
    assert_eq!(first.commit().await?, Commit::Committed);
    assert_eq!((number(table.get("n").await?), number(table.get("fresh").await?)), (42, -7));
    assert!(matches!(table.time_to_live("n").await?, Some(TimeToLive::For(_))), "it keeps its end");

    // On what the transaction has put, put with an end, or deleted.
    let second = client.begin();
    second.put(table, "n", "1");
    second.put_expiring(table, "ends", "2", Duration::from_secs(3600));
    second.delete(table, "fresh");
    assert_eq!(second.increment(table, "n", 10).await?, 11);
    assert_eq!(second.increment(table, "ends", 10).await?, 12);
    assert_eq!(second.increment(table, "fresh", 10).await?, 10);
    assert_eq!(second.commit().await?, Commit::Committed);
    let numbers = table.multi_get(&["n", "ends", "fresh"]).await?;
    assert_eq!(numbers.into_iter().map(number).collect::<Vec<_>>(), [11, 12, 10]);
    assert_eq!(table.time_to_live("n").await?, Some(TimeToLive::Forever), "it was put");
    assert!(matches!(table.time_to_live("ends").await?, Some(TimeToLive::For(_))));

    // The sum of the deltas does not fit 64 bits, and each number does.
    table.put("far", i64::MIN.to_string()).await?;
    let third = client.begin();
    for sum in [-1, i64::MAX - 1, i64::MAX] {
        let before = third.get_number(table, "far").await?.expect("a number");
        let delta = i64::try_from(i128::from(sum) - i128::from(before)).expect("a step fits");
        assert_eq!(third.increment(table, "far", delta).await?, sum);
    }
    let refused = third.increment(table, "far", 1).await;
    assert!(matches!(refused, Err(Error::Rejected(Rejection::Overflow(0)))), "{refused:?}");
    assert_eq!(third.commit().await?, Commit::Committed);
    assert_eq!(number(table.get("far").await?), i64::MAX);

    let fourth = client.begin();
    assert_eq!(fourth.increment(table, "n", 1).await?, 12);
    table.increment("n", 1).await?;
    assert!(matches!(fourth.commit().await?, Commit::Conflict(_)), "the sum that was told would be wrong");
    assert_eq!(number(table.get("n").await?), 12, "only the other one");

    table.put("word", "x").await?;
    let fifth = client.begin();
    let not_a_number = fifth.increment(table, "word", 1).await;
    assert!(matches!(not_a_number, Err(Error::Failed(WhyFailed::NotANumber))), "{not_a_number:?}");
    let no_range = fifth.increment_within(table, "n", 1, 5..5).await;
    assert!(matches!(no_range, Err(Error::NotExecuted(WhyNot::Bounds))), "{no_range:?}");
    assert_eq!(fifth.commit().await?, Commit::Committed);
    Ok(())
}
