//! Moves money between two accounts, if there is enough, once for each order: `cargo run -p kasha-client --example
//! transfer`, next to a running `kasha start`.

use kasha_client::{Client, Error, Table, TransactionOutcome};

/// The keys of one customer are in one shard, since they have a common `{tag}`.
const FROM: &str = "{customer7}savings";
const TO: &str = "{customer7}spending";

/// Moves the amount, unless this order has moved it before. `false`: there is not enough.
async fn transfer(client: &Client, accounts: &Table, amount: i64, order: &str) -> Result<bool, Error> {
    let done = format!("{{customer7}}done:{order}");
    loop {
        // Both at one moment. This program may have crashed after the order was done, and before it was told.
        let [savings, mark] = accounts.multi_get(&[FROM, &done]).await?.try_into().expect("one for each key");
        if mark.is_some() {
            return Ok(true);
        }
        let number = |bytes: &[u8]| String::from_utf8_lossy(bytes).parse().unwrap_or(0);
        let (balance, version) = savings.map_or((0, 0), |value| (number(&value.bytes), value.version));
        if balance < amount {
            return Ok(false);
        }
        let mut transaction = client.transaction();
        transaction.check_absent(accounts, &done);
        transaction.check_version(accounts, FROM, version);
        let left = transaction.increment(accounts, FROM, -amount);
        transaction.increment(accounts, TO, amount);
        transaction.put(accounts, &done, "");
        match transaction.commit().await? {
            TransactionOutcome::Committed(results) => {
                println!("{} left", results.of(left).value);
                return Ok(true);
            }
            // Somebody was faster: look again.
            TransactionOutcome::NotCommitted(failure) => println!("part {}: {}", failure.part, failure.why),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::connect(["127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402"]).await?;
    let accounts = client.create_table("accounts").await?;
    accounts.increment(FROM, 100).once("deposit-1").await?;
    for order in ["order-43", "order-43", "order-44"] {
        println!("{order}: {}", if transfer(&client, &accounts, 60, order).await? { "moved" } else { "not enough" });
    }
    Ok(())
}
