//! Programs of Redis that die again and again, anywhere in what they say: nothing of it is lost or doubled, no half is left, and no connection.
#![allow(missing_docs)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kasha_machine::Rng;
use kasha_process_tests::cluster::{Cluster, NODES};
use kasha_process_tests::place::{free_ports, local};
use kasha_process_tests::process::{Process, command};
use kasha_process_tests::resp::{Connection, Lost, Reply, request};
use kasha_process_tests::wait_for;
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(60);
/// How long who dies waits for a node that has died.
const SHORT: Duration = Duration::from_secs(3);

/// A proxy whose databases are in all shards.
fn proxy(cluster: &Cluster) -> (Process, SocketAddr) {
    let (at, addresses) = (local(free_ports(1)), cluster.addresses().join(","));
    let at_text = at.to_string();
    let words = ["proxy", "--address", &addresses, "--redis", &at_text, "--redis-spread"];
    let mut proxy = Process::spawn(command(&words));
    proxy.wait_until_it_says("the Redis protocol at");
    (proxy, at)
}

fn ports(cluster: &Cluster) -> Vec<SocketAddr> {
    (1..=NODES).map(|node| local(cluster.redis_port_of(node))).collect()
}

/// All that a program says, if it lives so long: each request as bytes.
fn story(name: &str) -> Vec<Vec<u8>> {
    let key = |key: &str| format!("{name}:{key}");
    vec![
        request(&["INCR", &key("one")]),
        request(&["MULTI"]),
        request(&["INCR", &key("x")]),
        request(&["INCR", &key("y")]),
        request(&["EXEC"]),
    ]
}

/// The number under a key.
fn number(connection: &mut Connection, key: &str) -> i64 {
    wait_for("a number", || match connection.ask(&["INCRBY", key, "0"]) {
        Ok(Reply::Number(number)) => Ok(number),
        Ok(Reply::Error(text)) if text.starts_with("TRYAGAIN ") || text.starts_with("UNKNOWN ") => Err(text),
        other => panic!("{key}: {other:?}"),
    })
}

/// Each front says that only who asks is connected.
fn nobody_is_left(fronts: &[SocketAddr]) {
    for &at in fronts {
        wait_for("end of all connections", || {
            let mut connection = Connection::open(at, PATIENCE).map_err(|error| error.to_string())?;
            let told = connection.ask(&["INFO", "clients"]).map_err(|lost| lost.to_string())?;
            match &told {
                Reply::Text(text) if text.lines().any(|line| line == "connected_clients:1") => Ok(()),
                _ => Err(format!("{at}: {told:?}")),
            }
        });
    }
}

#[test]
fn r10_5_what_came_whole_is_done_and_answered_and_no_half_is() {
    let cluster = Cluster::start_with_redis("redis-halves", "500ms", 3);
    let (proxy, at) = proxy(&cluster);
    let mut fronts = vec![at];
    fronts.extend(ports(&cluster));
    let mut asker = Connection::open(at, PATIENCE).unwrap();
    for (index, &front) in fronts.iter().enumerate().take(2) {
        let name = format!("halves{index}");
        let story = story(&name);
        let (bytes, first) = (story.concat(), story[0].len());
        let ends: Vec<usize> = story
            .iter()
            .scan(0, |end, request| {
                *end += request.len();
                Some(*end)
            })
            .collect();
        for said in 0..=bytes.len() {
            let mut connection = Connection::open(front, PATIENCE).unwrap();
            connection.send(&bytes[..said]).unwrap();
            connection.end_side().unwrap();
            let mut heard = 0;
            let end = loop {
                match connection.hear() {
                    Ok(_) => heard += 1,
                    Err(lost) => break lost,
                }
            };
            assert!(matches!(end, Lost::Closed(_)), "{end}");
            assert_eq!(heard, ends.iter().filter(|&&end| end <= said).count(), "replies to {said} bytes");
        }
        let whole = i64::try_from(bytes.len() + 1 - first).unwrap();
        let numbers = ["one", "x", "y"].map(|key| number(&mut asker, &format!("{name}:{key}")));
        assert_eq!(numbers, [whole, 1, 1]);
    }
    drop(asker);
    nobody_is_left(&fronts);
    proxy.stop(Signal::TERM);
}

/// What a program that dies again and again knows of its keys.
#[derive(Debug, Default)]
struct Account {
    /// What it was told, and what may have run besides, of `INCR` and of `EXEC`.
    told: [i64; 2],
    unknown: [i64; 2],
}

