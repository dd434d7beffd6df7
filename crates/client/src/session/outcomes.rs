//! How calls end, and which callers are told.
//!
//! A caller is told once (R2.2). A caller that was told "unknown" may ask again: the outcome is kept, within limits,
//! and announced, so that nobody has to search the kept outcomes. A call without a caller is finished all the same
//! (pitfall 1).

use std::collections::{BTreeMap, VecDeque};

use kasha_wire::message::TableOutcome;

use super::call::part_of;
use super::call::{Caller, Kind};
use super::calls::CallId;
use super::{Completion, Session, WhyFailed, WhyNot, WhyUnknown};
use crate::limits;

/// Outcomes of calls whose callers were told "unknown". If there are too many, the oldest are dropped first.
#[derive(Debug, Default)]
pub(super) struct Kept {
    by_call: BTreeMap<CallId, (u64, Completion)>,
    by_age: BTreeMap<u64, CallId>,
    next_age: u64,
    bytes: usize,
    /// Outcomes that were not announced yet. If nobody listens, the oldest announcements are dropped.
    news: VecDeque<CallId>,
}

impl Kept {
    fn keep(&mut self, call: CallId, completion: Completion) {
        self.bytes += result_bytes(&completion);
        self.by_age.insert(self.next_age, call);
        self.by_call.insert(call, (self.next_age, completion));
        self.next_age += 1;
        while self.by_call.len() > limits::RESOLVED_MAX || self.bytes > limits::RESOLVED_BYTES_MAX {
            let (_, &oldest) = self.by_age.first_key_value().expect("something is kept");
            self.take(oldest);
        }
        if self.news.len() == limits::RESOLVED_MAX {
            self.news.pop_front();
        }
        self.news.push_back(call);
    }

    fn take(&mut self, call: CallId) -> Option<Completion> {
        let (age, completion) = self.by_call.remove(&call)?;
        self.by_age.remove(&age);
        self.bytes -= result_bytes(&completion);
        Some(completion)
    }
}

impl Session {
    /// The next call that ended, in order. Drain after every turn.
    pub fn poll_completed(&mut self) -> Option<(CallId, Completion)> {
        self.completed.pop_front()
    }

    /// The outcome of an update (or table request) whose deadline had passed. `None` while it is unknown, which is
    /// until [`Session::poll_resolvable`] names the call. An outcome is told once.
    pub fn resolve(&mut self, call: CallId) -> Option<Completion> {
        let is_open = self.calls.find(call).is_some();
        let forgotten = (!is_open).then_some(Completion::Unknown(WhyUnknown::Forgotten));
        self.kept.take(call).or(forgotten)
    }

    /// The next call that ended after its deadline had passed: [`Session::resolve`] has its outcome now. Each call is
    /// named once. Drain this after every turn, or not at all.
    pub fn poll_resolvable(&mut self) -> Option<CallId> {
        self.kept.news.pop_front()
    }

    /// The caller no longer waits. An update that was sent is finished in the background, and acknowledged only then
    /// (pitfall 1); nobody is told. Abandoning a call that has ended is allowed.
    pub fn abandon(&mut self, call: CallId) {
        self.kept.take(call);
        let Some(slot) = self.calls.find(call) else { return };
        let call = &mut self.calls[slot];
        let must_finish = match call.kind {
            Kind::Update(_) | Kind::Table(_) => call.is_sent(),
            Kind::Read(_) | Kind::Status { .. } | Kind::Refresh => false,
        };
        if must_finish {
            call.caller.leave();
        } else {
            let id = self.calls.id(slot);
            self.drop_snapshot(id);
            self.calls.remove(slot);
        }
    }

