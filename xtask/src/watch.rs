//! Runs a stage's programs, and ends a program that makes no progress.
//!
//! How long a program takes says more about the machine than about the change that is tested. So no time is a failure.
//! A program that prints nothing for [`SILENCE_MAX`] hangs, and is ended. The programs of long stages print lines all
//! the while.
//!
//! What a stage prints is shown at once, or kept until the stage is over if it runs beside another.

use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::host::{Ticks, build_seconds};
use crate::stop::{self, Stop};

/// A program that prints nothing for this long makes no progress. No program needs a quarter of it on a machine that is
/// three times slower than the budgets assume.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(20 * 60);

/// Where a stage's output goes.
enum Output {
    Shown,
    Kept(Mutex<String>),
}

impl Output {
    fn out(&self, text: &str) {
        match self {
            Self::Shown => print!("{text}"),
            Self::Kept(kept) => *kept.lock().expect("nobody panics with it") += text,
        }
    }

    fn error(&self, text: &str) {
        match self {
            Self::Shown => eprint!("{text}"),
            Self::Kept(_) => self.out(text),
        }
    }
}

/// Measures the time of a stage, and watches its programs.
pub(crate) struct Watch {
    started: Instant,
    silence_max: Duration,
    output: Arc<Output>,
    stop: Arc<Stop>,
    /// Nobody is there to interrupt a program that hangs, so the watch does it.
    unattended: bool,
    /// Milliseconds of builds, as cargo tells them. At a terminal, where cargo writes by itself, nothing is known of them.
    building: Arc<AtomicU64>,
    ticks: Ticks,
}

impl Watch {
    /// The watch of a command that has no stages.
    pub(crate) fn start() -> Self {
        Self::of_stage(&Arc::default(), false)
    }

    /// The watch of a stage; `kept`: its output is kept. Its programs are ended when `stop` says so, if nobody else does it.
    pub(crate) fn of_stage(stop: &Arc<Stop>, kept: bool) -> Self {
        let unattended = std::env::var_os("CI").is_some() || !std::io::stdin().is_terminal();
        let (building, ticks, stop) = (Arc::default(), Ticks::now(), Arc::clone(stop));
        let output = Arc::new(if kept { Output::Kept(Mutex::default()) } else { Output::Shown });
        Self { started: Instant::now(), silence_max: SILENCE_MAX, output, stop, unattended, building, ticks }
    }

    /// Whether a person can interrupt the programs.
    #[cfg(test)]
    pub(crate) fn is_attended(&self) -> bool {
        !self.unattended
    }

    /// Prints a line.
    pub(crate) fn say(&self, line: &str) {
        self.output.out(&format!("{line}\n"));
    }

    /// What was printed and kept.
    pub(crate) fn kept(&self) -> String {
        match &*self.output {
            Output::Shown => String::new(),
            Output::Kept(kept) => kept.lock().expect("nobody panics with it").clone(),
        }
    }

    /// What of the time says nothing of the change that is tested, for the table.
    pub(crate) fn apart(&self) -> String {
        let mut text = String::new();
        let (seconds, stolen) =
            (self.building.load(Ordering::Relaxed) / 1000, Ticks::now().stolen_percent_since(self.ticks));
        if seconds > 0 {
            text += &format!(", {seconds} s of it builds");
        }
        if stolen > 0 {
            text += &format!(", {stolen} % stolen by the host");
        }
        text
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Runs a program to its end, prints its output, and returns the lines of its standard output.
    pub(crate) fn run(&self, command: &mut Command) -> Result<Vec<String>> {
        self.run_with(command, |line| self.output.out(line))
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
        let keeps = matches!(*self.output, Output::Kept(_));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(if self.unattended || keeps { Stdio::piped() } else { Stdio::inherit() })
            .spawn()
            .with_context(|| format!("could not start `{shown}`"))?;
        if self.unattended {
            self.stop.begin(child.id());
        }
        let heard = Arc::new(LastHeard::new(self.started));
        let (ended, watched) = mpsc::channel::<()>();
        let killed = self.unattended.then(|| {
            let (group, silence_max, heard) = (child.id(), self.silence_max, Arc::clone(&heard));
            thread::spawn(move || end_if_silent(group, silence_max, &heard, &watched))
        });
        // Cargo's progress is on standard error: it counts, too.
        let errors = child.stderr.take().map(|errors| {
            let (heard, building, output) = (Arc::clone(&heard), Arc::clone(&self.building), Arc::clone(&self.output));
            thread::spawn(move || relay_errors(errors, &heard, &building, &output))
        });
        let lines = relay(BufReader::new(child.stdout.take().expect("piped above")), &heard, show)?;
        self.stop.end(child.id());
        let status = child.wait()?;
        drop(ended);
        if let Some(errors) = errors {
            let _ = errors.join();
        }
        if killed.is_some_and(|killed| killed.join().unwrap_or(false)) {
            bail!("`{shown}` printed nothing for {} minutes, and was ended", self.silence_max.as_secs() / 60);
        }
        if !status.success() {
            bail!("`{shown}` failed: {status}");
        }
        Ok(lines)
    }
}

/// When a program was last heard, in milliseconds since the start of its stage.
struct LastHeard {
    started: Instant,
    millis: AtomicU64,
}

impl LastHeard {
    fn new(started: Instant) -> Self {
        let heard = Self { started, millis: AtomicU64::new(0) };
        heard.now();
        heard
    }

