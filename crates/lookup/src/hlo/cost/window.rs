//! Windows of convolutions and of window reductions.

use super::graph::{Graph, Node};
use crate::hlo::schema::xla_data::{ShapeProto, WindowDimension};

/// Maximum number of positions in one dimension that are checked individually.
const MAX_POSITIONS: u64 = 1 << 24;

/// The dimensions of an instruction's window.
pub(super) fn window_of<'m>(node: &Node<'m>) -> &'m [WindowDimension] {
    node.message.window.as_ref().map(|window| window.dimensions.as_slice()).unwrap_or_default()
}

/// Elements of a window.
pub(super) fn elements(window: &[WindowDimension]) -> f64 {
    window.iter().map(|dimension| dimension.size as f64).product()
}

/// How often the function of a `reduce-window` is applied: for each element of the output, one less than the elements
/// of its window. XLA counts a window that sums up a whole dimension at each of its places as one reduction and a
/// broadcast.
pub(super) fn reductions(window: &[WindowDimension], shape: &ShapeProto) -> f64 {
    let elements_out = shape.first().elements();
    let reduced = window.iter().filter(|one| one.size != 1).count();
    let padded = window.iter().filter(|one| one.padding_low != 0 || one.padding_high != 0).count();
    let whole = window.iter().zip(&shape.dimensions).find(|(one, _)| {
        one.size != 1
            && one.padding_low != 0
            && one.padding_low == one.padding_high
            && one.padding_low.checked_mul(2).and_then(|twice| twice.checked_add(1)) == Some(one.size)
    });
    match whole {
        Some((one, &length))
            if reduced == 1 && padded == 1 && !shape.is_tuple() && one.padding_low as u64 == length.wrapping_sub(1) =>
        {
            (elements_out / length as f64).floor() + (length as f64 - 1.0)
        }
        _ => (elements(window) - 1.0) * elements_out,
    }
}

/// Multiply-adds of a convolution, without those on padding; `None` if it is not one, or too large to count.
pub(super) fn convolution_multiply_adds(graph: &Graph<'_>, node: &Node<'_>) -> Option<f64> {
    let (input, kernel) = (graph.operand(node, 0)?, graph.operand(node, 1)?);
    let dimensions = node.message.convolution_dimension_numbers.as_deref()?;
    let batch = input.shape.dim(dimensions.input_batch_dimension);
    let features_in = input.shape.dim(dimensions.input_feature_dimension);
    let features_out = node.shape.first().dim(dimensions.output_feature_dimension);
    let mut multiply_adds = (features_in / node.message.feature_group_count.max(1)) as f64 * features_out as f64;
    multiply_adds *= (batch / node.message.batch_group_count.max(1)) as f64;
    for (place, dimension) in window_of(node).iter().enumerate() {
        let [input, kernel, output] = [
            input.shape.dim(*dimensions.input_spatial_dimensions.get(place)?),
            kernel.shape.dim(*dimensions.kernel_spatial_dimensions.get(place)?),
            node.shape.first().dim(*dimensions.output_spatial_dimensions.get(place)?),
        ];
        multiply_adds *= valid_positions(dimension, input, kernel, output)? as f64;
    }
    Some(multiply_adds)
}

/// Pairs of a position in the kernel and one in the output that use an element of the input.
fn valid_positions(window: &WindowDimension, input: u64, kernel: u64, output: u64) -> Option<u64> {
    if kernel > MAX_POSITIONS {
        return None;
    }
    let [input, kernel, output] =
        [i64::try_from(input).ok()?, i64::try_from(kernel).ok()?, i64::try_from(output).ok()?];
    let (stride, base) = (window.stride.max(1), window.base_dilation.max(1));
    let is_plain = stride == 1 && base == 1;
    if !is_plain && (kernel as u64).checked_mul(output as u64)? > MAX_POSITIONS {
        return None;
    }
    let mut valid = 0_u64;
    for at in 0..kernel {
        let shift = window.padding_low.checked_sub(at.checked_mul(window.window_dilation)?)?;
        if is_plain {
            let positions = input.checked_add(shift)?.min(output).checked_sub(shift.max(0))?;
            valid = valid.checked_add(u64::try_from(positions).unwrap_or(0))?;
            continue;
        }
        for out in 0..output {
            let place = out.checked_mul(stride)?.checked_sub(shift)?;
            let is_there = place.rem_euclid(base) == 0 && (0..input).contains(&place.div_euclid(base));
            valid += u64::from(is_there);
        }
    }
    Some(valid)
}
