//! The counters of a session. Watch the rate of the fast path: it can be lost silently (DESIGN 13.15).

use kasha_wire::Refusal;

const REFUSALS: usize = 16;

/// Counters since the session began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Updates sent, each once.
    pub updates: u64,
    /// Reads asked for.
    pub reads: u64,
    /// Attempts of updates and reads.
    pub attempts: u64,
    /// Attempts after the first attempt of a call.
    pub retries: u64,
    /// Attempts that got no answer in time.
    pub timeouts: u64,
    /// Updates that were complete because all witnesses accepted (of several shards: all of all shards): one round trip.
    pub fast: u64,
    /// Updates that were complete because they were synced.
    pub synced: u64,
    /// Sync requests sent.
    pub sync_requests: u64,
    /// Records that witnesses accepted.
    pub accepted: u64,
    /// Records that witnesses did not accept.
    pub rejected: u64,
    /// Updates whose deadline passed while they were under way, so that the caller was told "unknown".
    pub unknown: u64,
    /// Transactions that met another one, and were tried again under another id.
    pub conflicts: u64,
    /// Updates that the session began to cancel.
    pub cancellations: u64,
    /// Client ids that were granted. A session of several shards survives one that stops once it has two ids (R4.10).
    pub client_ids: u64,
    /// Client ids whose lease was lost.
    pub leases_lost: u64,
    /// Newer configurations that were received.
    pub configurations: u64,
    /// Frames that could not be read.
    pub bad_frames: u64,
    /// Frames from an endpoint that must not send them, of another cluster, or that nobody asked for.
    pub stray_frames: u64,
    pub(super) refusals: [u64; REFUSALS],
}

impl SessionStats {
    /// How often this refusal came.
    #[must_use]
    pub fn refusals(&self, why: Refusal) -> u64 {
        self.refusals.get(why as usize).copied().unwrap_or(0)
    }

    pub(super) fn refused(&mut self, why: Refusal) {
        if let Some(count) = self.refusals.get_mut(why as usize) {
            *count += 1;
        }
    }
}
