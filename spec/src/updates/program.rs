//! The programs: which client calls what, and what may go wrong meanwhile. Each is small enough to be searched to its
//! end.

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Adds one to a counter and returns it. A doubled or lost update shows in the next result.
    Increment,
    /// Reads a counter at the primary.
    Read,
}

/// One call of a program.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The client that makes the call.
    pub client: u8,
    /// The sequence number of the call.
    pub sequence: u8,
    /// The operation.
    pub kind: Kind,
    /// The key of the operation.
    pub key: &'static str,
    /// If the call has the operation key: its time limit (`not_after`).
    pub once: Option<u8>,
    /// The call that must end before this one begins.
    pub after: Option<u8>,
    /// The caller may give this call up.
    pub may_cancel: bool,
}

impl Plan {
    const fn new(client: u8, sequence: u8, kind: Kind, key: &'static str) -> Self {
        Self { client, sequence, kind, key, once: None, after: None, may_cancel: false }
    }

    const fn once(self, not_after: u8) -> Self {
        Self { once: Some(not_after), ..self }
    }

    const fn after(self, call: u8) -> Self {
        Self { after: Some(call), ..self }
    }

    const fn may_cancel(self) -> Self {
        Self { may_cancel: true, ..self }
    }
}

const fn increment(client: u8, sequence: u8, key: &'static str) -> Plan {
    Plan::new(client, sequence, Kind::Increment, key)
}

const fn read(client: u8, sequence: u8, key: &'static str) -> Plan {
    Plan::new(client, sequence, Kind::Read, key)
}

/// A program and its bounds.
#[derive(Debug)]
pub struct Program {
    /// The name of the program.
    pub name: &'static str,
    /// What the program is for.
    pub about: &'static str,
    /// The calls of the program.
    pub calls: &'static [Plan],
    /// Number of witnesses of a list.
    pub faults: u8,
    /// Number of terms: one more than the number of recoveries.
    pub terms: u8,
    /// Changes of the witness list, besides those of recoveries.
    pub list_changes: u8,
    /// Restarts of witnesses, after which requests that a gc had dropped appear again.
    pub restarts: u8,
    /// Losses of power of a witness.
    pub power_losses: u8,
    /// Whether client 1's lease may end, and begin again.
    pub leases: bool,
    /// The greatest value of ClusterTime.
    pub hours: u8,
    /// Whether witnesses name suspects.
    pub suspects: bool,
    /// The first two calls do the same, and their clients are interchangeable.
    pub twins: bool,
    /// Whether the program is searched in the small bounds, too.
    pub is_small: bool,
}

const PLAIN: Program = Program {
    name: "",
    about: "",
    calls: &[],
    faults: 1,
    terms: 2,
    list_changes: 0,
    restarts: 0,
    power_losses: 0,
    leases: false,
    hours: 0,
    suspects: false,
    twins: false,
    is_small: true,
};

/// A recovery, while two clients use one key and one of them goes on to another key.
pub static FAIL_OVER: Program = Program {
    name: "fail-over",
    about: "x+1 then y+1 by client 1, x+1 by client 2; one recovery, and the old primary goes on",
    calls: &[increment(1, 1, "x"), increment(1, 2, "y").after(0), increment(2, 1, "x")],
    ..PLAIN
};

/// The new primary dies in its recovery, too.
pub static TWO_FAIL_OVERS: Program = Program {
    name: "two-fail-overs",
    about: "x+1 then y+1 by client 1; two recoveries, the second perhaps of the first",
    calls: &[increment(1, 1, "x"), increment(1, 2, "y").after(0)],
    terms: 3,
    ..PLAIN
};

/// Each list has two witnesses.
pub static TWO_WITNESSES: Program = Program {
    name: "two-witnesses",
    about: "x+1 by two clients, f = 2; one recovery from either witness; one witness may lose power",
    calls: &[increment(1, 1, "x"), increment(2, 1, "x")],
    faults: 2,
    power_losses: 1,
    twins: true,
    ..PLAIN
};

/// The list changes while the primary lives.
pub static LIST_CHANGE: Program = Program {
    name: "list-change",
    about: "x+1 by two clients; the list changes once, then one recovery",
    calls: &[increment(1, 1, "x"), increment(2, 1, "x")],
    list_changes: 1,
    twins: true,
    ..PLAIN
};

/// Requests that reached only a witness, or the primary too late.
pub static SUSPECTS: Program = Program {
    name: "suspects",
    about: "x+1 then y+1 by client 1; witnesses name suspects and restart; one recovery",
    calls: &[increment(1, 1, "x"), increment(1, 2, "y").after(0)],
    restarts: 1,
    suspects: true,
    ..PLAIN
};

