//! The real binary as real processes.
