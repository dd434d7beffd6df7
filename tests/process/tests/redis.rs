//! `kasha proxy`: programs that speak the Redis protocol, beside a cluster of which nodes die.
#![allow(missing_docs)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use kasha_process_tests::cluster::Cluster;
use kasha_process_tests::place::{free_ports, local};
use kasha_process_tests::process::{Process, command};
use kasha_process_tests::wait_for;
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

impl Program {
    /// What a request is told in the end, by a cluster in which a node may have died. What is not known, or was not executed, is asked again.
    fn ask_until_told(&mut self, line: &str) -> String {
        for _ in 0..100 {
            let told = self.ask(line);
            if !told.starts_with("-UNKNOWN ") && !told.starts_with("-TRYAGAIN ") {
                return told;
            }
        }
        panic!("nobody answers {line}");
    }
}

#[test]
fn r4_9_what_has_a_name_runs_once_whoever_sends_it_again_and_wherever() {
    let mut cluster = Cluster::start_with_redis("redis-once", "500ms", 3);
    let mut programs: Vec<_> = (1..=3).map(|node| Program::connect(cluster.redis_port_of(node))).collect();
    for program in &mut programs {
        assert_eq!(program.ask("KASHA.ONCE first TTL 3600 INCR visits"), ":1");
        assert!(
            program.ask("KASHA.ONCE first INCRBY visits 2").starts_with("-MISMATCH "),
            "the same key, another command"
        );
        // Of several shards; what is written between is not undone by a repetition.
        assert_eq!(program.ask("KASHA.ONCE first MSET a 1 b 1 c 1 d 1"), "+OK");
        program.send(&["MULTI", "INCR a", "INCR b", "INCR c", "INCR d", "GET nothing", "KASHA.ONCE second EXEC"]);
        let heard: Vec<_> = (0..12).map(|_| program.hear()).collect();
        assert_eq!(heard[6..], ["*5", ":2", ":2", ":2", ":2", "$-1"]);
        program.send(&["MULTI", "INCR a", "KASHA.ONCE second EXEC"]);
        let heard: Vec<_> = (0..3).map(|_| program.hear()).collect();
        assert!(heard[2].starts_with("-MISMATCH "), "{heard:?}");
        // A reading is kept, too.
        program.send(&["KASHA.ONCE third GET visits"]);
        assert_eq!((program.hear(), program.hear()), ("$1".into(), "1".into()));
    }
    // A node dies with what its connections have asked for. Who asks again elsewhere is told what was done.
    const ASKING: usize = 4;
    const ASKED: usize = 20;
    let mut counted = 1;
    for lost in 1..=3u16 {
        let mut askers: Vec<_> = (0..ASKING).map(|_| Program::connect(cluster.redis_port_of(lost))).collect();
        let line = |asker: usize, number: usize| format!("KASHA.ONCE lost-{lost}-{asker}-{number} INCR visits");
        let lines_of = |asker| (0..ASKED).map(|number| line(asker, number)).collect::<Vec<_>>();
        for (asker, program) in askers.iter_mut().enumerate() {
            let lines = lines_of(asker);
            program.send(&lines.iter().map(|line| &line[..]).collect::<Vec<_>>());
        }
        let heard: Vec<_> = askers.iter_mut().map(|program| [program.hear(), program.hear()]).collect();
        cluster.kill(lost);
        let other = &mut programs[usize::from(lost % 3)];
        let mut told = Vec::new();
        for (asker, heard) in heard.iter().enumerate() {
            let again: Vec<_> = lines_of(asker).iter().map(|line| other.ask_until_told(line)).collect();
            assert_eq!(again[..heard.len()], heard[..], "the same reply");
            told.extend(again);
        }
        counted += ASKING * ASKED;
        told.sort_unstable();
        told.dedup();
        assert_eq!(told.len(), ASKING * ASKED, "each counted for itself");
        assert_eq!(other.ask_until_told("INCRBY visits 0"), format!(":{counted}"), "and once");
        cluster.start_node(lost);
        cluster.wait_until_healthy();
        programs[usize::from(lost) - 1] = Program::connect(cluster.redis_port_of(lost));
    }
    cluster.is_unharmed();
}

