//! What a refusal asks of its client. A refusal says only that this delivery ran nothing (R2.2); whether the call is
//! sent again, cancelled or given up is the same for every shard.

use kasha_wire::Refusal;

use super::completion::{WhyNot, WhyUnknown};

/// What to do after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Try again with a newer configuration.
    Refresh,
    /// Try again in a while.
    Retry,
    /// It will be refused again: an update is to be cancelled, so that its outcome is recorded; a read has failed.
    Cancel(WhyNot),
    /// What the shard kept of it is gone.
    GiveUp(WhyUnknown),
}

pub(super) fn advice(why: Refusal) -> Advice {
    match why {
        Refusal::NotPrimary | Refusal::WrongShard | Refusal::OldWitnessList | Refusal::Recovering => Advice::Refresh,
        Refusal::Busy | Refusal::LeaseUnproven | Refusal::TooFewMembers | Refusal::WindowExceeded => Advice::Retry,
        Refusal::OutOfMemory => Advice::Cancel(WhyNot::OutOfMemory),
        Refusal::Unprovable => Advice::Cancel(WhyNot::Unprovable),
        Refusal::TooLarge => Advice::Cancel(WhyNot::ResultTooLarge),
        Refusal::BadRequest => Advice::Cancel(WhyNot::BadRequest),
        Refusal::LeaseExpired | Refusal::Stale => Advice::GiveUp(WhyUnknown::LeaseLost),
        Refusal::Reused => Advice::GiveUp(WhyUnknown::IdReused),
    }
}
