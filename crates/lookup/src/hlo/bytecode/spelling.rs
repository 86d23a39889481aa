//! Attributes as text spells them, so that those who read them in text find them here. Only those that anyone reads are
//! spelled: what an operation indexes by, what arguments and results are noted to be.

use super::contents::Contents;
use crate::array::DType;
use crate::hlo::graph::Type;

/// Codes of builtin attributes (`mlir/IR/BuiltinDialectBytecode.td`), of VHLO's (`stablehlo/dialect/VhloBytecode.cpp`)
/// and of StableHLO's (`stablehlo/dialect/StablehloBytecode.cpp`).
mod code {
    pub(super) const DENSE_ARRAY: u64 = 17;
    pub(super) const DENSE_ELEMENTS: u64 = 18;
    pub(super) const VHLO_TENSOR: u64 = 15;
    pub(super) const GATHER: u64 = 7;
    pub(super) const SCATTER: u64 = 11;
}

/// The attributes that say what an operation indexes by: each alone, or in one that holds all.
pub(super) const INDEXING: [&str; 8] = [
    "slice_sizes",
    "start_index_map",
    "update_window_dims",
    "inserted_window_dims",
    "input_batching_dims",
    "scatter_dims_to_operand_dims",
    "dimension_numbers",
    "scatter_dimension_numbers",
];
/// The lists of such an attribute, in its order.
const GATHER: [&str; 5] =
    ["offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map"];
const SCATTER: [&str; 5] = [
    "update_window_dims",
    "inserted_window_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
    "scatter_dims_to_operand_dims",
];
/// What is noted of arguments and results.
const NOTED: [&str; 3] = ["tf.aliasing_output", "jax.buffer_donor", "jax.result_info"];

/// The numbers of a Triton kernel's launch.
pub(super) const LAUNCH: [&str; 5] = ["grid_x", "grid_y", "grid_z", "num_warps", "num_stages"];

/// Most numbers of a list: one for each dimension of an array.
const MAX_NUMBERS: usize = 64;

/// `slice_sizes = [1, 64], start_index_map = [0]` of attributes by their names.
pub(super) fn of_indexing(contents: &mut Contents<'_>, attributes: &[(&'static str, usize)]) -> Vec<u8> {
    let mut lists = Vec::new();
    for &(name, attribute) in attributes {
        match integers(contents, attribute) {
            Some(numbers) => lists.push((name, numbers)),
            None => lists.extend(dimension_numbers(contents, attribute).unwrap_or_default()),
        }
    }
    let spelled = |(name, numbers): &(&str, Vec<i64>)| format!("{name} = {numbers:?}");
    let text = lists.iter().map(spelled).collect::<Vec<_>>().join(", ");
    contents.afford(text.into_bytes())
}

/// `kernel_name = "mha", kernel_metadata = "{}", backend_config = {grid_x = 16}` of strings and of the numbers of a launch
/// by their names.
pub(super) fn of_kernel(
    contents: &mut Contents<'_>,
    strings: &[(&'static str, &[u8])],
    launch: &[(&'static str, i64)],
) -> Vec<u8> {
    let mut text = Vec::new();
    for (name, value) in strings.iter().filter(|(_, value)| !value.is_empty()) {
        if !text.is_empty() {
            text.extend_from_slice(b", ");
        }
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b" = \"");
        text.extend(value.iter().flat_map(|&byte| escaped(byte)));
        text.push(b'"');
    }
    if !launch.is_empty() {
        let numbers: Vec<String> = launch.iter().map(|(name, number)| format!("{name} = {number}")).collect();
        let before = if text.is_empty() { "" } else { ", " };
        text.extend(format!("{before}backend_config = {{{}}}", numbers.join(", ")).bytes());
    }
    contents.afford(text)
}

/// `jax.buffer_donor, jax.result_info = "loss"` of the dictionary of an argument or a result.
pub(super) fn of_noted(contents: &mut Contents<'_>, dictionary: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for name in NOTED {
        let Some(value) = contents.member(dictionary, name.as_bytes()) else { continue };
        text.extend_from_slice(if text.is_empty() { b"" } else { b", " });
        text.extend_from_slice(name.as_bytes());
        if let Some(value) = contents.string(value) {
            text.extend_from_slice(b" = \"");
            text.extend(value.iter().flat_map(|&byte| escaped(byte)));
            text.push(b'"');
        }
    }
    contents.afford(text)
}

/// A byte of a string as MLIR prints it: `llvm::printEscapedString`.
fn escaped(byte: u8) -> Vec<u8> {
    match byte {
        b'\\' => b"\\\\".to_vec(),
        b'"' => b"\\22".to_vec(),
        b' '..=b'~' => vec![byte],
        _ => format!("\\{byte:02X}").into_bytes(),
    }
}

/// The 64-bit integers of an array or a tensor of one dimension.
fn integers(contents: &mut Contents<'_>, attribute: usize) -> Option<Vec<i64>> {
    let (dialect, code, mut fields) = contents.fields(attribute)?;
    let its_type = fields.index().ok()?;
    let count = match (dialect, code) {
        (b"builtin", code::DENSE_ARRAY) => fields.index().ok()?,
        (b"vhlo", code::VHLO_TENSOR) | (b"builtin", code::DENSE_ELEMENTS) => match contents.type_of(its_type).ok()? {
            Type::Array(array) if array.dtype == DType::S64 => usize::try_from(*array.dims.first()?).ok()?,
            _ => return None,
        },
        _ => return None,
    };
    let length = fields.varint().ok()?;
    let (words, rest) = fields.take(length).ok()?.as_chunks::<{ size_of::<i64>() }>();
    let numbers: Vec<i64> = words.iter().take(MAX_NUMBERS).map(|word| i64::from_le_bytes(*word)).collect();
    match numbers[..] {
        _ if count > MAX_NUMBERS || !rest.is_empty() => None,
        // equal elements are written once
        [all] => Some(vec![all; count]),
        _ => Some(numbers).filter(|_| words.len() == count),
    }
}

/// The lists of the one attribute that StableHLO has for them.
fn dimension_numbers(contents: &Contents<'_>, attribute: usize) -> Option<Vec<(&'static str, Vec<i64>)>> {
    let (b"stablehlo", code, mut fields) = contents.fields(attribute)? else { return None };
    let names = match code {
        code::GATHER => GATHER,
        code::SCATTER => SCATTER,
        _ => return None,
    };
    let mut list = |name| {
        let count = fields.index().ok().filter(|&count| count <= MAX_NUMBERS)?;
        let numbers: Option<Vec<i64>> = (0..count).map(|_| fields.signed().ok()).collect();
        Some((name, numbers?))
    };
    names.into_iter().map(&mut list).collect()
}
