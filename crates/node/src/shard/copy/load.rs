//! Reading a replica's files when the process starts, and judging what they lack (R5.5): a loss of power, a kill in the middle
//! of a write, or damage, which each leave something else.

use kasha_log::{LoadReport, Log};
use kasha_machine::{Disk, Effect, Effects, FileName};
use kasha_replication::{MetaError, ReplicaMeta};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{Epoch, SegmentId, ShardId};
use kasha_wire::Durability;

use crate::core::Core;
use crate::shard::copy::{LogCopy, log_config};
use crate::{NodeOptions, StartError};

impl LogCopy {
    /// Reads a replica's files.
    pub fn load(
        options: &NodeOptions,
        shard: ShardId,
        segments: Vec<SegmentId>,
        disk: &dyn Disk,
        out: &mut Effects,
    ) -> Result<Self, StartError> {
        let mut copy = Self::fresh(options, shard);
        let read = |file| disk.read(file).map_err(|error| StartError::Read(file, error));
        let Some(meta) = read(FileName::Replica(shard))? else {
            // Segments without marks: the folder lost a file. What it held cannot be vouched for.
            copy.stray = segments;
            return Ok(copy);
        };
        copy.meta = match ReplicaMeta::decode(&meta, options.cluster, shard) {
            Ok(meta) => meta,
            Err(MetaError::Damaged) => {
                copy.stray = segments;
                return Ok(copy); // as if they were not there
            }
            Err(error) => return Err(StartError::Replica(error)),
        };
        copy.exists = true;
        if planted::is_on(Bug::PromiseForgotten) {
            copy.meta.promised = Epoch(0);
        }
        let mut files = Vec::new();
        for segment in segments {
            let file = FileName::Segment { shard, segment };
            files.extend(read(file)?.map(|bytes| (segment, bytes)));
        }
        let seen: Vec<_> = files.iter().map(|&(segment, _)| segment).collect();
        let (log, report) = Log::load(shard, log_config(options), files.into_iter());
        copy.log = log.with_buffers(options.buffers.clone());
        for &segment in &report.useless {
            out.push(Effect::Remove { file: FileName::Segment { shard, segment } });
        }
        copy.judge_load(options, &report, seen, out);
        Ok(copy)
    }

    /// What the state of the files says of what they held (R5.5).
    fn judge_load(&mut self, options: &NodeOptions, report: &LoadReport, seen: Vec<SegmentId>, out: &mut Effects) {
        let end = self.log.end().offset;
        let lost_acknowledged = end < self.meta.acknowledged && !planted::is_on(Bug::AcknowledgedEndIgnored);
        for (is_so, probe) in [
            (lost_acknowledged, Probe::AcknowledgedLost),
            (report.torn_bytes > 0, Probe::TornTail),
            (report.damage.is_some(), Probe::DamagedLog),
        ] {
            if is_so {
                hit(probe);
            }
        }
        // A loss of power may leave any part of what was written last. A killed process leaves its beginning: all else is
        // damage, though it be of the last group only (R5.5).
        let power_lost = self.meta.lost_power(options.boot);
        let is_of_a_crash = power_lost || report.is_cut_short || planted::is_on(Bug::DamagedEndTaken);
        self.lost_something = report.damage.is_some() || lost_acknowledged || !is_of_a_crash;
        // What was answered is in the file (R7.7), and behind it may be what a kill cut short. What a loss of power took may
        // have been answered. The marks say so before the end is cut.
        let may_lack_answers = self.lost_something || (power_lost && report.torn_bytes > 0);
        if may_lack_answers && self.meta.whole != Epoch(0) {
            self.meta.whole = Epoch(0);
            let data = out.span(&self.meta_bytes());
            out.push(Effect::Replace { file: FileName::Replica(self.shard), data });
        }
        self.meta.intact &= !self.lost_something;
        self.meta.complete &= self.log.absent().is_empty();
        let held: Vec<_> = self.log.segments().map(|(segment, _)| segment).collect();
        self.stray = seen.into_iter().filter(|segment| !held.contains(segment)).collect();
        if report.torn_bytes > 0 && !self.lost_something {
            self.cut_head_file(out);
        }
        (self.written, self.held) = (end, end);
    }

    /// Bytes behind the log's end are none of it.
    fn cut_head_file(&self, out: &mut Effects) {
        if let Some((segment, used)) = self.log.segments().max_by_key(|&(id, _)| id) {
            let file = FileName::Segment { shard: self.shard, segment };
            out.push(Effect::Truncate { file, len: u64::from(used) });
        }
    }

    /// Once the durability is known: what a loss of power means, and what was lost besides (R5.5).
    pub fn judge_boot(&mut self, core: &mut Core, out: &mut Effects) {
        let durability = core.durability();
        let power_lost = self.meta.lost_power(core.options.boot);
        if durability == Durability::Replicated && power_lost && !planted::is_on(Bug::BootIgnored) {
            hit(Probe::ReplicaLostPower);
            let kept = if planted::is_on(Bug::MarkSurvivesPowerLoss) { self.meta.whole } else { Epoch(0) };
            (self.meta.intact, self.meta.whole) = (false, kept);
        }
        if !std::mem::take(&mut self.lost_something) {
            if self.meta.boot != core.options.boot && self.meta.intact {
                self.save_meta(core, out); // what is written from now on is of this boot
            }
            return;
        }
        // No loss of power takes what was fsynced, and nothing else of ours takes anything: the disk lies. What is left may
        // lack any part of what was synced. So it is nobody's log, though all others be lost, until it is copied anew; the
        // files stay as they are, for whoever can read more of them.
        let fsynced_is_lost = durability == Durability::Fsync && self.log.end().offset < self.meta.acknowledged;
        if !power_lost || fsynced_is_lost {
            hit(Probe::DamageUnexplained);
            self.meta.complete = false;
            return self.save_meta(core, out);
        }
        if self.meta.complete {
            // The marks say first that something was lost; then what lies behind the damage goes, newest first.
            self.save_meta(core, out);
            for segment in std::mem::take(&mut self.stray).into_iter().rev() {
                core.remove(FileName::Segment { shard: self.shard, segment }, out);
            }
            self.cut_head_file(out);
        }
    }
}
