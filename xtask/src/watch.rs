//! Runs a stage's programs within the stage's time limit, and ends them when the limit is over.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A stage that takes this many times its budget has failed.
pub(crate) const LIMIT_IN_BUDGETS: u32 = 3;

/// The time limit of one stage.
pub(crate) struct Watch {
    started: Instant,
    limit: Duration,
    /// Nobody is there to interrupt a program that hangs, so the watch does it.
    unattended: bool,
}

impl Watch {
    pub(crate) fn start(budget: Duration) -> Self {
        Self { started: Instant::now(), limit: budget * LIMIT_IN_BUDGETS, unattended: std::env::var_os("CI").is_some() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Fails if the stage is over its limit.
    pub(crate) fn check(&self) -> Result<()> {
        if self.elapsed() > self.limit {
            bail!("over {LIMIT_IN_BUDGETS} times its budget");
        }
        Ok(())
    }

    /// Runs a program to its end, prints its output, and returns the lines of its standard output.
    pub(crate) fn run(&self, command: &mut Command) -> Result<Vec<String>> {
        self.run_with(command, |line| print!("{line}"))
    }

    /// The same, but without printing the output.
    pub(crate) fn run_unseen(&self, command: &mut Command) -> Result<Vec<String>> {
        self.run_with(command, |_| ())
    }

    fn run_with(&self, command: &mut Command, show: impl FnMut(&str)) -> Result<Vec<String>> {
        let program = Path::new(command.get_program()).file_name();
        let words = program.into_iter().chain(command.get_args()).map(|word| word.to_string_lossy());
        let shown = words.collect::<Vec<_>>().join(" ");
        if self.unattended {
            // The program gets a process group of its own, so that the whole group can be ended. At a terminal that
            // would keep Ctrl-C from the program.
            command.process_group(0);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start `{shown}`"))?;
        let (ended, watched) = mpsc::channel::<()>();
        if self.unattended {
            let (group, left) = (child.id(), self.limit.saturating_sub(self.elapsed()));
            thread::spawn(move || {
                if watched.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                    let _ = Command::new("sh").args(["-c", &format!("kill -s KILL -- -{group}")]).status();
                }
            });
        }
        let lines = relay(BufReader::new(child.stdout.take().expect("piped above")), show)?;
        let status = child.wait()?;
        drop(ended);
        self.check().with_context(|| format!("`{shown}`"))?;
        if !status.success() {
            bail!("`{shown}` failed: {status}");
        }
        Ok(lines)
    }
}

fn relay(mut from: impl BufRead, mut show: impl FnMut(&str)) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut bytes = Vec::new();
    while from.read_until(b'\n', &mut bytes)? > 0 {
        let line = String::from_utf8_lossy(&bytes);
        show(&line);
        lines.push(line.trim_end().to_owned());
        bytes.clear();
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn lines_and_failures_come_back() {
        let watch = Watch::start(Duration::from_secs(600));
        assert_eq!(watch.run(&mut shell("echo one; echo two")).unwrap(), ["one", "two"]);
        assert!(watch.run(&mut shell("exit 3")).unwrap_err().to_string().contains("exit 3"));
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let watch = Watch { started: Instant::now(), limit: Duration::from_millis(1), unattended: true };
        // The child's own child keeps the pipe open: if it had survived, this would wait for it.
        assert!(format!("{:#}", watch.run(&mut shell("sleep 600 & sleep 600")).unwrap_err()).contains("budget"));
    }
}
