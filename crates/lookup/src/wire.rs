//! A bounded cursor over protobuf bytes: fields in order, nothing copied, every length checked against the buffer; and
//! a writer of fields.
//!
//! Wire format: <https://protobuf.dev/programming-guides/encoding/>. Groups (wire types 3 and 4) do not occur in the
//! formats read here and are errors.
//!
//! ```
//! use autotune_lowered_lookup::wire::{Message, WireCursor, WireValue};
//!
//! let mut message = Message::default();
//! message.number(1, 150).number(3, 7);
//! assert_eq!(message.0, [0x08, 0x96, 0x01, 0x18, 0x07]);
//! let fields: Vec<(u32, WireValue<'_>)> = WireCursor::new(&message.0).collect::<Result<_, _>>()?;
//! assert_eq!(fields, [(1, WireValue::Varint(150)), (3, WireValue::Varint(7))]);
//! // it ends within a field
//! assert!(WireCursor::new(&message.0[..2]).next().is_some_and(|field| field.is_err()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod message;

pub use message::Message;

/// Bytes that are not a protobuf message; `offset` counts from the start of the buffer that the cursor was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset}")]
pub struct WireError {
    /// What is wrong.
    pub what: &'static str,
    /// Where, in the innermost message.
    pub offset: usize,
}

/// One field's value, borrowed from the message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WireValue<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64(u64),
    /// Wire type 2: a string, bytes, a packed list or a message.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32(u32),
}

impl<'a> WireValue<'a> {
    /// The bytes of a length-delimited field.
    pub fn as_bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The value of a varint field.
    pub fn as_varint(self) -> Option<u64> {
        match self {
            Self::Varint(value) => Some(value),
            _ => None,
        }
    }
}

/// Iterates over the fields of one message as `(field number, value)`.
///
/// After the first error the iterator is finished.
#[derive(Debug, Clone)]
pub struct WireCursor<'a> {
    buffer: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> WireCursor<'a> {
    /// A cursor at the start of a message.
    pub fn new(buffer: &'a [u8]) -> Self {
        Self { buffer, position: 0, failed: false }
    }

    /// Bytes consumed so far.
    pub fn position(&self) -> usize {
        self.position
    }

    #[cold]
    fn error(&self, what: &'static str) -> WireError {
        WireError { what, offset: self.position }
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<u64, WireError> {
        // most tags, ids and lengths are one byte
        match self.buffer.get(self.position) {
            Some(&byte) if byte < 0x80 => {
                self.position += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    #[inline]
    fn long_varint(&mut self) -> Result<u64, WireError> {
        // up to eight bytes at once: the first byte without its high bit ends the number, and the groups of seven bits
        // are joined
        if let Some(word) = self.buffer.get(self.position..).and_then(<[u8]>::first_chunk) {
            let word = u64::from_le_bytes(*word);
            let ends = !word & 0x8080_8080_8080_8080;
            if ends != 0 {
                let bits = ends.trailing_zeros() + 1;
                self.position += bits as usize / 8;
                let sevens = word & (u64::MAX >> (64 - bits)) & 0x7f7f_7f7f_7f7f_7f7f;
                let pairs = (sevens & 0x007f_007f_007f_007f) | ((sevens & 0x7f00_7f00_7f00_7f00) >> 1);
                let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
                return Ok((fours & 0x0fff_ffff) | ((fours & 0x0fff_ffff_0000_0000) >> 4));
            }
        }
        self.varint_by_bytes()
    }

    fn varint_by_bytes(&mut self) -> Result<u64, WireError> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let Some(&byte) = self.buffer.get(self.position) else {
                return Err(self.error("truncated varint"));
            };
            self.position += 1;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.error("varint beyond 64 bits"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.error("varint longer than ten bytes"))
    }

    #[inline(always)]
    fn take(&mut self, length: u64) -> Result<&'a [u8], WireError> {
        let rest = self.buffer.get(self.position..).unwrap_or_default();
        if length > rest.len() as u64 {
            return Err(self.error("length beyond the message"));
        }
        let bytes = rest.get(..length as usize).unwrap_or_default();
        self.position += bytes.len();
        Ok(bytes)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let bytes = self.take(N as u64)?;
        <[u8; N]>::try_from(bytes).map_err(|_| self.error("truncated fixed-width field"))
    }

    #[inline(always)]
    fn field(&mut self) -> Result<(u32, WireValue<'a>), WireError> {
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 || number >= 1 << 29 {
            return Err(self.error("field number out of range"));
        }
        let number = number as u32;
        let value = match tag & 7 {
            0 => WireValue::Varint(self.varint()?),
            1 => WireValue::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let length = self.varint()?;
                WireValue::Bytes(self.take(length)?)
            }
            5 => WireValue::Fixed32(u32::from_le_bytes(self.fixed()?)),
            _ => return Err(self.error("unknown wire type")),
        };
        Ok((number, value))
    }
}

