//! The `vmap`s around a call: what they map, and the name of the mapped variant of a call.
//!
//! A function under `vmap` sees its arguments without the mapped axes, and so do the keys that kernel libraries make;
//! the program that runs has them all, and another config may be its best. A variant is named
//!
//! ```text
//! KEY~SIZES-DIGEST        fecadd86b926e7e8~8x4-1a2b3c4d
//! ```
//!
//! `KEY` is the call's own key, `SIZES` the sizes of the axes from the outermost `vmap` inwards, and `DIGEST` the first
//! eight hexadecimal digits of the SHA-256 of the axes, `[{"axes":{NAME:PLACE,…},"size":N},…]`, as JSON with sorted
//! keys and no blanks.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// Maximum number of nested `vmap`s.
pub const MAX_AXES: usize = 16;

/// Longest variant, after the `~`.
pub(crate) const MAX_VARIANT_BYTES: usize = 128;

const DIGEST_DIGITS: usize = 8;

/// One `vmap` around a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchAxis {
    // in the order of their names, which the variant's digest is over
    /// Where each mapped argument has the axis, counted with the axes of the `vmap`s inside and without those outside
    /// of it.
    pub axes: BTreeMap<String, u32>,
    /// Calls in it.
    pub size: u64,
}

/// The variant with these axes, `SIZES-DIGEST`; `None` without axes.
pub fn variant_of(batch: &[BatchAxis]) -> Option<String> {
    if batch.is_empty() {
        return None;
    }
    let sizes: Vec<String> = batch.iter().map(|axis| axis.size.to_string()).collect();
    let mut digest = Digest::of(&serde_json::to_vec(batch).ok()?).to_short();
    digest.truncate(DIGEST_DIGITS);
    Some(format!("{}-{digest}", sizes.join("x")))
}

/// A call key split into the call's own key and the variant, if it names one.
pub fn split_variant(call_key: &str) -> (&str, Option<&str>) {
    match call_key.split_once('~') {
        Some((own, variant)) if variant_length(variant.as_bytes()).length == Some(variant.len()) => {
            (own, Some(variant))
        }
        _ => (call_key, None),
    }
}

/// The call's own key.
pub fn own_key(call_key: &str) -> &str {
    split_variant(call_key).0
}

/// Whether two keys are of one call, mapped or not.
pub fn is_same_call(one: &str, other: &str) -> bool {
    own_key(one) == own_key(other)
}

/// How a key's call is mapped, for people: `unmapped`, or ``under `vmap` of 8x4``.
pub fn to_words(call_key: &str) -> String {
    match sizes(call_key) {
        None => "unmapped".to_owned(),
        Some(sizes) => format!("under `vmap` of {sizes}"),
    }
}

/// The order in which variants of a call replace an unknown one, the preferred one smallest: the unmapped one, then the
/// one with the most calls.
pub fn preference(call_key: &str) -> (bool, Reverse<u128>) {
    let calls = sizes(call_key).map(|sizes| {
        let sizes = sizes.split('x').map(|size| size.parse::<u128>().unwrap_or(u128::MAX));
        sizes.fold(1, u128::saturating_mul)
    });
    (calls.is_some(), Reverse(calls.unwrap_or(1)))
}

fn sizes(call_key: &str) -> Option<&str> {
    split_variant(call_key).1?.split_once('-').map(|(sizes, _)| sizes)
}

/// The variant at the start of a text.
pub(crate) struct VariantLength {
    /// Its bytes; `None` if there is none.
    pub(crate) length: Option<usize>,
    /// Whether the text ended before it was complete.
    pub(crate) open: bool,
}

/// Measures the variant at the start of a text that comes after a `~`.
pub(crate) fn variant_length(text: &[u8]) -> VariantLength {
    let text = text.get(..MAX_VARIANT_BYTES).unwrap_or(text);
    let sizes = text.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'x').count();
    let head = text.get(..sizes).unwrap_or_default();
    let whole = head.split(|&byte| byte == b'x').all(|size| !size.is_empty() && size.first() != Some(&b'0'));
    let digest = text.get(sizes..).and_then(|rest| rest.strip_prefix(b"-"));
    let digits = digest.map_or(0, |digest| {
        digest.iter().take(DIGEST_DIGITS).take_while(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).count()
    });
    let is_variant = whole && digits == DIGEST_DIGITS;
    let ended = sizes == text.len() || digest.is_some_and(|digest| digits == digest.len());
    VariantLength {
        length: is_variant.then_some(sizes + 1 + DIGEST_DIGITS),
        open: !is_variant && ended && text.len() < MAX_VARIANT_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_is_distinguished_from_any_other_key() {
        let variant = |key| split_variant(key).1;
        assert_eq!(split_variant("fecadd86b926e7e8~8x4-1a2b3c4d"), ("fecadd86b926e7e8", Some("8x4-1a2b3c4d")));
        assert_eq!(split_variant("rows=3~4-1a2b3c4d"), ("rows=3", Some("4-1a2b3c4d")));
        for key in ["k", "k~", "k~4", "k~4-", "k~4-1a2b3c4", "k~4-1a2b3c4d5", "k~4-1A2B3C4D", "k~x4-1a2b3c4d"] {
            assert_eq!(variant(key), None, "{key}");
        }
        for key in ["k~-1a2b3c4d", "k~04-1a2b3c4d", "k~4xx4-1a2b3c4d", "k~4-1a2b3c4d~4-1a2b3c4d"] {
            assert_eq!(variant(key), None, "{key}");
        }
        assert_eq!(variant(&format!("k~{}-1a2b3c4d", "9".repeat(200))), None);
    }

    #[test]
    fn the_name_is_that_of_the_recorder() {
        // python -c 'import hashlib; print(hashlib.sha256(
        //   b"[{\"axes\":{\"q\":1},\"size\":8},{\"axes\":{\"k\":0,\"q\":0},\"size\":4}]").hexdigest()[:8])'
        let axis = |size, axes: &[(&str, u32)]| BatchAxis {
            axes: axes.iter().map(|(name, place)| ((*name).to_owned(), *place)).collect(),
            size,
        };
        let batch = [axis(8, &[("q", 1)]), axis(4, &[("q", 0), ("k", 0)])];
        assert_eq!(variant_of(&batch).unwrap(), "8x4-17bd4b03");
        assert_eq!(variant_of(&[]), None);
    }

    #[test]
    fn the_unmapped_call_stands_for_the_others_then_the_largest() {
        let mut keys = ["k~4-00000000", "k", "k~8x4-00000000", "k~31-00000000"];
        keys.sort_by_key(|key| preference(key));
        assert_eq!(keys, ["k", "k~8x4-00000000", "k~31-00000000", "k~4-00000000"]);
        assert_eq!(to_words("k~8x4-00000000"), "under `vmap` of 8x4");
        assert_eq!(to_words("k"), "unmapped");
        // more calls than a number holds
        let huge = format!("k~{0}x{0}-00000000", "9".repeat(38));
        assert_eq!(preference(&huge), (true, Reverse(u128::MAX)));
    }

    #[test]
    fn a_text_that_ends_early_is_open() {
        for text in ["", "4", "4x", "4-", "4-1a2b"] {
            assert!(variant_length(text.as_bytes()).open, "{text}");
        }
        for text in ["4-1a2b3c4d", "4)", "4-1a)", "/dot"] {
            assert!(!variant_length(text.as_bytes()).open, "{text}");
        }
    }
}
