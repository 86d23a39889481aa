//! Fields that occur at most once in a message.

use crate::wire::{WireCursor, WireValue};

/// An optional field of a message; `None` if it occurs twice, or if the bytes are not a message.
pub(super) fn at_most_one(message: &[u8], number: u32) -> Option<Option<WireValue<'_>>> {
    let mut found = None;
    for field in WireCursor::new(message) {
        let (field, value) = field.ok()?;
        if field == number && found.replace(value).is_some() {
            return None;
        }
    }
    Some(found)
}

/// Required text, bytes or message.
pub(super) fn the_bytes(message: &[u8], number: u32) -> Option<&[u8]> {
    at_most_one(message, number)??.as_bytes()
}
