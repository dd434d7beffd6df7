//! Processes of stores on hosts of the network: starts them in their folders, checks that they live, and reads their
//! processor time.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use kasha_netlab::Netlab;

use super::obstacle::Obstacle;
use crate::limits;

/// A rival's program, with its package and service in Debian.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    name: &'static str,
    package: &'static str,
    service: &'static str,
}

pub(crate) const ETCD: Program = Program { name: "etcd", package: "etcd-server", service: "etcd" };
pub(crate) const REDIS: Program = Program { name: "redis-server", package: "redis-server", service: "redis-server" };

/// `statfs`'s name of a file system in memory.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Makes sure that the rivals' programs are there. A missing one is installed if possible, which needs root.
pub(crate) fn find_installed(programs: &[Program]) -> Result<(), Obstacle> {
    for &Program { name: program, package, service } in programs {
        if is_installed(program)? {
            continue;
        }
        let install = ["install", "--yes", "--no-install-recommends", package];
        eprintln!("{program} is not installed; trying: apt-get {}", install.join(" "));
        let tried = succeeds("apt-get", &["update"]).and_then(|()| succeeds("apt-get", &install));
        if !is_installed(program)? {
            let why = tried.err().unwrap_or_else(|| "no such program in the package".to_owned());
            let how = install.join(" ");
            return Err(Obstacle::not_here(format!("{program} is needed (Debian: apt-get {how}), and {why}")));
        }
        // The package's own service would run beside the measurement, now and after the next boot.
        for (manager, arguments) in [("service", [service, "stop"]), ("update-rc.d", [service, "disable"])] {
            if let Err(why) = succeeds(manager, &arguments) {
                eprintln!("the service {service} came with {program}, and may run: {why}");
            }
        }
    }
    Ok(())
}

/// Whether the program exists. A program that exists and cannot even print its version is broken, not missing.
fn is_installed(program: &str) -> anyhow::Result<bool> {
    match silent(program, &["--version"]).status() {
        Ok(status) => {
            ensure!(status.success(), "`{program} --version` fails ({status}): repair what is installed, or remove it");
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot start {program}")),
    }
}

/// Runs a program of the system. If it fails, returns the text to show.
fn succeeds(program: &str, arguments: &[&str]) -> Result<(), String> {
    let command = format!("`{program} {}`", arguments.join(" "));
    match silent(program, arguments).stderr(Stdio::piped()).output() {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr);
            Err(format!("{command} fails: {}", said.lines().last().unwrap_or("without a word")))
        }
        Err(error) => Err(format!("{command} cannot be started: {error}")),
    }
}

fn silent(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The folder for the stores' data. Fsynced data must reach a disk. If the user chose a folder in memory, that is an
/// error; if temporary files are in memory, the comparison is skipped.
pub(crate) fn find_disk(chosen: Option<&Path>) -> Result<PathBuf, Obstacle> {
    let folder = chosen.map_or_else(std::env::temp_dir, Path::to_owned);
    if !is_in_memory(&folder)? {
        return Ok(folder);
    }
    let why = format!("{} is in memory, where fsync does nothing: give a folder on a disk (--data)", folder.display());
    Err(if chosen.is_some() { anyhow!(why).into() } else { Obstacle::not_here(why) })
}

fn is_in_memory(folder: &Path) -> anyhow::Result<bool> {
    let shown = folder.display();
    fs::create_dir_all(folder).with_context(|| format!("cannot create {shown}"))?;
    let system = rustix::fs::statfs(folder).with_context(|| format!("cannot ask for the file system of {shown}"))?;
    Ok(system.f_type == TMPFS_MAGIC)
}

/// The place where servers are started.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) lab: &'a Netlab,
    pub(crate) folder: PathBuf,
}

