//! Everything has a limit; the reason stands beside it.

use std::time::Duration;

/// How long a command may take. After that it is cancelled, and a second later at most its connection is told what is known: programs
/// give up after two seconds or more. A front's session has it as its deadline, too.
pub const COMMAND_DEADLINE: Duration = Duration::from_millis(1200);

/// Lines of one connection that wait for earlier ones. Whoever sends more without reading answers is told so, and the connection ends.
pub const WAITING_LINES_MAX: usize = 1024;

/// Bytes of these lines.
pub const WAITING_BYTES_MAX: usize = 1024 * 1024;
