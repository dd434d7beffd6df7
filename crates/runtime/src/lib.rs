//! The production shell (DESIGN sections 3 and 12): sockets, files, clock and threads.
//!
//! One [`EventLoop`] is one thread that drives one [`kasha_machine::Machine`]: a node's core, the coordinator, or a
//! client session. It reads frames, steps the machine, lets [`kasha_machine::turn::finish`] perform the effects, and
//! writes once per connection per turn. It refuses to know what any message means beyond the handshake.
//!
//! Kept here: frames of one connection stay in order; `now` is read after the input it goes with was received
//! (section 7); an effect on a file either holds or the loop ends with an error (**R5.4**); a commit is reported only
//! when everything before it holds as it asked (**R5.3**), in order; every queue, buffer and count has a limit
//! ([`limits`]).
//!
//! This is the only production crate that may block.
// The outside world is this crate's business, so the rules that keep it out of the protocols do not apply.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(unsafe_code)]

mod clock;
mod connection;
mod data_dir;
mod descriptors;
mod event_loop;
mod faults;
mod files;
mod folder_disk;
mod framing;
mod handle;
mod handshake;
mod inbound;
pub mod limits;
mod local_socket;
mod log_thread;
mod mapped_files;
mod mapping;
mod memory;
mod names;
mod network;
mod options;
mod output;
mod paths;
mod say;
mod spawn;
mod stats;
mod storage;
mod timer;
mod trash;
mod turns;
mod usage;

pub use clock::{Clock, boot_id, random_u64};
pub use data_dir::{DataDir, DataDirError, Owner, foreign_in, make_folder_of_nodes};
pub use descriptors::{TooFewDescriptors, raise_descriptor_limit};
pub use event_loop::{Application, Control, EventLoop, Exit, LoopError, Serve};
pub use files::StorageError;
pub use folder_disk::FolderDisk;
pub use framing::{Framing, Listener, ListeningSocket};
pub use handle::LoopHandle;
pub use local_socket::{LocalSocketError, LocalSocketFile, listen_at_path};
pub use mapping::explain_bus_errors;
pub use memory::WarmBuffers;
pub use names::{Answer, Names, Resolver, look_up};
pub use network::{ListenError, listen};
pub use options::{ClusterCell, FrameFaults, Identity, LoopOptions};
pub use say::say;
pub use spawn::spawn_loop;
pub use stats::NetworkStats;
pub use storage::Storage;
pub use trash::TrashThread;
pub use usage::{HeapUse, thread_cpu_nanos};
