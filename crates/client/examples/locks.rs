//! Locks with fencing tokens: who was away for too long has lost the lock, and can do no harm with it.
//! `cargo run --release --example locks`, next to a running `kasha start`.

use std::time::Duration;

use kasha_client::{Client, Conditional, Error, Failure, Table, TransactionOutcome, WhyPartFailed};

/// How long a lock is held that its holder does not renew.
const LEASE: Duration = Duration::from_millis(500);

#[derive(Clone)]
struct Locks {
    client: Client,
    table: Table,
}

/// A lock that was taken. It may be lost meanwhile.
struct Lock {
    locks: Locks,
    name: String,
    /// The fencing token: it grows with each holder and each renewal. Whatever is outside of Kasha remembers the highest token that
    /// it has seen, and refuses lower ones.
    token: u64,
}

impl Locks {
    /// Takes the lock if nobody has it.
    async fn acquire(&self, name: &str, holder: &str) -> Result<Option<Lock>, Error> {
        match self.table.put_if_absent(name, holder).expires_in(LEASE).await? {
            Conditional::Done(token) => Ok(Some(Lock { locks: self.clone(), name: name.to_owned(), token })),
            Conditional::Failed(_) => Ok(None),
        }
    }
}

impl Lock {
    /// Begins the lease anew. `false`: the lock is lost.
    async fn renew(&mut self) -> Result<bool, Error> {
        let mut renewal = self.locks.client.transaction();
        renewal.check_version(&self.locks.table, &self.name, self.token);
        let token = renewal.expire(&self.locks.table, &self.name, LEASE);
        match renewal.commit().await? {
            TransactionOutcome::Committed(results) => self.token = results.of(token).expect("it was there"),
            TransactionOutcome::NotCommitted(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Writes what the lock protects, if the lock is still held at that moment. `false`: the lock is lost, and nothing was written.
    async fn write(&self, table: &Table, key: &str, value: &str) -> Result<bool, Error> {
        let mut write = self.locks.client.transaction();
        write.check_version(&self.locks.table, &self.name, self.token);
        write.put(table, key, value);
        match write.commit().await? {
            TransactionOutcome::Committed(_) => Ok(true),
            TransactionOutcome::NotCommitted(Failure { why: WhyPartFailed::Check(_), .. }) => Ok(false),
            TransactionOutcome::NotCommitted(failure) => Err(failure.into()),
        }
    }

    /// Gives the lock up, if it is still held.
    async fn release(self) -> Result<(), Error> {
        self.locks.table.delete_if_version(&self.name, self.token).await?;
        Ok(())
    }
}

/// Shows it, and checks what it shows.
pub async fn run(client: &Client) -> Result<(), Error> {
    let locks = Locks { client: client.clone(), table: client.create_table("locks").await? };
    let reports = client.create_table("reports").await?;
    let name = format!("report-{}", std::process::id());

    let mut first = locks.acquire(&name, "first").await?.expect("nobody has it");
    let mut second = locks.acquire(&name, "second").await?;
    println!("the second holder gets it meanwhile: {}", second.is_some());
    let renewed = first.renew().await?;
    println!("the first holder has token {}; renewed: {renewed}", first.token);

    // The first holder is away for too long: its process sleeps, or its network is cut.
    let second = loop {
        match second {
            Some(lock) => break lock,
            None => tokio::time::sleep(LEASE / 10).await,
        }
        second = locks.acquire(&name, "second").await?;
    };
    println!("the second holder has token {}", second.token);
    assert!(second.token > first.token, "tokens grow");

    assert!(!first.write(&reports, &name, "of the first").await?, "the first holder is too late");
    assert!(!first.renew().await?, "what is lost cannot be renewed");
    let has_written = second.write(&reports, &name, "of the second").await?;
    first.release().await?;
    second.release().await?;
    let report = reports.get(&name).await?;
    println!("the report is {:?}", report.as_ref().and_then(|report| report.as_str()));
    assert!(!has_written || report.is_some_and(|report| report.as_str() == Some("of the second")));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    run(&Client::connect_env().await?).await
}
