//! What the stages of a request work on, and how a delivery ends that goes no further.

use kasha_log::Log;
use kasha_replication::Shipping;
use kasha_types::{Epoch, ShardId};
use kasha_wire::Refusal;

use crate::core::Core;
use crate::request::Why;
use crate::request::commit::Completed;
use crate::serving::Serving;
use crate::shard::site::Site;
use crate::shard::state::ShardState;
use crate::shard::term::Term;

/// This delivery goes no further.
pub(super) enum Stop {
    /// The update has run before: this is its recorded result.
    Completed(Completed),
    /// The delivery runs nothing.
    Nothing(Why),
}

impl Stop {
    pub fn refuse(why: Refusal) -> Self {
        Self::Nothing(Why::Refused(why))
    }
}

/// Everything a request can touch beside the log, which an open group borrows.
pub(crate) struct RequestPath<'p> {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    pub(super) state: &'p mut ShardState,
    /// No transaction over several shards is to be looked at (nearly always).
    pub(super) is_quiet: bool,
    pub(super) shipping: &'p mut Shipping,
    /// `None` while a new primary replays a witness.
    pub(super) serving: Option<&'p mut Serving>,
    pub(super) core: &'p mut Core,
}

impl<'p> RequestPath<'p> {
    pub(super) fn new(
        term: &'p mut Term,
        serving: Option<&'p mut Serving>,
        site: &'p mut Site<'_>,
    ) -> (Self, &'p mut Log) {
        let Site { copy, state, core } = site;
        let (shard, epoch) = (copy.shard, term.epoch);
        let is_quiet = state.distributed.is_quiet() && serving.as_ref().is_none_or(|serving| serving.turns.is_empty());
        (Self { shard, epoch, state, is_quiet, shipping: &mut term.shipping, serving, core }, &mut copy.log)
    }
}
