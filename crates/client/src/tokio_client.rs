//! The session for programs that run on tokio: handles that send to one background task, which owns the session.
//!
//! There is no protocol here. A handle turns typed calls into operations, and result bytes into values. `driver` is the
//! shell of the machine, `links` dials, and `connection` cuts frames. When the last handle is dropped, the session
//! ends. Nobody pursues its calls under way any more, and their results are dropped with the lease.

mod connection;
mod driver;
mod error;
mod expiry;
mod home;
mod interactive;
mod links;
mod names;
mod scan;
mod table;
mod transaction;
mod values;

pub use error::{Answer, Error, Rejection, Resolved, UnknownCall, Unresolved};
pub use interactive::*;
pub use names::Resolver;
pub use scan::{Listed, Scan, ScannedKey, ScannedValue};
pub use table::*;
pub use transaction::*;

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kasha_types::{ClusterId, CoreId};
use kasha_wire::Configuration;
use kasha_wire::message::TableOutcome;
use kasha_wire::outcome::Shape;
use kasha_wire::status::{CoreStatus, LoopTurns};
use tokio::sync::{mpsc, oneshot};

use crate::session::{Completion, CoreAnswer, CoreQuestion, Seeds, SessionOptions, SessionStats};
use driver::{Ask, Clock, Command, Driver, Ended, Ticket};
use home::{Commands, LeftOpen};
use names::Way;

/// The environment variable with the addresses of a cluster, for [`Client::connect_env`] and for `kasha cli`.
pub const ADDRESS_VARIABLE: &str = "KASHA_ADDRESS";
/// The addresses at which `kasha start` listens: the coordinator first, then its nodes, any of which can be asked when the
/// coordinator is down.
pub const LOCAL_ADDRESSES: &str = "127.0.0.1:7400,127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403";

/// Options of a client, besides the addresses.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The only cluster to talk to. `None`: the first cluster that answers.
    pub cluster: Option<ClusterId>,
    /// How long to look for the cluster.
    pub connect_timeout: Duration,
    /// How long a call may take unless the caller gives a deadline.
    pub deadline: Duration,
    /// How the names of the addresses are looked up.
    pub resolver: Resolver,
}

impl Default for ClientOptions {
    fn default() -> Self {
        let (connect_timeout, deadline) = (Duration::from_secs(10), crate::limits::DEADLINE);
        Self { cluster: None, connect_timeout, deadline, resolver: Resolver::default() }
    }
}

/// A client of one cluster. Clones share the session and its connections.
///
/// ```no_run
/// # async fn example() -> Result<(), kasha_client::Error> {
/// use kasha_client::{Client, TransactionOutcome};
///
/// // One of the addresses is enough to find the others.
/// let client = Client::connect(["10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"]).await?;
/// let (stock, orders) = (client.create_table("stock").await?, client.create_table("orders").await?);
/// stock.put("chairs", "10").await?;
///
/// // Several keys of several tables, at one moment or not at all.
/// let mut order = client.transaction();
/// let left = order.increment_within(&stock, "chairs", -1, 0..);
/// order.put(&orders, "order-42", "a chair");
/// match order.commit().once("order-42").await? {
///     TransactionOutcome::Committed(results) => println!("{} chairs are left", results.of(left).value),
///     TransactionOutcome::NotCommitted(failure) => println!("nothing changed: {failure}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    commands: Commands,
    abandoned: Arc<LeftOpen<mpsc::Sender<Ticket>>>,
    tickets: Arc<AtomicU64>,
    /// The session's.
    clock: Clock,
    /// How long a call may take unless its caller says otherwise.
    deadline: Duration,
}

/// Tells the session if a future is dropped before it has ended.
struct Abandon<'a> {
    ticket: Ticket,
    abandoned: Option<&'a LeftOpen<mpsc::Sender<Ticket>>>,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if let Some(abandoned) = self.abandoned.filter(|abandoned| !abandoned.is_elsewhere()) {
            // If the queue is full, nothing is lost: the call ends later, at its deadline, and its reply is dropped. If
            // the driver is gone, it has abandoned all calls.
            let _ = abandoned.try_send(self.ticket);
        }
    }
}

