//! A primary orders a member to follow it. Whatever role the replica had, it has another one then.

use kasha_machine::{Effects, Endpoint};
use kasha_wire::message::{Attach, AttachAt, Fence, FenceReport};

use crate::core::Core;
use crate::core::send::send;
use crate::shard::Replica;
use crate::shard::copy::receive::LOG_END_MAX;
use crate::shard::site::Site;

/// Step 2: promise the epoch, and report what we hold.
pub(crate) fn on_fence(replica: &mut Replica, core: &mut Core, from: Endpoint, fence: &Fence, out: &mut Effects) {
    let &Fence { epoch, primary, attach, served, list, .. } = fence;
    let existed = replica.copy.exists;
    let Some((Site { copy, core, .. }, _)) = replica.follow(core, (epoch, primary), out) else { return };
    let report = copy.fence_report(core.id().node, served, list);
    let message = FenceReport {
        shard: copy.shard,
        epoch,
        node: report.node,
        attach,
        exists: existed,
        end: report.end,
        history: report.history,
        intact: existed && report.intact,
        complete: existed && report.complete,
        whole: existed && report.whole,
    };
    send(from, &message, core.durable_gate_as(copy.shard), out);
}

/// The primary says where our log joins its own.
pub(crate) fn on_attach(replica: &mut Replica, core: &mut Core, from: Endpoint, order: &Attach, out: &mut Effects) {
    let (AttachAt::Keep(at) | AttachAt::Join(at)) = order.start;
    let aligned = at.is_segment_base(core.options.segment_bytes) && at <= LOG_END_MAX;
    if matches!(order.start, AttachAt::Join(_)) && !aligned {
        return; // no segment begins there
    }
    if let Some((mut site, backup)) = replica.follow(core, (order.epoch, order.primary), out) {
        backup.on_attach(&mut site, from, order, out);
    }
}
