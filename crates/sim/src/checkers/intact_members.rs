//! Intact members (R5.5, D2): a member that calls its log intact holds everything that it has ever acknowledged, except
//! what a primary has told it to cut.

use std::collections::{BTreeMap, BTreeSet};

use kasha_machine::FileName;
use kasha_types::{LogEnd, LogPosition, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::message::{Attach, AttachAt, FenceReport};
use kasha_wire::{Appended, hot};

use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// Watches acknowledgements and reports.
#[derive(Debug, Default)]
pub struct IntactMembers {
    /// Up to where each member has acknowledged a log.
    acknowledged: BTreeMap<(ProcessId, ShardId), LogEnd>,
    /// Processes that have sent nothing since they started: they still check what they found.
    silent: BTreeSet<ProcessId>,
    /// A loss of power on all machines takes what was acknowledged last, and the rest is all that is left.
    forgets: bool,
    violations: Vec<String>,
    checked: u64,
}

impl IntactMembers {
    /// For durability `replicated`, under which a blackout may take something.
    #[must_use]
    pub fn forgetting(self, forgets: bool) -> Self {
        Self { forgets, ..self }
    }

    fn on_appended(&mut self, by: ProcessId, shard: ShardId, end: LogEnd) {
        let known = self.acknowledged.entry((by, shard)).or_default();
        *known = end.max(*known);
    }

    /// The member may obey at once, or never.
    fn on_attach(&mut self, to: ProcessId, shard: ShardId, start: AttachAt) {
        let (AttachAt::Keep(end) | AttachAt::Join(end)) = start;
        if let Some(known) = self.acknowledged.get_mut(&(to, shard)) {
            *known = end.min(*known);
        }
    }

    fn on_intact(&mut self, by: ProcessId, shard: ShardId, end: LogPosition) {
        let Some(&known) = self.acknowledged.get(&(by, shard)) else { return };
        self.checked += 1;
        if end.offset < known {
            self.violations.push(format!(
                "intact_members: {by:?} calls its log of {shard} intact, which ends at {}, but it has acknowledged {known} \
                 (R5.5)",
                end.offset
            ));
        }
    }
}

impl Watch for IntactMembers {
    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        self.silent.remove(&sent.from);
        if sent.kind == Kind::Appended as u8
            && let Ok(appended) = hot::decode_small::<Appended>(sent.payload)
        {
            self.on_appended(sent.from, appended.shard, appended.end);
        }
        if let (Some(to), Some(Attach { shard, start, .. })) = (sent.target, sent.message()) {
            self.on_attach(to, shard, start);
        }
        if let Some(FenceReport { shard, end, intact: true, .. }) = sent.message() {
            self.on_intact(sent.from, shard, end);
        }
    }

    /// A log that its owner gives up, or cuts to follow another one, is measured anew.
    fn wrote(&mut self, by: ProcessId, file: FileName, _offset: u64, len: usize, _view: &View<'_>) {
        if let FileName::Segment { shard, .. } = file
            && len == 0
            && !self.silent.contains(&by)
        {
            self.acknowledged.remove(&(by, shard));
        }
    }

    fn blackout(&mut self, _view: &View<'_>) {
        if self.forgets {
            self.acknowledged.clear();
        }
    }

    fn started(&mut self, process: ProcessId, _view: &View<'_>) {
        self.silent.insert(process);
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: intact", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::Epoch;

    use super::*;
    use crate::checkers::records::tests::SHARD;

    #[test]
    fn r5_5_what_was_acknowledged_is_there_or_was_cut_by_order() {
        let end = |end| LogPosition { epoch: Epoch(1), offset: LogEnd(end) };
        let mut watch = IntactMembers::default();
        watch.on_appended(ProcessId(1), SHARD, LogEnd(50));
        watch.on_intact(ProcessId(1), SHARD, end(50));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        watch.on_intact(ProcessId(1), SHARD, end(49));
        assert_eq!(watch.take_violations().len(), 1);
        watch.on_attach(ProcessId(1), SHARD, AttachAt::Keep(LogEnd(40)));
        watch.on_intact(ProcessId(1), SHARD, end(40));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
    }
}