/// Shortcuts for expected fields: a profile has millions of events.
impl<'a> WireCursor<'a> {
    /// The varint after this tag, if both come next. Anything else is left to the iterator.
    #[inline(always)]
    pub fn varint_after(&mut self, tag: u8) -> Option<u64> {
        let before = self.position;
        if self.failed || self.buffer.get(before) != Some(&tag) {
            return None;
        }
        self.position += 1;
        let value = self.varint().ok();
        if value.is_none() {
            self.position = before;
        }
        value
    }

    /// The same for bytes with a length below 16384.
    #[inline(always)]
    pub fn bytes_after(&mut self, tag: u8) -> Option<&'a [u8]> {
        let rest = self.buffer.get(self.position..).filter(|_| !self.failed)?;
        let (head, length) = match *rest {
            [first, length @ 0..0x80, ..] if first == tag => (2, usize::from(length)),
            [first, low, high @ 0..0x80, ..] if first == tag => (3, usize::from(low & 0x7f) | usize::from(high) << 7),
            _ => return None,
        };
        let value = rest.get(head..head + length)?;
        self.position += head + length;
        Some(value)
    }

    /// Skips bytes whose fields are known.
    pub fn step_over(&mut self, bytes: usize) {
        self.position = self.buffer.len().min(self.position.saturating_add(bytes));
    }
}

impl<'a> Iterator for WireCursor<'a> {
    type Item = Result<(u32, WireValue<'a>), WireError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.position >= self.buffer.len() {
            return None;
        }
        let field = self.field();
        self.failed = field.is_err();
        Some(field)
    }
}

/// The highest number of a message's fields, as far as they can be read; zero if there is none.
pub fn highest_field(message: &[u8]) -> u32 {
    WireCursor::new(message).map_while(Result::ok).map(|(number, _)| number).max().unwrap_or(0)
}

/// The numbers of a repeated varint field, packed or not.
///
/// # Errors
///
/// A packed field that ends within a number.
pub fn repeated_varints(value: WireValue<'_>, numbers: &mut Vec<u64>) -> Result<(), WireError> {
    match value {
        WireValue::Varint(number) => numbers.push(number),
        WireValue::Bytes(bytes) => {
            let mut cursor = WireCursor::new(bytes);
            while cursor.position < bytes.len() {
                numbers.push(cursor.varint()?);
            }
        }
        _ => return Err(WireError { what: "fixed-width value where varints are expected", offset: 0 }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_documentations_examples() {
        // protobuf.dev, "Encoding": field 1 = 150; field 2 = "testing"
        let fields: Vec<_> = WireCursor::new(b"\x08\x96\x01\x12\x07testing").collect::<Result<_, _>>().unwrap();
        assert_eq!(fields, [(1, WireValue::Varint(150)), (2, WireValue::Bytes(b"testing"))]);
        let mut numbers = Vec::new();
        repeated_varints(WireValue::Bytes(b"\x03\x8e\x02\x9e\xa7\x05"), &mut numbers).unwrap();
        assert_eq!(numbers, [3, 270, 86942]);
    }

    /// Every length of varint, at the end of the buffer and before other bytes.
    #[test]
    fn varints_of_every_length() {
        for bits in 0..64 {
            for value in [1_u64 << bits, u64::MAX >> bits, (1 << bits) | 0x55] {
                let mut bytes = vec![0x08];
                let mut rest = value;
                while rest >= 0x80 {
                    bytes.push(rest as u8 | 0x80);
                    rest >>= 7;
                }
                bytes.push(rest as u8);
                assert_eq!(WireCursor::new(&bytes).next(), Some(Ok((1, WireValue::Varint(value)))));
                bytes.extend([0x10, 0xff, 0x01, 0x18, 3, 0x20, 4, 0x28, 5]);
                let mut cursor = WireCursor::new(&bytes);
                assert_eq!(cursor.next(), Some(Ok((1, WireValue::Varint(value)))));
                assert_eq!(cursor.next(), Some(Ok((2, WireValue::Varint(255)))));
            }
        }
    }

    #[test]
    fn hostile_bytes_end_in_one_error() {
        for bytes in [
            &b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"[..],
            b"\x12\x05ab",
            b"\x80",
            b"\x00\x01",
            b"\x0b",
            b"\x0d\x01",
        ] {
            let all: Vec<_> = WireCursor::new(bytes).collect();
            assert_eq!(all.len(), 1, "{bytes:?}");
            assert!(all[0].is_err(), "{bytes:?}");
        }
        assert!(
            WireCursor::new(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02])
                .next()
                .unwrap()
                .is_err()
        );
    }
}
