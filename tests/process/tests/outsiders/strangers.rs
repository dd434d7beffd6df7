//! Programs that speak another protocol: each gets an answer that it can print, and the log says who knocked.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use kasha_process_tests::PATIENCE;
use kasha_process_tests::cluster::Cluster;
use kasha_process_tests::place::local;

fn says(port: u16, said: &[u8]) -> String {
    let mut stream = TcpStream::connect(local(port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(said).expect("a socket");
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("it does not close: {error}"),
    }
    String::from_utf8(answer).expect("text")
}

#[test]
fn a_stranger_is_told_what_listens_here_and_the_log_says_who_knocked() {
    let mut cluster = Cluster::start("strangers", "1s", 3);
    let client_hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 600]].concat();
    for port in [cluster.port(), cluster.port_of(2)] {
        for (said, begins) in [
            (&b"*1\r\n$4\r\nPING\r\n"[..], "-KASHA "),
            (b"PING\r\n", "KASHA "),
            (b"GET / HTTP/1.1\r\nHost: kasha\r\n\r\n", "HTTP/1.0 400 KASHA "),
            (&client_hello, "KASHA "),
            (b"\0\0\0\x08\x04\xd2\x16\x2f", "KASHA "),
            // Whoever waits for the server to speak first.
            (b"", "KASHA "),
        ] {
            let answer = says(port, said);
            assert!(answer.starts_with(begins) && answer.ends_with("\r\n") && answer.contains("K0202"), "{answer:?}");
        }
    }
    let said = cluster.node(2).said();
    assert_eq!(said.matches("a stranger knocked").count(), 1, "once a minute:\n{said}");
    assert!(said.contains("127.0.0.1:") && said.contains("spoke the Redis protocol"), "{said}");
    cluster.is_unharmed();
}

/// The program itself, where it is installed.
#[test]
fn curl_prints_the_answer() {
    let mut cluster = Cluster::start("curl", "1s", 3);
    let url = format!("http://{}/", local(cluster.port_of(1)));
    match Command::new("curl").args(["--silent", "--show-error", "--max-time", "20", &url]).output() {
        Ok(output) => {
            let printed = String::from_utf8_lossy(&output.stdout);
            assert!(printed.starts_with("KASHA ") && printed.contains("HTTP"), "{output:?}");
        }
        Err(error) => eprintln!("SKIPPED: there is no curl here: {error}"),
    }
    cluster.is_unharmed();
}

/// Found from outside: several lines in six seconds on a busy machine, without a fault. Here the coordinator's node is stopped for
/// longer than a lease, and for longer than what is told.
#[test]
fn a_lost_coordinator_is_told_once() {
    use rustix::process::Signal;
    // A group has another leader before that is told.
    let mut cluster = Cluster::start_alone("told", "1s", 3);
    let told = |cluster: &mut Cluster| cluster.node(2).said().matches("has not answered for").count();
    cluster.node(1).signal(Signal::STOP);
    cluster.node(2).wait_until_it_says("the coordinator has not answered for 2.");
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(told(&mut cluster), 1, "{}", cluster.node(2).said());
    cluster.node(1).signal(Signal::CONT);
    cluster.node(2).wait_until_it_says("the coordinator answers again, after ");
    cluster.wait_until_healthy();
    assert_eq!(told(&mut cluster), cluster.node(2).said().matches("answers again, after").count());
}