impl Client {
    /// Finds the cluster through any of its nodes, given as `host:port`. A name is looked up whenever it is dialled, and each of
    /// its addresses is tried.
    ///
    /// A client belongs to the process that made it. A child that it forks gets [`Error::Forked`] from every call, and must
    /// connect itself, on a runtime of its own: also one that tokio made before the `fork()` is the parent's.
    ///
    /// # Errors
    /// If nothing answers within ten seconds.
    pub async fn connect(seeds: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        Self::connect_with(seeds, ClientOptions::default()).await
    }

    /// Finds the cluster that the environment variable `KASHA_ADDRESS` names: the addresses of one or more of its nodes, with
    /// commas between them. Without this variable: the cluster of `kasha start` on this machine.
    ///
    /// # Errors
    /// If nothing answers within ten seconds, or the variable is no text.
    pub async fn connect_env() -> Result<Self, Error> {
        let addresses = match std::env::var(ADDRESS_VARIABLE) {
            Ok(addresses) => addresses,
            Err(std::env::VarError::NotPresent) => LOCAL_ADDRESSES.to_owned(),
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(Error::Connect(format!("{ADDRESS_VARIABLE} is no text")));
            }
        };
        Self::connect(addresses.split(',').map(str::trim).filter(|address| !address.is_empty())).await
    }

    /// As [`Client::connect`], with options.
    ///
    /// # Errors
    /// If nothing answers in time.
    pub async fn connect_with(
        seeds: impl IntoIterator<Item = impl AsRef<str>>,
        options: ClientOptions,
    ) -> Result<Self, Error> {
        const COMMANDS_MAX: usize = 1024;
        const ABANDONED_MAX: usize = crate::limits::CALLS_MAX;
        let (mut ways, mut problem) = (Vec::new(), "no address was given".to_owned());
        for seed in seeds {
            match Way::parse(seed.as_ref()) {
                Ok(way) => ways.push(way),
                Err(why) => problem = why,
            }
        }
        // One that may be an address is enough.
        if ways.is_empty() {
            return Err(Error::Connect(problem));
        }
        let count = u16::try_from(ways.len()).map_err(|_| Error::Connect("too many addresses".to_owned()))?;
        let (commands, command_queue) = mpsc::channel(COMMANDS_MAX);
        let (abandoned, abandoned_queue) = mpsc::channel(ABANDONED_MAX);
        let problem = Arc::new(Mutex::new("no address answered".to_owned()));
        let mut session = SessionOptions::new(Seeds::Named(count), random());
        (session.cluster, session.deadline) = (options.cluster, options.deadline);
        let driver =
            Driver::new(session, (ways, options.resolver), command_queue, abandoned_queue, Arc::clone(&problem));
        let clock = driver.clock;
        tokio::spawn(driver.run());
        let commands = Commands::new(commands);
        let abandoned = Arc::new(LeftOpen::new(abandoned));
        let client = Self { commands, abandoned, tickets: Arc::default(), clock, deadline: options.deadline };
        let (reply, ready) = oneshot::channel();
        client.send(Command::Ready { reply }).await?;
        match tokio::time::timeout(options.connect_timeout, client.commands.answer(ready)).await {
            Ok(Ok(())) => Ok(client),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::Connect(problem.lock().expect("nobody panics with it").clone())),
        }
    }

    /// The table of this name.
    ///
    /// # Errors
    /// If there is none, or the coordinator does not answer.
    pub async fn table(&self, name: &str) -> Result<Table, Error> {
        if let Some(id) = self.configuration().await?.and_then(|configuration| configuration.table(name)) {
            return Ok(Table::new(self.clone(), id));
        }
        let configuration = self.fresh_configuration().await?;
        let id = match (configuration.table(name), configuration.missing_to_begin()) {
            (Some(id), _) => id,
            (None, Some(missing)) => return Err(Error::NotBegun { missing }),
            (None, None) => return Err(Error::NoTable(name.to_owned())),
        };
        Ok(Table::new(self.clone(), id))
    }

    /// Creates a table, or finds the one of this name.
    ///
    /// # Errors
    /// If the coordinator refuses or does not answer.
    pub async fn create_table(&self, name: &str) -> Result<Table, Error> {
        match self.ask_table(Ask::CreateTable(name.to_owned())).await? {
            TableOutcome::Created(id) | TableOutcome::Exists(id) => Ok(Table::new(self.clone(), id)),
            TableOutcome::Dropped(_) | TableOutcome::NotFound => Err(Error::NoTable(name.to_owned())),
            TableOutcome::Refused(why) => Err(Error::TableRefused(why)),
        }
    }

    /// Drops a table with everything in it. Returns whether there was one.
    ///
    /// # Errors
    /// If the coordinator refuses or does not answer.
    pub async fn drop_table(&self, name: &str) -> Result<bool, Error> {
        match self.ask_table(Ask::DropTable(name.to_owned())).await? {
            TableOutcome::Dropped(_) => Ok(true),
            TableOutcome::NotFound => Ok(false),
            TableOutcome::Refused(why) => Err(Error::TableRefused(why)),
            TableOutcome::Created(_) | TableOutcome::Exists(_) => {
                Err(Error::Answer(kasha_wire::DecodeError::Invalid("the outcome of a drop")))
            }
        }
    }

    /// The names of all tables.
    ///
    /// # Errors
    /// If the coordinator does not answer.
    pub async fn list_tables(&self) -> Result<Vec<String>, Error> {
        Ok(self.fresh_configuration().await?.tables.into_iter().map(|table| table.name).collect())
    }

    /// The status of a core.
    ///
    /// # Errors
    /// If the core does not answer.
    pub async fn status(&self, core: CoreId) -> Result<CoreStatus, Error> {
        match self.call(Ask::Status(core, CoreQuestion::Status), None).await? {
            Completion::Status(CoreAnswer::Status(status)) => Ok(*status),
            other => unreachable!("{other:?} of a status question"),
        }
    }

    /// The longest turns of a core's event loop, since its start and since this was asked last.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn turns(&self, core: CoreId) -> Result<LoopTurns, Error> {
        match self.call(Ask::Status(core, CoreQuestion::Turns), None).await? {
            Completion::Status(CoreAnswer::Turns(turns)) => Ok(*turns),
            other => unreachable!("{other:?} of a question for turns"),
        }
    }

    /// The newest configuration that the client has received. [`Client::fresh_configuration`] asks the coordinator.
    ///
    /// # Errors
    /// If the client has stopped.
    pub async fn configuration(&self) -> Result<Option<Configuration>, Error> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Configuration { reply }).await?;
        self.commands.answer(answer).await
    }

    /// The configuration that the coordinator has now.
    ///
    /// # Errors
    /// If the coordinator does not answer.
    pub async fn fresh_configuration(&self) -> Result<Configuration, Error> {
        match self.call(Ask::Refresh, None).await? {
            Completion::Refreshed => Ok(self.configuration().await?.expect("it was just refreshed")),
            other => unreachable!("{other:?} of a refresh"),
        }
    }

    /// The session's counters.
    ///
    /// # Errors
    /// If the client has stopped.
    pub async fn stats(&self) -> Result<SessionStats, Error> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Stats { reply }).await?;
        self.commands.answer(answer).await
    }

    async fn ask_table(&self, what: Ask) -> Result<TableOutcome, Error> {
        match self.call(what, None).await? {
            Completion::Table(outcome) => Ok(outcome),
            other => unreachable!("{other:?} of a table request"),
        }
    }

    async fn send(&self, command: Command) -> Result<(), Error> {
        self.commands.send(command).await
    }

    /// Makes a call and waits for its end. Errors are separated here, so that only success is returned.
    async fn call(&self, what: Ask, shape: Option<Shape>) -> Result<Completion, Error> {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        self.send(Command::Call { ticket, what, reply }).await?;
        let mut abandon = Abandon { ticket, abandoned: Some(&self.abandoned) };
        let Ended { call, completion } = self.commands.answer(answer).await?;
        abandon.abandoned = None;
        match completion {
            Completion::NotExecuted(why) => Err(Error::NotExecuted(why)),
            Completion::Unknown(why) => {
                let (commands, kept) = (self.commands.clone(), driver::KeptEnd::default());
                let call = UnknownCall { call, why, shape, commands, kept };
                Err(Error::Unknown { why, call })
            }
            Completion::ReadFailed(why) => Err(Error::Failed(why)),
            completion @ (Completion::Executed { .. }
            | Completion::Read { .. }
            | Completion::TimeToLive { .. }
            | Completion::Table(_)
            | Completion::Status(_)
            | Completion::Refreshed) => Ok(completion),
        }
    }
}

/// A random number. The standard library seeds its hashers from the operating system, which is enough for nonces and
/// jitter.
fn random() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}
