//! Elements as text.

use super::ArraySpec;
use super::element::{Element, decode};

/// One element of a dense host array as text, for messages; `None` beyond its end.
pub fn element_text(spec: &ArraySpec, bytes: &[u8], index: u64) -> Option<String> {
    let width = spec.dtype.host_bytes();
    let start = usize::try_from(index).ok()?.checked_mul(width)?;
    Some(match decode(spec.dtype, bytes.get(start..start.checked_add(width)?)?)? {
        Element::Real(value) => real_text(value),
        Element::Integer(value) => value.to_string(),
        Element::Complex(re, im) => format!("{} + {}i", real_text(re), real_text(im)),
    })
}

fn real_text(value: f64) -> String {
    // else tiny and huge ones are hundreds of zeros
    match value == 0.0 || (1e-5..1e16).contains(&value.abs()) {
        true => value.to_string(),
        false => format!("{value:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::DType;

    #[test]
    fn an_element_is_short_however_large_or_small() {
        let text = |value: f64| element_text(&ArraySpec::new(DType::F64, [1]), &value.to_le_bytes(), 0).unwrap();
        let given = [0.0, -1.25, 1e-5, -9.79e-35, 1e300, f64::NAN, f64::NEG_INFINITY];
        assert_eq!(given.map(text), ["0", "-1.25", "0.00001", "-9.79e-35", "1e300", "NaN", "-inf"]);
    }
}
