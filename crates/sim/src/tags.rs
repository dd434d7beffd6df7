//! Numbers of messages in the wire crate's table, for watchers that see all frames and decode only a few of them.

use kasha_wire::frame::Kind;

use crate::world::Sent;

/// A configuration is sent.
pub const CONFIGURATION_IS: u8 = 9;
/// A member reports its log to a new primary.
pub const FENCE_REPORT: u8 = 33;
/// A primary attaches a member.
pub const ATTACH: u8 = 34;
/// A member is attached.
pub const ATTACHED: u8 = 35;
/// A client id and a lease are granted.
pub const SESSION_OPENED: u8 = 11;
/// A lease is renewed.
pub const LEASE_RENEWED: u8 = 13;
/// A lease is lost.
pub const LEASE_LOST: u8 = 14;
/// A core speaks to the coordinator.
pub const HEARTBEAT: u8 = 24;
/// The coordinator answers a heartbeat, and grants a lease.
pub const HEARTBEAT_ANSWER: u8 = 25;
/// The coordinator says which clients are expired.
pub const LEASE_VERDICT: u8 = 27;
/// A frozen witness hands out what it holds.
pub const WITNESS_HOLDS: u8 = 42;
/// A primary names requests that witnesses can drop.
pub const GC: u8 = 43;
/// A witness has dropped them, and names suspects.
pub const GC_DONE: u8 = 44;

/// The number of the message that a frame carries; `None`: it carries none.
#[must_use]
pub fn message(sent: &Sent<'_>) -> Option<u8> {
    if sent.kind == Kind::Message as u8 { sent.payload.first().copied() } else { None }
}

#[cfg(test)]
mod tests {
    use kasha_wire::Message;

    use super::*;

    #[test]
    fn the_table_says_the_same() {
        let number = |name: &str| Message::TABLE.iter().find(|row| row.0 == name).map(|row| row.1);
        assert_eq!(number("ConfigurationIs"), Some(CONFIGURATION_IS));
        assert_eq!(number("FenceReport"), Some(FENCE_REPORT));
        assert_eq!(number("SessionOpened"), Some(SESSION_OPENED));
        assert_eq!(number("LeaseRenewed"), Some(LEASE_RENEWED));
        assert_eq!(number("LeaseLost"), Some(LEASE_LOST));
        assert_eq!(number("Heartbeat"), Some(HEARTBEAT));
        assert_eq!(number("HeartbeatAnswer"), Some(HEARTBEAT_ANSWER));
        assert_eq!(number("Attach"), Some(ATTACH));
        assert_eq!(number("Attached"), Some(ATTACHED));
        assert_eq!(number("LeaseVerdict"), Some(LEASE_VERDICT));
        assert_eq!(number("WitnessHolds"), Some(WITNESS_HOLDS));
        assert_eq!(number("Gc"), Some(GC));
        assert_eq!(number("GcDone"), Some(GC_DONE));
    }
}
