//! Numbers of messages in the wire crate's table, for watchers that see all frames and decode only a few of them.

use kasha_wire::frame::Kind;

use crate::world::Sent;

/// `ConfigurationIs`.
pub const CONFIGURATION_IS: u8 = 9;
/// `FenceReport`.
pub const FENCE_REPORT: u8 = 33;
/// `Attach`.
pub const ATTACH: u8 = 34;
/// `Attached`.
pub const ATTACHED: u8 = 35;
/// `SessionOpened`.
pub const SESSION_OPENED: u8 = 11;
/// `LeaseRenewed`.
pub const LEASE_RENEWED: u8 = 13;
/// `LeaseLost`.
pub const LEASE_LOST: u8 = 14;
/// `Heartbeat`.
pub const HEARTBEAT: u8 = 24;
/// `HeartbeatAnswer`.
pub const HEARTBEAT_ANSWER: u8 = 25;
/// `LeaseVerdict`.
pub const LEASE_VERDICT: u8 = 27;
/// `WitnessHolds`.
pub const WITNESS_HOLDS: u8 = 42;
/// `Gc`.
pub const GC: u8 = 43;
/// `GcDone`.
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