/// Client leases end.
pub static LEASES: Program = Program {
    name: "leases",
    about: "x+1, and x+1 again when it is back, by client 1, whose lease ends; suspects; one recovery",
    calls: &[increment(1, 1, "x"), increment(1, 2, "x")],
    leases: true,
    suspects: true,
    ..PLAIN
};

/// One operation key, used by two clients for the same and for different operations.
pub static OPERATION_KEYS: Program = Program {
    name: "operation-keys",
    about: "under one operation key x+1 by client 1, y+1 by client 2 (a mismatch); one recovery",
    calls: &[increment(1, 1, "x").once(9), increment(2, 1, "y").once(9)],
    ..PLAIN
};

/// The same operation under one key.
pub static OPERATION_KEY_HITS: Program = Program {
    name: "operation-key-hits",
    about: "x+1 under one operation key by two clients (a hit), and x+1 by client 1 without; one recovery",
    calls: &[increment(1, 1, "x").once(9), increment(2, 1, "x").once(9), increment(1, 2, "x").after(0)],
    ..PLAIN
};

/// Operation keys expire.
pub static KEYS_EXPIRE: Program = Program {
    name: "operation-keys-expire",
    about: "x+1 under one operation key: by client 1 until 1, by client 2 until 1, by client 3 until 2; time to 3",
    calls: &[increment(1, 1, "x").once(1), increment(2, 1, "x").once(1), increment(3, 1, "x").once(2)],
    hours: 3,
    terms: 1,
    ..PLAIN
};

/// The same, with a recovery.
pub static KEYS_EXPIRE_FAIL_OVER: Program = Program {
    name: "operation-keys-expire-fail-over",
    about: "x+1 under one operation key: by client 1 until 1, by client 2 until 2; time to 3; one recovery",
    calls: &[increment(1, 1, "x").once(1), increment(2, 1, "x").once(2)],
    hours: 3,
    ..PLAIN
};

/// Reads at the primary.
pub static READS: Program = Program {
    name: "reads",
    about: "x+1 and a read of x by client 1, a read and x+1 by client 2; one recovery",
    calls: &[increment(1, 1, "x"), read(1, 2, "x"), increment(2, 1, "x"), read(2, 2, "x").after(2)],
    ..PLAIN
};

/// Updates that are given up.
pub static CANCELS: Program = Program {
    name: "cancels",
    about: "x+1 by client 1, which may give it up, and x+1 by client 2; one recovery",
    calls: &[increment(1, 1, "x").may_cancel(), increment(2, 1, "x")],
    ..PLAIN
};

/// Everything of `fail-over` and more, in the large bounds.
pub static FAIL_OVER_WIDE: Program = Program {
    name: "fail-over-wide",
    about: "two updates each by two clients on two keys; one recovery; suspects",
    calls: &[increment(1, 1, "x"), increment(1, 2, "y").after(0), increment(2, 1, "x"), increment(2, 2, "y").after(2)],
    suspects: true,
    is_small: false,
    ..PLAIN
};

/// A list change between and within recoveries.
pub static LIST_CHANGE_WIDE: Program = Program {
    name: "list-change-wide",
    about: "x+1 then y+1 by client 1, x+1 by client 2; one list change, two witnesses, one recovery",
    calls: &[increment(1, 1, "x"), increment(1, 2, "y").after(0), increment(2, 1, "x")],
    list_changes: 1,
    faults: 2,
    is_small: false,
    ..PLAIN
};

/// Three clients, in two recoveries.
pub static TWO_FAIL_OVERS_WIDE: Program = Program {
    name: "two-fail-overs-wide",
    about: "x+1 then y+1 by client 1, x+1 by client 2; two recoveries; suspects and a restart",
    calls: &[increment(1, 1, "x"), increment(1, 2, "y").after(0), increment(2, 1, "x")],
    terms: 3,
    suspects: true,
    restarts: 1,
    is_small: false,
    ..PLAIN
};

/// All programs of this model.
pub static PROGRAMS: &[&Program] = &[
    &FAIL_OVER,
    &TWO_FAIL_OVERS,
    &TWO_WITNESSES,
    &LIST_CHANGE,
    &SUSPECTS,
    &LEASES,
    &OPERATION_KEYS,
    &OPERATION_KEY_HITS,
    &KEYS_EXPIRE,
    &KEYS_EXPIRE_FAIL_OVER,
    &READS,
    &CANCELS,
    &FAIL_OVER_WIDE,
    &LIST_CHANGE_WIDE,
    &TWO_FAIL_OVERS_WIDE,
];
