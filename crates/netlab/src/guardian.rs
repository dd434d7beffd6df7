//! The guardian: a process that outlives this one for a moment, and kills the processes that are left on the hosts
//! (N4).
//!
//! When this process dies, the kernel kills only those children that asked for it. So a shell waits at a pipe whose
//! other end only this process has. When the pipe closes, this process has ended, in whatever way. It is a shell for
//! two reasons: nothing but fork and exec is safe in a process with threads, and a library has no program of its own.

use std::process::{Child, Command, Stdio};

use anyhow::Context;

use crate::host::Namespace;
use crate::system;

const SHELL: &str = "/bin/sh";

/// The arguments are descriptors of the hosts' namespaces. While the shell has them, no other namespace can get their
/// identities. A process can start another one and end before the shell looks at it, so the shell stops only after
/// several rounds in which it finds none. A killed process needs a while to disappear, so the shell sleeps (on some
/// systems `sleep` takes whole seconds only).
///
/// The shell looks for the same processes as [`crate::stragglers`], but kills by process id, since it has nothing
/// better. It could hit another process only if all ids were used up between two of its commands.
const SCRIPT: &str = r#"
while read -r _; do :; done
quiet=0
while [ "$quiet" -lt 3 ]; do
  quiet=$((quiet + 1))
  for process in /proc/[0-9]*; do
    for namespace in "$@"; do
      if [ "$process/ns/net" -ef "/proc/self/fd/$namespace" ]; then
        kill -KILL "${process#/proc/}"
        quiet=0
      fi
    done
  done
  sleep 0.1 || sleep 1
done
"#;

/// The running guardian. When this is dropped, the guardian kills nothing: the hosts have taken care of their
/// processes, and a thread of this process may go on living on one of the hosts.
#[derive(Debug)]
pub(crate) struct Guardian(Child);

impl Guardian {
    pub(crate) fn start(namespaces: Vec<Namespace>) -> anyhow::Result<Self> {
        let mut command = Command::new(SHELL);
        command.args(["-c", SCRIPT, "netlab-guardian"]);
        command.args(namespaces.iter().map(|namespace| namespace.number().to_string()));
        // A program that reads this process's output, or unmounts its directory, must not have to wait for the
        // guardian.
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        system::detach(&mut command, namespaces);
        let child = command.spawn().with_context(|| {
            format!("cannot start {SHELL}, which ends what runs on the hosts if this process is killed: install one")
        })?;
        Ok(Self(child))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // This fails if the guardian has ended, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