    /// The call has ended: tells its caller, keeps the outcome, or does neither.
    pub(super) fn end(&mut self, slot: usize, completion: Completion) {
        let id = self.calls.id(slot);
        let call = &self.calls[slot];
        let caller = call.caller;
        if let Kind::Update(update) = call.kind
            && let Some(rpc) = update.rpc
        {
            // A no of one participant says nothing of whether the others answer.
            let is_trial_void = call.participants.several().is_some_and(|open| !open.have_all_spoken());
            self.identities.finish(rpc, is_trial_void);
        }
        let part_of = part_of(call.kind);
        self.calls.remove(slot);
        self.drop_snapshot(id);
        if let Some(whole) = part_of {
            return self.snapshots.note_end(whole, id, completion);
        }
        match (caller, completion) {
            (Caller::Waits { .. }, completion) => self.completed.push_back((id, completion)),
            (Caller::WasToldUnknown, completion) => self.kept.keep(id, completion),
            (Caller::IsGone { .. }, Completion::Executed { result, .. }) => self.recycle(result),
            (Caller::IsGone { .. }, _) => {}
        }
    }

    /// The call ends without having done anything, and never will do anything.
    pub(super) fn end_undone(&mut self, slot: usize, why: WhyNot) {
        let completion = match self.calls[slot].kind {
            Kind::Update(_) | Kind::Table(_) => {
                assert!(!self.calls[slot].is_sent(), "R2.2: what was sent is not told to be unexecuted");
                Completion::NotExecuted(why)
            }
            Kind::Read(_) | Kind::Status { .. } | Kind::Refresh => Completion::ReadFailed(WhyFailed::NotPossible(why)),
        };
        self.end(slot, completion);
    }

    /// Tells the caller that the outcome is unknown, and keeps asking for it.
    pub(super) fn detach(&mut self, slot: usize) {
        let id = self.calls.id(slot);
        let caller = &mut self.calls[slot].caller;
        *caller = match *caller {
            Caller::Waits { .. } => {
                self.stats.unknown += 1;
                self.completed.push_back((id, Completion::Unknown(WhyUnknown::DeadlinePassed)));
                Caller::WasToldUnknown
            }
            Caller::WasToldUnknown => Caller::WasToldUnknown,
            Caller::IsGone { .. } => Caller::IsGone { deadline: None },
        };
        self.timers.arm(&mut self.calls, slot);
    }
}

fn result_bytes(completion: &Completion) -> usize {
    match completion {
        Completion::Executed { result, .. } | Completion::Read { result } | Completion::TimeToLive { result, .. } => {
            result.len()
        }
        Completion::Table(TableOutcome::Refused(why)) => why.len(),
        Completion::Table(_)
        | Completion::NotExecuted(_)
        | Completion::Unknown(_)
        | Completion::ReadFailed(_)
        | Completion::Status(_)
        | Completion::Refreshed => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kasha_witness::Path;
    use proptest::prelude::*;

    fn executed(bytes: usize) -> Completion {
        Completion::Executed { result: vec![7; bytes], path: Path::Synced, attempts: 1 }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        /// Compared with a queue that is searched from the front.
        #[test]
        fn the_oldest_outcomes_go_first(
            steps in proptest::collection::vec((any::<bool>(), 0u64..3000, 0usize..40_000), 0..4000),
        ) {
            let (mut kept, mut model, mut ended) = (Kept::default(), VecDeque::new(), 0);
            for (is_end, call, bytes) in steps {
                if is_end {
                    ended += 1;
                    kept.keep(CallId(ended), executed(bytes));
                    model.push_back((CallId(ended), bytes));
                    prop_assert_eq!(kept.news.back(), Some(&CallId(ended)));
                } else {
                    let call = CallId(call);
                    let at = model.iter().position(|(id, _)| *id == call);
                    let expected = at.and_then(|at| model.remove(at)).map(|(_, bytes)| executed(bytes));
                    prop_assert_eq!(kept.take(call), expected);
                }
                while model.len() > limits::RESOLVED_MAX
                    || model.iter().map(|(_, bytes)| bytes).sum::<usize>() > limits::RESOLVED_BYTES_MAX
                {
                    model.pop_front();
                }
                prop_assert_eq!(kept.by_call.len(), model.len());
                prop_assert_eq!(kept.by_age.len(), model.len());
                prop_assert!(kept.news.len() <= limits::RESOLVED_MAX);
            }
        }
    }
}
