//! The tries of a program that reads, decides and commits, again and again until it commits what nobody has changed meanwhile.
//!
//! A try that was lost is followed by another one, until the deadline, which is for all of them together. From the second one that was
//! lost on, all say since when the program has lost (0047). A program waits for the pauses, and does nothing else about them.

use std::ops::RangeInclusive;
use std::time::Duration;

use kasha_types::Tick;
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Turn};

use super::interactive::{Commit, ToCommit};
use super::options::Again;
use super::{Completion, Session, WhyNot};
use crate::limits::{BACKOFF, BACKOFF_MAX};

/// The tries so far.
#[derive(Debug)]
pub struct Tries {
    until: Tick,
    lost: u32,
    /// The same in all tries after the first that was lost.
    turn: Option<Turn>,
}

/// How the commit of a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitEnd {
    /// It is committed.
    Committed,
    /// What was read was changed, or it met another one: nothing was written.
    Lost,
    /// Nobody knows.
    Unknown,
    /// It failed in another way.
    Failed,
}

/// How the program's own part of a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// With a result.
    Done,
    /// With an error, and writes nothing. `read_failed`: a read had no answer, and what the program makes of that is no statement about
    /// values.
    Failed {
        /// Whether a read had no answer.
        read_failed: bool,
    },
}

/// What follows from a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The program's result, or its error, is the end.
    Return,
    /// The commit's error is the end.
    Fail,
    /// The program runs again after this pause.
    Again(Duration),
    /// There is no time for another try. Nothing was written ([`WhyNot::Conflict`]).
    GiveUp,
}

impl CommitEnd {
    /// What the end of the commit's call means.
    #[must_use]
    pub fn of(completion: &Completion, commit: &ToCommit) -> Self {
        match completion {
            Completion::Executed { result, .. } => {
                match Outcome::decode(Shape::Parts, result).map(|outcome| commit.commit_of(&outcome)) {
                    Ok(Ok(Commit::Committed)) => Self::Committed,
                    Ok(Ok(Commit::Conflict(_))) => Self::Lost,
                    Ok(Err(_)) | Err(_) => Self::Failed,
                }
            }
            Completion::NotExecuted(WhyNot::Conflict) => Self::Lost,
            Completion::Unknown(_) => Self::Unknown,
            Completion::NotExecuted(_)
            | Completion::Read { .. }
            | Completion::TimeToLive { .. }
            | Completion::ReadFailed(_)
            | Completion::Table(_)
            | Completion::Status(_)
            | Completion::Refreshed => Self::Failed,
        }
    }
}

impl Tries {
    /// No try yet.
    #[must_use]
    pub fn new(until: Tick) -> Self {
        Self { until, lost: 0, turn: None }
    }

    /// The deadline of all reads and commits.
    #[must_use]
    pub fn until(&self) -> Tick {
        self.until
    }

    /// Who tries the commit of this try again: the program, with its turn if it has lost before.
    pub fn again(&mut self, session: &mut Session, now: Tick) -> Again {
        Again::ByCaller((self.lost > 0).then(|| {
            let turn = self.turn.get_or_insert_with(|| session.turn(now));
            turn.since = turn.since.min(session.cluster_time(now)); // which may have been set back
            *turn
        }))
    }

    /// A try has ended. `draw`: a random number, which says where in the pause the next try begins, so that those who met do not meet
    /// again.
    pub fn on_end(&mut self, commit: (CommitEnd, &ToCommit), body: BodyEnd, now: Tick, draw: u64) -> Next {
        match (commit.0, body) {
            (CommitEnd::Committed, _) => Next::Return,
            (CommitEnd::Lost, _) => self.lose(now, draw),
            // Nothing can have been written: to look again does no harm.
            (CommitEnd::Unknown, _) if !commit.1.has_writes => self.lose(now, draw),
            // Most likely the commit failed for what the program says, too.
            (CommitEnd::Unknown | CommitEnd::Failed, BodyEnd::Failed { read_failed: true }) => Next::Return,
            (CommitEnd::Unknown | CommitEnd::Failed, BodyEnd::Done | BodyEnd::Failed { read_failed: false }) => {
                Next::Fail
            }
        }
    }

    /// A try was lost: nothing was written. `draw`: as in [`Self::on_end`].
    pub fn lose(&mut self, now: Tick, draw: u64) -> Next {
        self.lost += 1;
        let pause = pause_after(self.lost).mul_f64((draw % 1024) as f64 / 1024.0);
        if now.after(pause) >= self.until { Next::GiveUp } else { Next::Again(pause) }
    }
}

/// The longest pause after so many tries that were lost. From the second on a shard says when it is this one's turn, and keeps that for a
/// moment (0047): so there is none, unless that does not help.
fn pause_after(lost: u32) -> Duration {
    const TURNS: RangeInclusive<u32> = 2..=8;
    match lost {
        0 | 1 => BACKOFF,
        lost if TURNS.contains(&lost) => Duration::ZERO,
        lost => BACKOFF.saturating_mul(1 << (lost - TURNS.end()).min(16)).min(BACKOFF_MAX),
    }
}
