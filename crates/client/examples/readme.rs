//! The program of the README: `cargo run --release --example readme`, next to a running `kasha start`.

use std::time::Duration;

use kasha_client::{Client, Error};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    // The cluster that KASHA_ADDRESS names, or that of `kasha start`. Clones of the client share its session.
    let client = Client::connect_env().await?;
    let accounts = client.create_table("accounts").await?;

    // However often this program is started, and wherever it dies, order 42 is booked once.
    let spent = accounts.increment("spent:alice", 10).once("order-42").await?;
    println!("alice has spent {}", spent.value);

    // A hundred calls a minute: the counter of a minute ends by itself, and the next call begins a new one.
    let calls = accounts.increment("calls:alice", 1).at_most(100).expires_in(Duration::from_secs(60)).await?;
    println!("this call: {calls:?}");
    Ok(())
}
