//! A listening socket that is a file: for programs on the same machine.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::net;

use crate::limits::BACKLOG;

/// A socket could not be had at a path.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {}: {error}; {} (K0201)", path.display(), match error.kind() {
    ErrorKind::AddrInUse => "another process listens there: stop it, or choose another path",
    ErrorKind::AlreadyExists => "something that is no socket is there: remove it, or choose another path",
    ErrorKind::NotFound => "the folder does not exist: make it, or choose another path",
    ErrorKind::PermissionDenied => "this user may not make files there: choose another folder",
    _ => "choose another path, of at most 107 bytes",
})]
pub struct LocalSocketError {
    path: PathBuf,
    error: io::Error,
}

/// The file of a listening socket. It is removed when this is dropped, if it is still the same.
#[derive(Debug)]
pub struct LocalSocketFile {
    path: PathBuf,
    file: Which,
}

/// Which file it is: the number of one that was removed may be given again.
type Which = (u64, u64, i64, i64);

impl Drop for LocalSocketFile {
    fn drop(&mut self) {
        if file_at(&self.path).is_ok_and(|there| there == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn file_at(path: &Path) -> io::Result<Which> {
    fs::symlink_metadata(path).map(|about| (about.dev(), about.ino(), about.mtime(), about.mtime_nsec()))
}

/// Makes a listening socket at a path, for its owner alone (mode 0600). The file of a process that is dead is replaced.
///
/// # Errors
/// If the path cannot be had; the text says what to do.
pub fn listen_at_path(path: &Path) -> Result<(UnixListener, LocalSocketFile), LocalSocketError> {
    let failed = |error| LocalSocketError { path: path.to_owned(), error };
    let listener = match bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            remove_if_dead(path).map_err(failed)?;
            bind(path).map_err(failed)?
        }
        bound => bound.map_err(failed)?,
    };
    let file = file_at(path).map_err(failed)?;
    Ok((listener, LocalSocketFile { path: path.to_owned(), file }))
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let address = net::SocketAddrUnix::new(path)?;
    let socket = net::socket_with(net::AddressFamily::UNIX, net::SocketType::STREAM, net::SocketFlags::CLOEXEC, None)?;
    // The file is made with the socket's mode, so that at no moment others may use it.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Removes the file of a socket at which nobody listens any more.
fn remove_if_dead(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(_) | Err(_) => Err(ErrorKind::AddrInUse.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_dead_processs_socket_is_replaced_and_a_living_ones_is_not() {
        let folder = std::env::temp_dir().join(format!("kasha-socket-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        let mode = || fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777;
        let (dead, file) = listen_at_path(&path).unwrap();
        assert_eq!(mode(), 0o600);
        let why = listen_at_path(&path).unwrap_err().to_string();
        assert!(why.contains("another process listens there") && why.contains("K0201"), "{why}");
        UnixStream::connect(&path).expect("it listens still");
        // The file of a process that was killed stays.
        std::mem::forget(file);
        drop(dead);
        let (listener, file) = listen_at_path(&path).unwrap();
        UnixStream::connect(&path).expect("it listens");
        drop(listener);
        // Whoever comes later keeps its own.
        let (_later, later_file) = listen_at_path(&path).unwrap();
        drop(file);
        UnixStream::connect(&path).expect("it is another one's");
        drop(later_file);
        assert!(!path.exists());
        fs::write(&path, b"something").unwrap();
        let why = listen_at_path(&path).unwrap_err().to_string();
        assert!(why.contains("no socket") && why.contains("K0201"), "{why}");
        assert_eq!(fs::read(&path).unwrap(), b"something");
        let why = listen_at_path(&folder.join("x".repeat(200))).unwrap_err().to_string();
        assert!(why.contains("at most 107 bytes"), "{why}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
