//! What the README shows, as a program: `cargo run --release --example readme`, next to a running `kasha start`.

use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), kasha_client::Error> {
    // Any of the addresses will do. Share this one client: its clones use the same session and connections.
    let client = kasha_client::Client::connect(["127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402"]).await?;
    let accounts = client.create_table("accounts").await?;
    let spent = accounts.increment("spent:alice", 10).once("order-42").await?; // survives a crash of this program

    // A hundred calls a minute: the counter of a minute ends, and the next call begins a new one.
    let quota = accounts.increment("calls:alice", 1).at_most(100).expires_in(Duration::from_secs(60)).await?;

    println!("{} spent so far, and {quota:?}", spent.value);
    Ok(())
}
