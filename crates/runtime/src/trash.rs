//! A thread that lets go of what takes long to let go of: large memory, and the content of removed files. A file of 8 MiB
//! takes the system a millisecond or ten.

use std::any::Any;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};

use crate::faults;

enum Rubbish {
    Memory(Box<dyn Any + Send>),
    /// A file that has no name of ours any more.
    File(PathBuf),
}

/// The thread; it ends when the last of these is dropped.
#[derive(Clone, Debug)]
pub struct TrashThread(Sender<Rubbish>);

impl TrashThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub fn start(name: &str) -> io::Result<Self> {
        let (trash, rubbish) = mpsc::channel();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            for thing in rubbish {
                match thing {
                    Rubbish::Memory(value) => drop(value),
                    Rubbish::File(path) => {
                        // The next start removes what is left, and an unwell disk shows elsewhere.
                        if let Err(error) = faults::remove(&path) {
                            tracing::warn!(path = %path.display(), %error, "a removed file's room is not free yet");
                        }
                    }
                }
            }
        })?;
        Ok(Self(trash))
    }

    /// A handle of a thread that never drops anything.
    #[cfg(test)]
    pub(crate) fn idle() -> (Self, impl Sized) {
        let (trash, rubbish) = mpsc::channel();
        (Self(trash), rubbish)
    }

    /// Has the thread drop a value.
    pub fn throw(&self, value: Box<dyn Any + Send>) {
        self.put(Rubbish::Memory(value));
    }

    pub(crate) fn remove(&self, path: PathBuf) {
        self.put(Rubbish::File(path));
    }

    /// Without the thread, which can only have panicked: a file stays until the next start.
    fn put(&self, thing: Rubbish) {
        let _ = self.0.send(thing);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    struct Tells(Sender<Option<String>>);

    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(std::thread::current().name().map(str::to_owned)).unwrap();
        }
    }

    #[test]
    fn what_is_thrown_away_goes_on_the_thread_and_files_go_in_order() {
        let trash = TrashThread::start("trash-test").unwrap();
        let path = std::env::temp_dir().join(format!("kasha-trash-{}", std::process::id()));
        std::fs::write(&path, b"x").unwrap();
        let (tell, told) = channel();
        trash.remove(path.clone());
        trash.remove(path.clone()); // one that is gone is no reason to end
        trash.throw(Box::new(Tells(tell)));
        assert_eq!(told.recv().unwrap().as_deref(), Some("trash-test"));
        assert!(!path.exists());
    }
}
