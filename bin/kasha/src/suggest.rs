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

/// Adds what may have been meant to the error of a command that does not exist. `first` is the first word of the command line:
/// a command of `kasha cli` that was written there lacks the word `cli`.
pub fn help(error: &mut Error, root: &Command, first: Option<&str>) {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return;
    }
    let Some(ContextValue::String(written)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let at = if first == Some(written) { Level::Root } else { Level::Cli };
    if let Some(meant) = meant(&written.to_lowercase(), root, at) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant]));
    }
}

/// Where a command was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// `kasha HERE`
    Root,
    /// `kasha cli HERE`
    Cli,
}

/// The nearest command, as it is to be written.
fn meant(written: &str, root: &Command, at: Level) -> Option<String> {
    let cli = root.find_subcommand("cli")?;
    let of_cli = cli.get_subcommands().map(|command| (Level::Cli, command));
    let of_root = root.get_subcommands().filter(|command| !command.is_hide_set()).map(|command| (Level::Root, command));
    let said = |level: Level, name: &str| match (at, level) {
        (Level::Root, Level::Cli) => format!("kasha cli {name}"),
        (Level::Cli, Level::Root) => format!("kasha {name}"),
        (Level::Root, Level::Root) | (Level::Cli, Level::Cli) => name.to_owned(),
    };
    if let Some((_, same)) = SAME.iter().find(|(other, _)| *other == written) {
        return Some(said(Level::Cli, same));
    }
    let names = of_root.chain(of_cli).flat_map(|(level, command)| {
        std::iter::once(command.get_name())
            .chain(command.get_all_aliases())
            .map(move |name| (level, command.get_name(), name))
    });
    let near = names.map(|(level, command, name)| (strsim::osa_distance(name, written), level != at, level, command));
    let (distance, _, level, name) =
        near.min_by_key(|&(distance, is_elsewhere, _, name)| (distance, is_elsewhere, name))?;
    // Of a short word, two wrong letters leave nothing.
    (distance <= WRONG_LETTERS_MAX && distance < written.len().max(2) - 1).then(|| said(level, name))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn slips_and_words_of_other_stores_are_understood() {
        let root = crate::Arguments::command();
        let in_cli = |written| meant(written, &root, Level::Cli);
        assert_eq!(in_cli("ptu").as_deref(), Some("put"));
        assert_eq!(in_cli("gett").as_deref(), Some("get"));
        assert_eq!(in_cli("set").as_deref(), Some("put"));
        assert_eq!(in_cli("stauts").as_deref(), Some("kasha status"));
        assert_eq!(in_cli("zz"), None);
        for (_, same) in SAME {
            let cli = root.find_subcommand("cli").unwrap();
            assert!(cli.find_subcommand(same).is_some(), "{same}");
        }
    }

    /// Found by a newcomer: `kasha get a` was refused, and nobody said where `get` is.
    #[test]
    fn who_leaves_cli_away_is_told_where_the_command_is() {
        let says = |words: &[&str]| {
            let words = std::iter::once("kasha").chain(words.iter().copied()).map(Into::into);
            crate::parse(words).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(says(&["get", "a"]).contains("'kasha cli get'"), "{}", says(&["get", "a"]));
        assert!(says(&["set", "a", "b"]).contains("'kasha cli put'"), "{}", says(&["set", "a", "b"]));
        assert!(says(&["increment", "a"]).contains("'kasha cli incr'"), "{}", says(&["increment", "a"]));
        assert!(says(&["stauts"]).contains("'status'"), "{}", says(&["stauts"]));
        assert!(says(&["cli", "gett", "a"]).contains("'get'"), "{}", says(&["cli", "gett", "a"]));
    }

    /// Found by a newcomer: a value of -5 was taken for a flag.
    #[test]
    fn keys_and_values_may_be_negative_numbers() {
        for line in [
            "put neg -5",
            "put -1 -5",
            "append k -0.5",
            "get -7",
            "mput a -1 b -2",
            "compare-and-put k -1 -2",
            "mget -1 -2",
            "get-and-put k -3",
            "put-if-version k 3 -9",
            "put-if-absent k -9",
            "incr k -5",
            "put k -5 --expires-in 5s",
        ] {
            let words = ["kasha", "cli"].into_iter().chain(line.split(' ')).map(Into::into);
            assert!(crate::parse(words).is_ok(), "{line}");
        }
        let flag = ["kasha", "cli", "put", "k", "--expires", "5s"].map(Into::into);
        assert!(crate::parse(flag).is_err(), "a flag stays a flag");
    }
}
