//! Effects: what a machine asks its shell to do, each with the gate under which it may leave (D3).
//!
//! Effects are `Copy` and small. Bytes that an effect needs lie in the arena of [`Effects`] ([`Span`]) or in a log
//! segment ([`LogSlice`]), and are not copied until the shell performs the effect.

use std::net::SocketAddr;

use kasha_types::{ConnId, CoreId, LocalPosition, LogPosition, LogSlice, MemberId, Round, ShardId, WorkSet};

use crate::FileName;

/// The receiver of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// The process that opened this accepted connection.
    Conn(ConnId),
    /// A node's event loop; the shell dials it when needed, at the address that [`Effect::Route`] gave.
    Core(CoreId),
    /// The coordinator, at the address that this process was started with.
    Coordinator,
    /// A member of the group of coordinators; the shell dials it when needed, at the address that [`Effect::Route`] gave.
    Member(MemberId),
    /// One of the addresses that a client was started with.
    Seed(u16),
}

/// What must hold before an effect may leave this process (DESIGN section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// No condition: the effect may leave at once.
    Now,
    /// Every member of the committed replica set holds the shard's log to this position.
    Synced {
        /// The shard whose log it is.
        shard: ShardId,
        /// The end of what must be held.
        position: LogPosition,
    },
    /// The same, and the sender's own log file survives a loss of power up to there ([`Effect::FlushLogs`]): then no loss of power of
    /// all machines takes it back (R8.17).
    Flushed {
        /// The shard whose log it is.
        shard: ShardId,
        /// The end of what must be held.
        position: LogPosition,
    },
    /// A sync round that began after the effect was made has ended: nobody else was primary meanwhile (section 6).
    Confirmed {
        /// The shard whose sync round it is.
        shard: ShardId,
        /// The number of the sync round.
        round: Round,
    },
    /// Our own files hold everything up to this commit. Used by witnesses.
    Durable(LocalPosition),
    /// The same, for a message that the machine sends as a member of a shard's replica set. The gate never opens once
    /// that role is lost (R3.1).
    DurableAs {
        /// The shard of the role.
        shard: ShardId,
        /// The commit that must be on file.
        position: LocalPosition,
    },
    /// The group of coordinators has committed this operation, and has said in this round that its sender still leads in the view in
    /// which it made the effect. The gate never opens once that is over (R9.1, R9.2).
    Committed {
        /// The number of the view.
        view: u64,
        /// The number of the operation.
        op: u64,
        /// The number of the round.
        round: u64,
    },
}

impl Gate {
    /// Whether an effect behind this gate may name bytes of the log instead of carrying them. The cleaner may move them meanwhile,
    /// and their segment is buried once all members, and our own file, hold the word of that, which is logged later: these gates are
    /// open then, and the effect has left. Another gate may be closed for longer.
    #[must_use]
    pub fn may_name_log(self) -> bool {
        match self {
            Self::Now | Self::Synced { .. } | Self::DurableAs { .. } => true,
            Self::Flushed { .. } | Self::Confirmed { .. } | Self::Durable(_) | Self::Committed { .. } => false,
        }
    }
}

/// A range of bytes in the arena of the [`Effects`] that hold the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Number of bytes.
    pub len: u32,
}

impl Span {
    /// The range of the arena's bytes.
    #[must_use]
    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// Bytes to write to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Bytes that were encoded for this effect.
    Span(Span),
    /// Already in a log segment.
    Log(LogSlice),
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a frame: `head`, then `tail`. Delivery is never promised. The frame's checksum covers both.
    Send {
        /// The receiver.
        to: Endpoint,
        /// Frame header and the first part of the payload.
        head: Span,
        /// The rest of the payload, in a segment: only behind a gate of which [`Gate::may_name_log`] holds.
        tail: Option<LogSlice>,
        /// When it may leave.
        gate: Gate,
    },
    /// Write at an offset of a file, creating it when needed.
    Write {
        /// The file to write to.
        file: FileName,
        /// Offset of the first byte in the file.
        offset: u64,
        /// The bytes to write.
        data: Data,
    },
    /// Replace a small file as a whole, atomically: after a crash the old or the new content is found. Implies that the
    /// next commit is fsynced.
    Replace {
        /// The file to replace.
        file: FileName,
        /// The new content.
        data: Span,
    },
    /// Cut a file to a length.
    Truncate {
        /// The file to cut.
        file: FileName,
        /// The new length of the file in bytes.
        len: u64,
    },
    /// Remove a file. A file that does not exist is fine.
    Remove {
        /// The file to remove.
        file: FileName,
    },
    /// When every file effect before this one is complete, report [`crate::Input::Durable`] with this position. With
    /// `fsync`, complete means that the files survive a loss of power; otherwise, that they survive a crash of the
    /// process (R5.3). Positions are reported in order.
    Commit {
        /// The position to report.
        to: LocalPosition,
        /// Whether writes must be fsynced.
        fsync: bool,
    },
    /// Start fsyncing everything written so far in the background; nothing waits for it (`flush_interval`).
    Flush,
    /// Start fsyncing in the background what was written to log segments so far. When it survives a loss of power, report
    /// [`crate::Input::LogsFlushed`]. No commit waits for it. One at a time.
    FlushLogs,
    /// A role was lost: drop everything that is held for this shard's gates (R3.1).
    DropHeld(ShardId),
    /// The lead of the group of coordinators was lost: drop everything that waits for its operations (R9.1).
    DropCommitted,
    /// Read the clock on the wall, and report it ([`crate::Input::UnixTime`]). A machine without one reports nothing.
    ReadClock,
    /// Tell the shell the address at which to dial an endpoint from now on.
    Route {
        /// The endpoint to dial.
        to: Endpoint,
        /// The address to dial.
        address: SocketAddr,
    },
    /// The same, for an endpoint that stands for another one: `who` must be found there.
    RouteAs {
        /// The endpoint to dial.
        to: Endpoint,
        /// Whom the other side must turn out to be.
        who: Endpoint,
        /// The address to dial.
        address: SocketAddr,
    },
    /// Close a connection after everything that was sent on it has left.
    Disconnect(Endpoint),
    /// Read no more from a connection for now, or go on with it: the machine has enough of its requests. What was read before comes still.
    Hear {
        /// The connection.
        from: ConnId,
        /// Whether more is to be read.
        more: bool,
    },
    /// Stop this process: going on would be unsafe or pointless. The span is the reason, UTF-8, for the operator.
    Stop(Span),
}

