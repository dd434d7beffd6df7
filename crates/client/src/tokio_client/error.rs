//! Errors for people. Each text says what happened, why, and what to do, with the code of its page in `docs/errors`.
//!
//! **R2.2** The types keep the three outcomes apart: [`Error::NotExecuted`], [`Error::Unknown`], and success or
//! [`Error::Rejected`] for an update that was executed.

use std::fmt;
use std::sync::Arc;

use kasha_wire::Outcome;
use kasha_wire::outcome::Shape;
use tokio::sync::oneshot;

use super::Failure;
use super::driver::{Asks, Command, KeptEnd};
use super::home::Commands;
use crate::session::{CallId, Completion, WhyFailed, WhyNot, WhyUnknown};

/// The reason why a call did not return what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The update was certainly not executed. It may be sent again as a new update.
    #[error("the update was not executed: {0}")]
    NotExecuted(WhyNot),
    /// The update may or may not have been executed. Do not send it again as a new update: resolve it.
    #[error("it is unknown whether the update was executed: {why}")]
    Unknown {
        /// Why the outcome is unknown.
        why: WhyUnknown,
        /// The call, with which the outcome can be resolved.
        call: UnknownCall,
    },
    /// The update was executed, and changed nothing.
    #[error("the update changed nothing: {0}")]
    Rejected(Rejection),
    /// The transaction was executed, and changed nothing: for programs to which that is an error.
    #[error("the transaction changed nothing: {0}; read again, and decide anew (K0335)")]
    NotCommitted(#[from] Failure),
    /// A read or a question has no answer.
    #[error("no answer: {0}")]
    Failed(WhyFailed),
    /// There is no table of this name.
    #[error("there is no table {0:?}; create it first (K0302)")]
    NoTable(String),
    /// The cluster is new, and fewer nodes are there than it begins with: there is no table yet.
    #[error("this cluster begins {}", begins_when(*missing))]
    NotBegun {
        /// So many more nodes must be started.
        missing: u16,
    },
    /// The coordinator refuses to create or drop the table.
    #[error("the table cannot be created or dropped: {0} (K0343)")]
    TableRefused(String),
    /// No cluster was found.
    #[error("no cluster answered: {0}; check the addresses and that the nodes are running (K0208)")]
    Connect(String),
    /// The client's task has ended.
    #[error("this client has stopped, since the runtime that it was made on ended; connect again (K0344)")]
    Stopped,
    /// This process is a child of the one that made the client.
    #[error(
        "this client was made before this process was forked, and is its parent's; connect again in the child (K0350)"
    )]
    Forked,
    /// The server's answer cannot be decoded.
    #[error("the server's answer cannot be read ({0}); run the same version of Kasha on both sides (K0206)")]
    Answer(kasha_wire::DecodeError),
}

fn begins_when(missing: u16) -> String {
    match missing {
        0 => "in a moment, since all its nodes are there: ask again (K0302)".to_owned(),
        1 => "when 1 more node is there: start it (K0302)".to_owned(),
        missing => format!("when {missing} more nodes are there: start them (K0302)"),
    }
}

/// The reason why an update that was executed changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The sum does not fit 64 bits. The index of the item in the operation's list, from 0.
    #[error("the sum of item {0} does not fit 64 bits; use a smaller delta, or reset the number (K0331)")]
    Overflow(u32),
    /// The value is not a number. The index of the item in the operation's list, from 0.
    #[error("the value of item {0} is no decimal 64-bit number; put one first, or use another key (K0332)")]
    NotANumber(u32),
    /// An append would make the value too long.
    #[error("the value would exceed its limit; spread it over several keys (K0333)")]
    TooLarge,
    /// The operation key was used with another request.
    #[error("the operation key was used with a different request; use a new key for a new operation (K0334)")]
    OperationKeyMismatch,
}

/// An update whose outcome was unknown when its caller was told.
#[derive(Clone, Debug)]
pub struct UnknownCall {
    pub(super) call: CallId,
    pub(super) why: WhyUnknown,
    pub(super) shape: Option<Shape>,
    pub(super) commands: Commands,
    /// How the call ended, once somebody has asked. Clones share it.
    pub(super) kept: KeptEnd,
}

/// The outcome of a resolved call of whatever type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// The update was executed, with this result. [`UpdateCall::answer`] leads to a typed one.
    ///
    /// [`UpdateCall::answer`]: super::UpdateCall::answer
    Executed(Outcome),
    /// The table request was executed.
    Table(kasha_wire::message::TableOutcome),
    /// The update was certainly not executed.
    NotExecuted(WhyNot),
    /// The outcome will never be known.
    Never(WhyUnknown),
}

