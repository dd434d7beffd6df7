//! One attempt at one participant of a call, and what came of it.

use kasha_types::Tick;
use kasha_witness::Attempt as Told;

use super::target::Target;

/// The last attempt at one participant: the shard that has the keys of a call, or one of several.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) target: Target,
    pub(super) number: u32,
    /// When it was sent.
    pub(super) sent: Tick,
    /// What its primary and its witnesses have said: it alone counts (R2.1).
    pub(super) told: Told,
    /// The primary was asked to make its answer durable.
    pub(super) sync_sent: bool,
}

impl Attempt {
    pub(super) fn new(target: Target, number: u32, sent: Tick) -> Self {
        let told = Told::new(target.epoch, target.list, target.witnesses.count());
        Self { target, number, sent, told, sync_sent: false }
    }
}
