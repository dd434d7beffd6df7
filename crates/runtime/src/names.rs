//! Names of peers: they are looked up by a thread of their own, for the system's look-up may take many seconds.
//!
//! A loop asks, goes on, and is woken when there is an answer. An answer is good for [`ANSWER_AGE`]: whoever asks within
//! that time is given the same one, so that many loops that dial together cost one look-up. What waits to be looked up
//! is bounded, and whoever finds no room asks again with the next dial.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

use kasha_machine::Endpoint;

use crate::limits::{ANSWER_AGE, ANSWERS_MAX, LOOKUPS_MAX, NAMES_MAX};
use crate::spawn::spawn_loop;

/// The addresses that a name has now, or why it has none.
pub type Answer = Result<Vec<SocketAddr>, String>;

/// How a name is looked up. It may block.
pub type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Asks the thread that looks names up. The thread ends with the last of these.
#[derive(Clone)]
pub struct Resolver {
    questions: SyncSender<Question>,
}

struct Question {
    name: Arc<str>,
    tell: Box<dyn FnOnce(Answer) + Send>,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resolver")
    }
}

impl Resolver {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start(look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> io::Result<Self> {
        let (questions, asked) = sync_channel(LOOKUPS_MAX);
        spawn_loop("names", None, move || run(&asked, &look_up))?;
        Ok(Self { questions })
    }

    /// Asks for a name of the form `host:port`. `tell` gets the answer, on the resolver's thread. Says whether there was
    /// room for the question.
    pub fn ask(&self, name: &Arc<str>, tell: impl FnOnce(Answer) + Send + 'static) -> bool {
        let question = Question { name: Arc::clone(name), tell: Box::new(tell) };
        match self.questions.try_send(question) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Asks, and waits for the answer, but not for longer than this: for programs that start, not for event loops.
    ///
    /// # Errors
    /// Why the name has no address, as far as is known by then.
    pub fn wait(&self, name: &str, patience: Duration) -> Answer {
        let (tell, answer) = channel();
        if !self.ask(&name.into(), move |found| drop(tell.send(found))) {
            return Err(format!("{name}: too many names are being looked up"));
        }
        answer.recv_timeout(patience).unwrap_or_else(|_| Err(format!("{name}: no name server answered yet")))
    }
}

/// The system's look-up: `/etc/hosts`, name servers, and whatever else the machine is told to ask.
///
/// # Errors
/// If the name has no address, or nobody knows.
pub fn look_up(name: &str) -> io::Result<Vec<SocketAddr>> {
    Ok(name.to_socket_addrs()?.collect())
}

fn run(questions: &Receiver<Question>, look_up: &LookUp) {
    let mut known: HashMap<Arc<str>, (Instant, Answer)> = HashMap::new();
    for Question { name, tell } in questions {
        let fresh = known.get(&name).filter(|(at, _)| at.elapsed() < ANSWER_AGE);
        let answer = match fresh {
            Some((_, answer)) => answer.clone(),
            None => {
                let answer = in_order(&name, look_up(&name));
                if known.len() >= NAMES_MAX {
                    known.clear();
                }
                known.insert(name, (Instant::now(), answer.clone()));
                answer
            }
        };
        tell(answer);
    }
}

/// The addresses in the order in which they are tried: those of IPv4 first, since most servers listen at such; else as
/// the name server gave them.
fn in_order(name: &str, found: io::Result<Vec<SocketAddr>>) -> Answer {
    let found = found.map_err(|error| format!("{name}: {error}"))?;
    let (mut addresses, other): (Vec<_>, Vec<_>) = found.into_iter().partition(SocketAddr::is_ipv4);
    addresses.extend(other);
    let mut once = Vec::new();
    for address in addresses {
        if !once.contains(&address) && once.len() < ANSWERS_MAX {
            once.push(address);
        }
    }
    if once.is_empty() { Err(format!("{name}: the name has no address")) } else { Ok(once) }
}

/// Peers that are known by name, and who looks the names up.
#[derive(Clone, Debug)]
pub struct Names {
    /// Who looks them up.
    pub resolver: Resolver,
    /// Each peer's name, of the form `host:port`.
    pub of: Vec<(Endpoint, Arc<str>)>,
}

/// A loop's names: what it has asked, and the answers that have come.
#[derive(Debug)]
pub(crate) struct Asked {
    resolver: Resolver,
    sender: Sender<(Endpoint, Answer)>,
    answers: Receiver<(Endpoint, Answer)>,
    wake: crate::LoopHandle,
}

impl Asked {
    pub(crate) fn new(resolver: Resolver, wake: crate::LoopHandle) -> Self {
        let (sender, answers) = channel();
        Self { resolver, sender, answers, wake }
    }

    /// Asks for the name of a peer. Says whether an answer will come.
    pub(crate) fn ask(&self, peer: Endpoint, name: &Arc<str>) -> bool {
        let (sender, wake) = (self.sender.clone(), self.wake.clone());
        self.resolver.ask(name, move |answer| {
            // The loop may have ended.
            if sender.send((peer, answer)).is_ok() {
                wake.wake();
            }
        })
    }

    /// The next answer that has come.
    pub(crate) fn next(&self) -> Option<(Endpoint, Answer)> {
        self.answers.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn an_answer_is_shared_for_a_while_and_then_looked_up_anew() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let resolver = Resolver::start(move |_| {
            let nth = counted.fetch_add(1, Ordering::SeqCst) as u16;
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], 1 + nth))])
        })
        .unwrap();
        let first = resolver.wait("a:1", PATIENCE).unwrap();
        for _ in 0..100 {
            resolver.wait("b:1", PATIENCE).unwrap();
        }
        assert!(count.load(Ordering::SeqCst) < 50, "most are given an answer that is there");
        std::thread::sleep(ANSWER_AGE);
        assert_ne!(resolver.wait("a:1", PATIENCE).unwrap(), first);
    }

    #[test]
    fn while_one_look_up_hangs_nobody_who_asks_does_and_what_waits_is_bounded() {
        let (go_on, hangs) = channel::<()>();
        let hangs = std::sync::Mutex::new(hangs);
        let resolver = Resolver::start(move |_| {
            let _ = hangs.lock().unwrap().recv();
            Err(io::ErrorKind::TimedOut.into())
        })
        .unwrap();
        let asked = (0..10 * LOOKUPS_MAX).filter(|nth| resolver.ask(&format!("{nth}:1").into(), |_| {})).count();
        assert!((LOOKUPS_MAX..=LOOKUPS_MAX + 1).contains(&asked), "{asked}");
        let refused = resolver.wait("a:1", Duration::ZERO).unwrap_err();
        assert!(refused.contains("too many"), "{refused}");
        drop(go_on);
    }

    #[test]
    fn addresses_are_tried_once_each_and_those_of_ipv4_first() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (six, four) = (address("[::1]:1"), address("10.0.0.1:1"));
        assert_eq!(in_order("a:1", Ok(vec![six, four, six, four])), Ok(vec![four, six]));
        let nobody = in_order("a:1", Ok(Vec::new())).unwrap_err();
        assert!(nobody.contains("a:1"), "{nobody}");
        let many = (0..1000).map(|port| SocketAddr::from(([10, 0, 0, 1], port))).collect();
        assert_eq!(in_order("a:1", Ok(many)).unwrap().len(), ANSWERS_MAX);
    }
}
