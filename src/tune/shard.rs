//! One of several runs that share a module: which calls are its own.

use std::fmt;
use std::str::FromStr;

use crate::digest::FieldHasher;

/// Part `index` of `of`, counted from zero.
///
/// Which part a call belongs to is a hash of its operation and call key, so that it does not depend on the rest of the
/// module or its order; every call belongs to exactly one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    of: u32,
}

/// A text that names no part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseShardError {
    /// Not two numbers.
    #[error("expected `i/n`, such as `0/4` for the first of four")]
    Form,
    /// There is no such part.
    #[error("there is no part {index} of {of}: parts are numbered {}", numbered(*.of))]
    Range {
        /// The requested part.
        index: u32,
        /// How many there are.
        of: u32,
    },
}

fn numbered(of: u32) -> String {
    match of {
        0 => "from 0, and there must be at least one".to_owned(),
        1 => "from 0, so `0/1` is the only one".to_owned(),
        of => format!("from 0 to {}", of - 1),
    }
}

impl Shard {
    /// Part `index` of `of`.
    ///
    /// # Errors
    /// If `index` is not below `of`.
    pub fn new(index: u32, of: u32) -> Result<Self, ParseShardError> {
        if index < of { Ok(Self { index, of }) } else { Err(ParseShardError::Range { index, of }) }
    }

    /// Whether a call belongs to this part.
    pub fn holds(self, op_id: &str, call_key: &str) -> bool {
        let digest = FieldHasher::new("shard-v1").field(op_id.as_bytes()).field(call_key.as_bytes()).finish();
        let (head, _) = digest.as_bytes().split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        u64::from_le_bytes(*head) % u64::from(self.of) == u64::from(self.index)
    }
}

impl FromStr for Shard {
    type Err = ParseShardError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (index, of) = text.split_once('/').ok_or(ParseShardError::Form)?;
        // digits only: `+1` and blanks are mistakes in a script
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u32>().ok().filter(|_| is_number).ok_or(ParseShardError::Form)
        };
        Self::new(number(index)?, number(of)?)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_belongs_to_one_part_and_none_is_overfull() {
        let calls: Vec<(String, String)> =
            (0..4000).map(|n| (format!("op{}@v1", n % 7), format!("{:016x}", n * 31))).collect();
        for of in [1_u32, 2, 3, 8, 100] {
            let mut sizes = vec![0_u32; of as usize];
            for (op, key) in &calls {
                let owners: Vec<u32> = (0..of).filter(|&index| Shard::new(index, of).unwrap().holds(op, key)).collect();
                assert_eq!(owners.len(), 1, "{op}:{key} of {of}");
                sizes[owners[0] as usize] += 1;
            }
            // five standard deviations of a binomial count
            let mean = 4000.0 / f64::from(of);
            let bound = mean + 5.0 * mean.sqrt();
            assert!(sizes.iter().all(|&size| f64::from(size) <= bound), "{of}: {sizes:?}");
        }
    }

    #[test]
    fn the_hash_never_changes() {
        // from hashlib: sha256 of each of `shard-v1`, operation and key behind its length as eight little-endian bytes;
        // the first eight bytes of that, little-endian, modulo 8
        for (op, key, part) in
            [("blocked_matmul@v1", "4a92df18023cfca8", 3), ("flash_attention@v2", "d9a668bdbb2245c3", 2), ("", "", 4)]
        {
            assert!(Shard::new(part, 8).unwrap().holds(op, key), "{op}:{key}");
        }
    }

    #[test]
    fn a_wrong_part_is_refused_in_one_line() {
        for (text, expected) in [
            ("4/4", "there is no part 4 of 4: parts are numbered from 0 to 3"),
            ("1/1", "`0/1` is the only one"),
            ("0/0", "there must be at least one"),
            ("", "expected `i/n`"),
            ("3", "expected `i/n`"),
            ("/4", "expected `i/n`"),
            ("1/", "expected `i/n`"),
            ("-1/4", "expected `i/n`"),
            ("+1/4", "expected `i/n`"),
            ("1/4/8", "expected `i/n`"),
            ("1/99999999999", "expected `i/n`"),
        ] {
            let error = text.parse::<Shard>().unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
        assert_eq!("2/3".parse::<Shard>().unwrap().to_string(), "2/3");
    }
}
