//! Finding the cluster that a command is for.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use kasha_client::{Client, ClientOptions, Error};

use crate::stderr::complain;

/// The options that say which cluster to talk to.
#[derive(Args)]
pub struct Address {
    /// Addresses of one or more nodes, or of the coordinator.
    #[arg(
        long = "address",
        global = true,
        env = "KASHA_ADDRESS",
        default_value = kasha_client::LOCAL_ADDRESSES,
        value_delimiter = ','
    )]
    pub addresses: Vec<String>,
}

/// Whether addresses can be some at all.
fn check_addresses(address: &Address) -> Result<()> {
    for address in &address.addresses {
        let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(1..))) {
            bail!("{address:?} is no address: write host:port, for example 127.0.0.1:7400 (K0403)");
        }
    }
    Ok(())
}

/// Connects, with an error that says what to do. Somebody waits at the terminal: if nobody listens, that is said soon.
pub async fn connect(address: &Address, deadline: Duration) -> Result<Client> {
    /// A cluster that is there answers sooner.
    const SAYS_AFTER: Duration = Duration::from_millis(600);
    /// Then nobody listens there, and it may just be starting.
    const TRIES_ON: Duration = Duration::from_secs(2);
    /// Somebody listens there, and is slow.
    const WAITS: Duration = Duration::from_secs(10);
    check_addresses(address)?;
    let within = deadline.min(WAITS);
    let options = ClientOptions { connect_timeout: within, deadline, ..ClientOptions::default() };
    let mut connecting = std::pin::pin!(Client::connect_with(&address.addresses, options));
    let places = address.addresses.join(", ");
    let found = match tokio::time::timeout(SAYS_AFTER, &mut connecting).await {
        Ok(found) => found,
        Err(_) => match knock(&address.addresses).await {
            Ok(()) => {
                complain(&format!(
                    "kasha: somebody listens at {places}, but has not answered yet: waiting for {within:?}"
                ));
                connecting.await
            }
            Err(why) => {
                complain(&format!("kasha: nobody answers at {places}: trying for two more seconds"));
                let found = tokio::time::timeout(TRIES_ON.min(within), connecting).await;
                found.unwrap_or(Err(Error::Connect(why)))
            }
        },
    };
    found.map_err(|error| match error {
        Error::Connect(why) => NoCluster { why, places }.into(),
        other => other.into(),
    })
}

/// Nobody was reached, so nothing was executed.
#[derive(Debug, thiserror::Error)]
#[error("no cluster answers: {why}; start one (`kasha start`), or name another than {places} with --address (K0208)")]
pub struct NoCluster {
    why: String,
    places: String,
}

/// Connects if somebody answers at once, and says nothing.
pub async fn connect_at_once(address: &Address) -> Result<Client> {
    check_addresses(address)?;
    let options = ClientOptions { connect_timeout: Duration::from_secs(1), ..ClientOptions::default() };
    Ok(Client::connect_with(&address.addresses, options).await?)
}

/// Whether anybody listens at one of these addresses, or why not.
async fn knock(addresses: &[String]) -> Result<(), String> {
    const WITHIN: Duration = Duration::from_millis(300);
    let mut knocks = tokio::task::JoinSet::new();
    for address in addresses {
        let address = address.clone();
        knocks.spawn(async move {
            match tokio::time::timeout(WITHIN, tokio::net::TcpStream::connect(&address)).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(format!("{address}: {error}")),
                Err(_) => Err(format!("{address}: no answer")),
            }
        });
    }
    let mut why = "no address was given".to_owned();
    for knock in knocks.join_all().await {
        match knock {
            Ok(()) => return Ok(()),
            Err(error) => why = error,
        }
    }
    Err(why)
}
