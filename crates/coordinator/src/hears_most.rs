//! The lead goes to the member that hears most nodes (R9.15).
//!
//! A leader may hear its members, and not the nodes. Then the silence is its own. So members tell each other how many nodes they hear. A
//! leader that is about to judge a silence, and hears fewer nodes than another member, asks that one to lead. The next leader counts the
//! leases of all nodes anew (R9.3), and judges by what it hears. A leader also goes if another member has heard more nodes for two leases,
//! without any silence: a node that was called lost may be back, and this leader is the only one that does not hear it.
//!
//! While no round ends, a leader judges no silence: it is cut off from the members, and perhaps from the nodes, too.
//!
//! A member that says it hears more, and does not come to lead, holds fail-overs up for some leases, and no longer: its disk may hang. These
//! leases are counted over all leads of a member. Else trouble that follows the lead would send the lead round for ever.

use std::cmp::Reverse;
use std::time::Duration;

use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{MemberId, Tick};

use crate::lead::Leading;
use crate::limits::{HEARS_LESS_AFRESH_LEASES, HEARS_LESS_LEASES};
use crate::member::Member;

/// A leader looks for silences that often, in a lease.
const LOOKS_IN_LEASE: u32 = 8;
/// For so many leases another member hears more before a leader goes that has nothing to judge.
const HEARS_LESS_CALMLY_LEASES: u32 = 2;

/// How much longer a member lets others judge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LetsOthersJudge {
    /// When it began to count.
    began: Tick,
    /// For how long it has waited since then.
    waited: Duration,
    /// When it waited last.
    last: Tick,
    /// When it began to leave a lead although there was nothing to judge.
    left: Option<Tick>,
}

impl LetsOthersJudge {
    /// Whether it waits at this moment, too. A lead that is handed on costs a lease at least, since the next leader counts leases anew: that much
    /// counts for the first moment of a lead, and for others the time since the one before.
    fn waits(&mut self, now: Tick, lease: Duration, is_first: bool) -> bool {
        if now.since(self.began) >= lease * HEARS_LESS_AFRESH_LEASES {
            (self.began, self.waited) = (now, Duration::ZERO);
        }
        self.waited += if is_first { lease } else { now.since(self.last).min(lease / LOOKS_IN_LEASE) };
        self.last = now;
        self.waited < lease * HEARS_LESS_LEASES
    }

    /// Whether it leaves a lead although there is nothing to judge. That may take some tries: whoever is asked may just be writing something.
    fn leaves(&mut self, now: Tick, lease: Duration) -> bool {
        let left = self.left.filter(|left| now.since(*left) < lease * HEARS_LESS_AFRESH_LEASES).unwrap_or(now);
        self.left = Some(left);
        now.since(left) <= lease * HEARS_LESS_CALMLY_LEASES
    }
}

impl Member {
    /// How many nodes this member hears, lost ones included: one of those may be back.
    pub(crate) fn hears(&self, now: Tick) -> u16 {
        let nodes = self.ledger.decided().configuration.nodes.iter();
        let heard = nodes.filter(|info| self.evidence.is_heard(now, info)).count();
        u16::try_from(heard).expect("nodes are few")
    }
}

impl Leading<'_> {
    /// Whether this leader is to judge no silence now. A member that hears more is asked to lead.
    pub(crate) fn another_is_to_judge(&mut self, now: Tick) -> bool {
        if planted::is_on(Bug::DeafLeaderJudges) {
            return false;
        }
        let (lease, is_due) = (self.member.options.node_lease, self.lead.leases.any_expired(now));
        if is_due && self.member.ledger.is_cut_off(now, lease / 2) {
            self.lead.hears_less_since = None;
            return true;
        }
        let better = self.who_hears_more(now, lease / 2);
        if better.is_empty() {
            self.lead.hears_less_since = None;
            return false;
        }
        let since = *self.lead.hears_less_since.get_or_insert(now);
        // One word may be about a moment that is over.
        let lasts = now.since(since) >= lease / 4;
        let is_first = is_due && lasts && !std::mem::replace(&mut self.lead.has_let_others_judge, true);
        let waits = is_due && self.member.lets_others_judge.waits(now, lease, is_first);
        let is_calm = !is_due && now.since(since) >= lease * HEARS_LESS_CALMLY_LEASES;
        if waits && lasts || is_calm && self.member.lets_others_judge.leaves(now, lease) {
            hit(Probe::HearsLess);
            let may_lead = self.who_hears_more(now, lease / 4);
            let _ = may_lead.into_iter().find(|&to| self.hand_over(now, to));
        }
        waits
    }

    /// The members that hear more nodes than this leader does: who hears most first, and whoever was asked last behind the others, since the disk
    /// of one may hang. What was said long ago does not count.
    fn who_hears_more(&self, now: Tick, fresh: Duration) -> Vec<MemberId> {
        let own = self.member.hears(now);
        let members = self.member.ledger.lists().members;
        let may_lead = self.others_that_may_lead(&members).into_iter();
        let said = may_lead.filter_map(|of| self.member.others.hear.get(&of).map(|&(hears, at)| (of, hears, at)));
        let mut more: Vec<_> = said.filter(|&(_, hears, at)| hears > own && now.since(at) <= fresh).collect();
        let asked = self.lead.handed_over.map(|(of, _)| of);
        more.sort_by_key(|&(of, hears, _)| (Some(of) == asked, Reverse(hears)));
        more.into_iter().map(|(of, ..)| of).collect()
    }
}
