//! An idempotent charge: a customer pays once for each order, however often the order is sent.
//! `cargo run --release --example charge`, next to a running `kasha start`.

use kasha_client::{Client, Error, Rejection, Table, TransactionOutcome};

#[derive(Clone)]
struct Billing {
    client: Client,
    owed: Table,
    charges: Table,
}

impl Billing {
    /// Charges the customer for an order, and writes that down, at one moment. Returns what the customer owes after this order:
    /// the same number for whoever sends the order again, from any process, at any time of the next day.
    async fn charge(&self, customer: &str, order: &str, cents: i64) -> Result<i64, Error> {
        let mut charge = self.client.transaction();
        // The order's key comes first: the operation key belongs to it, and not to whichever customer is charged.
        charge.put(&self.charges, order, format!("{customer} {cents}"));
        let owed = charge.increment(&self.owed, customer, cents);
        match charge.commit().once(order).await? {
            TransactionOutcome::Committed(results) => Ok(results.of(owed).value),
            TransactionOutcome::NotCommitted(failure) => Err(failure.into()),
        }
    }
}

/// Shows it, and checks what it shows.
pub async fn run(client: &Client) -> Result<(), Error> {
    let (owed, charges) = (client.create_table("owed").await?, client.create_table("charges").await?);
    let billing = Billing { client: client.clone(), owed, charges };
    let before = billing.owed.get_number("alice").await?.map_or(0, |owed| owed.value);

    // Three processes of a service send the same twenty orders, since none of them knows what the others were told.
    let mut senders = Vec::new();
    for _ in 0..3 {
        let billing = billing.clone();
        senders.push(tokio::spawn(async move {
            let mut answers = Vec::new();
            for order in 0..20 {
                answers.push(billing.charge("alice", &format!("order-{order}"), 25).await?);
            }
            Ok::<_, Error>(answers)
        }));
    }
    let mut answers = Vec::new();
    for sender in senders {
        answers.push(sender.await.expect("no sender panics")?);
    }
    assert!(answers.iter().all(|of_sender| *of_sender == answers[0]), "an order has one answer: {answers:?}");

    let charged = billing.owed.get_number("alice").await?.map_or(0, |owed| owed.value) - before;
    assert!(charged == 20 * 25 || charged == 0, "all orders once, or none, if an earlier run sent them: {charged}");
    println!("60 requests for 20 orders of 25 cents: charged {charged} cents");

    // The same order with another amount is a mistake of the caller, and is told apart.
    match billing.charge("alice", "order-0", 26).await {
        Err(Error::Rejected(Rejection::OperationKeyMismatch)) => {
            println!("order-0 for 26 cents: it was for another amount")
        }
        other => panic!("another request under the same order: {other:?}"),
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    run(&Client::connect_env().await?).await
}
