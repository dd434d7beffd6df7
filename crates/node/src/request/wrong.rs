//! Planted bugs of the request path that take more than a condition. Without the feature `planted-bugs` nothing here is
//! called.

use kasha_exactly_once::OperationKeyRecord;
use kasha_log::{EntryOffset, Log};
use kasha_types::RpcId;

use crate::request::commit::Completed;
use crate::request::path::RequestPath;

impl RequestPath<'_> {
    /// `hit_without_record`: the result from where the operation key keeps it, and no completion record.
    pub(super) fn unrecorded_hit(&self, log: &Log, at: EntryOffset, rpc: RpcId) -> Completed {
        let record = OperationKeyRecord::decode(log.entry(at).payload).expect("our own operation key");
        let offset = at.payload() + record.result_offset() as u64;
        self.saved(rpc, at, offset, record.result.len())
    }
}
