//! Hardly any request is sent twice only because its servers are slow: where nothing fails and no frame is lost, a client
//! that has seen how long they take waits for them (section 2).

use std::collections::BTreeSet;

use kasha_types::RpcId;
use kasha_wire::frame::Kind;
use kasha_wire::{Body, RequestView};

use crate::configurations::Cores;
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// The probes of this watcher.
pub const UPDATES: &str = "updates sent";
/// Updates of which more than one attempt was sent.
pub const SENT_AGAIN: &str = "updates sent again";

/// Of a hundred updates so many may be sent again.
const AGAIN_PERCENT_MAX: u64 = 3;
/// Counts the updates of clients.
#[derive(Debug)]
pub struct SentAgain {
    cores: Cores,
    updates: BTreeSet<(ProcessId, RpcId)>,
    again: BTreeSet<(ProcessId, RpcId)>,
}

impl SentAgain {
    /// Watches all processes but these.
    #[must_use]
    pub fn new(cores: Cores) -> Self {
        Self { cores, updates: BTreeSet::new(), again: BTreeSet::new() }
    }
}

impl Watch for SentAgain {
    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        if Kind::from_number(sent.kind) != Some(Kind::Request) || self.cores.core(sent.from).is_some() {
            return;
        }
        let Ok(request) = RequestView::decode(sent.payload) else { return };
        let Ok(body) = Body::decode(request.body) else { return };
        let update = (sent.from, body.head.rpc);
        self.updates.insert(update);
        if request.envelope.attempt > 1 {
            self.again.insert(update);
        }
    }

    fn report(&self, probes: &mut Probes) {
        probes.add(UPDATES, self.updates.len() as u64);
        probes.add(SENT_AGAIN, self.again.len() as u64);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// What is wrong with a run in which nothing fails. All sessions together have so many updates under way at first, before they know how long
/// their servers take.
#[must_use]
pub fn check(probes: &Probes, at_first: u64) -> Option<String> {
    let (updates, again) = (probes.get(UPDATES), probes.get(SENT_AGAIN));
    let at_most = at_first + updates * AGAIN_PERCENT_MAX / 100;
    (again > at_most).then(|| {
        format!("sent_again: {again} of {updates} updates were sent again, although nothing fails; {at_most} may be")
    })
}
