//! The output that scripts read: JSON, exit codes, and the outcome of a failed command.
#![allow(missing_docs)]

use kasha_client::Client;
use kasha_process_tests::place::{Folder, free_ports, local};
use kasha_process_tests::process::{Process, cli, cli_says, command, list, run, wait_until_healthy};
use serde_json::{Value as Json, json};

fn json_of(port: u16, arguments: &[&str]) -> (Option<i32>, Json) {
    let output = cli(port, &[&["--json"], arguments].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

fn a_script_is_a_transaction(port: u16, folder: &Folder) {
    let path = folder.path().join("script");
    let run = |script: &str| {
        std::fs::write(&path, script).unwrap();
        json_of(port, &["txn", path.to_str().unwrap()])
    };
    let (code, told) = run("# pay\ncheck-absent {u}debt\n\nincr {u}credit -5\nappend {u}log a b\nget {u}log\n");
    let [absent, credit, log] = [json!({ "version": 0 }), json!({ "value": -5, "version": 1 }), json!("a b")];
    assert_eq!((code, &told["committed"]), (Some(0), &json!(true)), "{told}");
    assert_eq!((&told["results"][0], &told["results"][1], &told["results"][3]["value"]), (&absent, &credit, &log));
    let (code, told) = run("put {u}credit 0\ncheck-version {u}credit 9\n");
    assert_eq!((code, &told["committed"], &told["line"]), (Some(3), &json!(false), &json!(2)), "{told}");
    assert_eq!(json_of(port, &["get", "{u}credit"]).1["value"], "-5", "nothing changed");
    let (code, told) = run("incr {u}points 5 at-most 9\nincr {u}credit -1 at-least 0\n");
    assert_eq!((code, &told["line"]), (Some(3), &json!(2)), "{told}");
    assert!(told["why"].as_str().unwrap().contains("outside its bounds: the number is -5"), "{told}");
    for (script, word) in [("", "no operation"), ("put\n", "a key is missing"), ("sing a\n", "is no operation")] {
        let (code, told) = run(script);
        assert!(code == Some(2) && told["error"].as_str().unwrap().contains(word), "{told}");
    }
}

fn values_end(port: u16) {
    let told = |arguments: &[&str]| json_of(port, arguments);
    assert_eq!(told(&["put", "session", "v", "--expires-in", "1h"]), (Some(0), json!({ "version": 1 })));
    let millis = told(&["ttl", "session"]).1["millis"].as_u64().unwrap();
    assert!((1..=3_600_000).contains(&millis), "{millis}");
    assert_eq!(told(&["persist", "session"]).1, json!({ "version": 2 }));
    assert_eq!(told(&["time-to-live", "session"]), (Some(0), json!({ "millis": null })));
    assert_eq!(told(&["expire", "session", "1ms"]).1, json!({ "version": 3 }));
    assert!((0..2_000).any(|_| told(&["exists", "session"]).0 == Some(3)), "it ends soon");
    for gone in [&["ttl", "session"][..], &["persist", "session"], &["expire", "session", "1h"]] {
        assert_eq!(told(gone).0, Some(3), "{gone:?}");
    }
    let (code, lock) = told(&["put-if-absent", "lock", "me", "--expires-in", "1h"]);
    assert_eq!((code, &lock["done"]), (Some(0), &json!(true)));
    let (code, renewed) = told(&["put-if-version", "lock", "1", "me", "--expires-in", "2h"]);
    assert_eq!((code, &renewed["done"]), (Some(0), &json!(true)), "{renewed}");
    assert_eq!(told(&["put-if-version", "lock", "1", "me", "--expires-in", "2h"]).0, Some(3));
    assert!(told(&["ttl", "lock"]).1["millis"].as_u64().unwrap() > 3_600_000);
    assert_eq!(told(&["incr", "minute", "--at-most", "1", "--expires-in", "1h"]).1["value"], 1);
    assert_eq!(told(&["incr", "minute", "--at-most", "1", "--expires-in", "1h"]).0, Some(3));
    let (code, wrong) = told(&["put", "a", "x", "--expires-in", "0s"]);
    assert!(code == Some(1) && wrong["error"].as_str().unwrap().contains("K0319"), "{wrong}");
}

/// Standard input, bytes that are no text, and the page of an error.
fn any_bytes_go_through(port: u16) {
    use std::io::Write;
    let words = ["cli", "--address", &format!("127.0.0.1:{port}"), "put", "bytes", "-"];
    let mut put =
        command(&words).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(b"\xff\0\n").unwrap();
    assert!(put.wait().unwrap().success());
    assert_eq!(cli(port, &["--raw", "get", "bytes"]).stdout, b"\xff\0\n");
    let told = json_of(port, &["get", "bytes"]).1;
    assert_eq!((&told["value"], &told["encoding"]), (&json!("/wAK"), &json!("base64")));
    let page = command(&["explain", "k0312"]).output().unwrap();
    assert!(String::from_utf8(page.stdout).unwrap().starts_with("# K0312: memory is full"));
    let failed = cli(port, &["--table", "nowhere", "get", "a"]);
    assert!(String::from_utf8(failed.stderr).unwrap().contains("`kasha explain K0"));
}

fn keys_are_listed(port: u16) {
    let names: Vec<String> = (0..40).map(|number| format!("list:{number}")).collect();
    let pairs = names.iter().flat_map(|name| [name.as_str(), "v"]);
    json_of(port, &["mput"].into_iter().chain(pairs).collect::<Vec<_>>());
    let (mut listed, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let mut words = vec!["scan", "--prefix", "list:", "--limit", "7"];
        words.extend(cursor.iter().flat_map(|cursor: &String| ["--cursor", cursor.as_str()]));
        let (code, page) = json_of(port, &words);
        assert_eq!(code, Some(0), "{page}");
        listed.extend(page["keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap().to_owned()));
        pages += 1;
        match page["cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    listed.sort_unstable();
    let mut wanted = names.clone();
    wanted.sort_unstable();
    assert_eq!(listed, wanted, "each once, in {pages} pages");
    assert!(pages > 1);
    let with_values = json_of(port, &["scan", "--values"]).1;
    for listed in with_values["values"].as_array().unwrap() {
        if let Some(key) = listed["key"].as_str() {
            assert_eq!(json_of(port, &["get", key]).1, listed["value"], "{key}, as get shows it");
        }
    }
    let all = json_of(port, &["scan"]).1["keys"].as_array().unwrap().len();
    assert_eq!(with_values["values"].as_array().unwrap().len(), all, "{with_values}");
    assert_eq!(json_of(port, &["count"]), (Some(0), json!(all)));
    let (code, wrong) = json_of(port, &["scan", "--cursor", "99-0"]);
    assert!(code == Some(1) && wrong["error"].as_str().unwrap().contains("K0320"), "{wrong}");
}

fn is_dropped_while_it_is_listed(port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect([local(port).to_string()]).await.unwrap();
        let table = client.table("short").await.unwrap();
        let mut listing = table.scan().page(5);
        assert!(!listing.next_page().await.unwrap().unwrap().is_empty());
        assert!(client.drop_table("short").await.unwrap());
        let next = listing.next_page().await;
        assert!(matches!(&next, Err(error) if error.to_string().contains("dropped")), "{next:?}");
    });
}

fn the_status_has_its_fields(port: u16) {
    let status = wait_until_healthy(port, 3);
    for field in ["cluster", "configuration", "faults", "coordinator_reachable", "nodes", "shards", "cores", "tables"] {
        assert!(!status[field].is_null(), "{field} is missing in {status:#}");
    }
    assert_eq!((list(&status["nodes"]).len(), list(&status["shards"]).len(), list(&status["cores"]).len()), (3, 3, 3));
    for shard in list(&status["shards"]) {
        for field in ["shard", "epoch", "primary", "serving", "health", "members", "witnesses", "list", "status"] {
            assert!(!shard[field].is_null(), "{field} is missing in {shard:#}");
        }
        for field in [
            "state",
            "objects",
            "memory_bytes",
            "updates",
            "unsynced_operations",
            "duplicates_suppressed",
            "repeats_suppressed",
        ] {
            assert!(!shard["status"][field].is_null(), "{field} is missing in {shard:#}");
        }
    }
    has_so_many_objects(&status);
    let human =
        String::from_utf8(run(&["status", "--verbose", "--address", &format!("127.0.0.1:{port}")]).stdout).unwrap();
    for word in ["NODE", "SHARD", "MEMBERS", "WITNESSES", "FAST PATH", "DUPLICATES", "DOING", "healthy", "reachable"] {
        assert!(human.contains(word), "{word} is missing in:\n{human}");
    }
}

/// Cursors that nobody gave out, and those of a table that is dropped and created anew.
fn wrong_cursors_are_told(port: u16) {
    let told = |arguments: &[&str]| json_of(port, &[&["--table", "short"], arguments].concat());
    let create_and_fill = || {
        json_of(port, &["create-table", "short"]);
        (0..20).for_each(|n| assert_eq!(told(&["put", &n.to_string(), "v"]).0, Some(0)));
    };
    create_and_fill();
    let cursor = told(&["scan", "--limit", "5"]).1["cursor"].as_str().unwrap().to_owned();
    let (table, _) = cursor.split_once('-').unwrap();
    for place in [0, 1, 0xffff, 1 << 32, 7 << 40 | 5, 0x1234_5678_9abc, u64::MAX >> 16, u64::MAX] {
        let listed = cli(port, &["--json", "--table", "short", "scan", "--cursor", &format!("{table}-{place}")]);
        let is_refused = String::from_utf8_lossy(&listed.stderr).contains("K0320");
        let page: Option<Json> = serde_json::from_slice(&listed.stdout).ok();
        let is_page = page.is_some_and(|page| page["keys"].as_array().is_some_and(|keys| keys.len() <= 20));
        assert_eq!(listed.status.code(), Some(if is_refused { 2 } else { 0 }), "{place:#x}: {listed:?}");
        assert!(is_refused || is_page, "{place:#x}: {listed:?}");
    }
    is_dropped_while_it_is_listed(port);
    for code in ["K0302", "K0320"] {
        let (exit, wrong) = told(&["scan", "--cursor", &cursor]);
        assert!(exit == Some(1) && wrong["error"].as_str().unwrap().contains(code), "{code}: {wrong}");
        create_and_fill();
    }
    assert_eq!(told(&["count"]), (Some(0), json!(20)));
}

fn has_so_many_objects(status: &Json) {
    let total: u64 = list(&status["shards"]).iter().map(|shard| shard["status"]["objects"].as_u64().unwrap()).sum();
    let listed = 1 + 2 + 40; // a value that is no text, a lock and a counter that end, and what was listed
    assert_eq!(total, 10 + listed, "a, n, quota, {{t}}a, {{t}}b, {{u}}credit, {{u}}log, over, shards and once");
}

#[test]
fn the_shell_speaks_json() {
    let (folder, port) = (Folder::new("shell"), free_ports(4));
    let (data, text) = (folder.path().to_str().unwrap(), port.to_string());
    let mut process = Process::spawn(command(&["start", "--data", data, "--port", &text, "--memory-mib", "64"]));
    process.wait_until_it_says("ready");

    assert_eq!(json_of(port, &["put", "a", "x"]), (Some(0), json!({ "version": 1 })));
    assert_eq!(json_of(port, &["get", "a"]), (Some(0), json!({ "value": "x", "encoding": "utf-8", "version": 1 })));
    assert_eq!(json_of(port, &["get", "none"]), (Some(3), Json::Null), "no value");
    let (code, told) = json_of(port, &["put-if-absent", "a", "y"]);
    assert_eq!((code, &told["done"]), (Some(3), &json!(false)), "the condition failed");
    assert_eq!(json_of(port, &["exists", "none"]).0, Some(3));
    assert_eq!(json_of(port, &["incr", "n", "-3"]).1["value"], -3);
    assert_eq!(json_of(port, &["incr", "quota", "2", "--at-most", "3"]).1["value"], 2);
    let rejected = json!({ "outcome": "rejected", "value": 2, "version": 1 });
    assert_eq!(json_of(port, &["incr", "quota", "2", "--at-most", "3"]), (Some(3), rejected));
    assert_eq!(json_of(port, &["mincr", "{t}a", "1", "{t}b", "2"]).1, json!({ "values": [1, 2] }));
    assert_eq!(json_of(port, &["tables"]).1, json!(["default"]));
    a_script_is_a_transaction(port, &folder);
    let parts: [fn(u16); 3] = [values_end, keys_are_listed, any_bytes_go_through];
    parts.iter().for_each(|part| part(port));

    let failed = |arguments: &[&str], outcome: &str, word: &str| {
        let (code, told) = json_of(port, arguments);
        assert_eq!((code, &told["outcome"]), (Some(1), &json!(outcome)), "{told}");
        assert!(told["error"].as_str().unwrap().contains(word), "{told}");
    };
    let rejected = |arguments: &[&str], word: &str| {
        let (code, told) = json_of(port, arguments);
        assert_eq!((code, &told["outcome"]), (Some(3), &json!("rejected")), "{told}");
        assert!(told["error"].as_str().unwrap().contains(word), "{told}");
    };
    rejected(&["incr", "a"], "no decimal 64-bit number");
    failed(&["incr", "n", "--at-least", "1", "--at-most", "0"], "not executed", "contradict each other");
    failed(&["--table", "nowhere", "put", "a", "x"], "not executed", "nowhere");
    assert_eq!(json_of(port, &["mput", "over", "1", "shards", "2"]), (Some(0), json!({ "versions": [1, 1] })));
    for _ in 0..2 {
        let told = json_of(port, &["--once", "two", "mput", "over", "3", "shards", "4"]);
        assert_eq!(told, (Some(0), json!({ "versions": [2, 2] })), "it happens once, over shards, too");
    }
    rejected(&["--once", "two", "mput", "over", "3", "shards", "5"], "operation key");
    assert_eq!(json_of(port, &["--once", "key", "get", "a"]).0, Some(2), "--once is for updates");
    cli_says(port, &["--once", "key", "incr", "once"]);
    assert_eq!(json_of(port, &["incr", "once", "--once", "key"]).1["value"], 1, "options may stand behind, too");
    rejected(&["--once", "key", "incr", "once", "2"], "operation key");
    let (code, told) = json_of(free_ports(1), &["--deadline", "300ms", "put", "a", "x"]);
    assert_eq!((code, &told["outcome"]), (Some(1), &json!("not executed")), "nobody was reached: {told}");
    let complaint = String::from_utf8(cli(port, &["incr", "a"]).stderr).unwrap();
    assert!(complaint.starts_with("kasha: the update changed nothing"), "{complaint}");

    the_status_has_its_fields(port);
    wrong_cursors_are_told(port);
}
