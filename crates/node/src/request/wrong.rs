//! Planted bugs of the request path that take more than a condition. Without the feature `planted-bugs` nothing here is
//! called.

use kasha_exactly_once::OperationKeyRecord;
use kasha_log::{EntryOffset, GroupWriter, Log, Purpose};
use kasha_types::{Epoch, RpcId};

use crate::request::path::RequestPath;
use crate::request::record::Completed;

/// `record_apart`: the changes are committed, and the completion record gets a group of its own.
pub(super) fn record_apart<'l>(group: GroupWriter<'l>, epoch: Epoch, result: &[u8]) -> GroupWriter<'l> {
    let log = group.commit_and_release().0;
    log.begin(epoch, result.len() + 4096, Purpose::Own).expect("room for a record")
}

impl RequestPath<'_> {
    /// `hit_without_record`: the result from where the operation key keeps it, and no completion record.
    pub(super) fn unrecorded_hit(&self, log: &Log, at: EntryOffset, rpc: RpcId) -> Completed {
        let record = OperationKeyRecord::decode(log.entry(at).payload).expect("our own operation key");
        let offset = at.payload() + record.result_offset() as u64;
        self.saved(rpc, at, offset, record.result.len())
    }
}
