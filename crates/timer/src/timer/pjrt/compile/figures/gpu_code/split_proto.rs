//! Messages that XLA split into a file of records, because protobuf bounds a message to 2 GiB.
//!
//! Format: openxla/xla, `xla/util/split_proto/split_proto.proto`, `SplitProtoManifest`. The first record describes the
//! others: parts that are merged into one message, and single fields.

use super::fields::{at_most_one, the_bytes};
use super::records::{is_file_of_records, records};
use crate::wire::WireCursor;

// SplitProtoManifest and Record
pub(super) const RESULT_PROTO_TYPE: u32 = 1;
pub(super) const RECORDS: u32 = 2;
pub(super) const PROTO_MERGE_RECORD: u32 = 2;
const FIELD_OVERRIDE_RECORD: u32 = 3;
// FieldOverrideRecord, and its elements' field number
const FIELD_PATH: u32 = 1;
const FIELD_NUMBER: u32 = 1;

/// A part of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MessagePart {
    /// A message to be merged with the others.
    Message(Vec<u8>),
    /// The text or bytes of the field at this path.
    Field { path: Vec<u32>, bytes: Vec<u8> },
}

/// Whether a payload is a split message. A plain one starts with another byte.
pub(super) fn is_split(payload: &[u8]) -> bool {
    is_file_of_records(payload)
}

/// The parts of a split message of this type.
pub(super) fn split(file: &[u8], message: &[u8]) -> Option<Vec<MessagePart>> {
    let mut records = records(file)?.into_iter();
    let manifest = records.next()?;
    if the_bytes(&manifest, RESULT_PROTO_TYPE)? != message {
        return None;
    }
    let mut parts = Vec::new();
    for field in WireCursor::new(&manifest) {
        let (number, value) = field.ok()?;
        if number != RECORDS {
            continue;
        }
        let record = records.next()?;
        let (kind, value) = WireCursor::new(value.as_bytes()?).next()?.ok()?;
        parts.push(match kind {
            PROTO_MERGE_RECORD => MessagePart::Message(record),
            FIELD_OVERRIDE_RECORD => MessagePart::Field { path: path(value.as_bytes()?)?, bytes: record },
            _ => return None,
        });
    }
    records.next().is_none().then_some(parts)
}

/// The field numbers of a path; an element that selects by something else than a number alone gets a number that no
/// field has.
fn path(field: &[u8]) -> Option<Vec<u32>> {
    let mut path = Vec::new();
    for element in WireCursor::new(field) {
        let (number, value) = element.ok()?;
        if number != FIELD_PATH {
            continue;
        }
        let element = value.as_bytes()?;
        let is_alone = WireCursor::new(element).count() == 1;
        let number = at_most_one(element, FIELD_NUMBER)?.and_then(|value| value.as_varint());
        path.push(number.filter(|_| is_alone).and_then(|number| u32::try_from(number).ok()).unwrap_or_default());
    }
    Some(path)
}
