//! The binary as a child process: starts it, reads its output, stops or kills it.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::process::Signal;
use serde_json::Value as Json;

use crate::wait_for;

/// The path of the binary: `KASHA_BIN`, or else a build by cargo into the target folder in which this test is.
///
/// # Panics
/// If it cannot be built.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| std::env::var_os("KASHA_BIN").map_or_else(|| built("kasha"), PathBuf::from))
}

/// The path of `kasha-lab`, with `kasha` beside it: `KASHA_LAB`, or else as cargo builds both.
///
/// # Panics
/// If they cannot be built.
pub fn lab() -> &'static Path {
    static LAB: OnceLock<PathBuf> = OnceLock::new();
    let both = || {
        built("kasha");
        built("kasha-lab")
    };
    LAB.get_or_init(|| std::env::var_os("KASHA_LAB").map_or_else(both, PathBuf::from))
}

fn built(package: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a test is a file");
    // <target>/<profile>/deps/<test>
    let target = own.ancestors().nth(3).expect("a test lies in a target folder");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--release", "-p", package, "--target-dir"])
        .arg(target)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .status();
    assert!(built.expect("cargo runs").success(), "{package} cannot be built");
    target.join("release").join(package)
}

/// The binary with these arguments, without settings of this process's environment. It dies with the thread that starts
/// it.
#[must_use]
pub fn command<S: AsRef<str>>(arguments: &[S]) -> Command {
    piped(bare_command(arguments))
}

/// The same of `kasha-lab`.
#[must_use]
pub fn lab_command<S: AsRef<str>>(arguments: &[S]) -> Command {
    piped(bare(lab(), arguments))
}

fn piped(mut command: Command) -> Command {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    die_with_this_thread(&mut command);
    command
}

/// The same, for a caller that starts it and reads its output itself.
#[must_use]
pub fn bare_command<S: AsRef<str>>(arguments: &[S]) -> Command {
    bare(binary(), arguments)
}

fn bare<S: AsRef<str>>(program: &Path, arguments: &[S]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KASHA_") {
            command.env_remove(name);
        }
    }
    command.args(arguments.iter().map(AsRef::as_ref)).stdin(Stdio::null());
    command
}

/// The process of the command is killed when the thread that starts it ends.
pub fn die_with_this_thread(command: &mut Command) {
    // SAFETY: prctl is async-signal-safe; nothing is allocated between fork and exec.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

/// A child that runs until it is told to end. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Process {
    /// Starts a command, and reads its output.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the binary starts");
        let said = Arc::new(Mutex::new(String::new()));
        listen(child.stdout.take().expect("piped"), &said);
        listen(child.stderr.take().expect("piped"), &said);
        Self { child, said }
    }

    /// The output so far, on both streams.
    ///
    /// # Panics
    /// Never in practice.
    #[must_use]
    pub fn said(&self) -> String {
        self.said.lock().expect("nobody panics with it").clone()
    }

    /// Waits until the output has this text.
    ///
    /// # Panics
    /// If the process ends, or the text does not come in time.
    pub fn wait_until_it_says(&mut self, words: &str) {
        wait_for(words, || {
            let said = self.said();
            if said.contains(words) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait().expect("a child") {
                panic!("it ended ({status}) without saying {words:?}:\n{said}");
            }
            Err(said)
        });
    }

    /// The process id.
    ///
    /// # Panics
    /// Never in practice.
    #[must_use]
    pub fn id(&self) -> i32 {
        i32::try_from(self.child.id()).expect("the system's numbers are small")
    }

    /// Whether the process runs.
    ///
    /// # Panics
    /// If the system does not know.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Sends a signal to the process.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Kills the process with `kill -9`, and waits for its end.
    ///
    /// # Panics
    /// If it had ended before.
    pub fn kill(mut self) {
        assert!(self.is_running(), "it had ended:\n{}", self.said());
        self.child.kill().expect("a child");
        let status = self.child.wait().expect("a child");
        assert_eq!(status.signal(), Some(9));
    }

    /// Waits for the end of the process. Returns how it ended, and its whole output.
    ///
    /// # Panics
    /// If it does not end.
    pub fn wait(&mut self) -> (ExitStatus, String) {
        let status = wait_for("end of a process", || match self.child.try_wait().expect("a child") {
            Some(status) => Ok(status),
            None => Err(self.said()),
        });
        // The threads that read the output drop the text when they reach its end.
        wait_for("last words", || if Arc::strong_count(&self.said) == 1 { Ok(()) } else { Err(self.said()) });
        (status, self.said())
    }

    /// Stops the process as an operator would, and checks that it ends in good order.
    ///
    /// # Panics
    /// If it ends otherwise.
    pub fn stop(mut self, signal: Signal) {
        assert!(self.is_running(), "it had ended:\n{}", self.said());
        self.signal(signal);
        let (status, said) = self.wait();
        assert_eq!(status.code(), Some(0), "{said}");
    }

    /// Checks that the process ends by itself with exit code 1, or 2 if it was used wrongly, and an error that has all these words.
    ///
    /// # Panics
    /// If not.
    pub fn fails_saying(mut self, words: &[&str]) {
        let (status, said) = self.wait();
        let wrong_usage = said.contains("(K0403)");
        assert_eq!(status.code(), Some(if wrong_usage { 2 } else { 1 }), "{said}");
        let error = said.lines().find(|line| line.starts_with("kasha: ")).map(|line| {
            let at = said.find(line).expect("one of its lines");
            &said[at..]
        });
        let error = error.unwrap_or_else(|| panic!("no line \"kasha: …\" in:\n{said}"));
        for word in words {
            assert!(error.contains(word), "{word:?} is not in: {error}");
        }
        assert!(!said.contains("panicked"), "{said}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("process {} said:\n{}", self.child.id(), self.said());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(stream: impl Read + Send + 'static, said: &Arc<Mutex<String>>) {
    let said = Arc::clone(said);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut said = said.lock().expect("nobody panics with it");
            said.push_str(&line);
            said.push('\n');
        }
    });
}

