//! What a front keeps of one connection.

use std::collections::VecDeque;

use kasha_client::session::CallId;
use kasha_commands::{Command as Name, Item, Items, Once, find};
use kasha_machine::Effects;
use kasha_types::{ConnId, Tick};

use super::calls::Expected;
use super::counts::Counts;
use super::moving::Moving;
use super::unknown::{Touched, Watched};
use crate::limits::{REQUEST_COST, ROUND_REPLIES_MAX, WAITING_BYTES_MAX, WAITING_REQUESTS_MAX};
use crate::resp::Protocol;

/// Whether a connection is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replies {
    /// It is.
    #[default]
    On,
    /// Only `CLIENT REPLY ON` is.
    Off,
    /// The next request is not.
    SkipNext,
    /// The request that runs is not.
    Skip,
}

/// Commands since `MULTI`.
#[derive(Debug, Default)]
pub struct Queued {
    pub requests: Vec<Vec<u8>>,
    pub bytes: usize,
    /// One of them was refused: `EXEC` runs none.
    pub is_spoiled: bool,
}

/// Whether more requests are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hearing {
    #[default]
    Open,
    /// None are; the connection ends behind the replies to those that were, and behind this one.
    UntilAnswered(Option<String>),
    /// None are, and everything is said.
    Over,
}

/// What a connection waits for.
#[derive(Debug)]
pub enum Outstanding {
    /// A call of its own.
    Call {
        call: CallId,
        expected: Expected,
        /// Whether it is answered (`CLIENT REPLY`).
        is_answered: bool,
        /// What it may change.
        touched: Touched,
    },
    /// It goes on then.
    Pause { until: Tick, moving: Box<Moving>, is_answered: bool },
    /// These requests are a share of a call, or will be one when the turn ends.
    Gathered(VecDeque<Waiting>),
}

impl Outstanding {
    /// The call of its own.
    pub fn call(&self) -> Option<CallId> {
        match self {
            Self::Call { call, .. } => Some(*call),
            Self::Pause { .. } | Self::Gathered(_) => None,
        }
    }

    /// Until when nothing is asked.
    pub fn pauses_until(&self) -> Option<Tick> {
        match self {
            Self::Pause { until, .. } => Some(*until),
            Self::Call { .. } | Self::Gathered(_) => None,
        }
    }
}

/// What keeps a connection's first request from beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The table of this database is looked for.
    Table(u8),
    /// The session asks which tables there are.
    Tables,
    /// The outcome of a call of this connection, or on its keys, is not known (R10.18).
    Unknown,
}

/// Whether the session has asked which tables there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TablesAsked {
    #[default]
    No,
    /// By this call.
    Asks(CallId),
    Answered,
}

/// What a client says of itself.
#[derive(Clone, Debug, Default)]
pub struct About {
    pub name: Vec<u8>,
    pub library: Vec<u8>,
    pub library_version: Vec<u8>,
}

/// What commands that the front answers can change of a connection.
#[derive(Debug)]
pub struct Settings {
    protocol: Protocol,
    is_authenticated: bool,
    database: u8,
    about: About,
    replies: Replies,
}

/// One connection.
#[derive(Debug, Default)]
pub struct Connection {
    /// Its number, as `CLIENT ID` tells it.
    pub id: u64,
    pub protocol: Protocol,
    /// It has said the password, or there is none.
    pub is_authenticated: bool,
    pub database: u8,
    pub about: About,
    pub replies: Replies,
    pub queued: Option<Queued>,
    /// What it was before the commands of an `EXEC` that is outstanding.
    pub before_exec: Option<Settings>,
    pub watched: Vec<Watched>,
    /// A key that was to be watched could not be looked at: `EXEC` runs nothing.
    pub is_unwatched: bool,
    pub outstanding: Option<Outstanding>,
    pub blocked: Option<Blocked>,
    /// Until when it waits for that.
    pub blocked_until: Tick,
    /// Whether the session has asked which tables there are, since the first request came that waits.
    pub tables: TablesAsked,
    /// Requests that wait for earlier ones.
    pub requests: VecDeque<Waiting>,
    /// Their cost.
    pub bytes: usize,
    /// So much of what it was told has not left that nothing more is begun.
    pub is_stuffed: bool,
    /// What it was told in a round of the front, in bytes.
    said: (u64, usize),
    /// No more is read from it, until fewer requests wait.
    pub is_unheard: bool,
    pub hearing: Hearing,
}

/// A request that waits.
#[derive(Debug)]
pub struct Waiting {
    pub bytes: Vec<u8>,
    /// It was too long, so that these are only its first words.
    pub is_cut: bool,
    /// When it came.
    pub since: Tick,
    /// Whether it is answered, if it has begun before.
    pub is_answered: Option<bool>,
    /// It would have had to wait, or together with others it could not run.
    pub goes_alone: bool,
    /// When it began first, if it had to wait or did not run then, and its connection was told nothing since: its program's patience counts from
    /// there (R10.2).
    pub begun: Option<Tick>,
}

