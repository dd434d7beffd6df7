//! Taking another member's log, which is greater than ours (section 7, step 2).

use std::time::Duration;

use kasha_log::{AppendError, common_prefix};
use kasha_machine::{Effects, Endpoint, Gate};
use kasha_replication::FenceReport;
use kasha_types::probe::{Probe, hit};
use kasha_types::{LogEnd, LogPosition, NodeId, Tick};
use kasha_wire::message;

use crate::core::send::send;
use crate::primary::Stage;
use crate::shard::copy::receive::{FETCH_FROM_HEAD, LOG_END_MAX, install, screen};
use crate::shard::site::Site;
use crate::shard::term::Term;

/// Questions to one member without progress before another is looked for.
const UNANSWERED_MAX: u32 = 7;

/// How often the time for an answer may double. An answer is a whole segment: on a busy link it takes long, and the next question
/// asks for another one.
const DOUBLINGS_MAX: u32 = 5;

/// Taking another member's log.
#[derive(Debug)]
pub(crate) struct Fetching {
    from: NodeId,
    /// Its end, as it reported: less is not all.
    until: LogPosition,
    missing: Missing,
    /// The question that waits for its answer: from where on, and since when.
    asked: Option<(LogEnd, Tick)>,
    /// Questions since the last progress.
    unanswered: u32,
    /// How often the time for an answer had to double before the last progress.
    doublings: u32,
    has_progressed: bool,
}

/// What has not come yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Missing {
    /// All of it: what we hold does not join it. Its head is asked for first.
    All,
    /// What we hold joins it.
    Rest,
    /// What is left is our own file, and a slow disk is no reason to ask anew.
    Nothing,
}

impl Fetching {
    /// Another member's log is greater: keep what both share, and fetch the rest.
    pub fn cut_to_match(term: &mut Term, site: &mut Site<'_>, best: &FenceReport, out: &mut Effects) -> Self {
        let theirs: Vec<_> = best.history.iter().map(|start| (start.epoch, start.offset)).collect();
        let log = &site.copy.log;
        let prefix = common_prefix(log.epoch_history(), log.end().offset, &theirs, best.end.offset);
        // What was fetched in this term already is on its way to be this log, if it is a part of it.
        let goes_on = term.has_fetched && prefix == log.end().offset && prefix > LogEnd::START;
        let usable = site.copy.meta.complete && prefix > LogEnd::START;
        let whole = !goes_on && (!usable || !site.truncate_log(prefix, out) || !site.copy.meta.complete);
        let missing = Missing::Rest;
        let mut fetching = Self {
            from: best.node,
            until: best.end,
            missing,
            asked: None,
            unanswered: 0,
            doublings: 0,
            has_progressed: false,
        };
        if whole {
            fetching.take_whole(site, out);
        } else {
            hit(Probe::LogFetchedFromPrefix);
        }
        term.has_fetched = true;
        fetching
    }

    /// Nothing of ours is of use: everything is taken anew.
    fn take_whole(&mut self, site: &mut Site<'_>, out: &mut Effects) {
        hit(Probe::LogFetchedWhole);
        self.missing = Missing::All;
        site.copy.discount(site.core, out);
        site.reset_log(LogEnd::START, out);
    }

    /// When to ask again. `None`: the disk says when it has what has come.
    pub fn next_deadline(&self, retry: Duration) -> Option<Tick> {
        let next = || self.asked.map_or(Tick(0), |(_, asked)| asked.after(self.patience(retry)));
        (self.missing != Missing::Nothing).then(next)
    }

    /// How long the last question waits for its answer.
    fn patience(&self, retry: Duration) -> Duration {
        retry * (1 << (self.doublings + self.unanswered.saturating_sub(1)).min(DOUBLINGS_MAX))
    }

