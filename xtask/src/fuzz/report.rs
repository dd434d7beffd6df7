//! Reads the output of libFuzzer: its progress, and why it stopped.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Time between two lines of progress.
const SHOWN_EVERY: Duration = Duration::from_secs(10);

/// The progress that libFuzzer reported.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) executions: u64,
    pub(super) edges: u64,
    pub(super) features: u64,
    pub(super) inputs: u64,
}

impl Report {
    /// From lines like `#4096 pulse  cov: 512 ft: 900 corp: 60/2Kb …` and `stat::number_of_executed_units: 4096`.
    fn update(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(number) = line.strip_prefix('#').and_then(|_| words[0][1..].parse().ok()) {
            self.executions = number;
        }
        for pair in words.windows(2) {
            let number = pair[1].split('/').next().and_then(|number| number.parse().ok());
            let (Some(number), field) = (number, pair[0]) else { continue };
            match field {
                "cov:" => self.edges = number,
                "ft:" => self.features = number,
                "corp:" => self.inputs = number,
                "stat::number_of_executed_units:" => self.executions = number,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { executions, edges, features, inputs } = self;
        write!(f, "{executions} executions, {edges} edges, {features} features, {inputs} inputs")
    }
}

/// Runs a fuzzer to its end, prints its progress now and then, and returns the lines that it printed.
pub(super) fn watched(command: &mut Command) -> Result<(ExitStatus, Vec<String>, Report)> {
    let mut child = command.stderr(Stdio::piped()).spawn().context("could not run a target")?;
    let mut stderr = BufReader::new(child.stderr.take().expect("piped above"));
    let (sender, receiver) = mpsc::channel();
    // A fuzzer that finds nothing new is silent for long. The progress must not wait for its next line.
    thread::spawn(move || {
        let mut bytes = Vec::new();
        while stderr.read_until(b'\n', &mut bytes).is_ok_and(|length| length > 0) {
            if sender.send(String::from_utf8_lossy(&bytes).trim_end().to_owned()).is_err() {
                break;
            }
            bytes.clear();
        }
    });
    let (mut lines, mut report) = (Vec::new(), Report::default());
    let started = Instant::now();
    let mut shown = started;
    loop {
        match receiver.recv_timeout(SHOWN_EVERY.saturating_sub(shown.elapsed())) {
            Ok(line) => {
                report.update(&line);
                lines.push(line);
            }
            Err(RecvTimeoutError::Timeout) => {
                println!("{:>5} s: {report}", started.elapsed().as_secs());
                shown = Instant::now();
            }
            Err(RecvTimeoutError::Disconnected) => return Ok((child.wait()?, lines, report)),
        }
    }
}

/// The lines after the last line of progress: for a fuzzer that broke, the reason. After these, cargo-fuzz prints a
/// ruler, and shows the input before it is made small.
pub(super) fn last_words(lines: &[String]) -> &[String] {
    let last = lines.iter().rposition(|line| line.starts_with('#'));
    let words = &lines[last.map_or(0, |last| last + 1)..];
    &words[..words.iter().position(|line| line.starts_with('─')).unwrap_or(words.len())]
}

/// The input that a fuzzer kept when it broke. An earlier one was only slow.
pub(super) fn written_input(lines: &[String]) -> Option<PathBuf> {
    let mut paths = lines.iter().filter_map(|line| line.split_once("Test unit written to ").map(|(_, path)| path));
    paths.rfind(|path| !path.contains("/slow-unit-")).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_fuzzers_words_are_understood() {
        let said = lines(
            "#2\tINITED cov: 1 ft: 2 corp: 1/1b exec/s: 0 rss: 30Mb\n\
             #4096\tpulse  cov: 512 ft: 900 corp: 60/2Kb lim: 40 exec/s: 2048 rss: 33Mb\n\
             #\nDone 5000 runs in 2 second(s)",
        );
        let expected = Report { executions: 4096, edges: 512, features: 900, inputs: 60 };
        let mut report = Report::default();
        said.iter().for_each(|line| report.update(line));
        assert_eq!(report, expected);
        report.update("stat::number_of_executed_units: 5000");
        assert_eq!(report, Report { executions: 5000, ..expected });
    }

    #[test]
    fn a_broken_run_says_why_and_which_input() {
        let prefix = "artifact_prefix='/a/'; Test unit written to";
        let slow = format!("{prefix} /a/slow-unit-1");
        let said = lines(&format!("{slow}\n#8\tNEW    cov: 1\npanicked\n    #0 0x5 in main\n{prefix} /a/crash-2"));
        assert_eq!(written_input(&said), Some(PathBuf::from("/a/crash-2")));
        assert_eq!(last_words(&said), &said[2..]);
        assert_eq!(written_input(&said[..4]), None);
        assert_eq!(last_words(&said[2..]), &said[2..]);
        assert_eq!(last_words(&[&said[..], &lines("──\nFailing input:")].concat()), &said[2..]);
    }

    #[test]
    fn what_a_program_prints_is_read_to_its_end() {
        let mut shell = Command::new("sh");
        let (status, said, report) = watched(shell.args(["-c", "echo '#7 NEW' >&2; printf end >&2; exit 3"])).unwrap();
        assert_eq!((status.code(), said, report.executions), (Some(3), lines("#7 NEW\nend"), 7));
    }
}
