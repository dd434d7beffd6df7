//! A trace as text: for each step the machine that acts, the function of the code, and the result.

use crate::check::{Step, Tell};
use crate::distributed::program::Class;
use crate::distributed::state::{Entry, Executed, Seen, Set, Shard, ShardIx, Stage, State, TxnIx, members};
use crate::distributed::{Action, Distributed};

fn shard_name(shard: ShardIx) -> String {
    format!("shard s{shard}")
}

fn client_name(txn: TxnIx) -> String {
    format!("client of T{txn}")
}

fn set(txns: Set) -> String {
    members(txns).map(|txn| format!("T{txn}")).collect::<Vec<_>>().join(" ")
}

/// `x=T0`: the key x as T0 left it; keys that are as they were from the start are left out.
fn seen(seen: Seen) -> String {
    let values: Vec<_> = (0..)
        .zip(seen)
        .filter(|(_, writer)| *writer > 0)
        .map(|(key, writer)| format!("{}=T{}", char::from(b'x' + key), writer - 1))
        .collect();
    if values.is_empty() { "nothing new".to_owned() } else { values.join(" ") }
}

/// Behind `|`: entries that are not synced.
fn log(there: &Shard) -> String {
    let entry = |(at, entry): (u8, &Entry)| {
        let border = if at == there.synced { "| " } else { "" };
        let text = match *entry {
            Entry::Proposed(txn, at, _) => format!("T{txn}?{at}"),
            Entry::Conflict(txn) => format!("T{txn}:conflict"),
            Entry::Abort(txn, _) => format!("T{txn}:abort"),
            Entry::Executed(Executed { txn, is_read: true, .. }) => format!("T{txn}:read"),
            Entry::Executed(Executed { txn, at, .. }) => format!("T{txn}!{at}"),
            Entry::Ended(txn) => format!("T{txn}:ended"),
            Entry::Floor(txn) => format!("T{txn}:floor"),
        };
        format!("{border}{text}")
    };
    format!("[{}]", (0..).zip(&there.log).map(entry).collect::<Vec<_>>().join(" "))
}

impl Distributed {
    fn tell_shard(&self, action: &Action, after: &State) -> Option<Step> {
        let step = |shard: ShardIx, function, text: String| {
            Some(Step::new(shard_name(shard), function, format!("{text} {}", log(after.shard(shard)))))
        };
        let gate = |txn: TxnIx, shard: ShardIx| match after.shard(shard).gates[usize::from(txn)] {
            0 => String::new(),
            gate => format!(" waits for {} to settle;", set(gate)),
        };
        match *action {
            Action::OnRequest(txn, shard, _) => {
                let (function, text) = match self.plan(txn).class {
                    Class::Single => ("executes", gate(txn, shard)),
                    Class::Independent => ("proposes", String::new()),
                    Class::Coordinated | Class::Interactive => ("prepares", String::new()),
                    Class::Reads => ("reads", String::new()),
                };
                step(shard, function, format!("T{txn};{text}"))
            }
            Action::OnAsked(txn, shard) => step(shard, "is asked", format!("T{txn} is new here;")),
            Action::Advance(shard, _) => step(shard, "syncs", String::new()),
            Action::OnVote(txn, from, shard) => {
                let at = after.votes(txn).proposed[usize::from(from)];
                step(shard, "hears", format!("s{from} vote {at} on T{txn};"))
            }
            Action::SendVote(txn, shard) => step(shard, "sends its vote", format!("on T{txn};")),
            Action::Execute(txn, shard, _) => step(shard, "executes", format!("T{txn};{}", gate(txn, shard))),
            Action::OnVoteAgainst(txn, shard) => step(shard, "ends", format!("T{txn};")),
            Action::LogFloor(txn, shard) => step(shard, "logs a floor", format!("for T{txn};")),
            Action::Forget(txn, shard) => step(shard, "forgets", format!("T{txn};")),
            Action::Crash(shard, ..) => step(shard, "fails over", String::new()),
            _ => None,
        }
    }
}

impl Tell for Distributed {
    fn tell(&self, _before: &State, action: &Action, after: &State) -> Step {
        let told = |txn: TxnIx, shard: ShardIx| after.txn(txn).told[usize::from(shard)].map_or(String::new(), seen);
        let client = |txn: TxnIx, function, text: String| Step::new(client_name(txn), function, text);
        let over = |txn: TxnIx| match after.txn(txn).stage {
            Stage::Waiting | Stage::Running => "",
            Stage::Committed => "; committed",
            Stage::Aborted(_) | Stage::NotCommitted => "; not committed",
        };
        match *action {
            Action::Begin(txn) => client(txn, "begins", format!("{:?}", self.plan(txn).class)),
            Action::OnRecord(txn, shard) => Step::new(format!("witness of s{shard}"), "records", format!("T{txn}")),
            Action::Answer(txn, shard) => {
                client(txn, "is answered", format!("by s{shard}: {}{}", told(txn, shard), over(txn)))
            }
            Action::AnswerPrepared(txn, _) => client(txn, "is answered", "every participant has prepared".to_owned()),
            Action::AnswerAbort(txn, shard) => {
                client(txn, "is answered", format!("ABORT by s{shard}: {}", told(txn, shard)))
            }
            Action::AnswerConflict(txn) => client(txn, "is answered", "CONFLICT".to_owned()),
            Action::Read(txn, shard) => client(txn, "has read", format!("s{shard}: {}", told(txn, shard))),
            Action::Ask(txn, shard) => client(txn, "asks again", format!("s{shard}")),
            Action::ReadAgain(txn, shard) => client(txn, "reads again", format!("s{shard}{}", over(txn))),
            Action::LetGo(txn) => client(txn, "lets go", "acknowledges, or its lease is over".to_owned()),
            _ => self.tell_shard(action, after).expect("the others are steps of shards"),
        }
    }

    fn epilogue(&self, last: &State) -> String {
        (0..).zip(&last.shards).map(|(shard, there)| format!("s{shard} {}", log(there))).collect::<Vec<_>>().join("; ")
    }
}
