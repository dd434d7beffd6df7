//! The commands, a row each.
//!
//! A row has, in its order: the command; its name; who executes it ([`Class`]), and if shards do, its number, its bound ([`Bound`]), what it knows
//! of time ([`Time`]) and whether it only frees ([`Frees`]); its words ([`Arity`]); the version of Redis that had it
//! first, or of Kasha; its flags; its categories beside those that follow from the flags; where its keys stand; Redis' advice for clients of a cluster;
//! what it does.

use crate::keys::{KeyFlags, KeySpec};
use crate::row::{Arity, Bound, Categories, Class, CommandNumber, Flags, Frees, Group, Row, Time};

macro_rules! class {
    (local) => {
        Class::Local
    };
    (composed) => {
        Class::Composed
    };
    (reads $number:literal) => {
        Class::Reads(CommandNumber($number))
    };
    (changes $number:literal) => {
        Class::Changes(CommandNumber($number))
    };
}

macro_rules! bound {
    () => {
        Bound::Front
    };
    (words) => {
        Bound::Words
    };
    (values) => {
        Bound::Values
    };
}

/// What stands behind the bound may be what it knows of time, and what it frees, in this order.
macro_rules! time {
    ($(frees)? $(frees_if_over)?) => {
        Time::Never
    };
    (begun $(frees)? $(frees_if_over)?) => {
        Time::Begun
    };
    (day) => {
        Time::Day
    };
    (begun_and_day) => {
        Time::BegunAndDay
    };
    (options($behind:literal)) => {
        Time::InOptions { behind: $behind }
    };
}

macro_rules! frees {
    (frees) => {
        Frees::Always
    };
    (frees_if_over) => {
        Frees::IfOver
    };
    ($time:ident frees) => {
        Frees::Always
    };
    ($time:ident frees_if_over) => {
        Frees::IfOver
    };
    ($($time:ident$(($behind:literal))?)?) => {
        Frees::Never
    };
}

/// Makes the enum of commands and the list of rows.
macro_rules! commands {
    ($($group:ident {$(
        $command:ident $name:literal $class:ident$(($number:literal $bound:ident $($more:tt)*))? $arity:literal $since:literal
        [$($flag:ident)*] [$($category:ident)*] [$($key:expr),*] [$($tip:literal)*] $summary:literal;
    )+})+) => {
        /// A command, or a subcommand.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the rows say what each does")]
        #[repr(u16)]
        pub enum Command { $($($command,)+)+ }

        impl Command {
            /// All rows, in the order of the table: of a container and of its subcommands the container is first.
            pub const ALL: &'static [Row] = &[$($(Row {
                command: Self::$command,
                name: $name,
                class: class!($class $($number)?),
                bound: bound!($($bound)?),
                time: time!($($($more)*)?),
                frees: frees!($($($more)*)?),
                arity: Arity::new($arity),
                group: Group::$group,
                since: $since,
                flags: Flags::NONE$(.and(Flags::$flag))*,
                more_categories: Categories::NONE$(.and(Categories::$category))*,
                keys: &[$($key),*],
                tips: &[$($tip),*],
                summary: $summary,
            },)+)+];

            /// The command that a shard knows by this number.
            #[must_use]
            pub fn of_number(number: CommandNumber) -> Option<&'static Row> {
                BY_NUMBER.get(usize::from(number.0)).copied().flatten()
            }

            /// What is said of it.
            #[must_use]
            pub fn row(self) -> &'static Row {
                &Self::ALL[self as usize]
            }
        }
    };
}

/// More than any command's number.
const NUMBERS: usize = 256;

static BY_NUMBER: [Option<&Row>; NUMBERS] = by_number();

const fn by_number() -> [Option<&'static Row>; NUMBERS] {
    let (mut rows, mut at) = ([None; NUMBERS], 0);
    while at < Command::ALL.len() {
        let row = &Command::ALL[at];
        if let Some(CommandNumber(number)) = row.class.number() {
            assert!(rows[number as usize].is_none(), "two commands with one number");
            rows[number as usize] = Some(row);
        }
        at += 1;
    }
    rows
}

