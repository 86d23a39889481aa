//! NumPy's array file: what its header says.
//!
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>, versions 1 to 3.

use super::DType;
use crate::printable::printable;

/// Maximum size of the header before the data; NumPy itself refuses more than 10000 bytes.
pub const MAX_NPY_HEADER_BYTES: usize = 10_000;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The header of an array in C order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHeader<'h> {
    /// NumPy's name of the element type, such as `<f4`.
    pub descr: &'h str,
    /// Dimensions, outermost first.
    pub dims: Vec<u64>,
    /// Where the elements begin.
    pub start: usize,
}

impl<'h> NpyHeader<'h> {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// If it is something else, or its array is in Fortran's order; what the file does, as a phrase that follows its
    /// name.
    pub fn read(bytes: &'h [u8]) -> Result<Self, String> {
        let cut = || "ends within its header".to_owned();
        let rest = bytes.strip_prefix(MAGIC).ok_or("is not a file of `numpy.save`")?;
        let (length, before) = match rest {
            [1, _, low, high, ..] => (usize::from(u16::from_le_bytes([*low, *high])), 4),
            [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 6),
            [1..=3, ..] | [] => return Err(cut()),
            [version, ..] => return Err(format!("has version {version} of the format, which is unknown")),
        };
        if length > MAX_NPY_HEADER_BYTES {
            return Err(format!("has a header of {length} bytes"));
        }
        let header = rest.get(before..before + length).ok_or_else(cut)?;
        let header = std::str::from_utf8(header).map_err(|_| "has a header that is not text")?;
        let descr = member(header, "descr").ok_or("does not say what its elements are")?;
        let shape = member(header, "shape").ok_or("does not say its shape")?;
        let dims = shape.trim_matches(['(', ')']).split(',').map(str::trim).filter(|size| !size.is_empty());
        let dims: Result<Vec<u64>, _> = dims.map(str::parse).collect();
        let dims = dims.map_err(|_| format!("has the shape {}", quoted(shape)))?;
        if member(header, "fortran_order") != Some("False") && dims.len() > 1 {
            return Err("is in Fortran's order".to_owned());
        }
        Ok(Self { descr: descr.trim_matches(['\'', '"']), dims, start: MAGIC.len() + before + length })
    }

    /// Whether its elements are of a type; types that NumPy lacks are stored as plain bytes.
    pub fn holds(&self, dtype: DType) -> bool {
        let Some((order, rest)) = self.descr.split_at_checked(1) else { return false };
        let Some((kind, size)) = rest.split_at_checked(1) else { return false };
        let is_of_size = size.parse() == Ok(dtype.host_bytes());
        let kinds = match dtype {
            DType::Pred => "b",
            DType::F16 | DType::F32 | DType::F64 => "f",
            DType::C64 | DType::C128 => "c",
            DType::S8 | DType::S16 | DType::S32 | DType::S64 => "i",
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => "u",
            _ => "uiV",
        };
        // single bytes have no order
        is_of_size && matches!(order, "<" | "|") && kinds.contains(kind)
    }

    /// The element type and the shape, for a message.
    pub fn shown(&self) -> String {
        let dims: Vec<String> = self.dims.iter().map(u64::to_string).collect();
        format!("`{}` of the shape ({})", quoted(self.descr), dims.join(", "))
    }
}

/// What a header says, in one line.
fn quoted(text: &str) -> String {
    printable(&text.chars().take(80).collect::<String>())
}

/// A member of the header, which is a dictionary in Python's spelling: the text after its name up to the next comma
/// that stands outside brackets.
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

    /// A file without elements.
    fn npy(version: u8, header: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((header.len() as u16).to_le_bytes()),
            _ => bytes.extend((header.len() as u32).to_le_bytes()),
        }
        [&bytes, header.as_bytes()].concat()
    }

    #[test]
    fn headers_of_every_version_are_read() {
        for (version, header, dims) in [
            (1, "{'descr': '<u4', 'fortran_order': False, 'shape': (2,), }   \n", vec![2]),
            (2, "{'descr': '<u4', 'fortran_order': False, 'shape': (2, 1), }\n", vec![2, 1]),
            (3, "{\"shape\": (1, 1, 2), \"fortran_order\": False, \"descr\": \"<u4\"}", vec![1, 1, 2]),
            (1, "{'descr': '<u4', 'fortran_order': True, 'shape': (2,), }", vec![2]),
            (1, "{'descr': '<u4', 'fortran_order': False, 'shape': (), }", vec![]),
        ] {
            let bytes = npy(version, header);
            let read = NpyHeader::read(&bytes).unwrap();
            assert_eq!((read.descr, &read.dims, read.start), ("<u4", &dims, bytes.len()), "{header}");
            assert!(read.holds(DType::U32) && !read.holds(DType::F32) && !read.holds(DType::U16));
        }
    }

    #[test]
    fn other_files_are_refused() {
        let good = "{'descr': '<u4', 'fortran_order': False, 'shape': (2,), }";
        let whole = npy(1, good);
        for length in 0..whole.len() {
            NpyHeader::read(&whole[..length]).unwrap_err();
        }
        let error = |header: &str| NpyHeader::read(&npy(1, header)).unwrap_err();
        assert!(error(&good.replace("(2,)", "(-2,)")).contains("shape (-2,)"));
        assert!(error(&good.replace("False", "True").replace("(2,)", "(1, 2)")).contains("Fortran"));
        for text in ["(-1\n, 2)", "(210,[\n\u{7f}\u{85})"] {
            let error = error(&good.replace("(2,)", text));
            assert!(error.contains("shape (") && !error.contains(char::is_control), "{error:?}");
        }
        let long = npy(1, &good.replace("<u4", &"x".repeat(5_000)));
        assert!(NpyHeader::read(&long).unwrap().shown().len() < 200);
        assert!(error("{}").contains("does not say"));
        assert!(NpyHeader::read(&npy(9, good)).unwrap_err().contains("version 9"));
        assert!(NpyHeader::read(&npy(2, &" ".repeat(10_001))).unwrap_err().contains("10001 bytes"));
    }
}
