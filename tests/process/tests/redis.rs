//! `kasha proxy`: programs that speak the Redis protocol, beside a cluster of which nodes die.
#![allow(missing_docs)]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use kasha_process_tests::cluster::Cluster;
use kasha_process_tests::place::{free_ports, local};
use kasha_process_tests::process::{Process, command};
use rustix::process::Signal;

/// A connection of a program.
struct Program {
    from: BufReader<TcpStream>,
    to: TcpStream,
}

impl Program {
    fn connect(port: u16) -> Self {
        let to = TcpStream::connect(local(port)).unwrap();
        to.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { from: BufReader::new(to.try_clone().unwrap()), to }
    }

    /// Sends lines, as a person would type them, in one piece.
    fn send(&mut self, lines: &[&str]) {
        let text: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        self.to.write_all(text.as_bytes()).unwrap();
    }

    /// The next line that the other side says.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(&[line]);
        self.hear()
    }
}

fn proxy(cluster: &Cluster) -> (Process, u16) {
    let port = free_ports(1);
    let at = local(port).to_string();
    let mut proxy = Process::spawn(command(&["proxy", "--address", &cluster.addresses().join(","), "--redis", &at]));
    proxy.wait_until_it_says("the Redis protocol at");
    (proxy, port)
}

#[test]
fn a_program_of_redis_works_and_what_it_says_survives() {
    let mut cluster = Cluster::start("redis", "500ms", 3);
    let (proxy, port) = proxy(&cluster);
    let mut program = Program::connect(port);
    assert_eq!(program.ask("PING"), "+PONG");
    assert_eq!(program.ask("SET greeting hello EX 1000"), "+OK");
    program.send(&["GET greeting", "TTL greeting", "MSET a 1 b 2 c 3", "MGET a nothing", "DEL a b c nothing"]);
    let heard: Vec<_> = (0..9).map(|_| program.hear()).collect();
    assert_eq!(heard[..2], ["$5", "hello"]);
    assert!([":1000", ":999"].contains(&&heard[2][..]), "{heard:?}");
    assert_eq!(heard[3..], ["+OK", "*2", "$1", "1", "$-1", ":3"]);
    assert!(program.ask("LPUSH jobs 1").starts_with("-ERR 'lpush' is a command of Redis that Kasha does not know yet"));
    // Every acknowledged increment counts once, whatever happens to the node that counts.
    for node in 1..=3 {
        let before: i64 = program.ask("INCRBY visits 0")[1..].parse().unwrap();
        cluster.kill(node);
        let counted = (0..50).filter(|_| program.ask("INCR visits").starts_with(':')).count();
        cluster.start_node(node);
        cluster.wait_until_healthy();
        let now: i64 = program.ask("INCRBY visits 0")[1..].parse().unwrap();
        let told = i64::try_from(counted).unwrap();
        assert!(now - before >= told && now - before <= 50, "{before} and {told} of 50 are {now}");
    }
    proxy.stop(Signal::TERM);
    cluster.is_unharmed();
}

#[test]
fn r10_6_exec_is_one_operation_and_watch_sees_changes() {
    let cluster = Cluster::start("redis-multi", "500ms", 3);
    let (proxy, port) = proxy(&cluster);
    let (mut program, mut other) = (Program::connect(port), Program::connect(port));
    program.send(&["MULTI", "SET {a}x 5", "INCR {a}x", "APPEND {a}x !", "EXEC"]);
    let heard: Vec<_> = (0..8).map(|_| program.hear()).collect();
    assert_eq!(heard, ["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "*3", "+OK", ":6", ":2"]);
    // Of several shards.
    program.send(&["MULTI", "SET x 1", "SET y 2", "SET z 3", "EXEC"]);
    let heard: Vec<_> = (0..8).map(|_| program.hear()).collect();
    assert_eq!(heard[4..], ["*3", "+OK", "+OK", "+OK"]);
    // A command that is wrong changes nothing, and the others do what they say.
    program.send(&["MULTI", "INCR {a}x", "SET {a}y 1", "EXEC"]);
    let heard: Vec<_> = (0..6).map(|_| program.hear()).collect();
    assert_eq!(heard[3..], ["*2", "-ERR value is not an integer or out of range", "+OK"]);
    assert_eq!(program.ask("WATCH x y"), "+OK");
    assert_eq!(other.ask("SET y 3"), "+OK");
    program.send(&["MULTI", "SET x 9", "EXEC"]);
    let heard: Vec<_> = (0..3).map(|_| program.hear()).collect();
    assert_eq!(heard, ["+OK", "+QUEUED", "*-1"]);
    program.send(&["GET x", "nonsense", "MULTI", "nonsense", "EXEC"]);
    let heard: Vec<_> = (0..6).map(|_| program.hear()).collect();
    assert_eq!(heard[..2], ["$1", "1"]);
    assert!(heard[2].starts_with("-ERR unknown command 'nonsense'"));
    assert_eq!(heard[5], "-EXECABORT Transaction discarded because of previous errors.");
    proxy.stop(Signal::TERM);
}

#[test]
fn every_node_speaks_the_protocol_and_a_lost_one_takes_nothing_with_it() {
    let mut cluster = Cluster::start_with_redis("redis-node", "500ms", 3);
    let mut programs: Vec<_> = (1..=3).map(|node| Program::connect(cluster.redis_port_of(node))).collect();
    // What one of them is told, the others see, whichever node leads the keys.
    for (number, key) in ["a", "b", "c", "d", "e", "f"].iter().enumerate() {
        assert_eq!(programs[number % 3].ask(&format!("SET {key} {number}")), "+OK");
        programs[(number + 1) % 3].send(&[&format!("GET {key}")]);
        assert_eq!(
            (programs[(number + 1) % 3].hear(), programs[(number + 1) % 3].hear()),
            ("$1".into(), number.to_string())
        );
    }
    // A pipeline whose replies nobody reads before it has ended.
    let pipeline = vec!["INCR pipelined"; 10_000];
    let mut reader = Program::connect(cluster.redis_port_of(1));
    reader.send(&pipeline);
    let heard: Vec<_> = (0..pipeline.len()).map(|_| reader.hear()).collect();
    let counted: Vec<_> = (1..=pipeline.len()).map(|number| format!(":{number}")).collect();
    assert_eq!(heard, counted);
    for lost in 1..=3u16 {
        let other = usize::from(lost % 3);
        let before: i64 = programs[other].ask("INCRBY visits 0")[1..].parse().unwrap();
        cluster.kill(lost);
        let counted = (0..50).filter(|_| programs[other].ask("INCR visits").starts_with(':')).count();
        cluster.start_node(lost);
        cluster.wait_until_healthy();
        programs[usize::from(lost) - 1] = Program::connect(cluster.redis_port_of(lost));
        let now: i64 = programs[usize::from(lost) - 1].ask("INCRBY visits 0")[1..].parse().unwrap();
        let told = i64::try_from(counted).unwrap();
        assert!(now - before >= told && now - before <= 50, "{before} and {told} of 50 are {now}");
    }
    cluster.is_unharmed();
    // R10.5: a node that ends in good order tells what was sent, and closes.
    programs[0].send(&["INCR visits"]);
    assert!(programs[0].hear().starts_with(':'));
    cluster.stop(1);
    assert_eq!(programs[0].hear(), "");
}
