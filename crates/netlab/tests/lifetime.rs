//! N4: nothing is left behind, however a network ends: dropped, or with its owner killed.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use crate::common::{lab, wait_until};
use kasha_netlab::Netlab;
use rustix::process::{Pid, Signal, kill_process_group};

/// Tells a test below to be the owner that is killed.
const OWNER: &str = "KASHA_NETLAB_TEST_OWNER";

fn sleeper() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000");
    command
}

/// A host's namespace as the kernel names it: `net:[4026532000]`.
fn name(lab: &Netlab, host: usize) -> String {
    let link = lab.host(host).run(|| fs::read_link("/proc/thread-self/ns/net"));
    link.unwrap().to_str().unwrap().to_owned()
}

/// Everything that keeps a namespace alive: threads in it, descriptors of it, mounts of it. (A socket does, too, but a
/// socket belongs to a process.)
fn holders(namespace: &str) -> Vec<String> {
    let mut holders = Vec::new();
    let entries = |path: String| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    for process in entries("/proc".into()) {
        for thread in entries(format!("{}/task", process.display())) {
            let descriptors = entries(format!("{}/fd", thread.display()));
            for held in descriptors.chain([thread.join("ns/net")]) {
                if fs::read_link(&held).is_ok_and(|link| link.to_str() == Some(namespace)) {
                    holders.push(held.display().to_string());
                }
            }
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    holders.extend(mounts.lines().filter(|line| line.contains(namespace)).map(str::to_owned));
    holders
}

/// Other processes in a namespace.
fn processes(namespace: &str) -> usize {
    let own = format!("/proc/{}/", std::process::id());
    let is_process = |holder: &&String| {
        let path = holder.strip_prefix("/proc/").and_then(|path| path.strip_suffix("/ns/net"));
        let is_main_thread = |(pid, thread): (&str, &str)| thread.strip_prefix("task/") == Some(pid);
        path.and_then(|path| path.split_once('/')).is_some_and(is_main_thread) && !holder.starts_with(&own)
    };
    holders(namespace).iter().filter(is_process).count()
}

#[test]
fn n4_a_dropped_network_leaves_nothing() {
    let Some(lab) = lab(2, 1) else { return };
    let namespaces = [name(&lab, 0), name(&lab, 1)];
    let mut child = lab.host(0).spawn(sleeper()).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 1000 & sleep 1000"]);
    let mut parent = lab.host(1).spawn(shell).unwrap();
    wait_until("the shell has its children", || processes(&namespaces[1]) == 3);
    assert_eq!(processes(&namespaces[0]), 1);
    drop(lab);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_eq!(parent.wait().unwrap().signal(), Some(9));
    for namespace in &namespaces {
        wait_until("the namespace is gone", || holders(namespace).is_empty());
    }
}

#[test]
fn n4_a_killed_owner_leaves_nothing() {
    kill_an_owner("n4_a_killed_owner_leaves_nothing", |lab| {
        lab.hosts().iter().for_each(|host| drop(host.spawn(sleeper()).unwrap()));
    });
}

/// Neither a child of the shell nor a process that a thread on a host started gets a signal when the owner dies.
#[test]
fn n4_a_killed_owner_leaves_nothing_of_what_is_not_its_child() {
    kill_an_owner("n4_a_killed_owner_leaves_nothing_of_what_is_not_its_child", |lab| {
        // Groups of their own: the owner's is killed with it.
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & sleep 1000"]).process_group(0);
        drop(lab.host(0).spawn(shell).unwrap());
        drop(lab.host(1).run(|| sleeper().process_group(0).spawn()).unwrap());
        wait_until("the shell has its children", || processes(&name(lab, 0)) == 3);
    });
}

/// Kills the owner of a network, which is this test once more in another process, and all of the owner's group.
fn kill_an_owner(test: &str, populate: impl FnOnce(&Netlab)) {
    if std::env::var_os(OWNER).is_some() {
        return own(populate);
    }
    if let Err(reason) = Netlab::available() {
        return eprintln!("SKIPPED: {reason}");
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("lifetime::{test}"), "--nocapture"])
        .env(OWNER, "1")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines().map(Result::unwrap);
    let namespaces: Vec<String> = lines.filter(|line| line.starts_with("net:[")).take(2).collect();
    assert_eq!(namespaces.len(), 2, "the owner told what it made");
    namespaces.iter().for_each(|namespace| assert!(!holders(namespace).is_empty()));
    kill_process_group(Pid::from_child(&owner), Signal::KILL).unwrap();
    assert_eq!(owner.wait().unwrap().signal(), Some(9));
    for namespace in &namespaces {
        wait_until("the namespace is gone", || holders(namespace).is_empty());
    }
}

/// A process with a network, which waits to be killed; or to see its standard input end, if the test was.
fn own(populate: impl FnOnce(&Netlab)) {
    let lab = Netlab::start(2, 1).unwrap();
    populate(&lab);
    println!("\n{}\n{}", name(&lab, 0), name(&lab, 1));
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn hosts_are_apart_from_one_another_and_from_this_machine() {
    let Some(lab) = lab(2, 1) else { return };
    let here = fs::read_link("/proc/thread-self/ns/net").unwrap();
    assert_ne!(name(&lab, 0), name(&lab, 1));
    assert_ne!(here.to_str(), Some(name(&lab, 0).as_str()));
    let output = lab.host(0).run(|| Command::new("cat").arg("/proc/self/net/dev").output()).unwrap();
    let devices = String::from_utf8(output.stdout).unwrap();
    assert!(devices.contains("net0:") && devices.contains("lo:"), "{devices}");
    assert!(UdpSocket::bind((lab.host(0).address(), 0)).is_err(), "this machine does not have a host's address");
    let ports = [0, 1].map(|host| lab.host(host).run(|| TcpListener::bind(("127.0.0.1", 7777)).unwrap()));
    assert_eq!(ports[0].local_addr().unwrap(), ports[1].local_addr().unwrap(), "each has a loopback of its own");
    let namespace = lab.host(1).namespace();
    let entered = std::thread::spawn(move || {
        namespace.enter().unwrap();
        fs::read_link("/proc/thread-self/ns/net").unwrap()
    });
    assert_eq!(entered.join().unwrap().to_str(), Some(name(&lab, 1).as_str()));
}

#[test]
fn without_rights_the_reason_is_said() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let nothing = CapabilitySet::empty();
    // A thread's own, and those of the threads that it starts.
    let said = std::thread::spawn(move || {
        let sets = CapabilitySets { effective: nothing, permitted: nothing, inheritable: nothing };
        set_capabilities(None, sets).unwrap();
        (Netlab::available().unwrap_err(), Netlab::start(2, 1).is_err())
    });
    let (reason, is_refused) = said.join().unwrap();
    assert!(reason.contains("root") && reason.contains("network namespace"), "{reason}");
    assert!(is_refused);
}

#[test]
fn senseless_networks_are_refused() {
    assert!(Netlab::start(0, 1).is_err());
    assert!(Netlab::start(1000, 1).is_err());
}
