//! Bytes that wait to be written to one connection.

use std::io::{self, ErrorKind, IoSlice, Write};

use kasha_wire::{WireVersion, frame};

/// Capacity above which an emptied buffer is given back.
const KEPT_BYTES: usize = 256 * 1024;

/// The bytes that a connection is to send.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    sent: usize,
    /// Frames that wait for the handshake's end.
    held: Vec<u8>,
    /// The socket took no more; an event says when it does again.
    blocked: bool,
    /// Whether the socket ever took anything.
    opened: bool,
}

impl Output {
    /// Bytes of all that is not written yet.
    pub(crate) fn len(&self) -> usize {
        self.ready() + self.held.len()
    }

    /// Whether there is nothing that may be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready() == 0
    }

    fn ready(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Keeps a frame until [`Output::release`].
    pub(crate) fn hold(&mut self, head: &[u8], tail: &[u8]) {
        self.held.extend_from_slice(head);
        self.held.extend_from_slice(tail);
    }

    /// The handshake is over, and the other side speaks this version.
    pub(crate) fn release(&mut self, version: WireVersion) {
        let mut held = std::mem::take(&mut self.held);
        frame::restamp(&mut held, version);
        self.push(&held);
    }

    /// There will be no handshake: what waits for its end is dropped.
    pub(crate) fn give_up_held(&mut self) {
        self.held = Vec::new();
    }

    /// Queues a frame that goes in another version than it was made in.
    #[cold]
    pub(crate) fn push_frame(&mut self, version: WireVersion, head: &[u8], tail: &[u8]) {
        self.push(head);
        let begins = self.bytes.len() - head.len();
        frame::restamp(&mut self.bytes[begins..], version);
        self.push(tail);
    }

    /// Whether the connection is known to be made: something was written.
    pub(crate) fn opened(&self) -> bool {
        self.opened
    }

    /// The socket says that it takes more.
    pub(crate) fn unblock(&mut self) {
        self.blocked = false;
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Queues bytes behind those that wait for the socket.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The queue's end, for encoding into.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes what is queued, `head` and `tail` in one call, straight from where they lie; queues what the socket does
    /// not take. An error is found again by the next [`Output::flush`].
    pub(crate) fn gather(&mut self, socket: &mut impl Write, head: &[u8], tail: &[u8]) {
        let mut taken = 0;
        if !self.blocked && self.opened {
            let slices = [IoSlice::new(&self.bytes[self.sent..]), IoSlice::new(head), IoSlice::new(tail)];
            taken = socket.write_vectored(&slices).unwrap_or(0);
        }
        let queued = taken.min(self.ready());
        self.sent += queued;
        taken -= queued;
        let of_head = taken.min(head.len());
        self.push(&head[of_head..]);
        self.push(&tail[taken - of_head..]);
    }

    /// Writes until all is written or the socket takes no more. Says whether it took anything.
    pub(crate) fn flush(&mut self, socket: &mut impl Write) -> io::Result<bool> {
        let before = self.ready();
        while !self.is_empty() && !self.blocked {
            match socket.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => {
                    self.sent += len;
                    self.opened = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let progress = self.ready() < before;
        if self.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
            self.sent = 0;
        }
        Ok(progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes at a time, then blocks.
    struct Narrow {
        got: Vec<u8>,
        each: usize,
        room: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(bytes)])
        }
        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let limit = self.each.min(self.room);
            if limit == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let before = self.got.len();
            self.got.extend(slices.iter().flat_map(|slice| slice.iter()).take(limit));
            let taken = self.got.len() - before;
            self.room -= taken;
            Ok(taken)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_is_lost_or_reordered_when_the_socket_is_narrow() {
        for each in 1..40 {
            let mut socket = Narrow { got: Vec::new(), each, room: 0 };
            let (mut output, mut expected) = (Output::default(), Vec::new());
            for round in 0u8..20 {
                let (head, tail) = ([round; 3], [round + 100; 9]);
                output.push(&[round + 50]);
                output.gather(&mut socket, &head, &tail);
                expected.extend([&[round + 50][..], &head, &tail].concat());
                socket.room += usize::from(round % 3) * 11;
                output.unblock();
                output.flush(&mut socket).unwrap();
            }
            socket.room = usize::MAX;
            output.unblock();
            output.flush(&mut socket).unwrap();
            assert_eq!(socket.got, expected);
            assert!(output.is_empty());
        }
    }
}
