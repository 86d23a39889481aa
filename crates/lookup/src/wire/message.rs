//! Writes protobuf fields.

use super::WireValue;

/// Bytes of a message under construction.
#[derive(Debug, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A field of wire type 0.
    #[inline]
    pub fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field << 3));
        self.varint(value);
        self
    }

    /// A double.
    pub fn double(&mut self, field: u32, value: f64) -> &mut Self {
        self.varint(u64::from(field << 3 | 1));
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A field copied from another message.
    pub fn field(&mut self, field: u32, value: WireValue<'_>) {
        match value {
            WireValue::Varint(value) => drop(self.number(field, value)),
            WireValue::Fixed64(value) => {
                self.varint(u64::from(field << 3 | 1));
                self.0.extend(value.to_le_bytes());
            }
            WireValue::Bytes(value) => drop(self.bytes(field, value)),
            WireValue::Fixed32(value) => {
                self.varint(u64::from(field << 3 | 5));
                self.0.extend(value.to_le_bytes());
            }
        }
    }

    /// Text, bytes or a message.
    #[inline]
    pub fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Self {
        self.varint(u64::from(field << 3 | 2));
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// A message that `write` fills.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{WireCursor, WireValue};

    #[test]
    fn what_is_written_is_read() {
        let mut message = Message::default();
        message.number(1, 150).bytes(2, b"testing").double(3, 1.5);
        message.message(60, |inner| {
            inner.number(58, u64::MAX);
        });
        let fields: Vec<_> = WireCursor::new(&message.0).collect::<Result<_, _>>().unwrap();
        // protobuf.dev, "Encoding": field 1 = 150, field 2 = "testing"
        assert!(message.0.starts_with(b"\x08\x96\x01\x12\x07testing"));
        assert_eq!(fields[2], (3, WireValue::Fixed64(1.5_f64.to_bits())));
        let mut again = Message::default();
        fields.iter().for_each(|&(field, value)| again.field(field, value));
        again.field(7, WireValue::Fixed32(0x0102_0304));
        assert_eq!(again.0, [&message.0[..], &[0x3d, 4, 3, 2, 1]].concat());
        let (60, WireValue::Bytes(inner)) = fields[3] else { panic!("{fields:?}") };
        assert_eq!(WireCursor::new(inner).next(), Some(Ok((58, WireValue::Varint(u64::MAX)))));
    }
}
