//! The term of node leases and the drift bound, as the cluster has them (R9.12).
//!
//! Flags seed a new cluster. Then the state has both, whatever flags a member is started with: with different flags the bound of leases would
//! move with each election. An operator changes the lease by an order, and the next lead begins with it (F1: `Lead::begin`).

use std::time::Duration;

use kasha_wire::wire_struct;

/// The term of node leases, and how far two clocks may drift apart in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease_micros: u64,
    drift_micros: u64,
}

wire_struct! {
    Timing { lease_micros, drift_micros }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Timing {
    /// At most: whoever waits longer for a fail-over has mistaken the unit.
    const LEASE_MAX: Duration = Duration::from_secs(60);

    /// What an operator may order at least: nodes that have not heard of it speak often enough for that.
    const ORDERED_MIN: Duration = Duration::from_millis(100);

    /// With a drift bound of a twentieth.
    #[must_use]
    pub fn of_lease(lease: Duration) -> Self {
        Self::new(lease, lease / 20)
    }

    pub(crate) fn new(lease: Duration, drift: Duration) -> Self {
        Self { lease_micros: micros(lease), drift_micros: micros(drift) }
    }

    /// The term of a lease.
    #[must_use]
    pub fn lease(self) -> Duration {
        Duration::from_micros(self.lease_micros)
    }

    /// How far two clocks may drift apart in it.
    #[must_use]
    pub fn drift(self) -> Duration {
        Duration::from_micros(self.drift_micros)
    }

    /// Whether an operator may order that.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn may_be_ordered(self) -> Result<(), String> {
        self.check()?;
        match self.lease() {
            lease if lease < Self::ORDERED_MIN => {
                Err(format!("a lease has {:?} at least, and not {lease:?}", Self::ORDERED_MIN))
            }
            _ => Ok(()),
        }
    }

    /// Whether it can be so.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(self) -> Result<(), String> {
        let (lease, drift) = (self.lease(), self.drift());
        if lease < Duration::from_millis(10) || lease > Self::LEASE_MAX {
            return Err(format!("a lease has from 10 ms to a minute, and not {lease:?}"));
        }
        if drift >= lease / 2 {
            return Err(format!("a lease of {lease:?} is not more than twice the drift bound {drift:?}"));
        }
        Ok(())
    }
}
