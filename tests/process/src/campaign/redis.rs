//! Programs of Redis: some at a proxy beside them, some at the nodes' ports. They write down every command and its reply, as `load` does.
//!
//! Single commands on one key are for porcupine, transactions of lists and registers for `tests/cycles`; `accounts` judges moves of money itself.
//! Now and then a program hangs up at once: in half a command, inside `MULTI`, behind `EXEC`. The proxy is struck by no fault, so it may neither
//! end a connection nor keep quiet (R10.2).

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kasha_machine::Rng;
use rustix::process::{Pid, Signal, kill_process};

use self::accounts::{Accounts, GROUPS, Problem};
use self::program::{At, Program};
use self::told::{Became, became, told_of};
use super::book::{Asked, Book, Ended};
use super::lines::{Lines, Step};
use super::load::READER;
use super::net::Net;
use super::plan::{Databases, Plan};
use super::{Failure, broken};
use crate::process::bare_command;
use crate::resp::{Connection, Reply};

pub mod accounts;
pub mod program;
pub mod told;

/// Programs at the proxy, and at the nodes' ports.
const PROXIED: u32 = 2;
const AT_NODES: u32 = 3;
/// Keys of each kind that are in use at once.
pub const KEYS: u64 = 6;
/// Kinds of keys that leave their place to another one: registers, counters, lists.
pub const KINDS: usize = 3;
/// How long anything may take while nothing fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long nodes may take to notice that a connection is over.
const NOTICED: Duration = Duration::from_secs(30);

/// What all programs share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Commands on one key.
    pub book: Book,
    /// Transactions, and commands on their keys.
    pub lines: Lines,
    /// Moves of money.
    pub accounts: Accounts,
    /// No more is asked.
    pub stop: AtomicBool,
    /// Operations so far on the keys of each place.
    pub used: [[AtomicU64; KEYS as usize]; KINDS],
    /// Values so far.
    pub values: AtomicU64,
    /// The number of requests of each program that had a result.
    pub done: Vec<AtomicU64>,
    /// How often somebody hung up.
    pub hung_up: AtomicU64,
}

/// The programs of a round, and their proxy.
#[derive(Debug)]
pub struct RedisLoad {
    shared: Arc<Shared>,
    programs: Vec<JoinHandle<()>>,
    proxy: Child,
}

impl Shared {
    /// What a group of accounts shows is wrong.
    pub fn complain_of(&self, problem: Result<(), Problem>) {
        match problem {
            Ok(()) => {}
            Err(Problem::Half(what)) => self.book.note_half(format!("redis: {what}")),
            Err(Problem::Wrong(what)) => self.book.complain(format!("redis: {what}")),
        }
    }
}

impl RedisLoad {
    /// Starts a proxy, and the programs.
    ///
    /// # Errors
    /// If there can be no process, or no threads.
    pub fn start(net: &Net, plan: &Plan, folder: &Path) -> Result<Option<Self>, Failure> {
        let Some(databases) = plan.shape.redis else { return Ok(None) };
        let (seeds, at) = (net.seeds().join(","), net.proxy().to_string());
        let mut words = vec!["proxy", "--address", &seeds, "--redis", &at];
        words.extend((databases == Databases::Spread).then_some("--redis-spread"));
        let mut command = bare_command(&words);
        let log = File::create(folder.join("proxy.log")).map_err(broken("a log"))?;
        command.stdout(log.try_clone().map_err(broken("a log"))?).stderr(log);
        let proxy = net.spawn_beside_clients(command).map_err(broken("the proxy does not start"))?;
        let done = (0..PROXIED + AT_NODES).map(|_| AtomicU64::new(0)).collect();
        let mut load = Self { shared: Arc::new(Shared { done, ..Shared::default() }), programs: Vec::new(), proxy };
        load.proxy_is_there(net)?;
        let mut rng = Rng::new(plan.seed ^ 0x4E5);
        for number in 0..PROXIED + AT_NODES {
            let at = if number < PROXIED { At::Proxy(net.proxy()) } else { At::Nodes(net.redis_nodes()) };
            let program = Program::new(number, at, Arc::clone(&load.shared), rng.fork());
            let thread = net.thread(&format!("program-{number}"), move || program.run());
            load.programs.push(thread.map_err(broken("no thread"))?);
        }
        Ok(Some(load))
    }

