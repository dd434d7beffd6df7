//! A quota: each user may call a hundred times a minute, whichever process counts.
//! `cargo run --release --example quota`, next to a running `kasha start`.

use std::time::Duration;

use kasha_client::{Bounded, Client, Error, Table, TimeToLive};

const LIMIT: i64 = 100;
const PERIOD: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Quotas {
    calls: Table,
}

enum Admission {
    /// The call may be made, and so many more in this period.
    Admitted { left: i64 },
    /// The call may not be made before the period is over.
    Refused { over_in: Duration },
}

impl Quotas {
    /// Counts one call of a user. `request` is the name of the call: whoever asks again under this name is not counted again, and
    /// gets the same answer.
    async fn admit(&self, user: &str, request: &str) -> Result<Admission, Error> {
        let count = self.calls.increment(user, 1).at_most(LIMIT).expires_in(PERIOD);
        match count.once(request).remember_for(PERIOD).await? {
            Bounded::Done(counter) => Ok(Admission::Admitted { left: LIMIT - counter.value }),
            Bounded::Rejected { .. } => {
                let over_in = match self.calls.time_to_live(user).await? {
                    Some(TimeToLive::For(time)) => time,
                    Some(TimeToLive::Forever) | None => Duration::ZERO,
                };
                Ok(Admission::Refused { over_in })
            }
        }
    }
}

/// Shows it, and checks what it shows.
pub async fn run(client: &Client) -> Result<(), Error> {
    let quotas = Quotas { calls: client.create_table("calls").await? };
    // A new user in each run, so that the quota is not used up yet.
    let user = format!("user-{}", std::process::id());
    let mut callers = Vec::new();
    for caller in 0..8 {
        let (quotas, user) = (quotas.clone(), user.clone());
        callers.push(tokio::spawn(async move {
            let (mut admitted, mut over_in) = (0, None);
            for call in 0..20 {
                match quotas.admit(&user, &format!("{user}-{caller}-{call}")).await? {
                    Admission::Admitted { left } => {
                        assert!(left >= 0, "nobody is admitted above the limit");
                        admitted += 1;
                    }
                    Admission::Refused { over_in: time } => over_in = Some(time),
                }
            }
            Ok::<_, Error>((admitted, over_in))
        }));
    }
    let (mut admitted, mut over_in) = (0, Duration::ZERO);
    for caller in callers {
        let (of_caller, time) = caller.await.expect("no caller panics")?;
        admitted += of_caller;
        over_in = over_in.max(time.unwrap_or_default());
    }
    println!("{admitted} of 160 calls were admitted; the next ones will be in {over_in:?}");
    assert_eq!(admitted, LIMIT, "exactly as many as the quota has");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    run(&Client::connect_env().await?).await
}