    fn now(&self) {
        let millis = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.millis.store(millis, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.millis.load(Ordering::Relaxed)))
    }
}

/// Waits until the program has ended, or kills its process group once nothing was heard for too long. Returns whether it
/// killed.
fn end_if_silent(group: u32, silence_max: Duration, heard: &LastHeard, ended: &mpsc::Receiver<()>) -> bool {
    loop {
        let left = silence_max.saturating_sub(heard.silence());
        if left.is_zero() {
            stop::kill(group);
            return true;
        }
        if ended.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
            return false;
        }
    }
}

fn relay(mut from: impl BufRead, heard: &LastHeard, mut show: impl FnMut(&str)) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut bytes = Vec::new();
    while from.read_until(b'\n', &mut bytes)? > 0 {
        heard.now();
        let line = String::from_utf8_lossy(&bytes);
        show(&line);
        lines.push(line.trim_end().to_owned());
        bytes.clear();
    }
    Ok(lines)
}

fn relay_errors(mut from: impl Read, heard: &LastHeard, building: &AtomicU64, output: &Output) {
    let (mut bytes, mut line) = ([0; 4096], String::new());
    while let Ok(count) = from.read(&mut bytes)
        && count > 0
    {
        heard.now();
        let text = String::from_utf8_lossy(&bytes[..count]);
        output.error(&text);
        line += &text;
        while let Some(end) = line.find('\n') {
            let rest = line.split_off(end + 1);
            let seconds = build_seconds(&std::mem::replace(&mut line, rest));
            building.fetch_add((1000.0 * seconds.unwrap_or(0.0)) as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn impatient(silence_max: Duration) -> Watch {
        Watch { silence_max, unattended: true, ..Watch::start() }
    }

    #[test]
    fn lines_and_failures_come_back() {
        let watch = Watch::start();
        assert_eq!(watch.run(&mut shell("echo one; echo two")).unwrap(), ["one", "two"]);
        assert!(watch.run(&mut shell("exit 3")).unwrap_err().to_string().contains("exit 3"));
    }

    #[test]
    fn builds_are_told_apart() {
        let watch = Watch { unattended: true, ..Watch::start() };
        watch
            .run(&mut shell(
                "echo '    Finished `dev` profile in 1m 01s' >&2; printf Fini >&2; printf 'shed x in 2s\\n' >&2",
            ))
            .unwrap();
        assert!(watch.apart().starts_with(", 63 s of it builds"), "{}", watch.apart());
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let watch = impatient(Duration::from_millis(1));
        // The child's own child keeps the pipe open: if it had survived, this would wait for it.
        assert!(
            format!("{:#}", watch.run(&mut shell("sleep 600 & sleep 600")).unwrap_err()).contains("printed nothing")
        );
    }

    /// The time of a stage is no failure: a host may be slow.
    #[test]
    fn a_program_that_prints_may_take_any_time() {
        // Ten times as long as it may be silent; on standard error, too.
        let watch = impatient(Duration::from_secs(1));
        let script = "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.4; echo $i >&2; sleep 0.4; done";
        assert_eq!(watch.run(&mut shell(script)).unwrap().len(), 10);
    }
}
