//! A service that was built from the documentation: it uses one order for everything that the order changes.
//!
//! An operation key names one operation for each first key and table. So one order may be used for the same user in two tables,
//! and for two keys, whether they share a slot or not.

use kasha_client::{Client, Error, Rejection, Table, TransactionOutcome};
use kasha_process_tests::apart::block_on;
use kasha_process_tests::cluster::Cluster;

const SHARDS: u16 = 3;
/// The first two share a slot and the last does not.
const USERS: [&str; 3] = ["{family}ann", "{family}bob", "carl"];

/// What an order changes, each with the order as its operation key.
async fn serve(client: &Client, tables: &[Table; 2], order: &str, cents: i64) -> Result<Vec<i64>, Error> {
    let mut sums = Vec::new();
    for user in USERS {
        for table in tables {
            sums.push(table.increment(user, cents).once(order).await?.value);
        }
    }
    // Over several shards, and first named: another key of its own.
    let mut journal = client.transaction();
    journal.put(&tables[0], format!("journal:{order}"), "done");
    let served = journal.increment(&tables[1], "served", 1);
    match journal.commit().once(order).await? {
        TransactionOutcome::Committed(results) => sums.push(results.of(served).value),
        TransactionOutcome::NotCommitted(failure) => return Err(failure.into()),
    }
    Ok(sums)
}

#[test]
fn one_order_is_used_for_the_same_user_in_two_tables_and_for_several_users() {
    let mut cluster = Cluster::start("operation-keys", "500ms", SHARDS);
    let addresses = cluster.addresses();
    let first = block_on(async {
        let client = Client::connect(addresses.clone()).await.expect("a cluster");
        let tables = [client.create_table("spent").await.unwrap(), client.create_table("points").await.unwrap()];
        let first = serve(&client, &tables, "order-42", 25).await.expect("no two of these are one operation");
        assert_eq!(first, [25, 25, 25, 25, 25, 25, 1]);
        first
    });
    // Another process sends the order again, and another primary has taken over meanwhile.
    cluster.kill(2);
    block_on(async {
        let client = Client::connect(addresses).await.expect("a cluster");
        let tables = [client.create_table("spent").await.unwrap(), client.create_table("points").await.unwrap()];
        assert_eq!(serve(&client, &tables, "order-42", 25).await.expect("answered as before"), first);
        for user in USERS {
            for table in &tables {
                let other = table.increment(user, 26).once("order-42").await;
                assert!(matches!(other, Err(Error::Rejected(Rejection::OperationKeyMismatch))), "{other:?}");
                assert_eq!(table.get_number(user).await.unwrap().map(|sum| sum.value), Some(25), "once");
            }
        }
    });
}
