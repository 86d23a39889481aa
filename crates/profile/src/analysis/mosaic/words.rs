//! A dump's words, from NumPy's array file.

use std::path::Path;

use super::error::MosaicError;
use super::spec::read_bounded;
use crate::array::{DType, NpyHeader};

/// Maximum size of a dump.
const MAX_BYTES: u64 = 4 << 30;

/// The 32-bit words of an array of any shape, in C order.
#[derive(Debug)]
pub struct Words {
    bytes: Vec<u8>,
    start: usize,
}

impl Words {
    /// How many there are.
    pub fn len(&self) -> u64 {
        (self.bytes.len().saturating_sub(self.start) / 4) as u64
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A word; zero beyond the end.
    #[inline]
    pub fn get(&self, place: u64) -> u32 {
        let word = usize::try_from(place)
            .ok()
            .and_then(|place| place.checked_mul(4)?.checked_add(self.start))
            .and_then(|at| self.bytes.get(at..)?.first_chunk());
        word.copied().map_or(0, u32::from_le_bytes)
    }
}

/// Reads an array of 32-bit integers.
///
/// # Errors
/// If the file cannot be read, or is something else.
pub fn read_npy(path: &Path) -> Result<Words, MosaicError> {
    parse(read_bounded(path, MAX_BYTES)?).map_err(|what| MosaicError::NotWords { path: path.to_owned(), what })
}

fn parse(bytes: Vec<u8>) -> Result<Words, String> {
    let header = NpyHeader::read(&bytes)?;
    if !header.holds(DType::U32) && !header.holds(DType::S32) {
        return Err(format!("holds {}", header.shown()));
    }
    let words = header.dims.iter().try_fold(1_u64, |words, size| words.checked_mul(*size));
    let (start, there) = (header.start, (bytes.len() - header.start) as u64);
    match words.and_then(|words| words.checked_mul(4)) {
        Some(wanted) if wanted == there => Ok(Words { bytes, start }),
        _ => Err(format!("has {there} bytes of data for {}", header.shown())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn arrays_of_words_are_read_and_others_refused() {
        let data = [1_u32.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
        for (descr, shape) in [("<u4", "(2,)"), ("<i4", "(2, 1)")] {
            let words = parse(npy(descr, shape, &data)).unwrap();
            assert_eq!((words.len(), words.get(0), words.get(1), words.get(2)), (2, 1, u32::MAX, 0));
        }
        assert_eq!(parse(npy("<u4", "()", &data[..4])).unwrap().len(), 1);
        for (descr, shape, bytes, why) in [
            ("<f4", "(2,)", 8, "holds `<f4`"),
            (">u4", "(2,)", 8, "holds `>u4`"),
            ("<u4", "(2,)", 12, "12 bytes of data for `<u4` of the shape (2)"),
            ("<u4", "(4294967296, 4294967296)", 8, "8 bytes of data"),
        ] {
            let error = parse(npy(descr, shape, &vec![0; bytes])).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
