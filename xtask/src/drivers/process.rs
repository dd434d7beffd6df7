//! Processes that end with this program, whatever happens: servers, and the programs of drivers.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Between two looks.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// Whether somebody wants this program to end. Then everything that it waits for fails, so that what it started is ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens to signals.
    pub(crate) fn listen() -> Result<Self> {
        let interrupt = Self::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0)).context("cannot handle signals")?;
        }
        Ok(interrupt)
    }

    fn check(&self) -> Result<()> {
        ensure!(!self.0.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }

    /// Sleeps.
    pub(crate) fn sleep(&self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.check()?;
            thread::sleep(LOOKS_EVERY.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Tries until it works. After that time the last failure is the result.
    pub(crate) fn until<T>(&self, time: Duration, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            match attempt() {
                Err(_) if Instant::now() < until => thread::sleep(LOOKS_EVERY),
                result => return result,
            }
        }
    }
}

/// A process whose output is in a file. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a command. Its output is added to the file.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let out = File::options().create(true).append(true).open(log).context("cannot write a log")?;
        let child = command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).spawn();
        let child = child.with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Fails if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("a process has ended ({status}):\n{}", end_of(&self.log)),
        }
    }

    /// Waits until it has ended well.
    pub(crate) fn ends_well(mut self, interrupt: &Interrupt, within: Duration) -> Result<()> {
        let status = interrupt.until(within, || self.child.try_wait()?.context("it did not end in time"));
        let status = status.with_context(|| end_of(&self.log))?;
        ensure!(status.success(), "{status}:\n{}", end_of(&self.log));
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last lines of a file.
fn end_of(log: &Path) -> String {
    const LINES: usize = 30;
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// The program of a driver, which is spoken with in lines. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Spoken {
    child: Child,
    words: ChildStdin,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Spoken {
    /// Starts it. What it says on standard error is in the file.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let errors = File::create(log).context("cannot write a log")?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn();
        let mut child = child.with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let (words, said) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (hears, lines) = mpsc::channel();
        thread::spawn(move || {
            // It ends with the program, or when nobody listens.
            BufReader::new(said).lines().map_while(Result::ok).try_for_each(|line| hears.send(line))
        });
        Ok(Self { child, words, lines, log: log.to_owned() })
    }

    /// Tells it something.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        writeln!(self.words, "{line}").with_context(|| format!("it does not listen:\n{}", end_of(&self.log)))
    }

    /// The next line that it says.
    pub(crate) fn hear(&mut self, interrupt: &Interrupt, within: Duration) -> Result<String> {
        let until = Instant::now() + within;
        loop {
            interrupt.check()?;
            match self.lines.recv_timeout(LOOKS_EVERY) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(RecvTimeoutError::Timeout) => bail!("it said nothing for {within:?}:\n{}", end_of(&self.log)),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("it has ended ({}):\n{}", self.child.wait()?, end_of(&self.log))
                }
            }
        }
    }
}

impl Drop for Spoken {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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

    fn log(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("kasha-drivers-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_program_is_spoken_with() {
        let (log, patience) = (log("spoken"), Duration::from_secs(20));
        let mut program = Spoken::start(&mut shell("read a; echo \"heard $a\"; echo why >&2; exit 3"), &log).unwrap();
        program.tell("b").unwrap();
        let interrupt = Interrupt::default();
        assert_eq!(program.hear(&interrupt, patience).unwrap(), "heard b");
        let why = format!("{:#}", program.hear(&interrupt, patience).unwrap_err());
        assert!(why.contains("exit status: 3") && why.contains("why"), "{why}");
        fs::remove_file(log).unwrap();
    }

    #[test]
    fn who_is_silent_fails() {
        let log = log("silent");
        let mut program = Spoken::start(&mut shell("exec sleep 60"), &log).unwrap();
        let interrupt = Interrupt::default();
        assert!(program.hear(&interrupt, Duration::from_millis(50)).is_err());
        interrupt.0.store(true, Ordering::Relaxed);
        let why = program.hear(&interrupt, Duration::from_secs(60)).unwrap_err();
        assert_eq!(why.to_string(), "interrupted");
        fs::remove_file(log).unwrap();
    }

    #[test]
    fn output_is_shown_when_a_process_fails() {
        let (log, patience) = (log("fails"), Duration::from_secs(20));
        let interrupt = Interrupt::default();
        let run = |script: &str| Server::start(&mut shell(script), &log).unwrap().ends_well(&interrupt, patience);
        run("true").unwrap();
        assert!(format!("{:#}", run("echo reason; exit 1").unwrap_err()).contains("reason"));
        fs::remove_file(log).unwrap();
    }
}
