//! Gates that wait for files, and disks that fail.
#![allow(clippy::disallowed_methods)]

use std::io::Write;
use std::process::Command;

use crate::support::{Folder, Gated, Raw, Server, frame};
use kasha_machine::Disk;
use kasha_runtime::{FolderDisk, LoopError, LoopOptions};
use kasha_wire::Kind;

fn in_folder(folder: &Folder) -> LoopOptions {
    LoopOptions { data_dir: Some(folder.0.join("core-00")), ..LoopOptions::default() }
}

fn thousands_of_held_answers(fsync: bool) {
    const ANSWERS: u32 = 20_000;
    let folder = Folder::new(if fsync { "fsync" } else { "cache" });
    let server = Server::start(in_folder(&folder), move |disk| Gated::new(fsync, disk));
    let mut client = Raw::greeted(server.address);
    let mut bytes = Vec::new();
    for number in 0..ANSWERS {
        bytes.extend(frame(Kind::Read, &number.to_le_bytes()));
    }
    client.0.write_all(&bytes).unwrap();
    for number in 0..ANSWERS {
        assert_eq!(client.answer(), number.to_le_bytes());
    }
    server.stop();
    let disk = FolderDisk::open(&folder.0.join("core-00")).unwrap();
    let expected: Vec<u8> = (0..ANSWERS).flat_map(u32::to_le_bytes).collect();
    assert_eq!(disk.read(Gated::FILE).unwrap().unwrap(), expected);
    // A restarted machine finds what it wrote, and goes on behind it.
    let server = Server::start(in_folder(&folder), move |disk| Gated::new(fsync, disk));
    let mut client = Raw::greeted(server.address);
    client.send(b"more");
    assert_eq!(client.answer(), b"more");
    server.stop();
    assert_eq!(disk.read(Gated::FILE).unwrap().unwrap(), [expected.as_slice(), b"more"].concat());
}

#[test]
fn gates_open_for_thousands_of_answers_in_the_page_cache() {
    thousands_of_held_answers(false);
}

#[test]
fn gates_open_for_thousands_of_fsynced_answers() {
    thousands_of_held_answers(true);
}

struct Mounted<'a>(&'a Folder);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Lazily, because a failed assertion may leave files open.
        let unmount = Command::new("umount").arg("-l").arg(&self.0.0).output();
        assert!(std::thread::panicking() || unmount.is_ok_and(|output| output.status.success()), "unmounted");
    }
}

#[test]
fn a_full_disk_stops_the_loop_and_nothing_that_waited_leaves() {
    let folder = Folder::new("full");
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "kasha-test"]).arg(&folder.0).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this user may not mount a small file system");
        return;
    }
    let mounted = Mounted(&folder);
    let server = Server::start(in_folder(&folder), |disk| Gated::new(false, disk));
    let mut client = Raw::greeted(server.address);
    let mut answered = 0u64;
    loop {
        client.0.write_all(&frame(Kind::Read, &[7; 4096])).unwrap_or(());
        match client.0.peek(&mut [0]) {
            Ok(1) => {}
            _ => break,
        }
        if client.receive().is_none() {
            break;
        }
        answered += 1;
        assert!(answered < 100, "64 KiB cannot hold that");
    }
    let text = match server.failure() {
        error @ LoopError::Storage(_) => error.to_string(),
        other => panic!("{other}"),
    };
    let held = FolderDisk::open(&folder.0.join("core-00")).unwrap().read(Gated::FILE).unwrap().unwrap();
    drop(mounted);
    assert!(answered > 0 && held.len() as u64 >= answered * 4096, "{answered} answers, {} bytes", held.len());
    assert!(text.contains("segment-00000000.log") && text.contains("free space") && text.contains("(K0106)"), "{text}");
}

#[test]
fn a_folder_that_cannot_be_written_says_so() {
    let folder = Folder::new("blocked");
    // A file where the shard's folder should be.
    std::fs::create_dir(folder.0.join("core-00")).unwrap();
    std::fs::write(folder.0.join("core-00/shard-0000"), "").unwrap();
    let server = Server::start(in_folder(&folder), |disk| Gated::new(true, disk));
    let mut client = Raw::greeted(server.address);
    client.send(b"x");
    assert!(matches!(server.failure(), LoopError::Storage(_)));
    assert!(client.receive().is_none(), "no answer");
}
