//! A trace as text: for each step the member that acts, the function of the code, and the result.

use crate::check::{Step, Tell};
use crate::group::state::{Entry, Kind, Member, NodeIx, State, bits};
use crate::group::{Action, Group};

fn name(node: NodeIx) -> String {
    format!("member {}", node + 1)
}

fn set(mask: u8) -> String {
    format!("{{{}}}", bits(mask).map(|node| (node + 1).to_string()).collect::<Vec<_>>().join(", "))
}

/// `2^`: the leader of view 2 begins; `2a`: operation a of view 2; behind `|`: entries that the disk does not have yet.
fn log(log: &[Entry], synced: u8) -> String {
    let entry = |(at, entry): (u8, &Entry)| {
        let border = if at == synced { "| " } else { "" };
        let what = match entry.kind {
            Kind::Start => "^".into(),
            Kind::Operation(number) => char::from(b'a' + number).to_string(),
            Kind::List(list) => set(list),
            Kind::Lost => "Lost".into(),
            Kind::ShorterLease => "ShorterLease".into(),
            Kind::ShorterBound => "ShorterBound".into(),
            Kind::Hole => return format!("{border}?"),
        };
        format!("{border}{}{what}", entry.view)
    };
    format!("[{}]", (0..).zip(log).map(entry).collect::<Vec<_>>().join(" "))
}

fn holds(member: &Member) -> String {
    if !member.up {
        return "(no files)".into();
    }
    let on_disk = member.behind.as_ref().map(|behind| format!(", on disk {}", log(behind, u8::MAX)));
    let of = if member.view == member.log_view { String::new() } else { format!(" in view {}", member.view) };
    let log_view = member.log_view;
    format!("{} of view {log_view}{of}{}", log(&member.log, member.synced), on_disk.unwrap_or_default())
}

impl Group {
    fn tell_change(&self, action: &Action, after: &State) -> Option<Step> {
        let own = |node: NodeIx| holds(after.member(node));
        let step = |node: NodeIx, function, text: String| Some(Step::new(name(node), function, text));
        match *action {
            Action::Wish(node, view) => step(node, "change::wish", format!("wishes to lead view {view}")),
            Action::Enter(node, view) => {
                let to = after.view(view).leader.map(name).unwrap_or_default();
                step(node, "change::enter", format!("enters view {view}, reports to {to}: {}", own(node)))
            }
            Action::Merge(node, mask) => {
                step(node, "change::merge", format!("leads by the reports of {}: {}", set(mask), own(node)))
            }
            Action::OnNewView(node, _) => step(node, "change::on_new_view", own(node)),
            Action::Append(node) => step(node, "normal::append", own(node)),
            Action::Write(node) => step(node, "disk::on_written", own(node)),
            Action::OnPrepare(node, _) => step(node, "normal::on_prepare", own(node)),
            Action::Change(node, _) => step(node, "members::change", own(node)),
            Action::DeclareLost(node) => step(node, "NodeLeases::judge", format!("the node is lost: {}", own(node))),
            Action::ShortenLease(node) => step(node, "settings::shorten", own(node)),
            Action::LowerBound(node) => step(node, "settings::lower_bound", own(node)),
            Action::Snapshot(node) => {
                let text = format!("begins a file with a snapshot of {}: {}", after.member(node).snapshot, own(node));
                step(node, "storage::snapshot", text)
            }
            Action::Restart(node, _) => step(node, "disk::load", format!("restarts with {}", own(node))),
            Action::Reboot(node, _) => step(node, "disk::load", format!("its machine restarts, with {}", own(node))),
            Action::LoseFiles(node) => step(node, "disk::load", format!("its files are lost: {}", own(node))),
            Action::Commit(_)
            | Action::Ask(_)
            | Action::BeginRound(..)
            | Action::OnRound(..)
            | Action::Answer(_)
            | Action::Tick => None,
        }
    }

    fn tell_answer(&self, before: &State, action: &Action, after: &State) -> Step {
        let step = |node: NodeIx, function, text: String| Step::new(name(node), function, text);
        match *action {
            Action::Commit(node) => {
                let committed = after.lead(node).map_or(0, |lead| usize::from(lead.committed));
                let told = log(&after.member(node).log[..committed], u8::MAX);
                step(node, "normal::commit", format!("tells as committed {told}"))
            }
            Action::Ask(node) => step(node, "-", format!("is asked at {}", after.now)),
            Action::BeginRound(node, _) if after.lead(node).is_some_and(|lead| lead.question.is_none()) => {
                step(node, "rounds::begin", format!("begins a round at {}", after.now))
            }
            Action::BeginRound(node, time) => {
                let tells = if self.bounds.time_max > 0 { format!(", which tells time {time}") } else { String::new() };
                step(node, "rounds::begin", format!("is asked at {}, begins a round{tells}", after.now))
            }
            Action::OnRound(node, member) => {
                step(member, "rounds::on_round", format!("confirms the round of {}", name(node)))
            }
            Action::Answer(node) => {
                let lead = before.lead(node).expect("it led");
                let mut text = String::from("answers");
                if self.bounds.time_max > 0 {
                    let time = lead.round.map_or(lead.time, |round| round.time);
                    text += &format!(": it is {time}");
                }
                if self.bounds.now_max > 0 {
                    text += &format!(": the node's lease ends at {}", after.lease_ends);
                }
                step(node, "rounds::answer", text)
            }
            Action::Tick => Step::new("time".into(), "-", format!("it is {}", after.now)),
            ref other => unreachable!("told elsewhere: {other:?}"),
        }
    }
}

impl Tell for Group {
    fn tell(&self, before: &State, action: &Action, after: &State) -> Step {
        self.tell_change(action, after).unwrap_or_else(|| self.tell_answer(before, action, after))
    }

    fn epilogue(&self, last: &State) -> String {
        let members = last.all().map(|node| format!("{} {}", name(node), holds(last.member(node))));
        let told = log(&last.told.log, u8::MAX);
        let lease = if self.bounds.now_max > 0 {
            format!("; it is {}, the node serves until {}", last.now, last.lease_ends)
        } else {
            String::new()
        };
        format!("told: {told}{lease}; {}", members.collect::<Vec<_>>().join(", "))
    }
}