/// Runs a command of the shell to its end.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn run<S: AsRef<str>>(arguments: &[S]) -> Output {
    command(arguments).output().expect("the binary starts")
}

/// Runs `kasha cli` against a cluster.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn cli(port: u16, arguments: &[&str]) -> Output {
    let address = format!("127.0.0.1:{port}");
    run(&[&["cli", "--address", &address], arguments].concat())
}

/// The output of `kasha cli`, without the line break at its end.
///
/// # Panics
/// If it fails.
pub fn cli_says(port: u16, arguments: &[&str]) -> String {
    let output = cli(port, arguments);
    let (said, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {complaint}{said}");
    said.trim_end().to_owned()
}

/// The output of `kasha status --json`, if there is a cluster.
///
/// # Errors
/// The text that the command printed instead.
///
/// # Panics
/// If the output is not JSON.
pub fn status(port: u16) -> Result<Json, String> {
    let output = run(&["status", "--json", "--address", &format!("127.0.0.1:{port}")]);
    // 3: a shard is ill, and the output says which.
    if !matches!(output.status.code(), Some(0 | 3)) {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// Waits until every node is alive and every shard healthy. Returns that status.
///
/// # Panics
/// If that does not happen in time.
pub fn wait_until_healthy(port: u16, nodes: usize) -> Json {
    wait_for("healthy cluster", || {
        let status = status(port)?;
        health(&status, nodes).map(|()| status)
    })
}

/// Whether a status says that every node is alive and every shard healthy.
///
/// # Errors
/// What is not healthy.
pub fn health(status: &Json, nodes: usize) -> Result<(), String> {
    let alive = list(&status["nodes"]).iter().filter(|node| node["alive"] == true).count();
    let shards = list(&status["shards"]);
    let healthy = shards.iter().filter(|shard| shard["health"] == "healthy" && !shard["status"].is_null()).count();
    let reachable = status["coordinator_reachable"] == true;
    if alive == nodes && healthy == shards.len() && healthy > 0 && reachable {
        return Ok(());
    }
    Err(format!("{alive} of {nodes} nodes are alive, {healthy} shards are healthy: {:#}", status["shards"]))
}

/// The items of a JSON list.
///
/// # Panics
/// If the value is not a list.
#[must_use]
pub fn list(json: &Json) -> &[Json] {
    json.as_array().unwrap_or_else(|| panic!("a list, not {json}"))
}
