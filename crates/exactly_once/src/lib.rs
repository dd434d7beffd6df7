//! Exactly-once execution of updates (RIFL): a retried update is never run again; its saved result is returned.
//!
//! The server half, [`Tracker`], knows which updates of which clients have run, and where each completion record lies.
//! The client half, [`ClientWindow`], numbers updates and knows which results have arrived. Neither half knows what an
//! update does, what a log is or how messages travel. The [`Place`] of a record is a number by which the user finds the
//! record again (an offset in a log, an index of an array).
//!
//! Example, which guards a plain map:
//!
//! ```
//! use kasha_exactly_once::{ClientWindow, LookUp, Place, Request, Tracker};
//! use kasha_types::{ClientId, ClusterTime, RpcId, body_hash};
//! use std::collections::BTreeMap;
//!
//! #[derive(Default)]
//! struct Counters { map: BTreeMap<String, i64>, results: Vec<i64>, tracker: Tracker }
//!
//! impl Counters {
//!     fn add(&mut self, request: &Request, key: &str, amount: i64) -> Result<i64, LookUp> {
//!         match self.tracker.look_up(request) {
//!             LookUp::New => {
//!                 let value = self.map.entry(key.into()).or_default();
//!                 *value += amount;
//!                 let place = Place(self.results.len() as u64);
//!                 self.results.push(*value); // with a log: the change and the record, in one append
//!                 self.tracker.complete(request, place, |_dead| ());
//!                 Ok(*value)
//!             }
//!             LookUp::Completed(place) => Ok(self.results[place.0 as usize]),
//!             refused => Err(refused),
//!         }
//!     }
//! }
//!
//! let (client, lease_expiry) = (ClientId(1), ClusterTime(60_000)); // both granted by whoever keeps the leases
//! let (mut window, mut counters) = (ClientWindow::new(), Counters::default());
//! let id = window.assign().expect("fewer than 512 are outstanding");
//! let rpc = RpcId { client, sequence: id.sequence };
//! let request = Request { rpc, acknowledgement: id.acknowledgement, lease_expiry, body_hash: body_hash(b"add k 5") };
//!
//! assert_eq!(counters.add(&request, "k", 5), Err(LookUp::LeaseUnproven)); // nothing is kept for strangers
//! counters.tracker.prove(client, lease_expiry);
//! assert_eq!(counters.add(&request, "k", 5), Ok(5));
//! assert_eq!(counters.add(&request, "k", 5), Ok(5)); // the retry: same result, not run again
//! assert_eq!(counters.map["k"], 5);
//! window.finish(id.sequence); // the next request's acknowledgement lets the record go
//! ```

mod clients;
mod codec;
mod floor;
mod operation_key;
mod operation_key_record;
mod outstanding;
mod record;
mod tracker;
mod window;

pub use floor::{CLIENTS_PER_FLOOR_ENTRY_MAX, ExpiryFloor, ExpiryFloorEntry, ExpiryFloorEntryRef};
pub use operation_key::{Fingerprint, OperationKeyCheck, OperationKeys, OperationKeysStats};
pub use operation_key_record::{OperationKeyDropped, OperationKeyRecord};
pub use record::{CompletionRecord, CompletionRecordRef};
pub use tracker::{LookUp, Request, ScanCursor, Tracker, TrackerStats};
pub use window::{Assigned, ClientWindow};

/// Where a record lies, in whatever its user keeps records in: a log entry's offset, for us. Two records never have one
/// place, and a copy's place is greater than its original's.
pub use kasha_types::EntryOffset as Place;
