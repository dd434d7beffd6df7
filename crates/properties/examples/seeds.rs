//! `seeds DIR` writes the inputs with which fuzzers begin, one folder for each target. `seeds --show TARGET FILE` shows
//! which input a file is.

use std::io;
use std::path::Path;

use kasha_properties::TARGETS;

fn write(folder: &Path) -> io::Result<()> {
    for target in TARGETS {
        let folder = folder.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number:03}")), seed)?;
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--show", name, file] => {
            let target = TARGETS.iter().find(|target| target.name == name);
            let target = target.ok_or_else(|| io::Error::other(format!("{name} is no target")))?;
            println!("{}", (target.show)(&std::fs::read(file)?));
            Ok(())
        }
        [folder] => write(Path::new(folder)),
        _ => Err(io::Error::other("usage: seeds DIR | --show TARGET FILE")),
    }
}
