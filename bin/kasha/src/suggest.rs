//! What somebody may have meant who wrote a command that does not exist.

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// Commands of other stores, and what does the same here.
const SAME: [(&str, &str); 26] = [
    ("set", "put"),
    ("setex", "put"),
    ("write", "put"),
    ("setnx", "put-if-absent"),
    ("cas", "compare-and-put"),
    ("getset", "get-and-put"),
    ("getdel", "get-and-delete"),
    ("read", "get"),
    ("show", "get"),
    ("del", "delete"),
    ("rm", "delete"),
    ("remove", "delete"),
    ("incrby", "incr"),
    ("decr", "incr"),
    ("decrby", "incr"),
    ("add", "incr"),
    ("mset", "mput"),
    ("mdel", "mdelete"),
    ("keys", "scan"),
    ("ls", "scan"),
    ("list", "scan"),
    ("size", "count"),
    ("dbsize", "count"),
    ("pexpire", "expire"),
    ("multi", "txn"),
    ("transaction", "txn"),
];
/// Wrong letters that are still taken for a slip.
const WRONG_LETTERS_MAX: usize = 2;

/// Adds what may have been meant to the error of a command that does not exist.
pub fn help(error: &mut Error, root: &Command) {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return;
    }
    let Some(ContextValue::String(written)) = error.get(ContextKind::InvalidSubcommand) else { return };
    if let Some(meant) = meant(&written.to_lowercase(), root) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant]));
    }
}

/// The nearest command, here or below `cli`.
fn meant(written: &str, root: &Command) -> Option<String> {
    let of_cli = root.find_subcommand("cli").into_iter().flat_map(Command::get_subcommands);
    let names = root.get_subcommands().filter(|command| !command.is_hide_set()).chain(of_cli);
    if let Some((_, same)) = SAME.iter().find(|(other, _)| *other == written) {
        return Some((*same).to_owned());
    }
    let near = names.map(|command| (strsim::osa_distance(command.get_name(), written), command.get_name()));
    let (distance, name) = near.min()?;
    // Of a short word, two wrong letters leave nothing.
    (distance <= WRONG_LETTERS_MAX && distance < written.len().max(2) - 1).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn slips_and_words_of_other_stores_are_understood() {
        let root = crate::Arguments::command();
        let meant = |written| meant(written, &root);
        assert_eq!(meant("ptu").as_deref(), Some("put"));
        assert_eq!(meant("gett").as_deref(), Some("get"));
        assert_eq!(meant("set").as_deref(), Some("put"));
        assert_eq!(meant("stauts").as_deref(), Some("status"));
        assert_eq!(meant("zz"), None);
        for (_, same) in SAME {
            let cli = root.find_subcommand("cli").unwrap();
            assert!(cli.find_subcommand(same).is_some(), "{same}");
        }
    }
}
