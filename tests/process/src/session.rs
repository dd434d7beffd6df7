//! One session that counts one key, and checks that each answer follows from the one before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::JoinHandle;

use crate::wait_for;
use kasha_client::Client;

/// A client that makes one call after the other, each an update or a read of what it did.
#[derive(Debug)]
pub struct OpenSession {
    stop: Arc<AtomicBool>,
    value: Arc<AtomicI64>,
    thread: JoinHandle<()>,
}

impl OpenSession {
    /// Opens the session, and begins to count.
    #[must_use]
    pub fn start(addresses: Vec<String>, key: String) -> Self {
        let (stop, value) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
        let (theirs, count) = (Arc::clone(&stop), Arc::clone(&value));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let client = Client::connect(&addresses).await.unwrap();
                let table = client.table("default").await.unwrap();
                while !theirs.load(Ordering::Relaxed) {
                    let counter = table.increment(&key, 1).await.unwrap();
                    assert_eq!(counter.value, count.load(Ordering::Relaxed) + 1);
                    let read = table.get(&key).await.unwrap().unwrap();
                    assert_eq!(read.bytes, counter.value.to_string().as_bytes());
                    count.store(counter.value, Ordering::Relaxed);
                }
            });
        });
        Self { stop, value, thread }
    }

    /// Waits until this many more updates were executed.
    ///
    /// # Panics
    /// If that does not happen in time.
    pub fn goes_on(&self, updates: i64) {
        let until = self.value.load(Ordering::Relaxed) + updates;
        wait_for("progress of the session", || {
            assert!(!self.thread.is_finished(), "the session has ended");
            let value = self.value.load(Ordering::Relaxed);
            if value >= until { Ok(()) } else { Err(format!("{value} of {until}")) }
        });
    }

    /// Ends the session.
    ///
    /// # Panics
    /// If any answer was wrong.
    pub fn ends_exact(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}
