//! The end of a turn, shared by the runtime and the simulator: [`finish`] lets the machine close its batch and performs
//! its effects through a [`Shell`].
//!
//! **D3** is kept here: an effect with a closed gate goes into [`Held`], and leaves when the machine says that the gate
//! is open.

use kasha_types::{ConnId, LocalPosition, Tick};

use crate::{Data, Effect, Effects, Endpoint, FileName, Held, Machine};

/// What the two shells do differently: the runtime has sockets and files, the simulator a virtual network and disk.
pub trait Shell {
    /// Queue a frame; flushed once per connection per turn. May be lost.
    fn send(&mut self, to: Endpoint, head: &[u8], tail: &[u8]);
    /// A frame of this many bytes to `to` waits for its gate. A shell stops reading from an endpoint that causes more
    /// of them than its limit.
    fn held(&mut self, _to: Endpoint, _bytes: usize) {}
    /// The frame waits no longer: it is sent next, or dropped.
    fn let_go(&mut self, _to: Endpoint, _bytes: usize) {}
    /// Write at an offset.
    fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]);
    /// Replace a file atomically.
    fn replace(&mut self, file: FileName, bytes: &[u8]);
    /// Cut a file to a length.
    fn truncate(&mut self, file: FileName, len: u64);
    /// Remove a file.
    fn remove(&mut self, file: FileName);
    /// Report `to` when every file effect before this one is complete.
    fn commit(&mut self, to: LocalPosition, fsync: bool);
    /// Fsync everything written so far in the background.
    fn flush(&mut self);
    /// Fsync what was written to log segments so far in the background, and report it.
    fn flush_logs(&mut self);
    /// Report what the clock on the wall shows. A shell without one does nothing.
    fn read_clock(&mut self) {}
    /// Learn the address of an endpoint.
    fn route(&mut self, to: Endpoint, address: std::net::SocketAddr);
    /// Learn the address of an endpoint, and whom it stands for. A shell without a handshake has nobody to compare.
    fn route_as(&mut self, to: Endpoint, _who: Endpoint, address: std::net::SocketAddr) {
        self.route(to, address);
    }
    /// Close a connection after flushing it.
    fn disconnect(&mut self, to: Endpoint);
    /// Read no more from a connection, or go on. A shell whose clients send little does nothing.
    fn hear(&mut self, _from: ConnId, _more: bool) {}
    /// Stop the process.
    fn stop(&mut self, why: &str);
}

/// Bytes that all connections together may have held. (The shell bounds each connection by itself.) Above this limit a
/// gated frame is dropped. Every protocol survives that: the frame is sent again when its receiver asks again.
const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Ends a turn: lets the machine close its batch, performs every effect, holds effects with closed gates, and releases
/// the frames whose gates have opened. Leaves `effects` empty.
pub fn finish<M: Machine>(now: Tick, machine: &mut M, effects: &mut Effects, held: &mut Held, shell: &mut impl Shell) {
    machine.end_turn(now, effects);
    for &effect in effects.queue() {
        match effect {
            Effect::Send { to, head, tail, gate } => {
                if gate == crate::Gate::Now {
                    let tail = tail.map_or(&[][..], |slice| machine.log_bytes(slice));
                    shell.send(to, effects.bytes(head), tail);
                } else if held.bytes() < HELD_BYTES_MAX {
                    let head = effects.bytes(head);
                    shell.held(to, head.len() + tail.map_or(0, |slice| slice.len as usize));
                    held.hold(gate, to, head, tail);
                }
            }
            Effect::Write { file, offset, data: Data::Span(span) } => shell.write(file, offset, effects.bytes(span)),
            Effect::Write { file, offset, data: Data::Log(slice) } => {
                shell.write(file, offset, machine.log_bytes(slice));
            }
            Effect::Replace { file, data } => shell.replace(file, effects.bytes(data)),
            Effect::Truncate { file, len } => shell.truncate(file, len),
            Effect::Remove { file } => shell.remove(file),
            Effect::Commit { to, fsync } => shell.commit(to, fsync),
            Effect::Flush => shell.flush(),
            Effect::FlushLogs => shell.flush_logs(),
            Effect::ReadClock => shell.read_clock(),
            Effect::DropHeld(shard) => held.drop_shard(shard, |to, bytes| shell.let_go(to, bytes)),
            Effect::DropCommitted => held.drop_committed(|to, bytes| shell.let_go(to, bytes)),
            Effect::Route { to, address } => shell.route(to, address),
            Effect::RouteAs { to, who, address } => shell.route_as(to, who, address),
            Effect::Disconnect(to) => shell.disconnect(to),
            Effect::Hear { from, more } => shell.hear(from, more),
            Effect::Stop(why) => shell.stop(&String::from_utf8_lossy(effects.bytes(why))),
        }
    }
    effects.clear();
    held.release(
        |gate| machine.is_open(gate),
        |to, head, tail| {
            let tail = tail.map_or(&[][..], |slice| machine.log_bytes(slice));
            shell.let_go(to, head.len() + tail.len());
            shell.send(to, head, tail);
        },
    );
}
