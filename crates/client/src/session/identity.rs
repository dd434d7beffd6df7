//! Who the session is: a client id, its lease, and the sequences that calls hold under it (RIFL 3).
//!
//! The coordinator grants and renews. An id that was lost takes the saved results with it: what is under way then is
//! unknown (R2.2), and what was never sent goes on under the next id. At most `OUTSTANDING_MAX` sequences are held.

use std::time::Duration;

use kasha_exactly_once::ClientWindow;
use kasha_machine::{Effects, Endpoint};
use kasha_types::limits::OUTSTANDING_MAX;
use kasha_types::{ClientId, ClusterTime, RpcId, Sequence, Tick};
use kasha_wire::Message;

use super::call::Kind;
use super::{Completion, Known, Session, WhyUnknown, send_message};

/// How long the coordinator may be silent before it is asked again.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// The client id, or the wait for one.
#[derive(Debug)]
pub(super) enum Identity {
    /// `OpenSession` is repeated until it is answered.
    Opening { nonce: Option<u64>, again_at: Tick, pause: Duration },
    /// `RenewLease` is sent at a third of the term, and then repeated.
    Held { numbered: Numbered, expiry: ClusterTime, renew_at: Tick },
}

impl Identity {
    pub(super) fn opening(now: Tick) -> Self {
        Self::Opening { nonce: None, again_at: now, pause: RETRY }
    }

    pub(super) fn numbered(&self) -> Option<&Numbered> {
        match self {
            Self::Held { numbered, .. } => Some(numbered),
            Self::Opening { .. } => None,
        }
    }

    /// When the coordinator is to be asked.
    pub(super) fn next_errand(&self) -> Tick {
        match self {
            Self::Opening { again_at, .. } => *again_at,
            Self::Held { renew_at, .. } => *renew_at,
        }
    }

    /// The result of this id is there, or never will be: it may be acknowledged.
    pub(super) fn finish(&mut self, rpc: RpcId) {
        match self {
            Self::Held { numbered, .. } if numbered.client == rpc.client => numbered.finish(rpc.sequence),
            Self::Held { .. } | Self::Opening { .. } => panic!("{rpc:?} outlived its client id"),
        }
    }
}

/// A client id's sequences and the calls that hold them.
#[derive(Debug)]
pub(super) struct Numbered {
    pub(super) client: ClientId,
    pub(super) window: ClientWindow,
    /// The slot of the call that holds `sequence % OUTSTANDING_MAX`: the window makes it unique.
    calls: Box<[Option<(Sequence, u32)>]>,
}

impl Numbered {
    fn new(client: ClientId, outstanding_max: u64) -> Self {
        let calls = vec![None; usize::try_from(OUTSTANDING_MAX).expect("512")].into_boxed_slice();
        Self { client, window: ClientWindow::with_max(outstanding_max), calls }
    }

    fn place(sequence: Sequence) -> usize {
        (sequence.0 % OUTSTANDING_MAX) as usize
    }

    pub(super) fn has_room(&self) -> bool {
        self.window.has_room()
    }

    pub(super) fn hold(&mut self, sequence: Sequence, slot: usize) {
        let slot = u32::try_from(slot).expect("far below 2^32 calls");
        let before = self.calls[Self::place(sequence)].replace((sequence, slot));
        assert!(before.is_none(), "{sequence} takes the place of {before:?}");
    }

    pub(super) fn slot_of(&self, rpc: RpcId) -> Option<usize> {
        let (held, slot) = self.calls[Self::place(rpc.sequence)]?;
        (rpc.client == self.client && held == rpc.sequence).then_some(slot as usize)
    }

    fn finish(&mut self, sequence: Sequence) {
        let held = self.calls[Self::place(sequence)].take();
        assert!(held.is_some_and(|(s, _)| s == sequence), "{sequence} was not held");
        self.window.finish(sequence);
    }

    /// How many sequences calls hold.
    pub(super) fn held(&self) -> usize {
        self.calls.iter().flatten().count()
    }
}

impl Session {
    /// Opens the session, or renews its lease, if that is due.
    pub(super) fn tend_lease(&mut self, now: Tick, out: &mut Effects) {
        match &mut self.identity {
            Identity::Opening { nonce, again_at, pause } if *again_at <= now => {
                let nonce = *nonce.get_or_insert_with(|| self.rng.next_u64());
                *again_at = now.after(*pause);
                *pause = (*pause * 2).min(RETRY_MAX);
                send_message(Endpoint::Coordinator, &Message::OpenSession { nonce }, out);
            }
            Identity::Held { numbered, renew_at, .. } if *renew_at <= now => {
                *renew_at = now.after(RETRY_MAX);
                send_message(Endpoint::Coordinator, &Message::RenewLease { client: numbered.client }, out);
            }
            Identity::Opening { .. } | Identity::Held { .. } => {}
        }
    }

    pub(super) fn on_session_opened(
        &mut self,
        nonce: u64,
        client: ClientId,
        expiry: ClusterTime,
        time: ClusterTime,
        now: Tick,
    ) -> Known {
        let is_ours = matches!(self.identity, Identity::Opening { nonce: Some(ours), .. } if ours == nonce);
        if !is_ours || client == ClientId(0) {
            return Known::No;
        }
        self.cluster.heard_time(time, now);
        self.table_sequence = 0;
        self.identity = Identity::Held {
            numbered: Numbered::new(client, self.options.outstanding_max),
            expiry,
            renew_at: renewal(expiry, time, now),
        };
        Known::Yes
    }

    pub(super) fn on_lease_renewed(
        &mut self,
        client: ClientId,
        lease_expiry: ClusterTime,
        time: ClusterTime,
        now: Tick,
    ) -> Known {
        match &mut self.identity {
            Identity::Held { numbered, expiry, renew_at } if numbered.client == client => {
                *expiry = lease_expiry.max(*expiry);
                *renew_at = renewal(lease_expiry, time, now);
            }
            Identity::Held { .. } | Identity::Opening { .. } => return Known::No,
        }
        self.cluster.heard_time(time, now);
        Known::Yes
    }

    /// The saved results go with the lease: what is under way is unknown (R2.2). What was never sent goes on under the
    /// next client id.
    pub(super) fn on_lease_lost(&mut self, client: ClientId, now: Tick) -> Known {
        if self.client() != Some(client) {
            return Known::No;
        }
        self.stats.leases_lost += 1;
        self.identity = Identity::opening(now);
        for slot in self.calls.slots() {
            if self.calls.get(slot).is_none() {
                continue;
            }
            let call = &mut self.calls[slot];
            match &mut call.kind {
                Kind::Update(update) => update.rpc = None,
                Kind::Table(_) => {}
                Kind::Read(_) | Kind::Status { .. } | Kind::Refresh => continue,
            }
            if call.is_sent() {
                self.end(slot, Completion::Unknown(WhyUnknown::LeaseLost));
            }
        }
        Known::Yes
    }
}

fn renewal(expiry: ClusterTime, time: ClusterTime, now: Tick) -> Tick {
    let third = Duration::from_millis(expiry.0.saturating_sub(time.0) / 3);
    now.after(third.max(RETRY))
}
