//! One member of a primary's replica set, as the primary sees it.
//!
//! ```text
//! Asking ──FenceReport──▶ Attaching ──Attached──▶ Attached ⇄ appends, acks
//!    ▲                                               │
//!    └──────── Mismatch, or a new process ───────────┘
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use kasha_types::{AttachId, ConfigVersion, CoreId, Incarnation, LogEnd, LogPosition, Round, SegmentId, Tick};
use kasha_wire::message::AttachAt;

use crate::progress::MemberPositions;

/// The longest wait for an answer before a frame is sent again ([`Peer::patience`]).
const PATIENCE_MAX: Duration = Duration::from_secs(1);
/// The same for a part of a segment, unless parts take longer.
const PART_PATIENCE_MAX: Duration = Duration::from_secs(4);
/// A part of a segment has at least so many times as long for its answer as an append.
const PART_RETRIES: u32 = 4;

/// Where a member is on its way to being shipped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// The member was asked for the history of its log.
    Asking,
    /// The member was told where its log joins ours.
    Attaching(AttachAt),
    /// The member takes appends.
    Attached,
}

/// Older segments on their way to a joiner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copying {
    /// Still to copy, the one under way in front.
    pub segments: VecDeque<SegmentId>,
    /// How much of the front one has arrived.
    pub offset: u32,
    /// The part under way; `None`: nothing is under way.
    pub sent: Option<SentPart>,
    /// How long a part is under way until the member says that it holds it ([`Copying::arrived`]).
    took: Duration,
}

/// A part of a segment that is under way to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentPart {
    first: Tick,
    last: Tick,
    /// How often it was sent again.
    repeats: u32,
    /// Since when the transport says that it may be lost.
    doubted: Option<Tick>,
}

impl Copying {
    pub(crate) fn of(segments: VecDeque<SegmentId>) -> Self {
        Self { segments, offset: 0, sent: None, took: Duration::ZERO }
    }

    /// When the part under way is to be sent again. A part is many times longer than an append: if it were sent again while it is
    /// under way, a slow link or disk would become slower. So a part has twice as long as parts take, and longer each time.
    /// What may be lost is sent again sooner, but not while the transport pauses before it dials again.
    pub(crate) fn due(&self, retry: Duration) -> Option<Tick> {
        let sent = self.sent?;
        let due = sent.last.after(self.patience(sent.repeats, retry));
        Some(sent.doubted.map_or(due, |since| due.min(since.after(retry * PART_RETRIES))))
    }

    fn patience(&self, repeats: u32, retry: Duration) -> Duration {
        let usual = (retry * PART_RETRIES).max(self.took * 2);
        (usual * (1 << repeats.min(10))).min(PART_PATIENCE_MAX.max(usual))
    }

    pub(crate) fn send(&mut self, now: Tick) {
        let again = self.sent.filter(|sent| sent.doubted.is_none());
        self.sent = Some(match again {
            Some(sent) => SentPart { last: now, repeats: sent.repeats + 1, ..sent },
            None => SentPart { first: now, last: now, repeats: 0, doubted: None },
        });
    }

    /// The transport says that the part under way may be lost.
    pub(crate) fn doubt(&mut self, now: Tick) {
        if let Some(sent) = &mut self.sent {
            sent.doubted.get_or_insert(now);
        }
    }

    /// The member holds so much of the front segment. The last part of a segment is short, so one part halves what is known at most.
    /// Nothing longer is learned than the patience that the part had at last: where nothing came through for a minute, or this
    /// process stood still, parts do not take a minute.
    pub(crate) fn arrived(&mut self, now: Tick, offset: u32, retry: Duration) {
        if let Some(sent) = self.sent.take() {
            let patience = self.patience(sent.repeats, retry);
            self.took = now.since(sent.first).min(patience).max(self.took / 2);
        }
        self.offset = offset;
    }
}

/// How far a member's older data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Older {
    /// It has all before this position once it acknowledged up to there.
    FollowsAt(LogEnd),
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
    /// What the member holds in this attachment.
    pub(crate) positions: MemberPositions,
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
            positions: MemberPositions::default(),
            older: Older::FollowsAt(LogEnd::MAX),
        }
    }

    /// How long it has for an answer: longer each time that none came, since a slow disk or link is not made faster by
    /// the same bytes again.
    pub(crate) fn patience(&self, retry: Duration) -> Duration {
        (retry * (1 << self.retries.min(10))).min(PATIENCE_MAX.max(retry))
    }

    /// How far the member is on its way to being shipped to.
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
    pub fn acknowledged(&self) -> LogEnd {
        self.positions.acked()
    }

    /// Whether its older data is known to be all there.
    #[must_use]
    pub fn is_copied(&self) -> bool {
        match self.older {
            Older::FollowsAt(end) => self.state == PeerState::Attached && self.positions.acked() >= end,
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
pub struct PeerProgress {
    /// Something is wanted of it and has not been answered.
    pub waits: bool,
    /// The member takes appends.
    pub attached: bool,
    /// It holds the log up to here.
    pub held: LogEnd,
    /// The last round it answered.
    pub round: Round,
    /// Segments that it still lacks, and how much of the first it has.
    pub copying: Option<(usize, u32)>,
}

impl Peer {
    /// How far it has come.
    #[must_use]
    pub fn progress(&self) -> PeerProgress {
        let copying = match &self.older {
            Older::Copying(copying) => Some((copying.segments.len(), copying.offset)),
            Older::FollowsAt(_) | Older::Complete => None,
        };
        let attached = self.state == PeerState::Attached;
        PeerProgress {
            waits: !attached || self.positions.owes() || copying.is_some(),
            attached,
            held: self.positions.acked(),
            round: self.positions.round_acked(),
            copying,
        }
    }
}
