//! Interactive transactions of the client against three servers: many programs that read and write the same keys of several
//! shards lose nothing, and what a program has read was so at one moment.
#![allow(missing_docs)]

use kasha_client::{Client, Commit, Error};
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

fn number(value: Option<Vec<u8>>) -> i64 {
    value.map_or(0, |bytes| String::from_utf8(bytes).expect("text").parse().expect("a number"))
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
        let sum: i64 = values.into_iter().map(|value| number(value.map(|value| value.bytes))).sum();
        assert_eq!(sum, 0, "after {moved} moves");
    });
}

async fn sees_its_own_writes(client: &Client) -> Result<(), Error> {
    let (accounts, names) = (client.create_table("accounts").await?, client.create_table("names").await?);
    let first = client.begin();
    assert_eq!(first.get(&accounts, "a").await?, None);
    first.put(&accounts, "a", "1");
    first.put(&names, "b", "2");
    assert_eq!(first.get(&accounts, "a").await?.as_deref(), Some(&b"1"[..]), "its own write");
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
    assert!(third.get(&names, "b").await?.is_some());
    third.delete(&names, "b");
    assert_eq!(third.get(&names, "b").await?, None);
    assert_eq!(third.commit().await?, Commit::Committed);
    assert_eq!(names.get("b").await?, None);
    assert_eq!(client.begin().commit().await?, Commit::Committed, "nothing to do");
    Ok(())
}
