//! Reductions: fewer states that mean the same.
//!
//! - `forget`: state that can never matter any more is cleared: reports of a fence that is over, acknowledgements of
//!   earlier attachments (unless the rule that these do not count is switched off), and what a sure member would have
//!   to hold.
//! - `canonical`: nodes are interchangeable. They are sorted by their state, so that most states that differ only in
//!   the numbers of nodes become one. Only the search with all rules uses this.
//!   that differ in names only become one. Only for the search with all rules.

use crate::replicas::Replicas;
use crate::replicas::rules::Rule;
use crate::replicas::state::{Node, NodeIx, Primary, Role, Stage, State};

impl Replicas {
    pub(super) fn forget(&self, state: &mut State) {
        let remembers_late = !self.keeps(Rule::AttachNumbered);
        for node in &mut state.nodes {
            if node.intact {
                node.must_hold = 0;
            }
            let Some(primary) = &mut node.primary else { continue };
            if primary.stage != Stage::Fencing {
                primary.reports = Default::default();
            }
            if primary.has_begun() {
                primary.electorate = 0;
            }
            for peer in primary.peers.iter_mut().filter(|_| !remembers_late) {
                peer.late = 0;
            }
        }
    }

    pub(super) fn canonical(&self, state: &mut State) {
        let mut order: Vec<NodeIx> = state.all().collect();
        order.sort_by_cached_key(|&node| rank(state, node));
        if order.iter().zip(0..).all(|(&node, at)| node == at) {
            return;
        }
        // `places[old]` is the new number of the node.
        let mut places = [0; 8];
        for (place, &node) in (0..).zip(&order) {
            places[usize::from(node)] = place;
        }
        permute(state, &order, &places);
    }
}

type Rank = (bool, u8, u8, u8, bool, bool, crate::replicas::state::Log, Option<crate::replicas::state::Member>, u8, u8);

/// The state of a node, without its number.
fn rank(state: &State, node: NodeIx) -> Rank {
    let this = state.node(node);
    let role = match this.role {
        Role::Idle => 0,
        Role::Backup { epoch, attached } => 1 + 2 * epoch + u8::from(attached),
        Role::Primary => 64,
    };
    let bits = (state.committed.recover_from >> node & 1) + 2 * (state.lost >> node & 1) + 4 * u8::from(this.up);
    (
        state.committed.primary != node,
        this.promised,
        role,
        this.base,
        this.intact,
        this.complete,
        this.log.clone(),
        state.committed.members[usize::from(node)],
        bits,
        this.restarts,
    )
}

fn permute(state: &mut State, order: &[NodeIx], places: &[NodeIx; 8]) {
    let mask = |mask: u8| -> u8 { (0..8).filter(|bit| mask & 1 << bit != 0).map(|bit| 1 << places[bit]).sum() };
    let nodes: Vec<Node> = order.iter().map(|&node| state.node(node).clone()).collect();
    state.nodes = nodes.into_iter().collect();
    state.lost = mask(state.lost);
    let committed = &mut state.committed;
    committed.primary = places[usize::from(committed.primary)];
    committed.recover_from = mask(committed.recover_from);
    reorder(&mut committed.members, order);
    for node in &mut state.nodes {
        let Some(primary) = &mut node.primary else { continue };
        let Primary { stage, electorate, reports, members, peers, .. } = primary.as_mut();
        *electorate = mask(*electorate);
        if let Stage::Fetching { from, .. } = stage {
            *from = places[usize::from(*from)];
        }
        reorder(reports, order);
        reorder(members, order);
        reorder(peers, order);
    }
}

fn reorder<T: Clone, const N: usize>(array: &mut [T; N], order: &[NodeIx]) {
    let old = array.clone();
    for (new, &node) in array.iter_mut().zip(order) {
        *new = old[usize::from(node)].clone();
    }
}
