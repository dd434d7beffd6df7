//! Damages files of a node that is down.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use kasha_machine::Rng;

use super::plan::Harm;

/// The files of a node's shards whose names end so.
fn files(data: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut left) = (Vec::new(), vec![data.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                left.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Damages one file; which, and how, follows from the seed. `led` are the shards that the node is primary of. `None`:
/// there is no such file.
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
    found.retain(|path| !path.to_string_lossy().contains("coordinator-"));
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

/// A file that is shorter has hardly anything behind what is flipped.
const FLIPPED_MIN: u64 = 8192;

/// Flips bits of some bytes in the first half of a file; of a small one, of one byte.
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