impl Account {
    /// The outcome of an `INCR` (0) or of an `EXEC` (1). `None`: nobody knows.
    fn enter(&mut self, which: usize, reply: Option<Reply>) {
        match reply {
            Some(Reply::Number(_) | Reply::List(_)) => self.told[which] += 1,
            Some(Reply::Error(text)) if text.starts_with("TRYAGAIN ") => {}
            Some(Reply::Error(text)) if text.starts_with("UNKNOWN ") => self.unknown[which] += 1,
            None => self.unknown[which] += 1,
            Some(other) => panic!("{other:?}"),
        }
    }

    /// One life: it says so many bytes, hears so many replies, and dies.
    #[expect(clippy::disallowed_methods, reason = "its connection lasts a moment")]
    fn live(&mut self, at: SocketAddr, name: &str, rng: &mut Rng) {
        let Ok(mut connection) = Connection::open(at, SHORT) else {
            return std::thread::sleep(Duration::from_millis(20));
        };
        for _ in 0..rng.below(3) {
            let story = story(name);
            if connection.send(&story.concat()).is_err() {
                return [0, 1].into_iter().for_each(|which| self.enter(which, None));
            }
            let mut heard = story.iter().map(|_| connection.hear().ok());
            self.enter(0, heard.next().flatten());
            let exec = heard.last().flatten();
            let is_over = exec.is_none();
            self.enter(1, exec);
            if is_over {
                return;
            }
        }
        let story = story(name);
        let (bytes, first) = (story.concat(), story[0].len());
        // Half of the lives end behind `EXEC`.
        let said = if rng.chance(1, 2) { bytes.len() } else { usize::try_from(rng.below(bytes.len() as u64)).unwrap() };
        let is_sent = connection.send(&bytes[..said]).is_ok();
        if said >= first {
            let heard = if is_sent && rng.chance(1, 2) { connection.hear().ok() } else { None };
            self.enter(0, heard);
        }
        if said == bytes.len() {
            self.enter(1, None);
        }
        std::thread::sleep(Duration::from_micros(rng.below(2000)));
    }
}

#[test]
fn programs_that_die_again_and_again_lose_nothing_and_double_nothing() {
    const PROGRAMS: usize = 6;
    const LIVES: u64 = 60;
    let mut cluster = Cluster::start_with_redis("redis-crashes", "500ms", 3);
    let (proxy, at) = proxy(&cluster);
    let fronts = ports(&cluster);
    let (stop, lives): (AtomicBool, [AtomicU64; PROGRAMS]) = Default::default();
    let accounts: Vec<Account> = std::thread::scope(|scope| {
        let live = |program: usize| {
            let (stop, lives, fronts) = (&stop, &lives[program], &fronts);
            move || {
                let (mut rng, mut account) = (Rng::new(program as u64), Account::default());
                while !stop.load(Ordering::Relaxed) {
                    // Half of the programs use the proxy.
                    let front = if program.is_multiple_of(2) { at } else { *rng.pick(fronts) };
                    account.live(front, &format!("crashes{program}"), &mut rng);
                    lives.fetch_add(1, Ordering::Relaxed);
                }
                account
            }
        };
        let programs: Vec<_> = (0..PROGRAMS).map(|program| scope.spawn(live(program))).collect();
        let live_on = || {
            let until = lives.each_ref().map(|lives| lives.load(Ordering::Relaxed) + LIVES);
            wait_for("lives of all programs", || {
                let now = lives.each_ref().map(|lives| lives.load(Ordering::Relaxed));
                if now.iter().zip(until).all(|(now, until)| *now >= until) { Ok(()) } else { Err(format!("{now:?}")) }
            });
        };
        for lost in 1..=NODES {
            live_on();
            cluster.kill(lost);
            live_on();
            cluster.start_node(lost);
            cluster.wait_until_healthy();
        }
        live_on();
        stop.store(true, Ordering::Relaxed);
        programs.into_iter().map(|program| program.join().unwrap()).collect()
    });
    let mut asker = Connection::open(at, PATIENCE).unwrap();
    for (program, Account { told, unknown }) in accounts.iter().enumerate() {
        let [one, x, y] = ["one", "x", "y"].map(|key| number(&mut asker, &format!("crashes{program}:{key}")));
        assert_eq!(x, y, "R10.6: half of an EXEC is left");
        for (which, found) in [(0, one), (1, x)] {
            let (told, most) = (told[which], told[which] + unknown[which]);
            assert!(told > 0 && (told..=most).contains(&found), "program {program}: {found}, of {told} to {most}");
        }
    }
    drop(asker);
    nobody_is_left(&[&[at][..], &fronts].concat());
    proxy.stop(Signal::TERM);
    cluster.is_unharmed();
}
