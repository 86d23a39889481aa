//! What is tuned: one call of an operation, forward or with its backward pass.
//!
//! ```
//! use autotune_lowered_lookup::call::{Call, split_op_id};
//!
//! let call: Call = "flash_attention@v2:fecadd86b926e7e8".parse()?;
//! assert_eq!((call.op_name(), call.call_key.as_str()), ("flash_attention", "fecadd86b926e7e8"));
//! assert_eq!(call.to_string().parse::<Call>()?, call);
//! assert_eq!(split_op_id(&call.op_id), ("flash_attention", Some(2)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// One tunable call: an operation with arguments of certain shapes, types and static values. Prints as
/// `op_id:call_key`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Call {
    /// Operation: `name@vN`, or a class path (tokamax).
    pub op_id: String,
    /// Key of the call's arguments: 16 hexadecimal digits for ejkernel and tokamax, free text for a user's own labels.
    /// A variant under `vmap` has its name appended, see [`batch`](crate::batch).
    pub call_key: String,
}

impl Call {
    /// A call from its two parts.
    pub fn new(op_id: impl Into<String>, call_key: impl Into<String>) -> Self {
        Self { op_id: op_id.into(), call_key: call_key.into() }
    }

    /// The call as a line of text has it: a key that is a whole digest is cut to its beginning, which `--key` takes
    /// too.
    pub fn to_short(&self) -> String {
        match self.call_key.parse::<Digest>() {
            Ok(digest) => format!("{}:{}", self.op_id, digest.to_short()),
            Err(_) => self.to_string(),
        }
    }

    /// The operation's name without its version: `flash_attention` for `flash_attention@v2`.
    pub fn op_name(&self) -> &str {
        split_op_id(&self.op_id).0
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.op_id, self.call_key)
    }
}

/// Why a text names no call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no call: write `OP:KEY`, as in `flash_attention@v2:3a7b29f04c51d8e6`")]
pub struct ParseCallError(String);

/// Reads what `Display` prints. An `op_id` has no colon, a key may have some.
impl FromStr for Call {
    type Err = ParseCallError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once(':').filter(|(op_id, key)| !op_id.is_empty() && !key.is_empty());
        parts.map(|(op_id, key)| Self::new(op_id, key)).ok_or_else(|| ParseCallError(text.to_owned()))
    }
}

/// Splits `name@vN` into the name and the version; an `op_id` of another form is all name.
pub fn split_op_id(op_id: &str) -> (&str, Option<u32>) {
    match op_id.rsplit_once("@v") {
        Some((name, version)) if version.bytes().all(|b| b.is_ascii_digit()) => match version.parse() {
            Ok(version) => (name, Some(version)),
            Err(_) => (op_id, None),
        },
        _ => (op_id, None),
    }
}

/// The passes that the programs of a recorded call compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Only the forward pass.
    Forward,
    /// The forward pass and its vector-Jacobian product.
    ForwardVjp,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forward => "forward",
            Self::ForwardVjp => "forward-vjp",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn op_id_splits_at_the_last_version() {
        assert_eq!(split_op_id("flash_attention@v2"), ("flash_attention", Some(2)));
        assert_eq!(split_op_id("a@v1@v23"), ("a@v1", Some(23)));
        assert_eq!(split_op_id("flash_attention"), ("flash_attention", None));
        assert_eq!(split_op_id("mail@vendor"), ("mail@vendor", None));
        assert_eq!(split_op_id("x@v99999999999"), ("x@v99999999999", None));
        assert_eq!(split_op_id("x@v"), ("x@v", None));
    }

    #[test]
    fn calls_print_and_parse() {
        for text in ["flash_attention@v2:3a7b", "tokamax.Op:a:b~4-00"] {
            assert_eq!(text.parse::<Call>().unwrap().to_string(), text);
        }
        assert_eq!("op@v1:a:b".parse(), Ok(Call::new("op@v1", "a:b")));
        for text in ["", "op@v1", "op@v1:", ":key"] {
            assert!(text.parse::<Call>().unwrap_err().to_string().contains("write `OP:KEY`"), "{text}");
        }
    }
}
