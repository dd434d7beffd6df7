//! A participant of a two-phase commit whose master is the client ([`Baseline::TwoPhase`]), for comparisons only.
//!
//! The participant tells the client its vote when that is durable, and the client tells it to the others. So this is Sinfonia's
//! protocol (Granola's thesis, 6.1.2) made of the same parts: one log write, locks, no witnesses.

use kasha_distributed::Timestamp;
use kasha_types::RpcId;

use crate::node::options::Baseline;
use crate::request::Caller;
use crate::request::path::RequestPath;

impl RequestPath<'_> {
    /// The master is told *prepared* whatever the transaction has seen (R8.8): its caller waits for the executions, whose answers
    /// stand behind their gates.
    pub(super) fn is_two_phase(&self) -> bool {
        self.core.options.baseline == Baseline::TwoPhase
    }

    /// The timestamp that is proposed stands behind the result, for the client to tell the others.
    pub(super) fn with_vote(&self, mut result: Vec<u8>, at: Timestamp) -> Vec<u8> {
        if self.is_two_phase() {
            result.extend_from_slice(&at.0.to_le_bytes());
        }
        result
    }

    /// The client that was told *prepared* also waits for the execution.
    pub(super) fn wait_for_decision(&mut self, caller: &Caller, rpc: RpcId) {
        if self.is_two_phase() {
            self.serving().distributed.callers.wait_for(rpc, *caller);
        }
    }
}