    pub fn advance(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, out: &mut Effects) -> Option<Stage> {
        if self.missing == Missing::Nothing {
            return is_on_file(site).then(|| take(site, out));
        }
        if self.next_deadline(site.core.options.pace.retry).is_some_and(|deadline| now < deadline) {
            return None;
        }
        self.unanswered += 1;
        if self.unanswered > UNANSWERED_MAX {
            // Without any progress, what we hold may be a part that nobody can complete.
            term.has_fetched = self.has_progressed;
            return Some(term.fence_again());
        }
        let (shard, log) = (site.copy.shard, &site.copy.log);
        let absent = log.absent().first().map(|&segment| log.end_before(segment));
        let joins = absent.unwrap_or(log.end().offset);
        let from = if self.missing == Missing::All { FETCH_FROM_HEAD } else { joins };
        self.asked = Some((from, now));
        let configuration = site.core.configuration.as_ref().expect("a configuration promoted us");
        if let Some(to) = configuration.core_of(self.from, shard) {
            send(Endpoint::Core(to), &message::FetchLog { shard, epoch: term.epoch, from }, Gate::Now, out);
        }
        None
    }

    /// A piece of the greater log: its head first if we share nothing, then older segments, then what follows our end.
    pub fn on_log_piece(
        &mut self,
        term: &mut Term,
        site: &mut Site<'_>,
        from: LogEnd,
        bytes: &[u8],
        out: &mut Effects,
    ) -> Option<Stage> {
        let aligned = from.is_segment_base(site.core.options.segment_bytes);
        // An answer to an earlier question, which has been answered meanwhile, is no reason to ask again.
        let is_late = self.asked.is_none_or(|(asked, _)| asked != FETCH_FROM_HEAD && from < asked);
        let is_asked_for = match self.missing {
            Missing::All => aligned && !bytes.is_empty(),
            Missing::Rest => !is_late,
            Missing::Nothing => false,
        };
        if !is_asked_for || from > self.until.offset.min(LOG_END_MAX) {
            return None;
        }
        self.asked = None;
        if std::mem::replace(&mut self.missing, Missing::Rest) == Missing::All {
            site.reset_log(from, out);
        }
        let Site { copy, core, .. } = site;
        let segment = copy.log.segment_behind(from);
        if copy.log.absent().contains(&segment) {
            hit(Probe::LogFetchedSegment);
            let installed = install(copy, core, term.epoch, segment, bytes, out);
            self.note_progress(installed);
        } else if !bytes.is_empty() {
            let is_beyond = from > copy.log.end().offset && copy.log.absent().is_empty();
            match copy.log.append_raw(bytes, screen(term.epoch)) {
                Ok(_) => {
                    copy.write_log(core, out);
                    self.note_progress(true);
                }
                // What followed our end is freed there: no piece will ever fit.
                Err(AppendError::Gap { .. } | AppendError::PredecessorMismatch { .. }) if is_beyond => {
                    self.take_whole(site, out);
                }
                // A piece that does not fit is an old or a repeated one: the next question asks from our end.
                Err(_) => self.note_progress(false),
            }
        } else if from == copy.log.end().offset && copy.log.end() != self.until {
            term.has_fetched = false;
            return Some(term.fence_again());
        } else if from == copy.log.end().offset && copy.log.absent().is_empty() {
            self.missing = Missing::Nothing;
            return is_on_file(site).then(|| take(site, out));
        }
        None
    }

    /// A piece that did not fit counts as no answer: after some the fence begins anew.
    fn note_progress(&mut self, progress: bool) {
        if progress {
            self.doublings = (self.doublings + self.unanswered.saturating_sub(1)).min(DOUBLINGS_MAX);
            (self.unanswered, self.has_progressed) = (0, true);
        }
    }
}

fn is_on_file(site: &Site<'_>) -> bool {
    site.copy.held == site.copy.log.end().offset
}

/// All of it is on our file. It came from a member that counted: ours is as good.
fn take(Site { copy, core, .. }: &mut Site<'_>, out: &mut Effects) -> Stage {
    (copy.meta.intact, copy.meta.complete) = (true, true);
    copy.save_meta(core, out);
    Stage::Replaying
}
