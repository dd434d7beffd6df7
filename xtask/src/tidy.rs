//! `cargo xtask tidy`: the rules of `docs/style.md` that a program can check.
//!
//! Each check takes texts and returns problems, so that it can be tested with a few lines. A problem is one line:
//! `path:line: what is wrong, why, what to do`.

mod circles;
mod determinism;
mod direction;
mod modules;
mod problem;
mod references;
mod rooms;
mod size;
mod text;

use anyhow::{Result, bail};
use problem::Problem;

use crate::source::Source;
use crate::workspace::{File, Workspace};

/// Checks the whole tree.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let files = workspace.files()?;
    let mut rooms = rooms::Rooms::new(&workspace.packages);
    let mut problems = check(workspace, &files, &mut rooms);
    problems.sort();
    print!("{rooms}");
    for problem in &problems {
        println!("{problem}");
    }
    if !problems.is_empty() {
        bail!("problems found: {}", problems.len());
    }
    println!("tidy: {} files", files.len());
    Ok(())
}

fn check(workspace: &Workspace, files: &[File], rooms: &mut rooms::Rooms) -> Vec<Problem> {
    let mut problems = Vec::new();
    let text_of = |path: &str| files.iter().find(|file| file.path == path).and_then(File::text).unwrap_or_default();
    direction::check(&workspace.packages, text_of, &mut problems);
    let mut ratchet = size::Ratchet::new(text_of(size::EXCEPTIONS), &mut problems);
    let mut references = references::References::default();
    for file in files {
        references.page(&file.path);
        let Some(text) = file.text() else { continue };
        text::check(&file.path, text, &mut problems);
        if file.path.ends_with(".rs") {
            let source = Source::new(text);
            text::check_header(&file.path, text, &mut problems);
            determinism::check(&file.path, &source, &mut problems);
            ratchet.check(&file.path, text, &source.code(), &mut problems);
            references.code(&file.path, &source);
            rooms.add(&file.path, text, &source);
        }
    }
    ratchet.finish(&mut problems);
    modules::check(files, &mut problems);
    circles::check(&rooms.circles(), text_of(circles::LIST), &mut problems);
    references.finish(text_of(references::INDEX), &mut problems);
    problems
}
