//! The operator gives up the witnesses that a recovery waits for (R7.7). Refused wherever that could lose an update without
//! need: while the shard serves, while its term has not said that it waits for a witness, and while a member is alive that
//! has not said that its log is not whole: the primary that served last above all.

use kasha_types::{ListVersion, ShardId, Tick};
use kasha_wire::ShardPhase;

use crate::{Command, Coordinator};

impl Coordinator {
    /// Commits it, or says why not. `list`: what the operator saw.
    pub(crate) fn give_up_witnesses(&mut self, now: Tick, shard: ShardId, list: ListVersion) -> Result<(), String> {
        let config = self.configuration().shard(shard).ok_or_else(|| format!("there is no {shard} (K0506)"))?;
        if config.phase == ShardPhase::Serving {
            return Err(format!("{shard} serves: there is nothing to give up (K0506)"));
        }
        if config.list != list || config.witnesses.is_empty() {
            return Err(format!("{shard} waits for no witness of {list} any more: look again (K0506)"));
        }
        let Some(last_primary_asked) = self.evidence.waits_for_witness(now, shard, config.epoch) else {
            return Err(format!(
                "{shard} does not wait for a witness: its recovery goes on, or waits for something else that kasha status \
                 names (K0506)"
            ));
        };
        if !last_primary_asked {
            return Err(format!(
                "not needed, perhaps: a member of {shard} is alive, and has not said that its log lacks something; wait until \
                 it has been asked, and look again (K0506)"
            ));
        }
        let epoch = config.epoch.next();
        self.commit(&Command::GiveUpWitnesses { shard, epoch });
        Ok(())
    }
}