const RO: KeyFlags = KeyFlags::RO;
const READS: KeyFlags = RO.and(KeyFlags::ACCESS);
const CHANGES: KeyFlags = KeyFlags::RW.and(KeyFlags::UPDATE);
const READS_AND_CHANGES: KeyFlags = CHANGES.and(KeyFlags::ACCESS);
const READS_AND_DELETES: KeyFlags = KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE);
const MAY_CHANGE: KeyFlags = READS_AND_CHANGES.and(KeyFlags::VARIABLE);
const OVERWRITES: KeyFlags = KeyFlags::OW.and(KeyFlags::UPDATE);
const MAKES: KeyFlags = KeyFlags::OW.and(KeyFlags::INSERT);
const ADDS: KeyFlags = KeyFlags::RW.and(KeyFlags::INSERT);
const REMOVES: KeyFlags = KeyFlags::RM.and(KeyFlags::DELETE);

/// The only key, behind the command's name.
const fn one(flags: KeyFlags) -> KeySpec {
    KeySpec::at(1, flags)
}

/// A key at this word.
const fn at(first: u8, flags: KeyFlags) -> KeySpec {
    KeySpec::at(first, flags)
}

/// Every word behind the command's name.
const fn all(flags: KeyFlags) -> KeySpec {
    KeySpec::from(1, flags)
}

