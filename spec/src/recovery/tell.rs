//! A trace as text: for each step the machine that acts, the function of the code, and the result.

use crate::check::{Step, Tell};
use crate::recovery::state::{Kind, Log, Node, NodeIx, State, UpdateIx, bits};
use crate::recovery::{Action, Recovery};

fn name(node: NodeIx) -> String {
    format!("node {}", node + 1)
}

fn letter(update: UpdateIx) -> char {
    char::from(b'a' + update)
}

/// `2^`: term 2 begins; `2a`: update a in term 2; `2W1`: `Whole` for list 1; behind `|`: entries that the file does not
/// hold yet.
fn log(log: &Log, held: u8) -> String {
    let entry = |(at, entry): (u8, &crate::recovery::state::Entry)| {
        let border = if at == held { "| " } else { "" };
        let epoch = entry.epoch;
        match entry.kind {
            Kind::Start => format!("{border}{epoch}^"),
            Kind::Update(update) => format!("{border}{epoch}{}", letter(update)),
            Kind::Whole(list) => format!("{border}{epoch}W{list}"),
        }
    };
    format!("[{}]", (0..).zip(log).map(entry).collect::<Vec<_>>().join(" "))
}

fn holds(node: &Node) -> String {
    let mark = if node.mark == 0 { String::new() } else { format!(" whole={}", node.mark) };
    let doubt = match (node.up, node.intact) {
        (false, _) => " (dead)",
        (true, false) => " (not sure)",
        (true, true) => "",
    };
    format!("{}{mark}{doubt}", log(&node.log, node.held))
}

fn set(mask: u8) -> String {
    format!("{{{}}}", bits(mask).map(|node| (node + 1).to_string()).collect::<Vec<_>>().join(", "))
}

fn letters(mask: u8) -> String {
    bits(mask).map(letter).collect()
}

impl Recovery {
    fn tell_term(&self, action: &Action, after: &State) -> Option<Step> {
        let own = |node: NodeIx| holds(after.node(node));
        let step = |node: NodeIx, function, text: String| Some(Step::new(name(node), function, text));
        match *action {
            Action::OnFence(node, member) => {
                step(member, "backup::on_fence", format!("promises to {}, reports {}", name(node), own(member)))
            }
            Action::Take(node) => step(node, "Election::choice", format!("its own log {}", own(node))),
            Action::CutToMatch(node, from) => step(
                node,
                "fetching::cut_to_match",
                format!("{}'s log is to be taken; keeps {}", name(from), own(node)),
            ),
            Action::OnLogPiece(node, from) => {
                step(node, "primary::on_log_piece", format!("from {}: {}", name(from), own(node)))
            }
            Action::FenceAgain(node) => step(node, "primary::fence_again", own(node)),
            Action::BeginEpoch(node) => {
                step(node, "beginning::begin_epoch", format!("without a witness: {}", own(node)))
            }
            Action::OnWitnessHolds(node, witness) => {
                let text = format!("witness {} is frozen and replayed: {}", witness + 1, own(node));
                step(node, "primary::on_witness_holds", text)
            }
            Action::WriteLog(node) => step(node, "files::write_log", own(node)),
            Action::OnAttach(node, member) => {
                step(member, "backup::on_attach", format!("attached to {}: {}", name(node), own(member)))
            }
            Action::OnAppend(node, member) => {
                step(member, "backup::on_append", format!("from {}: {}", name(node), own(member)))
            }
            Action::Mark(node) => step(node, "beginning::advance", format!("is about to report: {}", own(node))),
            Action::OnRequest(node, update) => {
                step(node, "request::on_request", format!("executes {}: {}", letter(update), own(node)))
            }
            Action::Promote(..)
            | Action::Recovered(_)
            | Action::OnRecord(..)
            | Action::CloseList(_)
            | Action::OpenList(_)
            | Action::Stop(_)
            | Action::Kill(..)
            | Action::LosePower(..)
            | Action::Damage(_)
            | Action::Die(_)
            | Action::LoseWitness(_) => None,
        }
    }

    fn tell_rest(&self, action: &Action, after: &State) -> Step {
        let own = |node: NodeIx| holds(after.node(node));
        let (epoch, list) = (after.committed.epoch, after.list());
        let step = |node: NodeIx, function, text: String| Step::new(name(node), function, text);
        let coordinator = |function, text| Step::new("coordinator".into(), function, text);
        match *action {
            Action::Promote(node, members) => {
                let text = format!("epoch {epoch}: {} leads {}, with list {list}", name(node), set(members));
                coordinator("Command::Promote", text)
            }
            Action::Recovered(node) => {
                coordinator("Command::Recovered", format!("{} serves in epoch {epoch}, list {list}", name(node)))
            }
            Action::OnRecord(update, list, witness) => {
                let text = format!("accepts {} under list {list}", letter(update));
                Step::new(format!("witness {}", witness + 1), "witnessing::on_record", text)
            }
            Action::CloseList(node) => step(node, "Serving::update", "gates its answers: the list is closed".into()),
            Action::Stop(node) => step(node, "-", "is to stop: gates its answers".into()),
            Action::OpenList(_) if after.lists[usize::from(list) - 1].empty => {
                coordinator("Command::OpenList", format!("list {list}, which is empty"))
            }
            Action::OpenList(_) => coordinator("Command::OpenList", format!("list {list}")),
            Action::Kill(node, _) => step(node, "load::load", format!("was killed, restarts with {}", own(node))),
            Action::LosePower(node, _) => step(node, "load::load", format!("lost power, restarts with {}", own(node))),
            Action::Damage(node) => step(node, "load::load", format!("its last bytes were damaged: {}", own(node))),
            Action::Die(node) => step(node, "-", "dies for good".into()),
            Action::LoseWitness(witness) => {
                Step::new(format!("witness {}", witness + 1), "-", "its files are lost for good".into())
            }
            ref other => unreachable!("told elsewhere: {other:?}"),
        }
    }
}

impl Tell for Recovery {
    fn tell(&self, _: &State, action: &Action, after: &State) -> Step {
        self.tell_term(action, after).unwrap_or_else(|| self.tell_rest(action, after))
    }

    fn epilogue(&self, last: &State) -> String {
        let done = (0..).zip(&last.updates).filter(|(_, update)| update.done).map(|(at, _)| 1u8 << at).sum();
        let nodes = last.all().map(|node| format!("{} {}", name(node), holds(last.node(node))));
        let (epoch, primary) = last.committed.served;
        format!(
            "answered: {{{}}}; served: {} in epoch {epoch}; {}",
            letters(done),
            name(primary),
            nodes.collect::<Vec<_>>().join(", ")
        )
    }
}
