//! What a row says of its command.

use crate::Command;
use crate::bits::set_of_names;
use crate::keys::KeySpec;

set_of_names! {
    /// What is true of a command, in Redis' words.
    Flags;
    /// It may change something.
    WRITE "write";
    /// It changes nothing.
    READONLY "readonly";
    /// It may take memory.
    DENYOOM "denyoom";
    /// It is for operators.
    ADMIN "admin";
    /// Scripts must not use it.
    NOSCRIPT "noscript";
    /// It works while a server loads its data.
    LOADING "loading";
    /// It works at a replica that has lost its primary.
    STALE "stale";
    /// The log of slow commands leaves it out.
    SKIP_SLOWLOG "skip_slowlog";
    /// It takes constant or logarithmic time.
    FAST "fast";
    /// It needs no password.
    NO_AUTH "no_auth";
    /// It works while a script runs for too long.
    ALLOW_BUSY "allow_busy";
    /// Where its keys stand follows from its words: `COMMAND GETKEYS` tells them.
    MOVABLE_KEYS "movablekeys";
}

set_of_names! {
    /// Categories of commands, by which rights are given.
    Categories;
    /// Keys, whatever their values are.
    KEYSPACE "@keyspace";
    /// Reads keys.
    READ "@read";
    /// Changes keys.
    WRITE "@write";
    /// Works on strings.
    STRING "@string";
    /// Works on the bits of strings.
    BITMAP "@bitmap";
    /// For operators.
    ADMIN "@admin";
    /// Takes constant or logarithmic time.
    FAST "@fast";
    /// Takes more.
    SLOW "@slow";
    /// May harm others.
    DANGEROUS "@dangerous";
    /// Concerns its connection alone.
    CONNECTION "@connection";
    /// Transactions.
    TRANSACTION "@transaction";
}

/// How many words a command has, its own name included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arity(i8);

impl Arity {
    /// As Redis writes it: so many, or, if it is negative, at least so many.
    #[must_use]
    pub const fn new(number: i8) -> Self {
        assert!(number != 0, "a command has a name");
        Self(number)
    }

    /// As Redis writes it.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0 as i64
    }

    /// Whether so many words are right.
    #[must_use]
    pub const fn allows(self, words: usize) -> bool {
        let number = self.0.unsigned_abs() as usize;
        if self.0 < 0 { words >= number } else { words == number }
    }
}

/// A command's number on the wire and in logs. It means one behaviour for ever: a command whose behaviour changes gets another one, and the
/// old one stays while a log or a witness may hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandNumber(pub u16);

/// Who executes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The front, from what it knows.
    Local,
    /// The front, by calls of other operations.
    Composed,
    /// The shard of its keys. It changes nothing.
    Reads(CommandNumber),
    /// The shard of its keys. It may change them.
    Changes(CommandNumber),
}

impl Class {
    /// The number by which shards know the command.
    #[must_use]
    pub const fn number(self) -> Option<CommandNumber> {
        match self {
            Self::Local | Self::Composed => None,
            Self::Reads(number) | Self::Changes(number) => Some(number),
        }
    }
}

/// Where Redis' documentation has a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Strings.
    String,
    /// Bits of strings.
    Bitmap,
    /// Keys of any type.
    Generic,
    /// Transactions.
    Transactions,
    /// The state of a connection.
    Connection,
    /// The server.
    Server,
    /// A cluster.
    Cluster,
}

impl Group {
    /// The group's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Bitmap => "bitmap",
            Self::Generic => "generic",
            Self::Transactions => "transactions",
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Cluster => "cluster",
        }
    }
}

/// What bounds what a command writes to each of its keys, and what it answers (R11.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Its request's length, whatever its keys hold: over several shards it need not be coordinated (R8.13).
    Words,
    /// What its keys hold, too: over several shards it is coordinated.
    Values,
    /// No shard executes it: its front sees to it.
    Front,
}

