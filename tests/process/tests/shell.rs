//! The output that scripts read: JSON, exit codes, and the outcome of a failed command.
#![allow(missing_docs)]

use kasha_process_tests::place::{Folder, free_ports};
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
        assert!(code == Some(1) && told["error"].as_str().unwrap().contains(word), "{told}");
    }
}

#[test]
fn the_shell_speaks_json() {
    let (folder, port) = (Folder::new("shell"), free_ports(4));
    let (data, text) = (folder.path().to_str().unwrap(), port.to_string());
    let mut process = Process::spawn(command(&["start", "--data", data, "--port", &text, "--memory-mib", "64"]));
    process.wait_until_it_says("ready");

    assert_eq!(json_of(port, &["put", "a", "x"]), (Some(0), json!({ "version": 1 })));
    assert_eq!(json_of(port, &["get", "a"]), (Some(0), json!({ "value": "x", "version": 1 })));
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

    let failed = |arguments: &[&str], outcome: &str, word: &str| {
        let (code, told) = json_of(port, arguments);
        assert_eq!((code, &told["outcome"]), (Some(1), &json!(outcome)), "{told}");
        assert!(told["error"].as_str().unwrap().contains(word), "{told}");
    };
    failed(&["incr", "a"], "executed", "no decimal 64-bit number");
    failed(&["incr", "n", "--at-least", "1", "--at-most", "0"], "not executed", "contradict each other");
    failed(&["--table", "nowhere", "put", "a", "x"], "not executed", "nowhere");
    assert_eq!(json_of(port, &["mput", "over", "1", "shards", "2"]), (Some(0), json!({ "versions": [1, 1] })));
    for _ in 0..2 {
        let told = json_of(port, &["--once", "two", "mput", "over", "3", "shards", "4"]);
        assert_eq!(told, (Some(0), json!({ "versions": [2, 2] })), "it happens once, over shards, too");
    }
    failed(&["--once", "two", "mput", "over", "3", "shards", "5"], "executed", "operation key");
    failed(&["--once", "key", "get", "a"], "failed", "--once is for updates");
    cli_says(port, &["--once", "key", "incr", "once"]);
    assert_eq!(json_of(port, &["incr", "once", "--once", "key"]).1["value"], 1, "options may stand behind, too");
    failed(&["--once", "key", "incr", "once", "2"], "executed", "operation key");
    let (code, told) = json_of(free_ports(1), &["--deadline", "300ms", "put", "a", "x"]);
    assert_eq!((code, &told["outcome"]), (Some(1), &json!("not executed")), "nobody was reached: {told}");
    let complaint = String::from_utf8(cli(port, &["incr", "a"]).stderr).unwrap();
    assert!(complaint.starts_with("kasha: the update changed nothing"), "{complaint}");

    let status = wait_until_healthy(port, 3);
    for field in ["cluster", "configuration", "faults", "coordinator_reachable", "nodes", "shards", "cores", "tables"] {
        assert!(!status[field].is_null(), "{field} is missing in {status:#}");
    }
    assert_eq!((list(&status["nodes"]).len(), list(&status["shards"]).len(), list(&status["cores"]).len()), (3, 3, 3));
    for shard in list(&status["shards"]) {
        for field in ["shard", "epoch", "primary", "serving", "health", "members", "witnesses", "list", "status"] {
            assert!(!shard[field].is_null(), "{field} is missing in {shard:#}");
        }
        for field in ["state", "objects", "memory_bytes", "updates", "unsynced_operations", "duplicates_suppressed"] {
            assert!(!shard["status"][field].is_null(), "{field} is missing in {shard:#}");
        }
    }
    let total: u64 = list(&status["shards"]).iter().map(|shard| shard["status"]["objects"].as_u64().unwrap()).sum();
    assert_eq!(total, 9, "a, n, {{t}}a, {{t}}b, {{u}}credit, {{u}}log, over, shards and once");
    let human = run(&["status", "--address", &format!("127.0.0.1:{port}")]);
    let human = String::from_utf8(human.stdout).unwrap();
    for word in ["NODE", "SHARD", "MEMBERS", "WITNESSES", "FAST PATH", "DUPLICATES", "DOING", "healthy", "reachable"] {
        assert!(human.contains(word), "{word} is missing in:\n{human}");
    }
}
