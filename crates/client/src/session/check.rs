//! Limits of operations, checked before anything is kept or sent: the encoders and the servers count on them.

use kasha_types::limits::{KEY_BYTES_MAX, OPERATION_KEY_BYTES_MAX, OPERATION_KEYS_MAX, VALUE_BYTES_MAX};
use kasha_wire::operation::Items;
use kasha_wire::{Read, Update};

use super::{CallOptions, WhyNot};

pub(super) fn check_options(options: &CallOptions<'_>) -> Result<(), WhyNot> {
    let is_bad = options.operation_key.is_some_and(|(key, _)| key.is_empty() || key.len() > OPERATION_KEY_BYTES_MAX);
    if is_bad { Err(WhyNot::OperationKey) } else { Ok(()) }
}

pub(crate) fn check_update(update: &Update<'_>) -> Result<(), WhyNot> {
    match update {
        Update::Put { key, value }
        | Update::PutIfVersion { key, value, .. }
        | Update::PutIfAbsent { key, value }
        | Update::Append { key, value } => check_key(key).and_then(|()| check_value(value)),
        Update::Delete { key } | Update::DeleteIfVersion { key, .. } | Update::Increment { key, .. } => check_key(key),
        Update::MultiPut(items) | Update::MultiDelete(items) | Update::MultiIncrement(items) => check_items(items),
    }
}

pub(crate) fn check_read(read: &Read<'_>) -> Result<(), WhyNot> {
    match read {
        Read::Get { key } | Read::Exists { key } => check_key(key),
        Read::MultiGet(items) => check_items(items),
    }
}

fn check_key(key: &[u8]) -> Result<(), WhyNot> {
    if key.len() > KEY_BYTES_MAX { Err(WhyNot::KeyTooLarge) } else { Ok(()) }
}

fn check_value(value: &[u8]) -> Result<(), WhyNot> {
    if value.len() > VALUE_BYTES_MAX { Err(WhyNot::ValueTooLarge) } else { Ok(()) }
}

/// Keys of a list are within their limit by its encoding.
fn check_items(items: &Items<'_>) -> Result<(), WhyNot> {
    if items.count() == 0 || items.count() as usize > OPERATION_KEYS_MAX {
        return Err(WhyNot::KeyCount);
    }
    items.iter().try_for_each(|item| check_value(item.value))
}
