//! The lead goes to the member that hears most nodes (R9.15).
//!
//! A leader may hear its members, and not the nodes. Then the silence is its own. So members tell each other how many nodes they hear, and
//! a leader that is about to judge a silence, and hears fewer nodes than another member, asks that one to lead. The next leader counts the
//! leases of all nodes anew (R9.3), and judges by what it hears.
//!
//! A member that says so, and does not come to lead, holds fail-overs up for some leases, and no longer: its disk may hang.

use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{MemberId, Tick};

use crate::lead::Leading;
use crate::limits::HEARS_LESS_LEASES;
use crate::member::Member;

impl Member {
    /// How many nodes that are alive this member hears.
    pub(crate) fn hears(&self, now: Tick) -> u16 {
        let nodes = self.ledger.decided().configuration.nodes.iter();
        let heard = nodes.filter(|info| info.alive && self.evidence.is_heard(now, info)).count();
        u16::try_from(heard).expect("nodes are few")
    }
}

impl Leading<'_> {
    /// Whether a node is to be judged that another member may hear. That member is asked to lead.
    pub(crate) fn another_is_to_judge(&mut self, now: Tick) -> bool {
        let is_due = self.lead.leases.any_expired(now);
        let better = if is_due { self.who_hears_more(now) } else { None };
        let Some(better) = better.filter(|_| !planted::is_on(Bug::DeafLeaderJudges)) else {
            self.lead.hears_less_since = None;
            return false;
        };
        let since = *self.lead.hears_less_since.get_or_insert(now);
        let waits = now.since(since) < self.member.options.node_lease * HEARS_LESS_LEASES;
        if waits {
            hit(Probe::HearsLess);
            self.hand_over(now, better);
        }
        waits
    }

    /// The member that hears most nodes, if that is more than this leader hears. What was said long ago does not count.
    fn who_hears_more(&self, now: Tick) -> Option<MemberId> {
        let (own, fresh) = (self.member.hears(now), self.member.options.node_lease / 2);
        let members = self.member.ledger.lists().members;
        let may_lead = self.others_that_may_lead(&members).into_iter();
        let said = may_lead.filter_map(|of| self.member.others.hear.get(&of).map(|&(hears, at)| (of, hears, at)));
        let more = said.filter(|&(_, hears, at)| hears > own && now.since(at) <= fresh);
        more.max_by_key(|&(_, hears, _)| hears).map(|(of, ..)| of)
    }
}
