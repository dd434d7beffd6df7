//! What the handlers of a shard's role work on besides the role: its copy of the log, its state, and its core.

use crate::core::Core;
use crate::shard::copy::LogCopy;
use crate::shard::state::ShardState;

/// What the handlers of a role work on besides the role.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    pub copy: &'a mut LogCopy,
    pub state: &'a mut ShardState,
    pub core: &'a mut Core,
}
