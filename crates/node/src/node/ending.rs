//! The last turns of a process that was asked to stop. Its files say that everything in them is on the disk, and that nothing
//! was written since, so that a machine which is switched off after the stop has not lost power (R5.3, R5.5): its logs are as
//! sure as before, and no member has to be waited for.
//!
//! The mark must be true whenever the power goes: first everything is fsynced, then the marks say so. The next start of
//! the process takes the mark back before it writes anything else (`LogCopy::judge_boot`).

use kasha_machine::Effects;
use kasha_types::LocalPosition;

use crate::node::Node;

/// How far the end is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// Nothing is executed, acknowledged or recorded any more.
    Begun,
    /// This commit puts everything on the disk.
    Fsyncing(LocalPosition),
    /// This one puts the marks there.
    Noting(LocalPosition),
}

impl Node {
    /// The process ends: from here on it hears nobody, and only sees to its files. Whoever may still need it should have
    /// had the time ([`Node::has_stopped`]).
    pub fn begin_end(&mut self) {
        self.ending.get_or_insert(Ending::Begun);
    }

    /// Whether the files are as they should be.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.ending, Some(Ending::Noting(commit)) if commit <= self.core.local_durable)
    }

    /// One turn of the end.
    pub(crate) fn advance_end(&mut self, ending: Ending, out: &mut Effects) {
        let core = &mut self.core;
        self.ending = Some(match ending {
            Ending::Begun => {
                for replica in self.replicas.values_mut() {
                    replica.lose_role(out);
                    replica.copy.write_log(core, out);
                }
                Ending::Fsyncing(core.fsynced_commit())
            }
            Ending::Fsyncing(commit) if commit <= core.local_durable => {
                for replica in self.replicas.values_mut() {
                    replica.copy.note_clean_end(core, out);
                }
                Ending::Noting(core.fsynced_commit())
            }
            Ending::Fsyncing(_) | Ending::Noting(_) => ending,
        });
        self.core.end_turn(out);
    }
}
