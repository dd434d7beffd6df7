//! Sells the seats of a concert: `cargo run --release --example seats`, next to a running `kasha start`.
//!
//! Seats, wallets and tickets are in three tables, and their keys in whatever shards. Many customers want the same seats at the same
//! time. No seat is sold twice, nobody pays twice for one order, and no wallet goes below zero.

use std::time::Duration;

use kasha_client::{Client, Error, Table};

const SEATS: usize = 10;
const CUSTOMERS: usize = 6;
const PRICE: i64 = 30;

#[derive(Clone)]
struct Concert {
    client: Client,
    seats: Table,
    wallets: Table,
    tickets: Table,
}

enum NoSale {
    SoldOut,
    NotEnoughMoney,
    Kasha(Error),
}

impl From<Error> for NoSale {
    fn from(error: Error) -> Self {
        Self::Kasha(error)
    }
}

impl Concert {
    /// Sells a free seat to the customer, unless this order has one already. Returns the seat.
    async fn sell(&self, customer: &str, order: &str) -> Result<String, NoSale> {
        let sale = self.client.in_transaction(|transaction| async move {
            // This program may have crashed after the sale, before it was told.
            if let Some(seat) = transaction.get(&self.tickets, order).await? {
                return Ok(String::from_utf8_lossy(&seat.bytes).into_owned());
            }
            let names: Vec<String> = (1..=SEATS).map(|seat| format!("seat-{seat}")).collect();
            let taken = transaction.get_many(&self.seats, &names).await?;
            let free = taken.iter().position(Option::is_none).ok_or(NoSale::SoldOut)?;
            transaction.put(&self.seats, &names[free], customer);
            let paid = transaction.increment_within(&self.wallets, customer, -PRICE, 0..).await?;
            paid.ok_or(NoSale::NotEnoughMoney)?;
            transaction.put(&self.tickets, order, &names[free]);
            Ok(names[free].clone())
        });
        sale.await
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::connect_env().await?;
    let (seats, wallets) = (client.create_table("seats").await?, client.create_table("wallets").await?);
    let concert = Concert { tickets: client.create_table("tickets").await?, client, seats, wallets };
    let mut customers = Vec::new();
    for customer in (1..=CUSTOMERS).map(|number| format!("customer-{number}")) {
        concert
            .wallets
            .increment(&customer, 3 * PRICE)
            .once(format!("gift:{customer}"))
            .remember_for(Duration::from_secs(60))
            .await?;
        let concert = concert.clone();
        customers.push(tokio::spawn(async move {
            for order in (1..=4).map(|order| format!("{customer}:order-{order}")) {
                match concert.sell(&customer, &order).await {
                    Ok(seat) => println!("{order}: {seat}"),
                    Err(NoSale::SoldOut) => println!("{order}: no seat is left"),
                    Err(NoSale::NotEnoughMoney) => println!("{order}: not enough money"),
                    Err(NoSale::Kasha(error)) => println!("{order}: {error}"),
                }
            }
        }));
    }
    for customer in customers {
        customer.await.expect("no customer fails");
    }
    let names: Vec<String> = (1..=SEATS).map(|seat| format!("seat-{seat}")).collect();
    let sold = concert.seats.multi_get(&names).await?.into_iter().flatten().count();
    println!("{sold} of {SEATS} seats are sold");
    Ok(())
}
