//! Checks the limits of an operation before anything is kept or sent. The encoders and the servers rely on these
//! limits.

use kasha_types::limits::OPERATION_KEY_BYTES_MAX;
use kasha_wire::operation::Excess;

use super::WhyNot;
use super::options::CallOptions;

pub(super) fn check_options(options: &CallOptions<'_>) -> Result<(), WhyNot> {
    let is_bad = options.operation_key.is_some_and(|(key, _)| key.is_empty() || key.len() > OPERATION_KEY_BYTES_MAX);
    if is_bad { Err(WhyNot::OperationKey) } else { Ok(()) }
}

impl From<Excess> for WhyNot {
    fn from(excess: Excess) -> Self {
        match excess {
            Excess::Key => Self::KeyTooLarge,
            Excess::Value => Self::ValueTooLarge,
            Excess::KeyCount => Self::KeyCount,
        }
    }
}