/// What a command knows of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Nothing.
    Never,
    /// What it does depends on when its request was begun.
    Begun,
    /// It tells a time of day, and depends on nothing else.
    Day,
    /// It says a time of day, and what it does depends on when its request was begun.
    BegunAndDay,
    /// What it does depends on when its request was begun. It says a time of day if an option does, which stands behind so many words.
    InOptions {
        /// Words that are no options, without the command's name.
        behind: usize,
    },
}

/// Whether what a command does depends on the time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOfDay {
    /// It does not.
    Never,
    /// It does, whatever its words are.
    Always,
    /// It does if an option says so, which stands behind so many words.
    InOptions {
        /// Words that are no options, without the command's name.
        behind: usize,
    },
}

/// Whether a command can only give memory back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frees {
    /// It may take some.
    Never,
    /// It deletes.
    Always,
    /// It does if the time behind its key says that the value's is over.
    IfOver,
}

/// What is said of a command.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The command.
    pub command: Command,
    /// In lower case; of a subcommand `container|name`.
    pub name: &'static str,
    /// Who executes it.
    pub class: Class,
    /// What bounds what it writes and answers.
    pub bound: Bound,
    /// What it knows of time.
    pub time: Time,
    /// Whether it can only give memory back.
    pub frees: Frees,
    /// How many words it has.
    pub arity: Arity,
    /// Where Redis' documentation has it.
    pub group: Group,
    /// The version of Redis that had it first; of Kasha, if Redis has it not.
    pub since: &'static str,
    /// What is true of it.
    pub flags: Flags,
    /// The categories that do not follow from the flags ([`Row::categories`]).
    pub more_categories: Categories,
    /// Where its keys stand.
    pub keys: &'static [KeySpec],
    /// Advice for clients of a cluster, in Redis' words.
    pub tips: &'static [&'static str],
    /// What it does, for people.
    pub summary: &'static str,
}

impl Row {
    /// Whether what it does depends on when its request was begun, whatever its words are.
    #[must_use]
    pub const fn knows_time(&self) -> bool {
        match self.time {
            Time::Begun | Time::BegunAndDay | Time::InOptions { .. } => true,
            Time::Never | Time::Day => false,
        }
    }

    /// Whether what it does depends on the time of day (R10.12).
    #[must_use]
    pub const fn time_of_day(&self) -> TimeOfDay {
        match self.time {
            Time::Never | Time::Begun => TimeOfDay::Never,
            Time::Day | Time::BegunAndDay => TimeOfDay::Always,
            Time::InOptions { behind } => TimeOfDay::InOptions { behind },
        }
    }

    /// Whether what it writes, to one key, and what it answers is bounded by its request's length, whatever its key holds (R8.13).
    #[must_use]
    pub const fn is_bounded(&self) -> bool {
        matches!(self.bound, Bound::Words)
    }

    /// Whether a shard executes it on all keys of a table, and not on some that it names (R10.15). As a part it has one word: a key of the shard, by
    /// which it is sent there.
    #[must_use]
    pub const fn is_of_table(&self) -> bool {
        self.keys.is_empty() && self.class.number().is_some()
    }

    /// All categories of the command: what reads, writes or is for operators is in a category by its flags, and what is not fast is slow.
    #[must_use]
    pub const fn categories(&self) -> Categories {
        let mut all = self.more_categories;
        if self.flags.has(Flags::WRITE) {
            all = all.and(Categories::WRITE);
        }
        if self.flags.has(Flags::READONLY) {
            all = all.and(Categories::READ);
        }
        if self.flags.has(Flags::ADMIN) {
            all = all.and(Categories::ADMIN).and(Categories::DANGEROUS);
        }
        all.and(if self.flags.has(Flags::FAST) { Categories::FAST } else { Categories::SLOW })
    }

    /// The container and the name in it, of a subcommand.
    #[must_use]
    pub fn container(&self) -> Option<(&'static str, &'static str)> {
        self.name.split_once('|')
    }
}
