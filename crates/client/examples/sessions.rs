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
    /// Begins a session of a user. Returns the session's name, which begins with the user's number.
    async fn login(&self, user: u64) -> Result<String, Error> {
        // A service that gives names to strangers takes more randomness, from the system.
        let session = format!("{user}:{:016x}", RandomState::new().build_hasher().finish());
        self.table.put(&session, user.to_string()).expires_in(IDLE).await?;
        Ok(session)
    }

    /// The user of a session, which is used and lives on. `None`: it has ended.
    async fn user(&self, session: &str) -> Result<Option<i64>, Error> {
        if self.table.expire(session, IDLE).await?.is_none() {
            return Ok(None);
        }
        Ok(self.table.get_number(session).await?.map(|user| user.value))
    }

    async fn logout(&self, session: &str) -> Result<(), Error> {
        self.table.delete(session).await?;
        Ok(())
    }

    /// Ends all sessions that a user has. Returns how many there were.
    async fn logout_everywhere(&self, user: u64) -> Result<u32, Error> {
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
    sessions.logout_everywhere(7).await?;

    let (phone, laptop, tablet) = (sessions.login(7).await?, sessions.login(7).await?, sessions.login(7).await?);
    assert_eq!(sessions.user(&phone).await?, Some(7));
    if let Some(TimeToLive::For(time)) = sessions.table.time_to_live(&phone).await? {
        println!("{phone} is a session of user 7, and ends in {time:?} if nobody uses it");
    }

    sessions.logout(&tablet).await?;
    assert_eq!(sessions.user(&tablet).await?, None, "ended");

    let ended = sessions.logout_everywhere(7).await?;
    assert_eq!(ended, 2, "phone and laptop");
    assert_eq!(sessions.user(&laptop).await?, None, "ended");
    println!("{ended} more sessions of user 7 were ended");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    run(&Client::connect_env().await?).await
}
