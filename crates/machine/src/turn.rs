//! The body of a turn, shared by the runtime and the simulator.

use kasha_types::{LocalPosition, Tick};

use crate::{Data, Effect, Effects, Endpoint, FileName, Held, Machine};

/// What the two shells do differently: sockets and files here, a virtual network and disk there.
pub trait Shell {
    /// Queue a frame; flushed once per connection per turn. May be lost.
    fn send(&mut self, to: Endpoint, head: &[u8], tail: &[u8]);
    /// A frame of so many bytes to `to` waits for its gate: who causes more of them than it may is to be heard no more.
    fn held(&mut self, _to: Endpoint, _bytes: usize) {}
    /// It waits no more: it is sent next, or never.
    fn let_go(&mut self, _to: Endpoint, _bytes: usize) {}
    /// Write at an offset.
    fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]);
    /// Replace atomically.
    fn replace(&mut self, file: FileName, bytes: &[u8]);
    /// Cut to a length.
    fn truncate(&mut self, file: FileName, len: u64);
    /// Remove.
    fn remove(&mut self, file: FileName);
    /// Report `to` when everything before holds.
    fn commit(&mut self, to: LocalPosition, fsync: bool);
    /// Fsync in the background.
    fn flush(&mut self);
    /// Learn an address.
    fn route(&mut self, to: Endpoint, address: std::net::SocketAddr);
    /// Close after flushing.
    fn disconnect(&mut self, to: Endpoint);
    /// Stop the process.
    fn stop(&mut self, why: &str);
}

/// Bytes held for gates, of all connections: each of them alone is bounded by the shell. Beyond, a gated frame is dropped,
/// which every protocol bears: it is sent again when asked again.
const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Ends a turn: lets the machine close its batch, performs every effect, holds what is gated, and releases what has
/// opened. Leaves `effects` empty.
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
            Effect::DropHeld(shard) => held.drop_shard(shard, |to, bytes| shell.let_go(to, bytes)),
            Effect::Route { to, address } => shell.route(to, address),
            Effect::Disconnect(to) => shell.disconnect(to),
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
