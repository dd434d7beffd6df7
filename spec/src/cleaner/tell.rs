//! A trace in the code's words: who, which function, what came of it.

use crate::check::{Step, Tell};
use crate::cleaner::bounds::Change;
use crate::cleaner::state::{Entry, FOLLOWER, Kind, PRIMARY, SegmentIx, State, freed_by, has};
use crate::cleaner::{Action, Cleaner};

fn segment(segment: SegmentIx) -> char {
    char::from(b'A' + segment)
}

fn key(key: u8) -> char {
    char::from(b'x' + key)
}

/// `x1`: key x in version 1; `-x2 A..B`: its tombstone; `u1^2`: update 1, which acknowledges below 2; `K1`: a run under the
/// operation key; `K-2`: it had expired at 2; `F1(c)`: an expiry floor that names the client; `V2`: a version floor; `!A`:
/// segment A is freed. A copy ends in `'`.
fn entry(entry: &Entry) -> String {
    let text = match entry.kind {
        Kind::Object { key: of, version, oldest } => format!("{}{version} from {}", key(of), segment(oldest)),
        Kind::Tombstone { key: of, version, oldest, killed } => {
            format!("-{}{version} {}..{}", key(of), segment(oldest), segment(killed))
        }
        Kind::Record { sequence, lease, acknowledgement } => {
            let acknowledged = if acknowledgement > 1 { format!("^{acknowledgement}") } else { String::new() };
            format!("u{sequence}{acknowledged} lease {lease}")
        }
        Kind::OperationKey { run, expires } => format!("K{} until {expires}", run + 1),
        Kind::Dropped { at } => format!("K-{at}"),
        Kind::ExpiryFloor { time, names_client: true, .. } => format!("F{time}(c)"),
        Kind::ExpiryFloor { time, names_client: false, .. } => format!("F{time}()"),
        Kind::VersionFloor { version } => format!("V{version}"),
        Kind::Freed { segment: freed } => format!("!{}", segment(freed)),
    };
    if entry.is_copy { format!("{text}'") } else { text }
}

/// The log, segment by segment. Behind `|` what is not synced.
fn log(state: &State) -> String {
    let mut text = String::new();
    let mut before = None;
    for (at, this) in (0u8..).zip(&state.log) {
        if before.replace(this.segment) != Some(this.segment) {
            text.push_str(&format!("{}{}:", if text.is_empty() { "" } else { "] " }, segment(this.segment)));
            text.push('[');
        } else {
            text.push_str(", ");
        }
        text.push_str(if at == state.shipped { "| " } else { "" });
        text.push_str(&entry(this));
    }
    if text.is_empty() { "nothing".into() } else { text + "]" }
}

fn held(state: &State, member: usize) -> String {
    (0..8).filter(|&at| has(state.members[member].held, at)).map(segment).collect()
}

fn who(member: usize) -> String {
    if member == PRIMARY { "primary".into() } else { "follower".into() }
}

impl Tell for Cleaner {
    fn tell(&self, before: &State, action: &Action, after: &State) -> Step {
        let primary = |function, text: String| Step::new(who(PRIMARY), function, text);
        let last = || after.log.last().map(entry).unwrap_or_default();
        match *action {
            Action::OnChange => {
                let text = match self.bounds.changes[usize::from(before.next_change)] {
                    Change::Put(of) => format!("puts {}: {}", key(of), last()),
                    Change::Delete(of) => format!("deletes {}: {}", key(of), last()),
                };
                primary("request::run", text)
            }
            Action::OnUpdate(_) => primary("request::run", format!("runs {}", last())),
            Action::OnRun(_) => primary("request::run", format!("runs {} under the operation key", last())),
            Action::Tick => Step::new("-".into(), "ClusterTime", format!("{}", after.now)),
            Action::ExpireOperationKey => primary("drop_some_expired", last()),
            Action::OnLeaseVerdict => primary("leases::on_verdict", format!("logs {}", last())),
            Action::SettleFloor => primary("leases::settle_floor", "the floor is synced, and in force".into()),
            Action::DropTombstones => primary("house::raise_version_floor", format!("{} takes over", last())),
            Action::Roll => primary("Log::roll", format!("segment {} is the head", segment(after.head))),
            Action::Copy(origin) => {
                let from = before.log[usize::from(origin)].segment;
                primary("cleaner::copy_group", format!("{} from segment {}", last(), segment(from)))
            }
            Action::Settle => {
                let copy = entry(&before.log[usize::from(before.pending[0].copy)]);
                let moved = before.members[PRIMARY].memory != after.members[PRIMARY].memory;
                let text =
                    if moved { "what led to its origin leads there" } else { "its origin is dead, and so is it" };
                primary("the cleaner settles", format!("{copy}: {text}"))
            }
            Action::Abandon => primary("the cleaner gives up", "its copies are taken for dead".into()),
            Action::Free(freed) => primary("house::free_segments", format!("logs that {} is freed", segment(freed))),
            Action::LetGo(member) => {
                let member = usize::from(member);
                let gone = before.members[member].held & !after.members[member].held;
                let text = format!("lets {} go, has {}", segment(gone.trailing_zeros() as u8), held(after, member));
                Step::new(who(member), "replay::free_retired", text)
            }
            Action::OnAppend => {
                let taken = &after.log[usize::from(before.shipped)..usize::from(after.shipped)];
                let text = taken.iter().map(entry).collect::<Vec<_>>().join(", ");
                Step::new(who(FOLLOWER), "backup::on_append", format!("{text} synced"))
            }
            Action::Restart => Step::new(who(FOLLOWER), "copy::load", format!("with {}", held(after, FOLLOWER))),
            Action::FailOver { restarts } => {
                let old = if restarts { "the old primary's process starts anew" } else { "the old primary goes on" };
                Step::new(
                    "coordinator".into(),
                    "Command::Promote",
                    format!("the follower leads; {old}: {}", log(after)),
                )
            }
        }
    }

    fn epilogue(&self, last: &State) -> String {
        let freed: String = (0..8).filter(|&at| has(freed_by(&last.log), at)).map(segment).collect();
        let freed = if freed.is_empty() { "none".into() } else { freed };
        format!(
            "{}; freed: {freed}; the primary has {}, the follower {}",
            log(last),
            held(last, PRIMARY),
            held(last, FOLLOWER)
        )
    }
}
