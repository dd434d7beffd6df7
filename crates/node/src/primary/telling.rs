//! What a term tells the coordinator, and people.

use std::borrow::Cow;

use kasha_types::ShardId;
use kasha_wire::message::Report;

use crate::primary::{Primary, Stage};

impl Primary {
    pub fn is_fencing(&self) -> bool {
        matches!(self.stage, Stage::Fencing(_))
    }

    pub fn describe(&self) -> Cow<'static, str> {
        let text = match &self.stage {
            Stage::Fencing(fencing) => return fencing.describe(self.term.quorum).into(),
            Stage::Fetching(_) => "fetching the rest of the log from another member",
            Stage::Replaying => "replaying the log",
            Stage::Witnessing(asking) => return asking.describe(&self.term).into(),
            Stage::Syncing(_) => "syncing with the new members",
            Stage::Reporting => "waits for the coordinator's commit",
            Stage::Serving(_) => "serving",
        };
        text.into()
    }

    pub fn reports(&self, shard: ShardId, reports: &mut Vec<Report>) {
        let (term, epoch) = (&self.term, self.term.epoch);
        match &self.stage {
            Stage::Reporting => reports.push(Report::Recovered { shard, epoch }),
            Stage::Serving(serving) => {
                if serving.list_is_closed(term.shipping.synced()) {
                    let list = term.list;
                    reports.push(match serving.is_stopping() {
                        true => Report::Stopping { shard, epoch, list },
                        false => Report::ListClosed { shard, epoch, list },
                    });
                }
            }
            Stage::Fencing(fencing) => return reports.extend(fencing.needs_members(shard, epoch)),
            Stage::Witnessing(asking) => return reports.extend(asking.needs_witness(term, shard)),
            Stage::Fetching(_) | Stage::Replaying | Stage::Syncing(_) => return,
        }
        reports.extend(term.shipping.copied().map(|node| Report::Copied { shard, epoch, node }));
    }
}
