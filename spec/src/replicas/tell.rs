//! A trace as text: for each step the machine that acts, the function of the code, and the result.

use crate::check::{Step, Tell};
use crate::replicas::state::{Log, Members, Node, NodeIx, State};
use crate::replicas::{Action, Replicas};

fn name(node: NodeIx) -> String {
    format!("node {}", node + 1)
}

/// A log's entries as epochs. Entries of a process that was restarted are marked.
fn log(log: &Log, base: u8) -> String {
    let entry = |(at, entry): (u8, &crate::replicas::state::Entry)| match at < base {
        true => "-".to_string(),
        false => format!("{}{}", entry.epoch, "'".repeat(entry.writer.into())),
    };
    format!("[{}]", (0..).zip(log).map(entry).collect::<Vec<_>>().join(" "))
}

fn holds(node: &Node) -> String {
    let doubts = [(!node.intact, "not sure"), (!node.complete, "not complete")];
    let doubts: Vec<_> = doubts.iter().filter(|(is, _)| *is).map(|(_, text)| *text).collect();
    let doubts = if doubts.is_empty() { String::new() } else { format!(" ({})", doubts.join(", ")) };
    format!("{}{doubts}", log(&node.log, node.base))
}

fn set(members: &Members) -> String {
    let each = (0..).zip(members).filter_map(|(node, member)| {
        let joins = if (*member)?.complete { "" } else { " (joins)" };
        Some(format!("{}{joins}", node + 1))
    });
    format!("{{{}}}", each.collect::<Vec<_>>().join(", "))
}

impl Replicas {
    fn tell_term(&self, action: &Action, after: &State) -> Option<Step> {
        let own = |node: NodeIx| holds(after.node(node));
        let step = match *action {
            Action::Record(node) => Step::new(name(node), "request::commit", own(node)),
            Action::WriteLog(node) => Step::new(name(node), "files::write_log", "on its own file".into()),
            Action::OnFence(node, member) => {
                let epoch = after.node(member).promised;
                let text = format!("promises epoch {epoch} to {}, reports {}", name(node), own(member));
                Step::new(name(member), "backup::on_fence", text)
            }
            Action::Take(node) => Step::new(name(node), "Election::choice", format!("its own log {}", own(node))),
            Action::CutToMatch(node, best) => {
                let text = format!("{}'s log is to be taken; keeps {}", name(best), own(node));
                Step::new(name(node), "fetching::cut_to_match", text)
            }
            Action::OnLogPiece(node, from) => {
                let text = format!("from {}: {}", name(from), own(node));
                Step::new(name(node), "primary::on_log_piece", text)
            }
            Action::FenceAgain(node) => {
                Step::new(name(node), "primary::fence_again", "it holds no more what it reported".into())
            }
            Action::BeginEpoch(node) => Step::new(name(node), "beginning::begin_epoch", own(node)),
            Action::Restart(node) => Step::new(name(node), "load::load", format!("restarts with {}", own(node))),
            Action::LosePower(node, _) => {
                Step::new(name(node), "load::load", format!("lost power, restarts with {}", own(node)))
            }
            Action::Die(node) => Step::new(name(node), "-", "dies for good".into()),
            _ => return None,
        };
        Some(step)
    }

    fn tell_shipping(&self, action: &Action, after: &State) -> Option<Step> {
        let own = |node: NodeIx| holds(after.node(node));
        let synced = |node: NodeIx| after.primary(node).map_or(0, |primary| primary.synced);
        let step = match *action {
            Action::OnAttach(node, member) => {
                let text = format!("attached to {}: {}", name(node), own(member));
                Step::new(name(member), "backup::on_attach", text)
            }
            Action::OnAppend(node, member) => {
                Step::new(name(member), "backup::on_append", format!("from {}: {}", name(node), own(member)))
            }
            Action::OnCopySegment(node, member) => {
                let text = format!("older data from {}: {}", name(node), own(member));
                Step::new(name(member), "copying::on_copy_segment", text)
            }
            Action::Advance(node) => {
                let text = format!("synced up to {} of {}", synced(node), own(node));
                Step::new(name(node), "Shipping::advance", text)
            }
            Action::AdvanceWithout(node, member) => {
                let text = format!("without {}: synced up to {} of {}", name(member), synced(node), own(node));
                Step::new(name(node), "Shipping::advance", text)
            }
            _ => return None,
        };
        Some(step)
    }

    fn tell_configuration(&self, before: &State, action: &Action, after: &State) -> Step {
        let coordinator = |function, text: String| Step::new("coordinator".into(), function, text);
        let committed = &after.committed;
        match *action {
            Action::Recovered(node) => {
                coordinator("Command::Recovered", format!("{} serves in epoch {}", name(node), committed.epoch))
            }
            Action::Copied(_, member) => {
                coordinator("Command::Copied", format!("{}: {}", name(member), set(&committed.members)))
            }
            Action::SetMembers(..) => {
                coordinator("Command::SetMembers", format!("epoch {}: {}", committed.epoch, set(&committed.members)))
            }
            Action::Promote(node, _) => {
                let from = (0..8u8).filter(|node| committed.recover_from & 1 << node != 0).map(|node| node + 1);
                let from: Vec<_> = from.map(|node| node.to_string()).collect();
                let (epoch, set) = (committed.epoch, set(&committed.members));
                let text = format!("epoch {epoch}: {} leads {set}, recovers from {{{}}}", name(node), from.join(", "));
                coordinator("Command::Promote", text)
            }
            Action::OnConfiguration(node) => {
                let (was, is) = (before.primary(node), after.primary(node));
                let text = match (was, is) {
                    (Some(was), Some(is)) if was.epoch == is.epoch => format!("knows the set {}", set(&is.members)),
                    (_, Some(is)) => format!("begins epoch {}: promises it on its file", is.epoch),
                    (Some(_), None) => "is primary no more".into(),
                    (None, None) => format!("the shard serves without it: {}", holds(after.node(node))),
                };
                Step::new(name(node), "configure::on_configuration", text)
            }
            _ => unreachable!("told elsewhere"),
        }
    }
}

impl Tell for Replicas {
    fn tell(&self, before: &State, action: &Action, after: &State) -> Step {
        (self.tell_term(action, after))
            .or_else(|| self.tell_shipping(action, after))
            .unwrap_or_else(|| self.tell_configuration(before, action, after))
    }

    fn epilogue(&self, last: &State) -> String {
        let nodes = last.all().map(|node| format!("{} {}", name(node), holds(last.node(node))));
        format!("answered as synced: {}; {}", log(&last.told, 0), nodes.collect::<Vec<_>>().join(", "))
    }
}
