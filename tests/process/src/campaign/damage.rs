//! Damages or removes files of a node that is down. The seed decides which files, and how.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use kasha_machine::Rng;

use super::alone::Loss;
use super::plan::Harm;

/// The files of a node's shards and witnesses with this ending.
fn files(data: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut left) = (Vec::new(), vec![data.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                // The files of the coordinator's member are not a shard's, and their endings are the same.
                left.extend(Some(path).filter(|path| !path.ends_with("coordinator")));
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Damages one file; the seed decides which, and how. `led` are the shards of which the node is primary. `None`: there
/// is no such file.
///
/// # Errors
/// If the file cannot be changed.
pub fn damage(data: &Path, harm: Harm, seed: u64, led: &[u64]) -> io::Result<Option<String>> {
    let ending = match harm {
        Harm::SegmentFlipped | Harm::SegmentCut | Harm::SegmentGone => ".log",
        Harm::MetaFlipped => "replica.meta",
        Harm::SlotsFlipped | Harm::SlotsCut => ".slots",
        Harm::ModeFlipped => ".mode",
        Harm::LedgerFlipped => "core.meta",
    };
    let mut rng = Rng::new(seed);
    let mut found = files(data, ending)?;
    if harm == Harm::SegmentCut {
        let is_led =
            |path: &PathBuf| led.iter().any(|shard| path.to_string_lossy().contains(&format!("shard-{shard:04}")));
        found.retain(|path| !is_led(path));
    }
    if found.is_empty() {
        return Ok(None);
    }
    let path = rng.pick(&found).clone();
    let len = fs::metadata(&path)?.len();
    match harm {
        Harm::SegmentGone => fs::remove_file(&path)?,
        Harm::SegmentCut | Harm::SlotsCut => File::options().write(true).open(&path)?.set_len(rng.below(len.max(1)))?,
        Harm::SegmentFlipped | Harm::MetaFlipped | Harm::SlotsFlipped | Harm::ModeFlipped | Harm::LedgerFlipped => {
            flip(&path, len, &mut rng)?
        }
    }
    let name = path.strip_prefix(data).unwrap_or(&path);
    Ok(Some(format!("{harm:?} in {} of {len} bytes", name.display())))
}

/// Takes files, or bytes of one, from a node that is down; the seed decides which. Returns what was taken, as text.
///
/// # Errors
/// If a file cannot be changed.
pub fn lose(data: &Path, loss: Loss, seed: u64) -> io::Result<String> {
    let mut rng = Rng::new(seed);
    let (ending, all) = match loss {
        Loss::Folder => {
            fs::remove_dir_all(data)?;
            return Ok("the folder".to_owned());
        }
        Loss::Files(ending) => (ending, matches!(ending, ".slots" | ".mode")),
        Loss::Bytes(ending) => (ending, false),
    };
    let mut found = files(data, ending)?;
    if found.is_empty() {
        return Ok(format!("there is no *{ending}"));
    }
    let chosen = if all { found } else { vec![found.swap_remove(index(&mut rng, found.len()))] };
    for path in &chosen {
        match loss {
            Loss::Folder => {}
            Loss::Files(_) => fs::remove_file(path)?,
            Loss::Bytes(_) => flip_eight(path, &mut rng)?,
        }
    }
    let names = chosen.iter().map(|path| path.strip_prefix(data).unwrap_or(path).display().to_string());
    Ok(names.collect::<Vec<_>>().join(", "))
}

fn index(rng: &mut Rng, len: usize) -> usize {
    usize::try_from(rng.below(len as u64)).expect("few")
}

/// Flips bits of eight adjacent bytes in the first half of the file. A segment that is nearly empty is left out.
fn flip_eight(path: &Path, rng: &mut Rng) -> io::Result<()> {
    let mut bytes = fs::read(path)?;
    let is_segment = path.extension().is_some_and(|extension| extension == "log");
    if bytes.is_empty() || (is_segment && (bytes.len() as u64) < FLIPPED_MIN) {
        return Ok(());
    }
    let from = index(rng, bytes.len().div_ceil(2));
    bytes[from..].iter_mut().take(8).for_each(|byte| *byte ^= 0x5A);
    fs::write(path, bytes)
}

/// In a shorter file there is hardly anything behind the flipped bytes.
const FLIPPED_MIN: u64 = 8192;

/// Flips bits of some bytes in the first half of a file; of one byte, if the file is small.
fn flip(path: &Path, len: u64, rng: &mut Rng) -> io::Result<()> {
    let is_segment = path.extension().is_some_and(|extension| extension == "log");
    if len == 0 || (is_segment && len < FLIPPED_MIN) {
        return Ok(());
    }
    let file = File::options().read(true).write(true).open(path)?;
    let from = rng.below(len.div_ceil(2));
    let to = len.div_ceil(2).min(from + *rng.pick(&[1, 100, 5000]));
    for at in (from..to).step_by(usize::try_from(rng.between(1, 4096)).expect("small")) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        file.write_all_at(&[byte[0] ^ (1 << rng.below(8))], at)?;
    }
    Ok(())
}
