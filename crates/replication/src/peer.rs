//! One member of a primary's replica set, as the primary sees it.
//!
//! ```text
//! Asking ──FenceReport──▶ Attaching ──Attached──▶ Attached ⇄ appends, acks
//!    ▲                                               │
//!    └──────── Mismatch, or a new process ───────────┘
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use kasha_types::{AttachId, ConfigVersion, CoreId, Incarnation, LogPosition, SegmentId, Tick};
use kasha_wire::message::AttachAt;

/// See [`Peer::patience`].
const PATIENCE_MAX: Duration = Duration::from_secs(1);

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
    /// The node's process.
    pub incarnation: Incarnation,
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
    /// The process that it was attached in.
    pub(crate) incarnation: Incarnation,
    /// Which attempt to attach it. What it says of another one is not about now.
    pub(crate) attach: AttachId,
    pub(crate) state: PeerState,
    /// The end that it reported.
    pub(crate) reported: LogPosition,
    /// When something was last sent that wants an answer, or an answer came.
    pub(crate) touched: Option<Tick>,
    /// How often what it was sent had to be sent again since it last got on.
    pub(crate) retries: u32,
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
    pub(crate) fn new(member: MemberCore, attach: AttachId) -> Self {
        Self {
            core: member.core,
            joining: member.joining,
            since: member.since,
            incarnation: member.incarnation,
            attach,
            state: PeerState::Asking,
            reported: LogPosition::default(),
            touched: None,
            retries: 0,
            attached_at: 0,
            sent: 0,
            acked: 0,
            round_sent: 0,
            round_acked: 0,
            older: Older::FollowsAt(u64::MAX),
        }
    }

    /// How long it has for an answer: longer each time that none came, since a slow disk or link is not made faster by
    /// the same bytes again.
    pub(crate) fn patience(&self, retry: Duration) -> Duration {
        (retry * (1 << self.retries.min(10))).min(PATIENCE_MAX.max(retry))
    }

    /// Where it is.
    #[must_use]
    pub fn state(&self) -> PeerState {
        self.state
    }

    /// The attempt to attach it that is under way, or held.
    #[must_use]
    pub fn attach(&self) -> AttachId {
        self.attach
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
    pub(crate) fn ask_again(&mut self, attach: AttachId) {
        let Self { core, joining, since, incarnation, .. } = *self;
        *self = Self::new(MemberCore { core, joining, since, incarnation }, attach);
    }
}

/// How far a member has come: for who judges whether it still does anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Something is wanted of it and has not been answered.
    pub waits: bool,
    /// It takes appends.
    pub attached: bool,
    /// It holds the log up to here.
    pub held: u64,
    /// The last round it answered.
    pub round: u64,
    /// Segments that it still lacks, and how much of the first it has.
    pub copying: Option<(usize, u32)>,
}

impl Peer {
    /// How far it has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let copying = match &self.older {
            Older::Copying(copying) => Some((copying.segments.len(), copying.offset)),
            Older::FollowsAt(_) | Older::Complete => None,
        };
        let attached = self.state == PeerState::Attached;
        let answers = self.acked >= self.sent && self.round_acked >= self.round_sent;
        Progress {
            waits: !attached || !answers || copying.is_some(),
            attached,
            held: self.acked,
            round: self.round_acked,
            copying,
        }
    }
}
