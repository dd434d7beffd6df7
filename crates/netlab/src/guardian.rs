//! The guardian: a process that outlives this one for a moment, and kills what is left on the hosts (N4).
//!
//! When this process dies, the kernel ends its own children only, and of those the ones that asked. So a shell waits
//! at a pipe whose other end nobody else has: when that closes, this process has ended, in whatever way. A shell, for
//! nothing but a fork and an exec is safe in a process with threads, and a library has no program of its own.

use std::process::{Child, Command, Stdio};

use anyhow::Context;

use crate::host::Namespace;
use crate::system;

const SHELL: &str = "/bin/sh";

/// Its arguments are descriptors of the hosts' namespaces: while the shell has them, no other namespace can get their
/// identities. A process can start another and end before it is looked at; hence several rounds in which none is
/// found. A killed one needs a while to be gone, so that the shell sleeps (some systems' `sleep` wants whole seconds).
///
/// It looks for what [`crate::stragglers`] looks for, but kills by process id, having nothing better: it could hit
/// another only if all ids were used up between two of the shell's own commands.
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

/// The running guardian. It kills nothing once this is dropped: the hosts have seen to that, and a thread of this
/// process may go on living on one of them.
#[derive(Debug)]
pub(crate) struct Guardian(Child);

impl Guardian {
    pub(crate) fn start(namespaces: Vec<Namespace>) -> anyhow::Result<Self> {
        let mut command = Command::new(SHELL);
        command.args(["-c", SCRIPT, "netlab-guardian"]);
        command.args(namespaces.iter().map(|namespace| namespace.number().to_string()));
        // Whoever reads this process's output, or unmounts its directory, is not to wait for the guardian.
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
        // It fails if the guardian has ended, which is all that is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
