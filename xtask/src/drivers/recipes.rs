//! The recipes of docs/recipes.md that are written with a driver of Redis: the page's blocks are a program, to which tests/drivers adds checks.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::counting::Program;
use super::installing::Driver;
use super::process::{Interrupt, Server};
use crate::workspace::Workspace;

/// Some of them wait for leases to end.
const WITHIN: Duration = Duration::from_secs(60);

/// The port that the page says.
const PORT: &str = "6390";

/// The code of a page in one language, in its order.
fn blocks(page: &str, language: &str) -> String {
    let opening = format!("```{language}");
    let (mut code, mut is_in) = (String::new(), false);
    for line in page.lines() {
        if line == opening {
            is_in = true;
        } else if is_in && line == "```" {
            is_in = false;
            code.push('\n');
        } else if is_in {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Runs the recipes that are written with this driver, at this address; says whether there are any.
pub(crate) fn run(
    workspace: &Workspace,
    program: &Program,
    address: SocketAddr,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<bool> {
    let (language, checks, name) = match program.driver {
        Driver::RedisPy => ("python", "recipes.py", "recipes.py"),
        Driver::Ioredis => ("js", "recipes.js", "recipes.mjs"),
        Driver::NodeRedis | Driver::GoRedis | Driver::RedisRs | Driver::Jedis | Driver::Lettuce | Driver::RedisRb => {
            return Ok(false);
        }
    };
    let page = fs::read_to_string(workspace.root.join("docs/recipes.md")).context("no page of recipes")?;
    let code = blocks(&page, language);
    ensure!(code.contains(PORT), "docs/recipes.md has no {language} that connects to port {PORT}");
    let checks = workspace.root.join("tests/drivers").join(program.driver.name()).join(checks);
    let checks = fs::read_to_string(&checks).with_context(|| format!("no {}", checks.display()))?;
    // The program finds the driver beside itself.
    let file = workspace.target.join("drivers").join(program.driver.name()).join(name);
    fs::write(&file, format!("{}\n{checks}", code.replace(PORT, &address.port().to_string())))?;
    let log = folder.join(format!("{}-recipes.log", program.driver.name()));
    Server::start(Command::new(&program.command[0]).arg(&file), &log)?.ends_well(interrupt, WITHIN)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_one_language_are_a_program() {
        let page = "text\n```js\na\nb\n```\n```rust\nc\n```\nmore\n```js\nd\n```\n";
        assert_eq!(blocks(page, "js"), "a\nb\n\nd\n\n");
        assert_eq!(blocks(page, "python"), "");
    }
}