impl Waiting {
    pub fn cost(&self) -> usize {
        self.bytes.len() + REQUEST_COST
    }
}

impl Connection {
    pub fn new(id: u64, is_authenticated: bool) -> Self {
        Self { id, is_authenticated, ..Self::default() }
    }

    /// What it was when it began, with the number that it has (`RESET`). `is_authenticated`: there is no password.
    pub fn reset(&mut self, is_authenticated: bool) {
        self.is_authenticated = is_authenticated;
        self.protocol = Protocol::default();
        self.database = 0;
        self.about.name.clear();
        self.replies = Replies::On;
        self.end_multi();
    }

    /// What commands that the front answers can change.
    pub fn settings(&self) -> Settings {
        let Self { protocol, is_authenticated, database, replies, .. } = *self;
        Settings { protocol, is_authenticated, database, about: self.about.clone(), replies }
    }

    /// Makes it what it was.
    pub fn restore(&mut self, settings: Settings) {
        let Settings { protocol, is_authenticated, database, about, replies } = settings;
        (self.protocol, self.is_authenticated, self.database) = (protocol, is_authenticated, database);
        (self.about, self.replies) = (about, replies);
    }

    /// Whether its next request may begin, in this round. What waits for its socket is known between turns only, so that the replies of one round
    /// have a bound of their own.
    pub fn may_be_told_more(&self, round: u64) -> bool {
        !self.is_stuffed && (self.said.0 != round || self.said.1 < ROUND_REPLIES_MAX)
    }

    /// Tells it this.
    pub fn tell(&mut self, conn: ConnId, replies: &[u8], counts: &mut Counts, out: &mut Effects) {
        if replies.is_empty() {
            return;
        }
        let bytes = counts.say(conn, self.protocol, replies, out);
        let before = if self.said.0 == counts.round { self.said.1 } else { 0 };
        self.said = (counts.round, before + bytes);
    }

    /// So much waits that no more is to be read.
    pub fn has_enough(&self) -> bool {
        self.requests.len() >= WAITING_REQUESTS_MAX || self.bytes >= WAITING_BYTES_MAX
    }

    /// So little waits that more may be read.
    pub fn may_have_more(&self) -> bool {
        self.requests.len() <= WAITING_REQUESTS_MAX / 2 && self.bytes <= WAITING_BYTES_MAX / 2
    }

    /// A request since `MULTI` was refused.
    pub fn spoil(&mut self) {
        if let Some(queued) = &mut self.queued {
            queued.is_spoiled = true;
        }
    }

    /// Its first request was refused before it began. If that was `EXEC`, the transaction is over. If it was `WATCH`, its keys are not watched, and
    /// `EXEC` runs nothing (**R10.7**): a driver may have sent it already.
    pub fn refused_before_it_began(&mut self, request: &Waiting) {
        let words: Vec<_> = kasha_wire::requests::Request::of_kept(&request.bytes).words().collect();
        let is_once = words.first().and_then(|name| find(name)).is_some_and(|row| row.command == Name::KashaOnce);
        let command = if is_once { Once::of(&words).command } else { &words[..] };
        let name = command.first().copied().unwrap_or_default();
        if name.eq_ignore_ascii_case(b"exec") {
            self.end_multi();
        }
        self.is_unwatched |= name.eq_ignore_ascii_case(b"watch");
    }

    /// A reply is known. If it is that of an `EXEC` which has not run, what stands in it has changed nothing.
    pub fn on_reply(&mut self, reply: &[u8]) {
        let has_run = || matches!(Items::of(reply).next(), Some(Ok(Item::List(_))));
        if let Some(before) = self.before_exec.take()
            && !has_run()
        {
            self.restore(before);
        }
    }

    /// What stands since `MULTI` is over, and nothing is watched any more.
    pub fn end_multi(&mut self) {
        self.queued = None;
        self.forget_watched();
    }

    pub fn forget_watched(&mut self) {
        self.watched.clear();
        self.is_unwatched = false;
    }

    pub fn push_back(&mut self, request: Waiting) {
        self.bytes += request.cost();
        self.requests.push_back(request);
    }

    /// It begins anew later.
    pub fn push_front(&mut self, request: Waiting) {
        self.bytes += request.cost();
        self.requests.push_front(request);
    }

    /// Takes the first request that waits.
    pub fn take_request(&mut self) -> Option<Waiting> {
        let request = self.requests.pop_front()?;
        self.bytes -= request.cost();
        Some(request)
    }

    pub fn forget_requests(&mut self) {
        self.requests.clear();
        self.bytes = 0;
    }

    /// Whether a request is answered. Asked once for each, in their order: what `CLIENT REPLY` said counts for the next one.
    pub fn is_answered(&mut self) -> bool {
        let now = self.replies;
        self.replies = match now {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip | Replies::On => Replies::On,
            Replies::Off => Replies::Off,
        };
        now == Replies::On
    }
}
