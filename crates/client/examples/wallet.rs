//! Wallets: money that never goes below zero, is never moved twice, and never by half, in whatever shards the wallets are.
//! `cargo run --release --example wallet`, next to a running `kasha start`.

use kasha_client::{Bounded, Client, Error, Failure, Table, TransactionOutcome, WhyPartFailed};

const WALLETS: i64 = 8;

#[derive(Clone)]
struct Bank {
    client: Client,
    wallets: Table,
}

#[derive(Debug, PartialEq)]
enum Payment {
    Done { left: i64 },
    NotEnough { has: i64 },
}

impl Bank {
    async fn deposit(&self, to: &str, amount: u32, order: &str) -> Result<i64, Error> {
        Ok(self.wallets.increment(to, amount.into()).once(order).await?.value)
    }

    /// Takes money out of a wallet, once for each order.
    async fn withdraw(&self, from: &str, amount: u32, order: &str) -> Result<Payment, Error> {
        match self.wallets.increment(from, -i64::from(amount)).at_least(0).once(order).await? {
            Bounded::Done(counter) => Ok(Payment::Done { left: counter.value }),
            Bounded::Rejected { value, .. } => Ok(Payment::NotEnough { has: value }),
        }
    }

    /// Moves money between two wallets, once for each order. Both change, or neither.
    async fn transfer(&self, from: &str, to: &str, amount: u32, order: &str) -> Result<Payment, Error> {
        let amount = i64::from(amount); // nobody takes money by sending less than nothing
        let mut transfer = self.client.transaction();
        let left = transfer.increment_within(&self.wallets, from, -amount, 0..);
        transfer.increment(&self.wallets, to, amount);
        match transfer.commit().once(order).await? {
            TransactionOutcome::Committed(results) => Ok(Payment::Done { left: results.of(left).value }),
            TransactionOutcome::NotCommitted(Failure { why: WhyPartFailed::OutOfBounds(has), .. }) => {
                Ok(Payment::NotEnough { has })
            }
            TransactionOutcome::NotCommitted(failure) => Err(failure.into()),
        }
    }

    /// All wallets, as they are at one moment.
    async fn balances(&self) -> Result<Vec<i64>, Error> {
        let names: Vec<_> = (0..WALLETS).map(wallet).collect();
        let values = self.wallets.multi_get(&names).await?;
        Ok(values.iter().map(|value| value.as_ref().and_then(|value| value.as_i64()).unwrap_or(0)).collect())
    }
}

fn wallet(number: i64) -> String {
    format!("wallet-{}", number % WALLETS)
}

/// Shows it, and checks what it shows.
pub async fn run(client: &Client) -> Result<(), Error> {
    let bank = Bank { client: client.clone(), wallets: client.create_table("wallets").await? };
    // Another run on the same cluster is to be another day, with orders of its own.
    let day = format!("day-{}", std::process::id());
    for number in 0..WALLETS {
        bank.deposit(&wallet(number), 100, &format!("{day}:deposit-{number}")).await?;
    }
    let total: i64 = bank.balances().await?.iter().sum();

    // Everybody pays everybody, and sends each order twice.
    let mut payers = Vec::new();
    for payer in 0..WALLETS {
        let (bank, day) = (bank.clone(), day.clone());
        payers.push(tokio::spawn(async move {
            let mut refused = 0;
            for number in 0..25 {
                let (from, to) = (wallet(payer), wallet(payer + 1 + number % (WALLETS - 1)));
                let order = format!("{day}:transfer-{payer}-{number}");
                let first = bank.transfer(&from, &to, 40, &order).await?;
                let second = bank.transfer(&from, &to, 40, &order).await?;
                assert_eq!(first, second, "an order has one answer");
                refused += u32::from(matches!(first, Payment::NotEnough { .. }));
            }
            Ok::<_, Error>(refused)
        }));
    }
    let mut refused = 0;
    for payer in payers {
        refused += payer.await.expect("no payer panics")?;
        let balances = bank.balances().await?;
        assert_eq!(balances.iter().sum::<i64>(), total, "no money comes or goes: {balances:?}");
        assert!(balances.iter().all(|&balance| balance >= 0), "no wallet is below zero: {balances:?}");
    }
    println!("200 transfers, {refused} of them refused: {:?}", bank.balances().await?);

    match bank.withdraw("wallet-0", 1_000_000, &format!("{day}:withdrawal")).await? {
        Payment::NotEnough { has } => println!("a million from wallet-0: it has {has}"),
        Payment::Done { left } => panic!("nobody has a million: {left} left"),
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    run(&Client::connect_env().await?).await
}
