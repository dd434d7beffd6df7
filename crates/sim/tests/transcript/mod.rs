//! Transcripts: text files that show how the machines talk to each other in one situation.
//!
//! A line at the margin is a command, a comment (`#`) or empty. The lines indented below a command say what happened.
//! The harness runs the commands on real nodes and a real coordinator, with one core each, over a network in which
//! every frame waits until the script moves it, and compares the result with the file. `UPDATE=1` writes the result
//! instead; `TRANSCRIPT=name` runs one transcript. `docs/testing.md` has the commands.
//!
//! The harness refuses to know any rule: it shows what the machines do, and the author of a transcript judges that by
//! the design. Machines assert their invariants after every turn. There is one clock for all, and nothing is random.

mod attempt;
mod clients;
mod cluster;
mod frames;
mod groups;
mod host;
mod script;
mod telling;
mod words;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use script::Script;

const INDENT: &str = "    ";
/// Lines of a difference that are shown.
const SHOWN_MAX: usize = 60;

/// Runs the commands of a transcript, and returns the text that the file should have.
fn replay(text: &str) -> String {
    let mut script: Option<Script> = None;
    let mut out = String::new();
    let mut broken = false;
    for line in text.lines().filter(|line| !line.starts_with(INDENT)) {
        out.push_str(line.trim_end());
        out.push('\n');
        if broken || line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let said = catch_unwind(AssertUnwindSafe(|| match &mut script {
            Some(script) => {
                script.run(line);
                script.take_output()
            }
            None => {
                let words: Vec<&str> = line.split_whitespace().collect();
                script.insert(Script::new(&words)).take_output()
            }
        }));
        match said {
            Ok(lines) => lines.iter().for_each(|line| out.push_str(&format!("{INDENT}{line}\n"))),
            Err(why) => {
                let text = why.downcast_ref::<String>().cloned();
                let text = text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                out.push_str(&format!("{INDENT}PANIC: {}\n", text.unwrap_or_default().replace('\n', " ")));
                broken = true;
            }
        }
    }
    out
}

/// The part in which two texts differ, with a line before it.
fn difference(expected: &str, actual: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), actual.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let command = new[..head].iter().rev().find(|line| !line.starts_with(INDENT)).unwrap_or(&"");
    let removed = old[head..old.len() - tail].iter().map(|line| format!("  - {line}"));
    let added = new[head..new.len() - tail].iter().map(|line| format!("  + {line}"));
    let lines: Vec<String> = removed.chain(added).take(SHOWN_MAX).collect();
    format!("line {}, after `{command}`:\n{}", head + 1, lines.join("\n"))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

/// Whether a run differs from what the transcript says.
#[cfg(feature = "planted-bugs")]
pub fn differs(name: &str) -> bool {
    let text = fs::read_to_string(folder().join(name).with_extension("txt")).expect("a transcript of this name");
    replay(&text) != text
}

/// Checks every transcript of the folder.
///
/// # Panics
/// If a run differs from its transcript.
pub fn check_all() {
    #[cfg(feature = "planted-bugs")]
    if let Ok(name) = std::env::var("PLANTED") {
        kasha_sim::planted::plant(kasha_sim::Bug::by_name(&name));
    }
    let update = std::env::var_os("UPDATE").is_some();
    let only = std::env::var("TRANSCRIPT").ok();
    let mut files: Vec<_> = (fs::read_dir(folder()).expect("the folder of transcripts"))
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .filter(|path| only.as_ref().is_none_or(|only| path.file_stem().is_some_and(|stem| stem == only.as_str())))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no transcript");
    let mut wrong = Vec::new();
    for path in files {
        let expected = fs::read_to_string(&path).expect("a text");
        let actual = replay(&expected);
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        if actual.contains("PANIC: ") {
            wrong.push(format!("{name} panics; {}", difference(&expected, &actual)));
        } else if actual != expected && !update {
            wrong.push(format!("{name}, {}", difference(&expected, &actual)));
        }
        if update {
            fs::write(&path, actual).expect("writable");
        }
    }
    assert!(wrong.is_empty(), "\n{}\nUPDATE=1 rewrites them: look at the difference first", wrong.join("\n\n"));
}