impl UnknownCall {
    /// Waits until the outcome of the update is known, as long as the shard cannot be reached. The future may be dropped. This handle and
    /// its clones tell the outcome as often as they are asked. If the outcome will never be known, [`Resolved::Never`] says why; it says so at once
    /// if the call itself ended for that reason, for example [`WhyUnknown::LeaseLost`].
    ///
    /// # Errors
    /// If the client has stopped, or the server's answer cannot be decoded.
    pub async fn resolve(&self) -> Result<Resolved, Error> {
        Ok(match self.completion().await? {
            Completion::Executed { result, .. } => {
                Resolved::Executed(Outcome::decode(self.shape()?, &result).map_err(Error::Answer)?)
            }
            Completion::Table(outcome) => Resolved::Table(outcome),
            Completion::NotExecuted(why) => Resolved::NotExecuted(why),
            Completion::Unknown(why) => Resolved::Never(why),
            Completion::Read { .. }
            | Completion::TimeToLive { .. }
            | Completion::ReadFailed(_)
            | Completion::Status(_)
            | Completion::Refreshed => unreachable!("only what changes something is resolved"),
        })
    }

    /// How the call ended, once that is known.
    async fn completion(&self) -> Result<Completion, Error> {
        match self.why {
            WhyUnknown::DeadlinePassed => {}
            why @ (WhyUnknown::LeaseLost | WhyUnknown::IdReused | WhyUnknown::TableDropped | WhyUnknown::Forgotten) => {
                return Ok(Completion::Unknown(why));
            }
        }
        if self.kept.get().is_none() {
            let (wake, woken) = oneshot::channel();
            let asks = Asks { kept: Arc::clone(&self.kept), wake };
            self.commands.send(Command::Resolve { call: self.call, asks }).await?;
            self.commands.answer(woken).await?;
        }
        Ok(self.kept.get().expect("it is kept before anybody is woken").clone())
    }

    /// The shape of the update's result.
    fn shape(&self) -> Result<Shape, Error> {
        self.shape.ok_or(Error::Answer(kasha_wire::DecodeError::Invalid("an operation")))
    }
}

/// What a call came to, if a deadline is no error to its caller.
#[derive(Debug)]
pub enum Answer<T> {
    /// The update was executed, with this result.
    Known(T),
    /// It is unknown whether the update was executed.
    Unknown(Unresolved<T>),
}

/// How the bytes of a result become a value.
type Convert<T> = Box<dyn Fn(Shape, &[u8]) -> Result<T, Error> + Send + Sync>;

/// An update whose outcome is unknown, with the type of its result.
pub struct Unresolved<T> {
    call: UnknownCall,
    convert: Convert<T>,
}

impl<T> fmt::Debug for Unresolved<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unresolved").field("call", &self.call).finish_non_exhaustive()
    }
}

impl<T> Answer<T> {
    /// What the end of a call is to a caller who can wait for its outcome.
    pub(super) fn of(
        result: Result<T, Error>,
        convert: impl Fn(Shape, &[u8]) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        match result {
            Ok(value) => Ok(Self::Known(value)),
            Err(Error::Unknown { call, .. }) => Ok(Self::Unknown(Unresolved { call, convert: Box::new(convert) })),
            Err(other) => Err(other),
        }
    }
}

impl<T> Unresolved<T> {
    /// Why the outcome is unknown.
    #[must_use]
    pub fn why(&self) -> WhyUnknown {
        self.call.why
    }

    /// Waits until the outcome is known, as [`UnknownCall::resolve`] does, and returns what the call itself would have returned.
    ///
    /// # Errors
    /// Those of the call. [`Error::Unknown`] if the outcome will never be known.
    pub async fn resolve(&self) -> Result<T, Error> {
        match self.call.completion().await? {
            Completion::Executed { result, .. } => (self.convert)(self.call.shape()?, &result),
            Completion::NotExecuted(why) => Err(Error::NotExecuted(why)),
            Completion::Unknown(why) => Err(Error::Unknown { why, call: UnknownCall { why, ..self.call.clone() } }),
            other => unreachable!("{other:?} of an update"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found from outside: a call whose lease was lost resolved to "forgotten".
    #[tokio::test]
    async fn what_is_known_of_an_unknown_call_at_its_end_is_said_however_often_it_is_resolved() {
        let (commands, _nobody) = tokio::sync::mpsc::channel(1);
        let commands = Commands::new(commands);
        for why in [WhyUnknown::LeaseLost, WhyUnknown::TableDropped, WhyUnknown::IdReused] {
            let (commands, kept) = (commands.clone(), KeptEnd::default());
            let call = UnknownCall { call: CallId(1), why, shape: None, commands, kept };
            for _ in 0..2 {
                assert_eq!(call.resolve().await.expect("an answer"), Resolved::Never(why));
            }
        }
    }
}
