//! Reductions: fewer states that mean the same.
//!
//! - `forget`: what nobody can ever use any more is cleared. No action and no property reads it.
//! - `canonical`: members are interchangeable, as long as no change of the list names one. They are sorted by their
//!   state, so that most states that differ only in the numbers of members become one. Only the search with all rules
//!   uses this.

use crate::group::state::{Member, NodeIx, State};

impl State {
    /// Clears the reports of a view that has its log or will never have one, and the log of a view that all members
    /// have left. Reports stay as long as `leads_twice`: another member may lead the view, too.
    pub(super) fn forget(&mut self, leads_twice: bool) {
        let newest = self.newest_led();
        for view in self.all_views() {
            let is_left = self.all_up().all(|node| self.member(node).view > view);
            let leader_left = self.view(view).leader.is_some_and(|node| self.member(node).view > view);
            let this = self.view_mut(view);
            this.over |= leader_left && !this.is_led();
            if this.over || this.is_led() && !leads_twice {
                (this.wished, this.reports) = (0, Default::default());
            }
            if is_left && newest != Some(view) && this.is_led() {
                this.log.clear();
                (this.base, this.over) = (0, true);
            }
        }
    }

    /// Sorts the members by their state.
    pub(super) fn canonical(&mut self) {
        let mut order: Vec<NodeIx> = self.all().collect();
        order.sort_by(|&a, &b| self.rank(a).cmp(&self.rank(b)));
        if order.iter().zip(0..).all(|(&node, at)| node == at) {
            return;
        }
        // `places[old]` is the new number of the member.
        let mut places = [0; 8];
        for (place, &node) in (0..).zip(&order) {
            places[usize::from(node)] = place;
        }
        self.permute(&order, &places);
    }

    /// The state of a member. What it leads comes first, for that is in other parts of the state.
    fn rank(&self, node: NodeIx) -> (u8, u8, &Member) {
        let of = |is: &dyn Fn(u8) -> bool| self.all_views().filter(|&view| is(view)).map(|view| 1u8 << view).sum();
        let leads = of(&|view| self.view(view).leader == Some(node));
        let reported = of(&|view| self.view(view).reports[usize::from(node)].is_some());
        (leads, reported, self.member(node))
    }

    fn permute(&mut self, order: &[NodeIx], places: &[NodeIx; 8]) {
        let mask = |mask: u8| -> u8 { (0..8).filter(|bit| mask & 1 << bit != 0).map(|bit| 1 << places[bit]).sum() };
        self.members = order.iter().map(|&node| self.member(node).clone()).collect();
        for lead in self.members.iter_mut().filter_map(|member| member.lead.as_mut()) {
            reorder(&mut lead.acked, order);
            if let Some(round) = &mut lead.round {
                round.confirmed = mask(round.confirmed);
            }
        }
        for view in &mut self.views {
            view.leader = view.leader.map(|leader| places[usize::from(leader)]);
            reorder(&mut view.reports, order);
        }
    }
}

fn reorder<T: Clone, const N: usize>(array: &mut [T; N], order: &[NodeIx]) {
    let old = array.clone();
    for (new, &node) in array.iter_mut().zip(order) {
        *new = old[usize::from(node)].clone();
    }
}
