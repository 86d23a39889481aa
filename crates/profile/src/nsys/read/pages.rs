//! Checks the page sizes that a Parquet file states: the crate allocates what a page's header names, up to 2 GiB,
//! before it reads the data.

/// The maximum expansion of Snappy: a copy of 64 bytes takes at least three.
const MOST_EXPANDED: u64 = 22;
/// Maximum nesting of structs in a header.
const MAX_DEPTH: u32 = 16;

/// Checks the headers of a column's pages, which fill these bytes; `None` if one is damaged, or states more than its
/// data can expand to.
pub(super) fn check(mut chunk: &[u8]) -> Option<()> {
    while !chunk.is_empty() {
        let mut header = Header { bytes: chunk, sizes: [0; 2] };
        header.fields(0)?;
        let [uncompressed, compressed] = header.sizes;
        if uncompressed > compressed.checked_mul(MOST_EXPANDED)? {
            return None;
        }
        chunk = header.bytes.get(usize::try_from(compressed).ok()?..)?;
    }
    Some(())
}

/// A `PageHeader` in Thrift's compact protocol.
struct Header<'a> {
    bytes: &'a [u8],
    /// Sizes of the page's data, uncompressed and compressed: fields 2 and 3.
    sizes: [u64; 2],
}

impl Header<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn skip(&mut self, length: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(length).ok()?..)?;
        Some(())
    }

    /// The fields of a struct, up to its end.
    fn fields(&mut self, depth: u32) -> Option<()> {
        let mut id = 0_u64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            id = match head >> 4 {
                // written out, with its sign in the lowest bit
                0 => self.varint()? >> 1,
                step => id + u64::from(step),
            };
            match (depth, id, head & 15) {
                (0, 2 | 3, 5) => {
                    let value = self.varint()?;
                    // an odd one is negative
                    let size = self.sizes.get_mut(usize::try_from(id - 2).ok()?)?;
                    *size = if value & 1 == 0 { value >> 1 } else { return None };
                }
                // the value of a bool is in its header
                (_, _, 1 | 2) => {}
                (_, _, kind) => self.value(kind, depth)?,
            }
        }
    }

    fn value(&mut self, kind: u8, depth: u32) -> Option<()> {
        if depth >= MAX_DEPTH {
            return None;
        }
        match kind {
            1..=3 => self.skip(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.skip(8),
            8 => self.varint().and_then(|length| self.skip(length)),
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                // an element has a byte at least, so that this ends with the bytes
                (0..count).try_for_each(|_| self.value(head & 15, depth + 1))
            }
            11 => {
                let count = self.varint()?;
                let kinds = if count > 0 { self.byte()? } else { 0 };
                (0..count).try_for_each(|_| {
                    self.value(kinds >> 4, depth + 1)?;
                    self.value(kinds & 15, depth + 1)
                })
            }
            12 => self.fields(depth + 1),
            16.. | 0 | 13..=15 => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data page by hand: kind 0, its sizes, and a struct with a count, an encoding and statistics.
    fn page(uncompressed: &[u8], compressed: u8) -> Vec<u8> {
        let head = [&[0x15, 0x00, 0x15][..], uncompressed, &[0x15, compressed << 1]].concat();
        let of_data = [0x2c, 0x15, 0x08, 0x15, 0x00, 0x3c, 0x18, 0x02, b'a', b'b', 0x11, 0x00, 0x00];
        [&head[..], &of_data, &[0x00], &vec![7; usize::from(compressed)]].concat()
    }

    #[test]
    fn pages_are_as_large_as_their_data_can_become() {
        // 220 is the most that ten bytes become, and 221 is not
        let (most, more) = (page(&[0xb8, 0x03], 10), page(&[0xba, 0x03], 10));
        assert_eq!(check(&[page(&[40], 20), most.clone()].concat()), Some(()));
        assert_eq!(check(&[most, more].concat()), None);
        // 2 GiB in ten bytes, and a size below zero
        assert_eq!(check(&page(&[0xfe, 0xff, 0xff, 0xff, 0x0f], 10)), None);
        assert_eq!(check(&page(&[0x01], 10)), None);
        let whole = page(&[40], 20);
        assert!((1..whole.len()).all(|length| check(&whole[..length]).is_none()), "a part of a page is none");
        assert_eq!(check(&[]), Some(()));
    }

    #[test]
    fn depth_and_counts_have_an_end() {
        // structs in structs, and lists and maps of more elements than there are bytes
        assert_eq!(check(&[0x1c; 100_000]), None);
        assert_eq!(check(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), None);
        assert_eq!(check(&[0x1b, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x55, 0x00]), None);
        assert_eq!(check(&[0x19; 100_000]), None);
    }
}