impl Place<'_> {
    /// An address on a server's host.
    pub(crate) fn address(&self, host: usize, port: u16) -> SocketAddr {
        SocketAddr::from((self.lab.host(host).address(), port))
    }

    /// A new folder of a server's own.
    pub(crate) fn folder(&self, store: &str, host: usize) -> anyhow::Result<PathBuf> {
        let folder = self.folder.join(format!("{store}-{host}"));
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }
}

/// A store's processes; on a network, one on each host.
#[derive(Debug)]
pub(crate) struct Servers {
    name: &'static str,
    folder: PathBuf,
    children: Vec<Child>,
}

impl Servers {
    /// None yet; their logs are in this folder.
    pub(crate) fn new(name: &'static str, folder: &Path) -> Self {
        Self { name, folder: folder.to_owned(), children: Vec::new() }
    }

    /// Starts the next host's process.
    pub(crate) fn spawn(&mut self, place: &Place<'_>, command: Command) -> anyhow::Result<()> {
        let host = place.lab.host(self.children.len());
        self.spawn_with(command, |command| host.spawn(command))
    }

    /// Starts the next process in this way, with a log file.
    pub(crate) fn spawn_with(
        &mut self,
        mut command: Command,
        start: impl FnOnce(Command) -> io::Result<Child>,
    ) -> anyhow::Result<()> {
        let log = File::create(self.log_file(self.children.len())).context("cannot create a log file")?;
        command.stdin(Stdio::null()).stderr(log.try_clone().context("cannot share a log file")?).stdout(log);
        self.children.push(start(command).with_context(|| format!("cannot start {}", self.name))?);
        Ok(())
    }

    fn log_file(&self, host: usize) -> PathBuf {
        self.folder.join(format!("{}-{host}.log", self.name))
    }

    /// Waits until the store says that it is ready.
    pub(crate) fn wait(&mut self, mut is_ready: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let deadline = Instant::now() + limits::START;
        let name = self.name;
        loop {
            match is_ready() {
                Ok(true) => return Ok(()),
                Ok(false) if Instant::now() < deadline => {}
                Err(_) if Instant::now() < deadline => {}
                Ok(false) => {
                    bail!("{name} is not ready after {:?}; its logs are in {}", limits::START, self.folder.display())
                }
                Err(error) => return Err(error.context(format!("{name}; its logs are in {}", self.folder.display()))),
            }
            for (host, child) in self.children.iter_mut().enumerate() {
                if let Some(status) = child.try_wait().context("cannot look after a server")? {
                    let log = fs::read_to_string(self.folder.join(format!("{name}-{host}.log"))).unwrap_or_default();
                    bail!("{name} on host {host} ended by itself ({status}):\n{log}");
                }
            }
            std::thread::sleep(limits::LOOK);
        }
    }

    /// Processor time of all processes so far.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.children.iter().map(|child| process_time(child.id())).sum()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself; either way it is gone after the wait.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Processor time of the calling thread so far.
pub(crate) fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

fn process_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid} is gone"))?;
    let ticks = ticks(&stat).with_context(|| format!("unexpected /proc/{pid}/stat: {stat}"))?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// User and system time in a line of `/proc/PID/stat`: the 12th and 13th field after the name, which may contain
/// anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 100 0 0 0 40 2 0 0 20 0 1 0 5";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 (a) S 1"), None);
        assert!(process_time(std::process::id()).is_ok());
    }

    #[test]
    fn a_file_system_in_memory_is_refused() {
        let shared = Path::new("/dev/shm");
        if shared.is_dir() {
            let Err(Obstacle::Failed(error)) = find_disk(Some(shared)) else { panic!("somebody chose it") };
            assert!(error.to_string().contains("fsync does nothing"), "{error}");
        }
    }

    #[test]
    fn a_program_that_is_broken_is_not_missing() {
        assert!(!is_installed("there-is-no-such-store").unwrap());
        assert!(is_installed("cargo").unwrap());
        let error = is_installed("false").unwrap_err().to_string();
        assert!(error.contains("`false --version` fails"), "{error}");
    }
}
