//! NumPy's array file, as far as a dump needs it: versions 1 to 3, 32-bit little-endian integers in C order.
//!
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use std::path::Path;

use super::error::MosaicError;
use super::spec::read_bounded;
use crate::printable::printable;

/// Maximum size of a dump.
const MAX_BYTES: u64 = 4 << 30;

/// Maximum size of the header before the data; NumPy itself refuses more than 10000 bytes.
const MAX_HEADER_BYTES: usize = 10_000;

const MAGIC: &[u8] = b"\x93NUMPY";

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
    let cut = || "ends within its header".to_owned();
    let rest = bytes.strip_prefix(MAGIC).ok_or("is not a file of `numpy.save`")?;
    let (length, before) = match rest {
        [1, _, low, high, ..] => (usize::from(u16::from_le_bytes([*low, *high])), 4),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 6),
        [1..=3, ..] | [] => return Err(cut()),
        [version, ..] => return Err(format!("has version {version} of the format, which is unknown")),
    };
    if length > MAX_HEADER_BYTES {
        return Err(format!("has a header of {length} bytes"));
    }
    let header = rest.get(before..before + length).ok_or_else(cut)?;
    let header = std::str::from_utf8(header).map_err(|_| "has a header that is not text")?;
    let kind = member(header, "descr").ok_or("does not say what its elements are")?;
    if !matches!(kind.trim_matches(['\'', '"']), "<u4" | "<i4") {
        return Err(format!("holds elements of type {}", quoted(kind)));
    }
    let shape = member(header, "shape").ok_or("does not say its shape")?;
    let sizes: Vec<u64> = shape
        .trim_matches(['(', ')'])
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty())
        .map(|size| size.parse().map_err(|_| format!("has the shape {}", quoted(shape))))
        .collect::<Result<_, _>>()?;
    if member(header, "fortran_order") != Some("False") && sizes.len() > 1 {
        return Err("is in Fortran's order".to_owned());
    }
    let words = sizes.iter().try_fold(1_u64, |words, size| words.checked_mul(*size));
    let start = MAGIC.len() + before + length;
    let there = (bytes.len() - start) as u64;
    match words.and_then(|words| words.checked_mul(4)) {
        Some(wanted) if wanted == there => Ok(Words { bytes, start }),
        _ => Err(format!("has {there} bytes of data, which is not its shape {}", quoted(shape))),
    }
}

/// What a header says, in one line.
fn quoted(text: &str) -> String {
    printable(&text.chars().take(80).collect::<String>())
}

/// A member of the header, which is a dictionary in Python's spelling: the text after its name up to the next comma that
/// stands outside brackets.
fn member<'h>(header: &'h str, name: &str) -> Option<&'h str> {
    let after = ["'", "\""].iter().find_map(|quote| header.split_once(&format!("{quote}{name}{quote}")))?.1;
    let value = after.trim_start().strip_prefix(':')?;
    let mut depth = 0_u32;
    let end = value.find(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' | '}' => return depth == 0,
            _ => {}
        }
        false
    })?;
    value.get(..end).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((header.len() as u16).to_le_bytes()),
            _ => bytes.extend((header.len() as u32).to_le_bytes()),
        }
        [&bytes, header.as_bytes(), data].concat()
    }

    #[test]
    fn arrays_of_words_are_read() {
        let data = [1_u32.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
        for (version, header) in [
            (1, "{'descr': '<u4', 'fortran_order': False, 'shape': (2,), }   \n"),
            (2, "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1), }\n"),
            (3, "{\"shape\": (1, 1, 2), \"fortran_order\": False, \"descr\": \"<u4\"}"),
            (1, "{'descr': '<u4', 'fortran_order': True, 'shape': (2,), }"),
        ] {
            let words = parse(npy(version, header, &data)).unwrap();
            assert_eq!((words.len(), words.get(0), words.get(1), words.get(2)), (2, 1, u32::MAX, 0), "{header}");
        }
        let one = parse(npy(1, "{'descr': '<u4', 'fortran_order': False, 'shape': (), }", &data[..4])).unwrap();
        assert_eq!(one.len(), 1);
    }

    #[test]
    fn other_files_are_refused() {
        let good = "{'descr': '<u4', 'fortran_order': False, 'shape': (2,), }";
        let whole = npy(1, good, &[0; 8]);
        for length in 0..whole.len() {
            parse(whole[..length].to_vec()).unwrap_err();
        }
        let error = |header: &str, data: usize| parse(npy(1, header, &vec![0; data])).unwrap_err();
        assert!(error(&good.replace("<u4", "<f4"), 8).contains("type '<f4'"));
        assert!(error(&good.replace("<u4", ">u4"), 8).contains("type '>u4'"));
        assert!(error(good, 12).contains("12 bytes of data"));
        assert!(error(&good.replace("(2,)", "(4294967296, 4294967296)"), 8).contains("not its shape"));
        assert!(error(&good.replace("(2,)", "(-2,)"), 8).contains("shape (-2,)"));
        assert!(error(&good.replace("False", "True").replace("(2,)", "(1, 2)"), 8).contains("Fortran"));
        for text in ["(-1\n, 2)", "(210,[\n\u{7f}\u{85})"] {
            let error = error(&good.replace("(2,)", text), 8);
            assert!(error.contains("shape (") && !error.contains(char::is_control), "{error:?}");
        }
        assert!(error(&good.replace("<u4", &"x".repeat(5_000)), 8).len() < 200);
        assert!(error("{}", 8).contains("does not say"));
        assert!(parse(npy(9, good, &[0; 8])).unwrap_err().contains("version 9"));
        assert!(parse(npy(2, &" ".repeat(10_001), &[0; 8])).unwrap_err().contains("10001 bytes"));
    }
}
