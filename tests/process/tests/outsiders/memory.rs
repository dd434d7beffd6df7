//! The folder of the coordinator is its memory: without it, or with an older copy of it, nothing may be placed anew.
