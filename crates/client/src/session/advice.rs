//! What a client does after a refusal. A refusal says only that this delivery ran nothing (R2.2). Whether the call is
//! sent again, cancelled or given up depends on the refusal, and is the same for every shard.

use kasha_wire::Refusal;

use super::completion::{WhyNot, WhyUnknown};

/// What to do after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Try again with a newer configuration.
    Refresh,
    /// Try again in a while.
    Retry,
    /// The call will be refused again. An update is cancelled, so that its outcome is recorded; a read has failed.
    Cancel(WhyNot),
    /// The shard has dropped what it kept of the call, so its outcome will never be known.
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
