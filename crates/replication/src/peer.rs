//! One member of a primary's replica set, as the primary sees it.
//!
//! ```text
//! Asking ──FenceReport──▶ Attaching ──Attached──▶ Attached ⇄ appends, acks
//!    ▲                                               │
//!    └──────────────── Mismatch ─────────────────────┘
//! ```

use std::collections::VecDeque;

use kasha_types::{ConfigVersion, CoreId, LogPosition, SegmentId, Tick};
use kasha_wire::message::AttachAt;

/// Where a member is on its way to being shipped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// Its history is wanted.
    Asking,
    /// It was told where its log joins ours.
    Attaching(AttachAt),
    /// It takes appends.
    Attached,
}

/// Older segments on their way to a joiner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copying {
    /// Still to copy, the one under way in front.
    pub segments: VecDeque<SegmentId>,
    /// How much of the front one has arrived.
    pub offset: u32,
    /// When the part under way was sent; `None`: nothing is under way.
    pub sent: Option<Tick>,
}

/// How far a member's older data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Older {
    /// It has all before this offset once it acknowledged up to there.
    FollowsAt(u64),
    /// Segments are being copied.
    Copying(Copying),
    /// All there, and it has said so.
    Complete,
}

/// A member as the configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberCore {
    /// The core that hosts its replica.
    pub core: CoreId,
    /// Whether it is a joiner.
    pub joining: bool,
    /// The configuration that made it a member.
    pub since: ConfigVersion,
}

/// A member of the replica set other than the primary.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The core that hosts its replica.
    pub core: CoreId,
    /// Whether the configuration still has it as a joiner (R7.2).
    pub joining: bool,
    /// The configuration that made it a member.
    pub(crate) since: ConfigVersion,
    pub(crate) state: PeerState,
    /// The end that it reported.
    pub(crate) reported: LogPosition,
    /// When something was last sent that wants an answer, or an answer came.
    pub(crate) touched: Option<Tick>,
    /// Where its log joined ours.
    pub(crate) attached_at: u64,
    /// Sent up to here.
    pub(crate) sent: u64,
    /// It holds the log up to here.
    pub(crate) acked: u64,
    /// The last round of which a frame was sent.
    pub(crate) round_sent: u64,
    /// The last round it answered: it obeyed our epoch then.
    pub(crate) round_acked: u64,
    pub(crate) older: Older,
}

impl Peer {
    pub(crate) fn new(member: MemberCore) -> Self {
        Self {
            core: member.core,
            joining: member.joining,
            since: member.since,
            state: PeerState::Asking,
            reported: LogPosition::default(),
            touched: None,
            attached_at: 0,
            sent: 0,
            acked: 0,
            round_sent: 0,
            round_acked: 0,
            older: Older::FollowsAt(u64::MAX),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn state(&self) -> PeerState {
        self.state
    }

    /// Up to where it holds the log.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acked
    }

    /// Whether its older data is known to be all there.
    #[must_use]
    pub fn is_copied(&self) -> bool {
        match self.older {
            Older::FollowsAt(offset) => self.state == PeerState::Attached && self.acked >= offset,
            Older::Copying(_) => false,
            Older::Complete => true,
        }
    }

    /// Its process is another one, or it says that its log is not what we thought: begin again.
    pub(crate) fn ask_again(&mut self) {
        *self = Self::new(MemberCore { core: self.core, joining: self.joining, since: self.since });
    }
}
