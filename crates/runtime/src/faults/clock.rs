//! A clock that a test can make jump and drift.
//!
//! `KASHA_TEST_CLOCK` names a file, `JUMP PPM`: nanoseconds that the clock has jumped in all, and by how many
//! millionths it runs fast (or slow, below 0). The file is read when it is written, or renamed into its place; time never goes
//! back.

use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use kasha_types::Tick;
use rustix::fs::inotify;
use rustix::io::Errno;

const MILLION: i128 = 1_000_000;

/// The longest that a loop sleeps: after a jump its deadline has come, whatever was armed.
const NAP: u64 = 20_000_000;

/// Shown time as a line through one point.
#[derive(Clone, Copy)]
struct Line {
    real: u64,
    shown: u64,
    jumped: u64,
    ppm: i64,
}

impl Line {
    fn at(&self, real: u64) -> u64 {
        let elapsed = i128::from(real.saturating_sub(self.real)) * (MILLION + i128::from(self.ppm)) / MILLION;
        self.shown + u64::try_from(elapsed).expect("no clock runs backwards")
    }

    fn turn(&self, real: u64, jumped: u64, ppm: i64) -> Self {
        Self { real, shown: self.at(real) + jumped.saturating_sub(self.jumped), jumped, ppm }
    }
}

fn line() -> Option<MutexGuard<'static, Line>> {
    static LINE: OnceLock<Option<Mutex<Line>>> = OnceLock::new();
    let line = LINE.get_or_init(|| {
        let file = PathBuf::from(std::env::var_os("KASHA_TEST_CLOCK")?);
        let real = crate::clock::boot_time();
        let watches = move || watch(&file, turn).expect("the folder of the test's clock can be watched");
        std::thread::Builder::new().name("test-clock".into()).spawn(watches).expect("a thread");
        Some(Mutex::new(Line { real, shown: real, jumped: 0, ppm: 0 }))
    });
    line.as_ref().map(|line| line.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Tells what the file says, now and after each change: the jumps in all, and the drift.
fn watch(file: &Path, mut tell: impl FnMut(u64, i64)) -> Result<(), Errno> {
    let kinds = inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::MOVED_TO;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let watched = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watched, folder, kinds)?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut changes = inotify::Reader::new(watched, &mut buffer);
    loop {
        if let Some((jumped, ppm)) = read(file) {
            tell(jumped, ppm);
        }
        while let Err(error) = changes.next().map(drop) {
            if error != Errno::INTR {
                return Err(error);
            }
        }
    }
}

fn read(file: &Path) -> Option<(u64, i64)> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut fields = text.split_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn turn(jumped: u64, ppm: i64) {
    let Some(mut line) = line() else { return };
    if (line.jumped, line.ppm) != (jumped, ppm) {
        *line = line.turn(crate::clock::boot_time(), jumped, ppm);
    }
}

/// What the clock shows at a time of the real one.
pub(crate) fn shown(real: u64) -> u64 {
    line().map_or(real, |line| line.at(real))
}

/// When to wake, on the real clock, to be there at a time that the clock shows.
pub(crate) fn wake(now: Tick, deadline: Tick) -> Tick {
    if line().is_none() {
        return deadline;
    }
    let nap = deadline.0.saturating_sub(now.0).min(NAP);
    Tick(crate::clock::boot_time() + nap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_heard_when_it_is_written_and_when_it_is_renamed_into_its_place() {
        let folder = std::env::temp_dir().join(format!("kasha-clock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, new) = (folder.join("clock"), folder.join("clock.new"));
        std::fs::write(&file, "0 0").unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let watched = file.clone();
        std::thread::spawn(move || {
            watch(&watched, |jumped, ppm| {
                let _ = tell.send((jumped, ppm));
            })
        });
        assert_eq!(told.recv(), Ok((0, 0)));
        std::fs::write(&new, "5000 -7").unwrap();
        std::fs::rename(&new, &file).unwrap();
        assert_eq!(told.iter().find(|said| *said != (0, 0)), Some((5000, -7)));
        std::fs::write(&file, "6000 9").unwrap();
        assert_eq!(told.iter().find(|said| *said != (5000, -7)), Some((6000, 9)));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn time_jumps_and_drifts_and_never_goes_back() {
        let start = Line { real: 100, shown: 100, jumped: 0, ppm: 0 };
        let jumped = start.turn(1100, 5000, 0);
        assert_eq!(jumped.at(1100), 6100);
        let slow = jumped.turn(2100, 5000, -500_000);
        assert_eq!((slow.at(2100), slow.at(4100)), (7100, 8100));
        let back = slow.turn(4100, 0, 0);
        assert_eq!(back.at(4100), 8100, "a smaller jump is none");
        assert_eq!(back.at(4000), 8100);
    }
}