    fn proxy_is_there(&self, net: &Net) -> Result<(), Failure> {
        let at = net.proxy();
        let job = move || {
            let began = Instant::now();
            while Connection::open(at, PATIENCE).is_err() {
                if began.elapsed() > PATIENCE {
                    return Err(Failure::Stuck("the proxy does not listen".to_owned()));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        };
        joined(net.thread("greeting", job))
    }

    /// Waits until every program had this many results more.
    ///
    /// # Errors
    /// If one had not, or the proxy has ended.
    pub fn goes_on(&mut self, times: u64) -> Result<(), Failure> {
        let done = |program: &AtomicU64| program.load(Ordering::Relaxed);
        let wanted: Vec<u64> = self.shared.done.iter().map(|program| done(program) + times).collect();
        let began = Instant::now();
        loop {
            if let Some(status) = self.proxy.try_wait().map_err(broken("the proxy is not waited for"))? {
                return Err(Failure::Crashed(format!("the proxy ended by itself ({status}): see proxy.log")));
            }
            let behind: Vec<_> =
                (0..wanted.len()).filter(|&program| done(&self.shared.done[program]) < wanted[program]).collect();
            if behind.is_empty() {
                return Ok(());
            }
            if self.programs.iter().any(JoinHandle::is_finished) {
                return Err(Failure::Broken("a program of Redis has ended".to_owned()));
            }
            if began.elapsed() > PATIENCE {
                let programs = format!("programs {behind:?} of Redis (below {PROXIED}: at the proxy)");
                return Err(Failure::Stuck(format!("{programs} are not answered, though the cluster is whole")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the programs on a whole cluster, and reads everything once more. Returns the counters.
    ///
    /// # Errors
    /// If something cannot be read, or a connection stays.
    pub fn end(&mut self, net: &Net, plan: &Plan) -> Result<BTreeMap<String, i64>, Failure> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for program in self.programs.drain(..) {
            program.join().map_err(|_| Failure::Broken("a program of Redis panicked".to_owned()))?;
        }
        let (proxy, shared) = (net.proxy(), Arc::clone(&self.shared));
        let mut fronts = vec![proxy];
        // Who ends a connection over a link that is cut is not heard.
        fronts.extend(net.redis_nodes().into_iter().filter(|_| !plan.loses_bytes()));
        let job = move || {
            let counters =
                Reader { at: proxy, connection: None, shared: &shared }.read_all().map_err(Failure::Stuck)?;
            fronts.into_iter().try_for_each(nobody_is_left)?;
            Ok(counters)
        };
        let counters = joined(net.thread("reading", job))?;
        self.proxy_ends_well()?;
        Ok(counters)
    }

    /// R10.5: it ends what is outstanding, and then itself.
    fn proxy_ends_well(&mut self) -> Result<(), Failure> {
        let _ = kill_process(Pid::from_child(&self.proxy), Signal::TERM);
        let began = Instant::now();
        loop {
            match self.proxy.try_wait().map_err(broken("the proxy is not waited for"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Failure::Crashed(format!("the proxy ended ({status}) at SIGTERM"))),
                None if began.elapsed() > PATIENCE => {
                    return Err(Failure::Stuck("the proxy does not end at SIGTERM".to_owned()));
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// What they asked, and were told.
    #[must_use]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for RedisLoad {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.proxy.kill().and_then(|()| self.proxy.wait());
    }
}

fn joined<T>(thread: std::io::Result<JoinHandle<Result<T, Failure>>>) -> Result<T, Failure> {
    let thread = thread.map_err(broken("no thread"))?;
    thread.join().map_err(|_| Failure::Broken("a reader of Redis panicked".to_owned()))?
}

/// Waits until a front says that only who asks is connected, whichever core answers.
fn nobody_is_left(at: SocketAddr) -> Result<(), Failure> {
    const TIMES: u32 = 4;
    let began = Instant::now();
    let mut times = 0;
    while times < TIMES {
        let said = Connection::open(at, PATIENCE).map_err(|error| error.to_string());
        let said =
            said.and_then(|mut connection| connection.ask(&["INFO", "clients"]).map_err(|lost| lost.to_string()));
        match said {
            Ok(Reply::Text(text)) if text.lines().any(|line| line == "connected_clients:1") => times += 1,
            said if began.elapsed() > NOTICED => {
                return Err(Failure::Stuck(format!("redis: connections are left at {at}: {said:?}")));
            }
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    Ok(())
}

/// Reads every key in the end.
struct Reader<'s> {
    at: SocketAddr,
    connection: Option<Connection>,
    shared: &'s Shared,
}

impl Reader<'_> {
    /// Asks until there is a result: what failed is over, but a key may wait for the outcome of what did not end.
    fn ask(&mut self, words: &[&str]) -> Result<Reply, String> {
        let began = Instant::now();
        loop {
            let reply = match &mut self.connection {
                Some(connection) => connection.ask(words).map_err(|lost| lost.to_string()),
                None => {
                    self.connection = Connection::open(self.at, PATIENCE).ok();
                    Err("no connection".to_owned())
                }
            };
            match reply {
                Ok(reply) => match became(Some(reply)) {
                    Became::Ran(reply) => return Ok(reply),
                    refused if began.elapsed() > PATIENCE => return Err(format!("{words:?} is told {refused:?}")),
                    Became::NotExecuted | Became::Unknown => {}
                },
                Err(why) if began.elapsed() > PATIENCE => return Err(format!("{words:?}: {why}")),
                Err(_) => {}
            }
        }
    }

    fn read_all(&mut self) -> Result<BTreeMap<String, i64>, String> {
        let Shared { book, lines, accounts, .. } = self.shared;
        let keys: BTreeMap<_, _> =
            book.records().into_iter().map(|record| (record.asked.key, record.asked.model)).collect();
        let mut counters = BTreeMap::new();
        for (key, model) in keys {
            let asked = book.ask(Asked { client: READER, model, key: key.clone(), op: "get", ..Asked::default() });
            let reply = self.ask(&["GET", &key])?;
            let told = told_of(&asked, &reply).ok_or_else(|| format!("{key} is read as {reply:?}"))?;
            if model == "redis-counter" {
                let sum = if told.got == "found" { &told.text } else { "0" };
                counters.insert(key, sum.parse().map_err(|_| format!("{sum:?} is no number"))?);
            }
            book.write(asked, Ended::Executed, told);
        }
        for key in lines.keys() {
            let call = lines.begin(READER, book, Vec::new());
            let step = match self.ask(&["GET", &key])? {
                Reply::Nil => program::read_of(&key, ""),
                Reply::Text(text) => program::read_of(&key, &text),
                other => return Err(format!("{key} is read as {other:?}")),
            };
            lines.write(READER, book, call, Ended::Executed, vec![step]);
        }
        for group in 0..GROUPS {
            let [from, to, moves] = accounts::keys(group);
            let reply = self.ask(&["MGET", &from, &to, &moves])?;
            let numbers = program::numbers(&reply).ok_or_else(|| format!("accounts are read as {reply:?}"))?;
            self.shared.complain_of(accounts.ended(group, numbers));
        }
        Ok(counters)
    }
}

/// The steps of a transaction that write.
#[must_use]
pub fn writes_of(steps: &[Step]) -> Vec<Step> {
    steps.iter().filter(|step| step.op != "read").cloned().collect()
}
