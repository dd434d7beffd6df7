//! Values that end, and how long they were there.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use kasha_client::session::{CallOptions, Completion, Session};
use kasha_runtime::EventLoop;
use kasha_types::TableId;
use kasha_wire::operation::Lifetime;
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Read, Update};

use crate::client::call;

/// Between two looks at a value.
const LOOK: Duration = Duration::from_millis(2);

/// A value that ends.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    key: String,
    lifetime: Duration,
    began: Instant,
}

impl Ending {
    /// Puts the value.
    pub(crate) fn put(
        client: &mut EventLoop<Session>,
        table: TableId,
        key: &str,
        lifetime: Duration,
    ) -> anyhow::Result<Self> {
        let millis = u64::try_from(lifetime.as_millis()).ok().and_then(Lifetime::from_millis);
        let put = Update::put_expiring(key.as_bytes(), millis.expect("some milliseconds"), b"v");
        let began = Instant::now();
        let done = call(client, |session, now, out| session.update(now, table, &put, &CallOptions::default(), out))?;
        ensure!(matches!(done, Completion::Executed { .. }), "a put came to {done:?}");
        Ok(Self { key: key.to_owned(), lifetime, began })
    }

    /// How long ago it was put.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Looks until it is gone. Returns how long it was there.
    pub(crate) fn wait(&self, client: &mut EventLoop<Session>, table: TableId) -> anyhow::Result<Duration> {
        loop {
            let read = Read::Exists { key: self.key.as_bytes() };
            let found = call(client, |session, now, out| session.read(now, table, &read, None, out))?;
            let Completion::Read { result } = found else { bail!("a read came to {found:?}") };
            match Outcome::decode(Shape::Flag, &result) {
                Ok(Outcome::Flags(found)) if found == [false] => return Ok(self.began.elapsed()),
                Ok(_) => sleep(LOOK),
                Err(error) => bail!("a read came to {error}"),
            }
        }
    }

    /// By how much longer it was there than it should have been, in milliseconds; negative if it was there for less.
    pub(crate) fn longer_by_ms(&self, lived: Duration) -> f64 {
        (lived.as_secs_f64() - self.lifetime.as_secs_f64()) * 1000.0
    }
}