impl Program {
    /// The next reply, as a list of words.
    fn list(&mut self) -> Vec<String> {
        let head = self.hear();
        match head.split_at(1) {
            ("*", count) => (0..count.parse::<usize>().unwrap()).flat_map(|_| self.list()).collect(),
            ("$", "-1") => vec![String::new()],
            ("$", _) => vec![self.hear()],
            _ => vec![head],
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the server's clock is compared with it")]
fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn r10_15_a_scan_over_shards_shows_each_key_once_whoever_is_asked() {
    let mut cluster = Cluster::start("redis-scan", "500ms", 3);
    let (one, port) = proxy(&cluster);
    let (other, other_port) = proxy(&cluster);
    let mut programs = [Program::connect(port), Program::connect(other_port)];
    assert_eq!((programs[0].ask("DBSIZE"), programs[0].ask("RANDOMKEY")), (":0".into(), "$-1".into()));
    assert_eq!(programs[1].ask("SELECT 3"), "+OK");
    assert_eq!(programs[1].ask("SET elsewhere 1"), "+OK");
    assert_eq!(programs[1].ask("SELECT 0"), "+OK");
    let pairs: Vec<_> = (0..500).map(|number| format!("key{number} {number}")).collect();
    assert_eq!(programs[0].ask(&format!("MSET {}", pairs.join(" "))), "+OK");
    // Each page at another proxy: nobody keeps anything for a cursor.
    for (options, expected) in [("", 500), ("COUNT 1000", 500), ("MATCH key1* COUNT 50", 111), ("TYPE list", 0)] {
        let (mut cursor, mut shown) = ("0".to_owned(), Vec::new());
        for turn in 0.. {
            let program = &mut programs[turn % 2];
            program.send(&[&format!("SCAN {cursor} {options}")]);
            let mut page = program.list();
            cursor = page.remove(0);
            shown.extend(page);
            if cursor == "0" {
                break;
            }
        }
        let all = shown.len();
        shown.sort_unstable();
        shown.dedup();
        assert_eq!((all, shown.len()), (expected, expected), "{options}");
    }
    programs[1].send(&["KEYS key?", "KEYS *9*"]);
    assert_eq!((programs[1].list().len(), programs[1].list().len()), (10, 95));
    assert_eq!(programs[0].ask("DBSIZE"), ":500");
    programs[0].send(&["RANDOMKEY", "RANDOMKEY"]);
    assert!((0..2).all(|_| programs[0].list()[0].starts_with("key")));
    for cursor in ["18446744073709551615", "70368744177663", "281470681743360"] {
        programs[0].send(&[&format!("SCAN {cursor} COUNT 1000000000")]);
        assert!(!programs[0].list().is_empty(), "a place that nobody gave");
    }
    programs[0].send(&["MULTI", "SCAN 0"]);
    assert_eq!(programs[0].hear(), "+OK");
    assert!(programs[0].hear().contains("not allowed in a transaction"));
    assert_eq!(programs[0].ask("DISCARD"), "+OK");
    // R10.12: an end is told as it was said, before and after the nodes have died.
    assert_eq!(programs[0].ask("PEXPIREAT key7 4102444800123"), ":1");
    assert_eq!(programs[0].ask("SET key8 8 EXAT 4102444800"), "+OK");
    programs[0].send(&["TIME"]);
    let time: u64 = programs[0].list()[0].parse().unwrap();
    let wall = unix_seconds();
    assert!(time.abs_diff(wall) <= 2, "{time} and {wall}");
    for node in 1..=3 {
        cluster.kill(node);
        cluster.start_node(node);
        cluster.wait_until_healthy();
        let told = (programs[1].ask("PEXPIRETIME key7"), programs[1].ask("EXPIRETIME key8"));
        assert_eq!(told, (":4102444800123".into(), ":4102444800".into()));
    }
    assert_eq!(programs[1].ask("EXPIREAT key7 1500000000"), ":1");
    assert_eq!(programs[1].ask("DBSIZE"), ":499");
    one.stop(Signal::TERM);
    other.stop(Signal::TERM);
    cluster.is_unharmed();
}

/// A number that INFO tells.
fn info(program: &mut Program, name: &str) -> u64 {
    program.send(&["INFO"]);
    let len: usize = program.hear()[1..].parse().unwrap();
    let mut text = vec![0; len + 2];
    program.from.read_exact(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().unwrap()
}

#[test]
fn status_and_info_tell_what_a_port_does() {
    let cluster = Cluster::start_with_redis("redis-status", "500ms", 3);
    let mut programs: Vec<_> = (0..4).map(|_| Program::connect(cluster.redis_port_of(2))).collect();
    for program in &mut programs[1..] {
        assert_eq!(program.ask("SET key 1234567890"), "+OK");
        program.send(&["GET key", "nonsense"]);
        assert_eq!((program.hear(), program.hear()), ("$10".into(), "1234567890".into()));
        assert!(program.hear().starts_with("-ERR unknown command"));
    }
    // The first one says nothing, and counts.
    let status = cluster.status().unwrap();
    let told = |node: usize, name: &str| status["nodes"][node]["redis"][name].as_u64().unwrap();
    assert_eq!((told(1, "connections"), told(1, "accepted"), told(1, "refused"), told(1, "commands")), (4, 4, 0, 9));
    assert_eq!((told(0, "connections"), told(0, "commands"), told(2, "bytes_out")), (0, 0, 0));
    assert!(told(1, "bytes_in") > 3 * 60 && told(1, "bytes_out") > 3 * 60);
    for name in ["connections", "accepted", "commands", "bytes_in", "bytes_out"] {
        assert_eq!(status["redis"][name].as_u64().unwrap(), told(1, name), "of all: {name}");
    }
    let program = &mut programs[0];
    assert_eq!(info(program, "total_net_output_bytes"), told(1, "bytes_out"));
    assert_eq!(info(program, "connected_clients"), 4);
    assert_eq!(info(program, "total_connections_received"), 4);
    assert_eq!(info(program, "total_commands_processed"), 9 + 3, "this one is not over yet");
    programs.truncate(1);
    wait_for("the connections to be gone", || {
        let open = info(&mut programs[0], "connected_clients");
        if open == 1 { Ok(()) } else { Err(open.to_string()) }
    });
}

/// What was told leaves, and whole, though its program is slow and the proxy has been asked to end.
#[test]
fn r10_5_a_proxy_ends_behind_what_it_has_told() {
    let mut cluster = Cluster::start_with_redis("redis-told", "500ms", 1);
    let (mut proxy, port) = proxy(&cluster);
    let (mut program, mut other) = (Program::connect(port), Program::connect(port));
    let value = "x".repeat(32 * 1024);
    assert_eq!(program.ask(&format!("SET large {value}")), "+OK");
    program.to.write_all("GET large\r\n".repeat(600).as_bytes()).unwrap();
    // More than the system's buffers hold.
    wait_for("replies to wait", || {
        let told = info(&mut other, "total_net_output_bytes");
        if told > 6 << 20 { Ok(()) } else { Err(told.to_string()) }
    });
    proxy.signal(Signal::TERM);
    let mut told = Vec::new();
    program.from.read_to_end(&mut told).unwrap();
    let reply = format!("${}\r\n{value}\r\n", value.len()).len();
    assert!(told.len() > 6 << 20 && told.len().is_multiple_of(reply), "{} bytes of replies of {reply}", told.len());
    let (status, said) = proxy.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    cluster.is_unharmed();
}

/// The replies are many times what a connection may leave unread.
#[test]
#[expect(clippy::disallowed_methods, reason = "a program that writes while it does not read, and waits")]
fn ten_thousand_replies_that_nobody_reads_wait_for_whoever_reads_them() {
    let mut cluster = Cluster::start_with_redis("redis-unread", "500ms", 3);
    let (proxy, port) = proxy(&cluster);
    for port in [port, cluster.redis_port_of(1)] {
        let (mut program, mut other) = (Program::connect(port), Program::connect(port));
        let value = "x".repeat(32 * 1024);
        assert_eq!(program.ask(&format!("SET large {value}")), "+OK");
        assert_eq!(program.ask("SET visits 0"), "+OK");
        let mut writes = program.to.try_clone().unwrap();
        let writer =
            std::thread::spawn(move || writes.write_all("GET large\r\nINCR visits\r\n".repeat(5000).as_bytes()));
        std::thread::sleep(Duration::from_secs(2));
        other.send(&["GET visits"]);
        let counted: u64 = [other.hear(), other.hear()][1].parse().unwrap();
        assert!(counted < 2500, "{counted} replies of 32 KiB each have gone nowhere");
        for number in 1..=5000 {
            assert_eq!(program.hear(), "$32768");
            assert_eq!(program.hear().len(), value.len());
            assert_eq!(program.hear(), format!(":{number}"));
        }
        writer.join().unwrap().unwrap();
        assert_eq!(program.ask("PING"), "+PONG");
    }
    proxy.stop(Signal::TERM);
    cluster.is_unharmed();
}

#[test]
fn a_proxy_says_once_that_its_cluster_is_away_and_once_that_it_is_back() {
    let mut cluster = Cluster::start("redis-away", "500ms", 3);
    let (mut proxy, port) = proxy(&cluster);
    let mut program = Program::connect(port);
    assert_eq!(program.ask("INCR visits"), ":1");
    (1..=3).for_each(|node| cluster.kill(node));
    proxy.wait_until_it_says("commands wait for the cluster, of which nobody answers");
    for _ in 0..4 {
        let told = program.ask("INCR visits");
        assert!(told.starts_with("-TRYAGAIN ") || told.starts_with("-UNKNOWN "), "{told}");
    }
    program.send(&["INFO cluster"]);
    let told: Vec<_> = (0..5).map(|_| program.hear()).collect();
    assert!(told.iter().any(|line| line == "kasha_waits_for:the cluster, of which nobody answers"), "{told:?}");
    cluster.start_all();
    cluster.wait_until_healthy();
    proxy.wait_until_it_says("commands are executed again, after ");
    let counted: u64 = program.ask_until_told("INCR visits")[1..].parse().unwrap();
    assert!((2..=6).contains(&counted), "{counted}");
    program.send(&["INFO cluster"]);
    let told: Vec<_> = (0..5).map(|_| program.hear()).collect();
    assert!(told.iter().any(|line| line == "kasha_waits_for:nothing"), "{told:?}");
    let said = proxy.said();
    for line in ["commands wait for", "commands are executed again"] {
        assert_eq!(said.matches(line).count(), 1, "{said}");
    }
    proxy.stop(Signal::TERM);
    cluster.is_unharmed();
}

#[test]
fn a_proxy_listens_at_a_file_and_takes_that_of_a_dead_one() {
    let cluster = Cluster::start("redis-file", "500ms", 3);
    let path = cluster.folder().join("socket");
    let at = local(free_ports(1)).to_string();
    let spawn = |redis: &str| command(&["proxy", "--address", &cluster.addresses().join(","), "--redis", redis]);
    let both = format!("unix:{},{at}", path.display());
    let ask = |line: &str| {
        let mut program = UnixStream::connect(&path).unwrap();
        program.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut told = String::new();
        BufReader::new(program).read_line(&mut told).unwrap();
        told.trim_end().to_owned()
    };
    let mut first = Process::spawn(spawn(&both));
    first.wait_until_it_says("the Redis protocol at unix:");
    assert_eq!(ask("INCR visits"), ":1");
    assert_eq!(std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut program = Program::connect(at.rsplit_once(':').unwrap().1.parse().unwrap());
    assert_eq!(program.ask("INCR visits"), ":2", "at the address, too");
    let (status, said) = Process::spawn(spawn(&format!("unix:{}", path.display()))).wait();
    assert!(!status.success() && said.contains("another process listens there") && said.contains("K0201"), "{said}");
    assert_eq!(ask("INCR visits"), ":3");
    first.kill();
    assert!(path.exists(), "nobody has removed it");
    let mut second = Process::spawn(spawn(&format!("unix:{}", path.display())));
    second.wait_until_it_says("the Redis protocol at unix:");
    assert_eq!(ask("INCR visits"), ":4");
    second.stop(Signal::TERM);
    assert!(!path.exists(), "it is removed at the end");
}
