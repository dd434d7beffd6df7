//! Counters of a loop.

/// Counters of a loop's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Connections accepted since the loop began.
    pub accepted: u64,
    /// Connections dialled since the loop began.
    pub dialled: u64,
    /// Frames received, handshakes excepted.
    pub frames_received: u64,
    /// Frames given to a connection.
    pub frames_sent: u64,
    /// Frames that had nowhere to go.
    pub frames_dropped: u64,
    /// Connections closed because of a frame with a wrong magic, version, length, checksum or kind.
    pub bad_frames: u64,
    /// Connections refused: too many, or a handshake that did not fit.
    pub refused: u64,
    /// Connections closed because they did not move.
    pub stalled: u64,
    /// Connections closed because their output grew past its limit.
    pub overflowed: u64,
}
