//! The number of values that an index may have.

pub(super) use crate::hlo::schema::xla_data::ScatterDimensionNumbers as Scatter;

/// Maximum number of dimensions of an indexed array.
const MAX_RANK: usize = 64;

/// The number of positions at which a slice of this size fits.
fn places(whole: u64, part: u64) -> Option<u64> {
    whole.checked_sub(part)?.checked_add(1)
}

/// For each dimension of an array, the number of positions at which a slice may begin.
pub(super) fn of_slice(whole: &[u64], sizes: &[u64]) -> Vec<Option<u64>> {
    whole.iter().zip(sizes).map(|(whole, part)| places(*whole, *part)).collect()
}

/// The same for a gather. Its indices are in one array, so the indexed dimension with the fewest positions counts.
pub(super) fn of_gather(whole: &[u64], sizes: &[u64], mapped: &[u64]) -> Option<u64> {
    let of = |dimension: &u64| {
        let at = usize::try_from(*dimension).ok()?;
        places(*whole.get(at)?, *sizes.get(at)?)
    };
    mapped.iter().map(of).min().flatten()
}

/// The same for a scatter of these updates.
pub(super) fn of_scatter(whole: &[u64], updates: &[u64], scatter: &Scatter) -> Option<u64> {
    if whole.len() > MAX_RANK {
        return None;
    }
    // the other dimensions are those of a window, in their order
    let mut windows = scatter.update_window_dims.iter();
    let mut size = |dimension: u64| {
        let is_one =
            scatter.inserted_window_dims.contains(&dimension) || scatter.input_batching_dims.contains(&dimension);
        let window = if is_one { None } else { windows.next() };
        window.and_then(|at| updates.get(usize::try_from(*at).ok()?).copied()).unwrap_or(1)
    };
    let sizes: Vec<u64> = (0..whole.len() as u64).map(&mut size).collect();
    of_gather(whole, &sizes, &scatter.scatter_dims_to_operand_dims)
}