commands! {
String {
    Append "append" changes(1 values) 3 "2.0.0" [WRITE DENYOOM FAST] [STRING] [one(ADDS)] [] "Adds bytes at the end of a string; tells its length";
    Decr "decr" changes(5 words) 2 "1.0.0" [WRITE DENYOOM FAST] [STRING] [one(READS_AND_CHANGES)] [] "Takes 1 from a number";
    DecrBy "decrby" changes(6 words) 3 "1.0.0" [WRITE DENYOOM FAST] [STRING] [one(READS_AND_CHANGES)] [] "Takes a number from a number";
    Get "get" reads(106 values) 2 "1.0.0" [READONLY FAST] [STRING] [one(READS)] [] "The string at a key";
    GetDel "getdel" changes(10 values) 2 "6.2.0" [WRITE FAST] [STRING] [one(READS_AND_DELETES)] [] "The string at a key, which is deleted";
    GetEx "getex" changes(11 values options(1)) -2 "6.2.0" [WRITE FAST] [STRING] [one(READS_AND_CHANGES)] [] "The string at a key, which gets another end";
    GetRange "getrange" reads(108 values) 4 "2.4.0" [READONLY] [STRING] [one(READS)] [] "A part of a string";
    GetSet "getset" changes(12 values) 3 "1.0.0" [WRITE DENYOOM FAST] [STRING] [one(READS_AND_CHANGES)] [] "Sets a key; tells the string before";
    Incr "incr" changes(13 words) 2 "1.0.0" [WRITE DENYOOM FAST] [STRING] [one(READS_AND_CHANGES)] [] "Adds 1 to a number";
    IncrBy "incrby" changes(14 words) 3 "1.0.0" [WRITE DENYOOM FAST] [STRING] [one(READS_AND_CHANGES)] [] "Adds a number to a number";
    IncrByFloat "incrbyfloat" changes(15 values) 3 "2.6.0" [WRITE DENYOOM FAST] [STRING] [one(READS_AND_CHANGES)] [] "Adds a number with a fraction to a number";
    Lcs "lcs" reads(109 values) -3 "7.0.0" [READONLY] [STRING] [KeySpec { last: 1, ..one(READS) }] [] "The longest sequence that two strings have in common";
    MGet "mget" reads(110 values) -2 "1.0.0" [READONLY FAST] [STRING] [all(READS)] ["request_policy:multi_shard"] "The strings at several keys";
    MSet "mset" changes(16 values) -3 "1.0.1" [WRITE DENYOOM] [STRING] [KeySpec::pairs(OVERWRITES)]
        ["request_policy:multi_shard" "response_policy:all_succeeded"] "Sets several keys at one moment";
    MSetNx "msetnx" changes(17 values) -3 "1.0.1" [WRITE DENYOOM] [STRING] [KeySpec::pairs(MAKES)]
        ["request_policy:multi_shard" "response_policy:agg_min"] "Sets several keys, if none of them is there";
    PSetEx "psetex" changes(21 words begun) 4 "2.6.0" [WRITE DENYOOM] [STRING] [one(OVERWRITES)] [] "Sets a key that ends after so many milliseconds";
    Set "set" changes(24 values options(2)) -3 "1.0.0" [WRITE DENYOOM] [STRING] [one(MAY_CHANGE)] [] "Sets a key";
    SetEx "setex" changes(26 words begun) 4 "2.0.0" [WRITE DENYOOM] [STRING] [one(OVERWRITES)] [] "Sets a key that ends after so many seconds";
    SetNx "setnx" changes(27 words) 3 "1.0.0" [WRITE DENYOOM FAST] [STRING] [one(MAKES)] [] "Sets a key, if it is not there";
    SetRange "setrange" changes(28 values) 4 "2.2.0" [WRITE DENYOOM] [STRING] [one(CHANGES)] [] "Overwrites a part of a string; tells its length";
    StrLen "strlen" reads(117 words) 2 "2.2.0" [READONLY FAST] [STRING] [one(RO)] [] "The length of a string";
    SubStr "substr" reads(118 values) 4 "1.0.0" [READONLY] [STRING] [one(READS)] [] "A part of a string, by the name before GETRANGE";
}
Bitmap {
    BitCount "bitcount" reads(101 values) -2 "2.6.0" [READONLY] [BITMAP] [one(READS)] [] "How many bits of a string are set";
    BitField "bitfield" changes(2 values) -2 "3.2.0" [WRITE DENYOOM] [BITMAP] [one(MAY_CHANGE)] [] "Reads and changes numbers among the bits of a string";
    BitFieldRo "bitfield_ro" reads(102 values) -2 "6.0.0" [READONLY FAST] [BITMAP] [one(READS)] [] "Reads numbers among the bits of a string";
    BitOp "bitop" changes(3 values) -4 "2.6.0" [WRITE DENYOOM] [BITMAP] [at(2, OVERWRITES), KeySpec::from(3, READS)] [] "Combines strings bit by bit into another one";
    BitPos "bitpos" reads(103 values) -3 "2.8.7" [READONLY] [BITMAP] [one(READS)] [] "The first bit that is set, or the first that is not";
    GetBit "getbit" reads(107 words) 3 "2.2.0" [READONLY FAST] [BITMAP] [one(READS)] [] "A bit of a string";
    SetBit "setbit" changes(25 values) 4 "2.2.0" [WRITE DENYOOM] [BITMAP] [one(READS_AND_CHANGES)] [] "Sets a bit of a string, or clears it; tells the bit before";
}
Generic {
    Copy "copy" changes(4 values) -3 "6.2.0" [WRITE DENYOOM] [KEYSPACE] [at(1, READS), at(2, OVERWRITES)] [] "Gives a key the value of another one";
    Del "del" changes(7 values frees) -2 "1.0.0" [WRITE] [KEYSPACE] [all(REMOVES)]
        ["request_policy:multi_shard" "response_policy:agg_sum"] "Deletes keys; tells how many were there";
    Exists "exists" reads(104 values) -2 "1.0.0" [READONLY FAST] [KEYSPACE] [all(RO)]
        ["request_policy:multi_shard" "response_policy:agg_sum"] "How many of these keys are there";
    Expire "expire" changes(8 values begun frees_if_over) -3 "1.0.0" [WRITE FAST] [KEYSPACE] [one(CHANGES)] [] "Lets a key end after so many seconds";
    ExpireAt "expireat" changes(9 values begun_and_day) -3 "1.2.0" [WRITE FAST] [KEYSPACE] [one(CHANGES)] [] "Lets a key end at a time, in unix seconds";
    ExpireTime "expiretime" reads(105 words day) 2 "7.0.0" [READONLY FAST] [KEYSPACE] [one(READS)] [] "When a key ends, in unix seconds";
    Keys "keys" composed 2 "1.0.0" [READONLY] [KEYSPACE DANGEROUS] []
        ["request_policy:all_shards" "nondeterministic_output_order"] "All keys whose names match a pattern";
    Object "object" local -2 "2.2.3" [] [] [] [] "What the server knows of a value";
    ObjectEncoding "object|encoding" reads(111 values) 3 "2.2.3" [READONLY] [KEYSPACE] [at(2, RO)] ["nondeterministic_output"] "How a value is kept";
    ObjectFreq "object|freq" reads(112 values) 3 "4.0.0" [READONLY] [KEYSPACE] [at(2, RO)] ["nondeterministic_output"] "How often a value was used";
    ObjectHelp "object|help" local 2 "6.2.0" [LOADING STALE] [KEYSPACE] [] [] "What OBJECT can do";
    ObjectIdleTime "object|idletime" reads(113 values) 3 "2.2.3" [READONLY] [KEYSPACE] [at(2, RO)] ["nondeterministic_output"] "How long nobody has used a value, in seconds";
    ObjectRefCount "object|refcount" reads(114 values) 3 "2.2.3" [READONLY] [KEYSPACE] [at(2, RO)] ["nondeterministic_output"] "How often a value is referred to: once";
    Persist "persist" changes(18 values) 2 "2.2.0" [WRITE FAST] [KEYSPACE] [one(CHANGES)] [] "Lets a key end no more";
    PExpire "pexpire" changes(19 values begun frees_if_over) -3 "2.6.0" [WRITE FAST] [KEYSPACE] [one(CHANGES)] [] "Lets a key end after so many milliseconds";
    PExpireAt "pexpireat" changes(20 values begun_and_day) -3 "2.6.0" [WRITE FAST] [KEYSPACE] [one(CHANGES)] [] "Lets a key end at a time, in unix milliseconds";
    PExpireTime "pexpiretime" reads(115 words day) 2 "7.0.0" [READONLY FAST] [KEYSPACE] [one(READS)] [] "When a key ends, in unix milliseconds";
    PTtl "pttl" reads(116 words begun) 2 "2.6.0" [READONLY FAST] [KEYSPACE] [one(READS)] ["nondeterministic_output"] "How long a key has left, in milliseconds";
    RandomKey "randomkey" composed 1 "1.0.0" [READONLY] [KEYSPACE] [] ["request_policy:all_shards" "nondeterministic_output"] "Some key";
    Rename "rename" changes(22 values) 3 "1.0.0" [WRITE] [KEYSPACE] [at(1, READS_AND_DELETES), at(2, OVERWRITES)] [] "Moves a value to another key";
    RenameNx "renamenx" changes(23 values) 3 "1.0.0" [WRITE FAST] [KEYSPACE] [at(1, READS_AND_DELETES), at(2, MAKES)] [] "Moves a value to a key that is not there";
    Scan "scan" composed -2 "2.8.0" [READONLY] [KEYSPACE] [] ["nondeterministic_output" "request_policy:special"] "Some of all keys, and where to go on";
    Touch "touch" reads(119 values) -2 "3.2.1" [READONLY FAST] [KEYSPACE] [all(RO)]
        ["request_policy:multi_shard" "response_policy:agg_sum"] "Uses keys; tells how many are there";
    Ttl "ttl" reads(120 words begun) 2 "1.0.0" [READONLY FAST] [KEYSPACE] [one(READS)] ["nondeterministic_output"] "How long a key has left, in seconds";
    Type "type" reads(121 words) 2 "1.0.0" [READONLY FAST] [KEYSPACE] [one(RO)] [] "The type of a value";
    Unlink "unlink" changes(29 values frees) -2 "4.0.0" [WRITE FAST] [KEYSPACE] [all(REMOVES)]
        ["request_policy:multi_shard" "response_policy:agg_sum"] "Deletes keys, as DEL does";
    Wait "wait" local 3 "3.0.0" [NOSCRIPT] [CONNECTION] []
        ["request_policy:all_shards" "response_policy:agg_min"] "How many more machines have what this connection was told is done";
}
Transactions {
    Discard "discard" local 1 "2.0.0" [NOSCRIPT LOADING STALE FAST ALLOW_BUSY] [TRANSACTION] [] [] "Forgets the commands since MULTI";
    Exec "exec" local 1 "1.2.0" [NOSCRIPT LOADING STALE SKIP_SLOWLOG] [TRANSACTION] [] [] "Runs the commands since MULTI at one moment";
    KashaOnce "kasha.once" composed -3 "0.1.0" [WRITE DENYOOM NOSCRIPT MOVABLE_KEYS] [TRANSACTION] [] [] "Names a command, or EXEC, which then runs once however often it is sent";
    Multi "multi" local 1 "1.2.0" [NOSCRIPT LOADING STALE FAST ALLOW_BUSY] [TRANSACTION] [] [] "From here on commands wait for EXEC";
    Unwatch "unwatch" local 1 "2.2.0" [NOSCRIPT LOADING STALE FAST ALLOW_BUSY] [TRANSACTION] [] [] "Forgets the keys that are watched";
    Watch "watch" local -2 "2.2.0" [NOSCRIPT LOADING STALE FAST ALLOW_BUSY] [TRANSACTION] [all(RO)] [] "EXEC does nothing if one of these keys has changed";
}
Connection {
    Auth "auth" local -2 "1.0.0" [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY] [CONNECTION] [] [] "Says who speaks";
    Client "client" local -2 "2.4.0" [] [] [] [] "Connections";
    ClientGetName "client|getname" local 2 "2.6.9" [NOSCRIPT LOADING STALE] [CONNECTION] [] [] "The name of this connection";
    ClientHelp "client|help" local 2 "5.0.0" [LOADING STALE] [CONNECTION] [] [] "What CLIENT can do";
    ClientId "client|id" local 2 "5.0.0" [NOSCRIPT LOADING STALE] [CONNECTION] [] [] "The number of this connection";
    ClientInfo "client|info" local 2 "6.2.0" [NOSCRIPT LOADING STALE] [CONNECTION] [] ["nondeterministic_output"] "What is known of this connection";
    ClientList "client|list" local -2 "2.4.0" [ADMIN NOSCRIPT LOADING STALE] [CONNECTION] [] ["nondeterministic_output"] "What is known of all connections";
    ClientNoEvict "client|no-evict" local 3 "7.0.0" [ADMIN NOSCRIPT LOADING STALE] [CONNECTION] [] [] "Keeps this connection when memory is short";
    ClientNoTouch "client|no-touch" local 3 "7.2.0" [NOSCRIPT LOADING STALE] [CONNECTION] [] [] "Commands of this connection do not count as use of keys";
    ClientReply "client|reply" local 3 "3.2.0" [NOSCRIPT LOADING STALE] [CONNECTION] [] [] "Whether this connection is answered";
    ClientSetInfo "client|setinfo" local 4 "7.2.0" [NOSCRIPT LOADING STALE] [CONNECTION] [] [] "Says which library speaks on this connection";
    ClientSetName "client|setname" local 3 "2.6.9" [NOSCRIPT LOADING STALE] [CONNECTION] [] [] "Gives this connection a name";
    Echo "echo" local 2 "1.0.0" [LOADING STALE FAST] [CONNECTION] [] [] "Answers what was said";
    Hello "hello" local -1 "6.0.0" [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY] [CONNECTION] [] [] "Chooses the protocol; tells who answers";
    Ping "ping" local -1 "1.0.0" [FAST] [CONNECTION] []
        ["request_policy:all_shards" "response_policy:all_succeeded"] "Answers PONG, or what was said";
    Quit "quit" local -1 "1.0.0" [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY] [CONNECTION] [] [] "Ends the connection behind all replies";
    Reset "reset" local 1 "6.2.0" [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY] [CONNECTION] [] [] "Makes the connection what it was when it began";
    Select "select" local 2 "1.0.0" [LOADING STALE FAST] [CONNECTION] [] [] "Chooses the database of this connection";
}
Server {
    CommandAll "command" local -1 "2.8.13" [LOADING STALE] [CONNECTION] [] ["nondeterministic_output_order"] "All commands";
    CommandCount "command|count" local 2 "2.8.13" [LOADING STALE] [CONNECTION] [] [] "How many commands there are";
    CommandDocs "command|docs" local -2 "7.0.0" [LOADING STALE] [CONNECTION] [] ["nondeterministic_output_order"] "What commands do";
    CommandGetKeys "command|getkeys" local -4 "2.8.13" [LOADING STALE] [CONNECTION] [] [] "The keys of a request";
    CommandGetKeysAndFlags "command|getkeysandflags" local -4 "7.0.0" [LOADING STALE] [CONNECTION] [] [] "The keys of a request, and what is done with them";
    CommandHelp "command|help" local 2 "5.0.0" [LOADING STALE] [CONNECTION] [] [] "What COMMAND can do";
    CommandInfo "command|info" local -2 "2.8.13" [LOADING STALE] [CONNECTION] [] ["nondeterministic_output_order"] "What is said of commands";
    CommandList "command|list" local -2 "7.0.0" [LOADING STALE] [CONNECTION] [] ["nondeterministic_output_order"] "The names of commands";
    Config "config" local -2 "2.0.0" [] [] [] [] "Settings";
    ConfigGet "config|get" local -3 "2.0.0" [ADMIN NOSCRIPT LOADING STALE] [] [] [] "Settings whose names match";
    ConfigHelp "config|help" local 2 "5.0.0" [LOADING STALE] [] [] [] "What CONFIG can do";
    ConfigResetStat "config|resetstat" local 2 "2.0.0" [ADMIN NOSCRIPT LOADING STALE] [] [] [] "Sets what INFO counts to 0";
    ConfigRewrite "config|rewrite" local 2 "2.8.0" [ADMIN NOSCRIPT LOADING STALE] [] [] [] "Writes the settings to a file";
    ConfigSet "config|set" local -4 "2.0.0" [ADMIN NOSCRIPT LOADING STALE] [] []
        ["request_policy:all_nodes" "response_policy:all_succeeded"] "Changes settings";
    DbSize "dbsize" composed 1 "1.0.0" [READONLY FAST] [KEYSPACE] [] ["request_policy:all_shards" "response_policy:agg_sum"] "How many keys there are";
    FlushAll "flushall" composed -1 "1.0.0" [WRITE] [KEYSPACE DANGEROUS] []
        ["request_policy:all_shards" "response_policy:all_succeeded"] "Deletes all keys of all databases";
    FlushDb "flushdb" changes(30 words frees) -1 "1.0.0" [WRITE] [KEYSPACE DANGEROUS] []
        ["request_policy:all_shards" "response_policy:all_succeeded"] "Deletes all keys of the database";
    Info "info" local -1 "1.0.0" [LOADING STALE] [DANGEROUS] []
        ["nondeterministic_output" "request_policy:all_shards" "response_policy:special"] "What the server says of itself";
    Latency "latency" local -2 "2.8.13" [] [] [] [] "What took long";
    LatencyHelp "latency|help" local 2 "2.8.13" [LOADING STALE] [] [] [] "What LATENCY can do";
    LatencyHistory "latency|history" local 3 "2.8.13" [ADMIN NOSCRIPT LOADING STALE] [] []
        ["nondeterministic_output" "request_policy:all_nodes" "response_policy:special"] "When something took long";
    LatencyLatest "latency|latest" local 2 "2.8.13" [ADMIN NOSCRIPT LOADING STALE] [] []
        ["nondeterministic_output" "request_policy:all_nodes" "response_policy:special"] "What took long, the last time";
    LatencyReset "latency|reset" local -2 "2.8.13" [ADMIN NOSCRIPT LOADING STALE] [] []
        ["request_policy:all_nodes" "response_policy:all_succeeded"] "Forgets what took long";
    SlowLog "slowlog" local -2 "2.2.12" [] [] [] [] "Slow commands";
    SlowLogGet "slowlog|get" local -2 "2.2.12" [ADMIN LOADING STALE] [] []
        ["request_policy:all_nodes" "nondeterministic_output"] "The last slow commands";
    SlowLogHelp "slowlog|help" local 2 "6.2.0" [LOADING STALE] [] [] [] "What SLOWLOG can do";
    SlowLogLen "slowlog|len" local 2 "2.2.12" [ADMIN LOADING STALE] [] []
        ["request_policy:all_nodes" "response_policy:agg_sum" "nondeterministic_output"] "How many slow commands are kept";
    SlowLogReset "slowlog|reset" local 2 "2.2.12" [ADMIN LOADING STALE] [] []
        ["request_policy:all_nodes" "response_policy:all_succeeded"] "Forgets the slow commands";
    SwapDb "swapdb" local 3 "4.0.0" [WRITE FAST] [KEYSPACE DANGEROUS] [] [] "Exchanges two databases: refused";
    Time "time" local 1 "2.6.0" [LOADING STALE FAST] [] [] ["nondeterministic_output"] "The time, in unix seconds and microseconds";
}
Cluster {
    Asking "asking" local 1 "3.0.0" [FAST] [CONNECTION] [] [] "Nothing: no shard is ever between two owners";
    Cluster "cluster" local -2 "3.0.0" [] [] [] [] "The cluster, as Redis Cluster tells it";
    ReadOnly "readonly" local 1 "3.0.0" [LOADING STALE FAST] [CONNECTION] [] [] "Nothing: every read is of what is newest";
    ReadWrite "readwrite" local 1 "3.0.0" [LOADING STALE FAST] [CONNECTION] [] [] "Nothing: every read is of what is newest";
}
}
