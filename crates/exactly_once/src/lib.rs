//! exactly-once
