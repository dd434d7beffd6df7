//! All tests of the crate in one program, which is optimized and linked once.

mod coordinator_cut;
mod damage;
mod descriptors;
mod full_disk;
mod full_memory;
mod garbage;
mod give_up;
mod group;
mod group_folders;
mod group_stops;
mod interactive;
mod lived_in;
mod mapped;
mod nodes;
mod outsiders;
mod recipes;
mod redis;
mod redis_crashes;
mod restart;
mod sessions;
mod shell;
mod shows;
mod stops;
mod wrong_folders;
mod wrong_starts;
