//! A trace as text: for each step what is written or lost, and what the files and the memory have.

use crate::check::{Step, Tell};
use crate::group_disk::state::{Content, Files, Kind, Page, RecordIx, State};
use crate::group_disk::{Action, GroupDisk, Write};

fn letter(operation: u8) -> char {
    char::from(b'a' + operation - 1)
}

fn content(content: &Content) -> String {
    let log: String = content.log.iter().map(|&operation| letter(operation)).collect();
    format!("view {}, log view {}, [{log}]", content.view, content.log_view)
}

fn record(state: &State, at: RecordIx) -> String {
    match &state.records[usize::from(at)].kind {
        Kind::Snapshot(snapshot) => format!("({})", content(snapshot)),
        Kind::Operation(operation) => letter(*operation).to_string(),
        Kind::View(view) => format!("view {view}"),
        Kind::Cut { log_view, kept, .. } => format!("log view {log_view} keeps {kept}"),
    }
}

/// Each record by its pages: `0` is a page of zeros, `!` a page that cannot be read.
fn files(state: &State, files: &Files) -> String {
    let page = |page: &Page| match page {
        Page::Zero => "0".to_string(),
        Page::Part(at) => record(state, *at),
        Page::Rotten => "!".to_string(),
    };
    let slot = |slot: &[Page; crate::group_disk::state::PAGES]| {
        let pages: Vec<_> = slot.iter().map(page).collect();
        if pages[0] == pages[1] { pages[0].clone() } else { pages.join("/") }
    };
    let file = |file: &[_]| file.iter().map(slot).collect::<Vec<_>>().join(" | ");
    files.iter().map(|slots| format!("[{}]", file(slots))).collect::<Vec<_>>().join(" ")
}

fn has(state: &State) -> String {
    state.memory.as_ref().map_or("its files are damaged".into(), |memory| content(&memory.content))
}

fn written(write: Write) -> &'static str {
    match write {
        Write::Operation => "an operation",
        Write::View => "a view",
        Write::NewLog(_) => "the log of a new view",
        Write::NextFile => "the next file",
    }
}

impl Tell for GroupDisk {
    fn tell(&self, _: &State, action: &Action, after: &State) -> Step {
        let (function, text) = match *action {
            Action::Write(write) => ("storage::write", format!("{}: {}", written(write), files(after, &after.cache))),
            Action::WriteLogView => ("storage::write", format!("log view {} alone", after.log_view_alone)),
            Action::Fsync => ("storage::fsync", "acknowledges".into()),
            Action::Kill => ("storage::load", format!("was killed, finds {}", has(after))),
            Action::KillInWrite(write) => {
                ("storage::load", format!("was killed as it wrote {}, finds {}", written(write), has(after)))
            }
            Action::LosePower(_) => {
                ("storage::load", format!("lost power: {}; finds {}", files(after, &after.disk), has(after)))
            }
            Action::Rot(_) => {
                ("storage::load", format!("was killed: {}; finds {}", files(after, &after.disk), has(after)))
            }
        };
        Step::new("member".into(), function, text)
    }

    fn epilogue(&self, last: &State) -> String {
        format!("found: {}; files: {}", has(last), files(last, &last.cache))
    }
}