const _: () = assert!(std::mem::size_of::<Effect>() <= 80);

/// A reused queue of effects with the arena that their spans point into.
#[derive(Debug, Default)]
pub struct Effects {
    queue: Vec<Effect>,
    arena: Vec<u8>,
    work: WorkSet,
}

impl Effects {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes what the turn did, for the shell that measures it. Stays until it is taken.
    pub fn note(&mut self, work: impl Into<WorkSet>) {
        self.work.add_all(work.into());
    }

    /// What was noted since this was asked last.
    pub fn take_work(&mut self) -> WorkSet {
        std::mem::take(&mut self.work)
    }

    /// Adds an effect.
    pub fn push(&mut self, effect: Effect) {
        self.queue.push(effect);
    }

    /// Where the next arena byte goes. Pair with [`Effects::span_from`].
    #[must_use]
    pub fn mark(&self) -> usize {
        self.arena.len()
    }

    /// The arena, for encoding into its end.
    pub fn arena(&mut self) -> &mut Vec<u8> {
        &mut self.arena
    }

    /// The span from `mark` to the arena's end.
    ///
    /// # Panics
    /// If a turn encoded more than 4 GiB.
    #[must_use]
    pub fn span_from(&self, mark: usize) -> Span {
        Span {
            start: u32::try_from(mark).expect("arena within 4 GiB"),
            len: u32::try_from(self.arena.len() - mark).expect("arena within 4 GiB"),
        }
    }

    /// Copies `bytes` into the arena.
    pub fn span(&mut self, bytes: &[u8]) -> Span {
        let mark = self.mark();
        self.arena.extend_from_slice(bytes);
        self.span_from(mark)
    }

    /// The bytes of a span.
    #[must_use]
    pub fn bytes(&self, span: Span) -> &[u8] {
        &self.arena[span.range()]
    }

    /// A log is about to lose bytes that effects of this turn name: copies them, while they are there.
    pub fn copy_log_bytes<'l>(&mut self, shard: ShardId, bytes: impl Fn(LogSlice) -> &'l [u8]) {
        for index in 0..self.queue.len() {
            match self.queue[index] {
                Effect::Send { to, head, tail: Some(slice), gate } if slice.shard == shard => {
                    let mark = self.mark();
                    self.arena.extend_from_within(head.range());
                    self.arena.extend_from_slice(bytes(slice));
                    let head = self.span_from(mark);
                    self.queue[index] = Effect::Send { to, head, tail: None, gate };
                }
                Effect::Write { file, offset, data: Data::Log(slice) } if slice.shard == shard => {
                    let data = Data::Span(self.span(bytes(slice)));
                    self.queue[index] = Effect::Write { file, offset, data };
                }
                _ => {}
            }
        }
    }

    /// Goes through the effects from the one at `first` on, in order. Each stays as `keep` returns it, or is taken out. `keep` sees the
    /// arena, too.
    pub fn sift(&mut self, first: usize, mut keep: impl FnMut(Effect, &[u8]) -> Option<Effect>) {
        let mut kept = first;
        for index in first..self.queue.len() {
            if let Some(effect) = keep(self.queue[index], &self.arena) {
                self.queue[kept] = effect;
                kept += 1;
            }
        }
        self.queue.truncate(kept);
    }

    /// The effects in order.
    #[must_use]
    pub fn queue(&self) -> &[Effect] {
        &self.queue
    }

    /// Whether nothing is to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Forgets everything; keeps the memory, unless a rare large turn grew it past 4 MiB.
    pub fn clear(&mut self) {
        const ARENA_KEPT_BYTES: usize = 4 * 1024 * 1024;
        self.queue.clear();
        self.arena.clear();
        self.arena.shrink_to(ARENA_KEPT_BYTES);
    }
}
