//! Everything has a limit; the reason stands beside it.

use std::time::Duration;

/// How long a command may take. After that it is cancelled, and a second later at most its connection is told what is known: programs
/// give up after two seconds or more. A front's session has it as its deadline, too.
pub const COMMAND_DEADLINE: Duration = Duration::from_millis(1200);

/// Lines of one connection that wait for earlier ones. Whoever sends more without reading answers is told so, and the connection ends.
pub const WAITING_LINES_MAX: usize = 1024;

/// Bytes of these lines, and what they cost.
pub const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// The same of all connections together: a thousand of them, each within its own limit, are too much for a small machine.
pub const WAITING_BYTES_TOTAL_MAX: usize = 128 * 1024 * 1024;

/// What a line that waits takes beside its bytes: its place in a queue, and what an allocation takes.
pub const LINE_COST: usize = 64;
