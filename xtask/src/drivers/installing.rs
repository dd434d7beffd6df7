//! Installs drivers from their registries below the target folder, and builds their programs there (tests/drivers).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::process::{Interrupt, Server};
use crate::process_tests::succeeds;
use crate::workspace::{Workspace, cargo};

/// A registry may be slow, and so may a compiler.
const INSTALLS_WITHIN: Duration = Duration::from_secs(15 * 60);

/// The version of Maven's own plugin, so that it is the same everywhere.
const COPY_DEPENDENCIES: &str = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies";

/// A driver of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    RedisPy,
    Ioredis,
    NodeRedis,
    GoRedis,
    RedisRs,
    Jedis,
    Lettuce,
    RedisRb,
}

impl Driver {
    pub(crate) const ALL: [Self; 8] = [
        Self::RedisPy,
        Self::Ioredis,
        Self::NodeRedis,
        Self::GoRedis,
        Self::RedisRs,
        Self::Jedis,
        Self::Lettuce,
        Self::RedisRb,
    ];

    /// Its name, which is the name of its folder in tests/drivers, too.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RedisPy => "redis-py",
            Self::Ioredis => "ioredis",
            Self::NodeRedis => "node-redis",
            Self::GoRedis => "go-redis",
            Self::RedisRs => "redis-rs",
            Self::Jedis => "jedis",
            Self::Lettuce => "lettuce",
            Self::RedisRb => "redis-rb",
        }
    }

    /// What is missing for the driver, if it is one that is run only where its runtime is there.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::RedisRb if !succeeds("ruby", &["-rredis", "-e", ""]) => {
                Some("there is no Ruby with redis-rb (apt-get install ruby ruby-redis)".to_owned())
            }
            Self::RedisPy
            | Self::Ioredis
            | Self::NodeRedis
            | Self::GoRedis
            | Self::RedisRs
            | Self::Jedis
            | Self::Lettuce
            | Self::RedisRb => None,
        }
    }

    /// The programs that must be there, each with the argument that makes it tell its version, and how one gets them.
    fn runtime(self) -> (&'static [(&'static str, &'static str)], &'static str) {
        match self {
            Self::RedisPy => (&[("python3", "--version")], "apt-get install python3 python3-venv"),
            Self::Ioredis | Self::NodeRedis => {
                (&[("node", "--version"), ("npm", "--version")], "Node.js 20 or later: apt-get install nodejs npm")
            }
            Self::GoRedis => (&[("go", "version")], "Go 1.26 or later: apt-get install golang-go, or from go.dev"),
            // It is built by the cargo that builds this tool.
            Self::RedisRs => (&[], ""),
            // Without it, it is not asked for (`missing`).
            Self::RedisRb => (&[], ""),
            Self::Jedis | Self::Lettuce => (
                &[("java", "-version"), ("javac", "-version"), ("mvn", "--version")],
                "Java 17 or later: apt-get install default-jdk maven",
            ),
        }
    }

    /// Installs the driver. The result is the command of its program, without the words that all programs understand.
    pub(crate) fn install(self, workspace: &Workspace, interrupt: &Interrupt) -> Result<Vec<OsString>> {
        let (programs, how) = self.runtime();
        if let Some((missing, _)) = programs.iter().find(|(program, version)| !succeeds(program, &[version])) {
            bail!("there is no {missing} ({how})");
        }
        let sources = workspace.root.join("tests/drivers");
        let target = workspace.target.join("drivers").join(self.name());
        fs::create_dir_all(&target).context("no folder below the target folder")?;
        let log = target.join("install.log");
        // Of an earlier run, if there was one.
        let _ = fs::remove_file(&log);
        let place = Place { source: sources.join(self.name()), target, log, interrupt };
        match self {
            Self::RedisPy => place.python(),
            Self::Ioredis | Self::NodeRedis => place.node(),
            Self::GoRedis => place.go(),
            Self::RedisRs => place.rust(),
            Self::Jedis => place.java("Jedis", &sources),
            Self::Lettuce => place.java("Lettuce", &sources),
            Self::RedisRb => Ok(vec!["ruby".into(), place.source.join("driver.rb").into()]),
        }
    }
}

/// Where a driver's program is, and where it is built.
struct Place<'a> {
    source: PathBuf,
    target: PathBuf,
    log: PathBuf,
    interrupt: &'a Interrupt,
}

impl Place<'_> {
    fn run(&self, command: &mut Command) -> Result<()> {
        Server::start(command, &self.log)?.ends_well(self.interrupt, INSTALLS_WITHIN)
    }

    fn python(&self) -> Result<Vec<OsString>> {
        let python = self.target.join("bin/python");
        if !python.is_file() {
            self.run(Command::new("python3").args(["-m", "venv"]).arg(&self.target))?;
        }
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
        self.run(install.arg(self.source.join("requirements.txt")))?;
        Ok(vec![python.into(), self.source.join("driver.py").into()])
    }

    fn node(&self) -> Result<Vec<OsString>> {
        // The program finds the driver beside itself.
        for file in ["package.json", "driver.js"] {
            fs::copy(self.source.join(file), self.target.join(file)).with_context(|| format!("cannot copy {file}"))?;
        }
        let mut install = Command::new("npm");
        install.current_dir(&self.target).args(["install", "--no-package-lock", "--no-audit", "--no-fund"]);
        self.run(&mut install)?;
        Ok(vec!["node".into(), self.target.join("driver.js").into()])
    }

    fn go(&self) -> Result<Vec<OsString>> {
        let program = self.target.join("driver");
        let mut build = Command::new("go");
        build.current_dir(&self.source).env("GOTOOLCHAIN", "local").args(["build", "-buildvcs=false", "-o"]);
        self.run(build.arg(&program).arg("."))?;
        Ok(vec![program.into()])
    }

    fn rust(&self) -> Result<Vec<OsString>> {
        let mut build = cargo(&self.source);
        build.args(["build", "--release", "--locked", "--target-dir"]).arg(&self.target);
        self.run(&mut build)?;
        Ok(vec![self.target.join("release/kasha-driver-redis-rs").into()])
    }

    fn java(&self, class: &str, sources: &Path) -> Result<Vec<OsString>> {
        let (jars, classes) = (self.target.join("jars"), self.target.join("classes"));
        let mut copy = Command::new("mvn");
        copy.current_dir(&self.source).args(["--batch-mode", "--quiet", COPY_DEPENDENCIES]);
        // Of another version, if there was one.
        let _ = fs::remove_dir_all(&jars);
        self.run(copy.arg(format!("-DoutputDirectory={}", jars.display())))?;
        let jars = jars.join("*");
        let mut compile = Command::new("javac");
        compile.arg("-cp").arg(&jars).arg("-d").arg(&classes).arg(sources.join("java/Program.java"));
        self.run(compile.arg(self.source.join(class).with_extension("java")))?;
        let path = std::env::join_paths([classes, jars]).context("a path with a colon")?;
        Ok(vec!["java".into(), "-cp".into(), path, class.into()])
    }
}
