//! What may be too much in an operation.

/// A limit of operations that is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// A key is longer than `KEY_BYTES_MAX`.
    Key,
    /// A value is longer than `VALUE_BYTES_MAX`.
    Value,
    /// There are more keys than `OPERATION_KEYS_MAX`, or none.
    KeyCount,
}
