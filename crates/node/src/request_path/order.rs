//! `order → overlap`: what a request comes to, and what its answer must wait for.
//!
//! - **R4.9** An operation key that was used gives its result again, or an error: nothing runs twice under it.
//! - **C1**, R8.7: whether it overlaps with something unsynced is judged when it runs, not when it arrived.
//! - **R5.1** Everything overlaps with an unsynced change of everything.
//! - **R5.2** An operation key's expiry is logged before it is observed, and overlaps with who observes it.

use kasha_exactly_once::{OperationKeyCheck, Place};
use kasha_log::{Log, Purpose};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_wire::{Body, Refusal};

use super::admit::Fresh;
use super::execute::Drafted;
use super::{Origin, Received, RequestPath, Stop, Wish};
use crate::operation_keys::{self, OperationKey};

/// What a request comes to. Each becomes a completion record.
#[derive(Clone, Copy)]
pub(super) enum Action<'a> {
    /// It runs; its result is also kept under its operation key, if it has one.
    Execute { keep_under: Option<OperationKey<'a>> },
    /// Its operation key was used with the same operation: the result that is kept there.
    Repeat(Place),
    /// Its operation key was used with another operation.
    Mismatch,
    /// It is given up.
    Cancel,
}

/// It runs now.
pub(super) struct Ordered<'a> {
    received: Received<'a>,
    action: Action<'a>,
}

/// Whether an answer must wait for a sync (C1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlap {
    /// It commutes with everything unsynced.
    None,
    Unsynced,
}

impl<'a> Ordered<'a> {
    pub(super) fn received(&self) -> &Received<'a> {
        &self.received
    }

    pub(super) fn body(&self) -> &Body<'a> {
        &self.received.body
    }

    pub(super) fn action(&self) -> Action<'a> {
        self.action
    }

    /// The operation key under which its result is kept.
    pub(super) fn keep_under(&self) -> Option<OperationKey<'a>> {
        match self.action {
            Action::Execute { keep_under } => keep_under,
            Action::Repeat(_) | Action::Mismatch | Action::Cancel => None,
        }
    }

    /// What its group is for.
    pub(super) fn purpose(&self) -> Purpose {
        match (&self.received.origin, self.action) {
            // It may have been completed, so it is never refused for memory (section 7, step 4).
            (Origin::Replay, _) => Purpose::Own,
            (Origin::Suspect, _) | (Origin::Client(_), Action::Cancel) => Purpose::Freeing,
            (Origin::Client(_), Action::Execute { .. } | Action::Repeat(_) | Action::Mismatch) => {
                if self.received.body.update.only_frees() { Purpose::Freeing } else { Purpose::Normal }
            }
        }
    }
}

impl RequestPath<'_> {
    /// Single-shard operations run at once: what is chosen is what runs.
    pub(super) fn order<'a>(&mut self, log: &mut Log, fresh: Fresh<'a>) -> Result<Ordered<'a>, Stop> {
        let received = fresh.into_received();
        let action = match received.origin {
            Origin::Client(caller) if caller.wish == Wish::Cancel => Action::Cancel,
            Origin::Client(_) | Origin::Suspect | Origin::Replay => match OperationKey::of(&received.body) {
                Some(key) => self.use_operation_key(log, &received, key)?,
                None => Action::Execute { keep_under: None },
            },
        };
        Ok(Ordered { received, action })
    }

    /// What its operation key makes of a request (R4.9).
    fn use_operation_key<'a>(
        &mut self,
        log: &mut Log,
        received: &Received<'a>,
        key: OperationKey<'a>,
    ) -> Result<Action<'a>, Stop> {
        // Replay must run what was completed in time, however late it is now; only what the log itself says is over is.
        let now = match received.origin {
            Origin::Replay => self.state.cluster_time,
            Origin::Client(_) | Origin::Suspect => self.core.cluster_time,
        };
        let dead = &mut self.core.scratch.dead;
        let dropped = operation_keys::drop_if_expired(log, self.state, self.epoch, now, &key, dead);
        if let (Some(end), Some(serving)) = (dropped.map_err(Stop::for_room)?, &mut self.serving) {
            hit(Probe::ExpiredKeyUsed);
            serving.keys_dropped_until = end;
        }
        match self.state.find_operation_key(log, key.hash, key.fingerprint, key.slot, key.key) {
            OperationKeyCheck::Hit(place) if planted::is_on(Bug::HitWithoutRecord) => {
                Err(Stop::Completed(self.unrecorded_hit(log, received.request.rpc, place)))
            }
            OperationKeyCheck::Hit(place) => {
                hit(match received.origin {
                    Origin::Replay => Probe::ReplayOperationKeyHit,
                    Origin::Client(_) | Origin::Suspect => Probe::OperationKeyHit,
                });
                Ok(Action::Repeat(place))
            }
            OperationKeyCheck::Mismatch => {
                hit(Probe::OperationKeyMismatch);
                Ok(Action::Mismatch)
            }
            OperationKeyCheck::Miss if now > received.body.head.not_after && !planted::is_on(Bug::NotAfterIgnored) => {
                hit(Probe::Unprovable);
                Err(Stop::Refused(Refusal::Unprovable))
            }
            OperationKeyCheck::Miss => Ok(Action::Execute { keep_under: Some(key) }),
        }
    }

    /// Does it touch anything that is not synced (C1)? Judged now, when it runs (R8.7). A repeat, a mismatch and
    /// a cancel read no key: they wait for a sync whatever is unsynced.
    pub(super) fn overlap(&self, drafted: &Drafted<'_>) -> Overlap {
        // Nobody waits for what a new primary replays.
        let Some(serving) = &self.serving else { return Overlap::Unsynced };
        let synced = self.shipping.synced();
        let unsynced = serving.everything_until > synced && !planted::is_on(Bug::EverythingUngated) // R5.1
            || match drafted.ordered().action {
                Action::Execute { keep_under: None } | Action::Cancel => false,
                Action::Execute { keep_under: Some(_) } => {
                    serving.keys_dropped_until > synced && !planted::is_on(Bug::DroppedKeyUngated) // R5.2
                }
                // They read what the log says of the key, which may be unsynced (R4.9).
                Action::Repeat(_) | Action::Mismatch => !planted::is_on(Bug::OperationKeyOverlapIgnored),
            }
            || drafted.draft().newest().is_some_and(|newest| newest.0 >= synced);
        if unsynced { Overlap::Unsynced } else { Overlap::None }
    }
}
