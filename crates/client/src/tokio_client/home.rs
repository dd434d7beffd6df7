//! A session belongs to the process that made it. After `fork()` the child has a copy of the client, and shares the
//! parent's sockets and the system's list of what tokio watches. Whatever the child did with them the parent would feel:
//! frames of both would mix, the one would read the other's answers, and a socket that the child drops is watched no more.
//!
//! So in a child a client only says that it is one (K0350). Its tasks touch nothing, and what they hold is left open.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use super::Error;
use super::driver::Command;

/// The process in which a client was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home(u32);

impl Home {
    /// This process.
    pub(super) fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this is another process: a child of the one that made the client. That is a system call, which costs a small
    /// part of a write to a socket (decision 0045).
    pub(super) fn is_elsewhere(self) -> bool {
        self != Self::here()
    }
}

/// What is dropped only in the process that made it: to drop the last sender of a queue wakes the parent's runtime, and a mutex of that may
/// be locked for ever in the child.
#[derive(Debug)]
pub(super) struct LeftOpen<T> {
    home: Home,
    /// Always there, except in the drop.
    it: Option<T>,
}

impl<T> LeftOpen<T> {
    pub(super) fn new(it: T) -> Self {
        Self { home: Home::here(), it: Some(it) }
    }

    /// Whether this is a child of the process that made it.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.home.is_elsewhere()
    }
}

impl<T> Deref for LeftOpen<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.it.as_ref().expect("it is not dropped")
    }
}

impl<T> Drop for LeftOpen<T> {
    fn drop(&mut self) {
        if self.is_elsewhere() {
            std::mem::forget(self.it.take());
        }
    }
}

/// The way to a client's task, from all its handles.
#[derive(Clone, Debug)]
pub(super) struct Commands {
    task: Arc<LeftOpen<mpsc::Sender<Command>>>,
    home: Home,
}

impl Commands {
    /// To a task of this process.
    pub(super) fn new(task: mpsc::Sender<Command>) -> Self {
        Self { task: Arc::new(LeftOpen::new(task)), home: Home::here() }
    }

    pub(super) async fn send(&self, command: Command) -> Result<(), Error> {
        if self.home.is_elsewhere() {
            return Err(Error::Forked);
        }
        self.task.send(command).await.map_err(|_| self.gone())
    }

    /// The answer of the task.
    pub(super) async fn answer<T>(&self, answer: tokio::sync::oneshot::Receiver<T>) -> Result<T, Error> {
        let mut answer = std::pin::pin!(answer);
        std::future::poll_fn(|context| match self.home.is_elsewhere() {
            true => Poll::Ready(Err(Error::Forked)),
            false => answer.as_mut().poll(context).map_err(|_| self.gone()),
        })
        .await
    }

    /// Why the task does not answer.
    fn gone(&self) -> Error {
        if self.home.is_elsewhere() { Error::Forked } else { Error::Stopped }
    }
}

/// What a connection does, which no child of this process goes on with, or ends.
pub(super) struct AtHome<F> {
    home: Home,
    /// Always there, except in the drop.
    work: Option<Pin<Box<F>>>,
}

impl<F: Future> AtHome<F> {
    pub(super) fn new(work: F) -> Self {
        Self { home: Home::here(), work: Some(Box::pin(work)) }
    }
}

impl<F: Future> Future for AtHome<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.home.is_elsewhere() {
            return Poll::Pending;
        }
        self.work.as_mut().expect("it is not dropped").as_mut().poll(context)
    }
}

impl<F> Drop for AtHome<F> {
    fn drop(&mut self) {
        if self.home.is_elsewhere() {
            std::mem::forget(self.work.take());
        }
    }
}
