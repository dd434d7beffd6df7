//! Sessions: logins that end when nobody uses them, and never before.
//! `cargo run --release --example sessions`, next to a running `kasha start`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use kasha_client::{Client, Error, Table, TimeToLive};

/// How long a session lives on unused.
const IDLE: Duration = Duration::from_secs(30 * 60);

struct Sessions {
    table: Table,
}

impl Sessions {
    /// Begins a session. Returns its name.
    async fn login(&self, user: &str) -> Result<String, Error> {
        // A service that gives names to strangers takes more randomness, from the system.
        let session = format!("{user}:{:016x}", RandomState::new().build_hasher().finish());
        self.table.put(&session, user).expires_in(IDLE).await?;
        Ok(session)
    }

    /// The user of a session, which is used and lives on. `None`: it has ended.
    async fn user(&self, session: &str) -> Result<Option<String>, Error> {
        if self.table.expire(session, IDLE).await?.is_none() {
            return Ok(None);
        }
        let user = self.table.get(session).await?;
        Ok(user.and_then(|user| user.as_str().map(str::to_owned)))
    }

    async fn logout(&self, session: &str) -> Result<(), Error> {
        self.table.delete(session).await?;
        Ok(())
    }

    /// Ends all sessions that a user has. Returns how many there were.
    async fn logout_everywhere(&self, user: &str) -> Result<u32, Error> {
        let (mut sessions, mut ended) = (self.table.scan().prefix(format!("{user}:")), 0);
        while let Some(session) = sessions.next_key().await? {
            ended += u32::from(self.table.delete(&session.key).await?.is_some());
        }
        Ok(ended)
    }
}

/// Shows it, and checks what it shows.
pub async fn run(client: &Client) -> Result<(), Error> {
    let sessions = Sessions { table: client.create_table("sessions").await? };
    sessions.logout_everywhere("alice").await?;

    let (phone, laptop, tablet) =
        (sessions.login("alice").await?, sessions.login("alice").await?, sessions.login("alice").await?);
    assert_eq!(sessions.user(&phone).await?.as_deref(), Some("alice"));
    if let Some(TimeToLive::For(time)) = sessions.table.time_to_live(&phone).await? {
        println!("{phone} is a session of alice, and ends in {time:?} if nobody uses it");
    }

    sessions.logout(&tablet).await?;
    assert_eq!(sessions.user(&tablet).await?, None, "ended");

    let ended = sessions.logout_everywhere("alice").await?;
    assert_eq!(ended, 2, "phone and laptop");
    assert_eq!(sessions.user(&laptop).await?, None, "ended");
    println!("{ended} more sessions of alice were ended");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    run(&Client::connect(["127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402"]).await?).await
}
