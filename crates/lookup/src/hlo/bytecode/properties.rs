//! Where properties hold what a dictionary holds in older files.

use super::container::Reader;

/// The attributes of an operation in the order of its properties, which is that of their names; `?` ends the names of
/// optional ones. An operation that gained attributes without a new version has a list for each number of them.
/// Sources: `stablehlo/dialect/VhloOps.td`, `stablehlo/dialect/StablehloOps.td`, `mlir/Dialect/Func/IR/FuncOps.td`.
fn lists(opcode: &str) -> &'static [&'static [&'static str]] {
    match opcode {
        "vhlo.func_v1" => &[&["arg_attrs", "function_type", "res_attrs", "sym_name", "sym_visibility"]],
        "func.func" => &[
            &["arg_attrs?", "function_type", "res_attrs?", "sym_name", "sym_visibility?"],
            &["arg_attrs?", "function_type", "no_inline?", "res_attrs?", "sym_name", "sym_visibility?"],
        ],
        "vhlo.call_v1" => &[&["callee"]],
        "func.call" => &[&["callee"], &["arg_attrs?", "callee", "no_inline?", "res_attrs?"]],
        "vhlo.custom_call_v1" => &[&[
            "api_version",
            "backend_config",
            "call_target_name",
            "called_computations",
            "has_side_effect",
            "operand_layouts",
            "output_operand_aliases",
            "result_layouts",
        ]],
        "vhlo.custom_call_v2" => &[&[
            "api_version",
            "backend_config",
            "call_target_name",
            "called_computations",
            "has_side_effect",
            "operand_layouts",
            "output_operand_aliases",
            "result_layouts",
            "result_tilings",
        ]],
        "stablehlo.custom_call" => &[&[
            "api_version?",
            "backend_config?",
            "call_target_name",
            "called_computations?",
            "has_side_effect?",
            "operand_layouts?",
            "output_operand_aliases?",
            "result_layouts?",
        ]],
        "vhlo.composite_v1" | "vhlo.composite_v2" => &[&["composite_attributes", "decomposition", "name", "version"]],
        "stablehlo.composite" => &[&["composite_attributes?", "decomposition", "name", "version?"]],
        _ => indexing(opcode),
    }
}

/// The same of operations that index.
fn indexing(opcode: &str) -> &'static [&'static [&'static str]] {
    match opcode {
        "vhlo.gather_v1" => &[&[
            "collapsed_slice_dims",
            "index_vector_dim",
            "indices_are_sorted",
            "offset_dims",
            "slice_sizes",
            "start_index_map",
        ]],
        "vhlo.gather_v2" => &[&[
            "collapsed_slice_dims",
            "index_vector_dim",
            "indices_are_sorted",
            "offset_dims",
            "operand_batching_dims",
            "slice_sizes",
            "start_index_map",
            "start_indices_batching_dims",
        ]],
        "stablehlo.gather" => &[&["dimension_numbers", "indices_are_sorted?", "slice_sizes"]],
        "vhlo.scatter_v1" => &[&[
            "index_vector_dim",
            "indices_are_sorted",
            "inserted_window_dims",
            "scatter_dims_to_operand_dims",
            "unique_indices",
            "update_window_dims",
        ]],
        "vhlo.scatter_v2" => &[&[
            "index_vector_dim",
            "indices_are_sorted",
            "input_batching_dims",
            "inserted_window_dims",
            "scatter_dims_to_operand_dims",
            "scatter_indices_batching_dims",
            "unique_indices",
            "update_window_dims",
        ]],
        "stablehlo.scatter" => &[&["indices_are_sorted?", "scatter_dimension_numbers", "unique_indices?"]],
        "vhlo.dynamic_slice_v1" | "stablehlo.dynamic_slice" => &[&["slice_sizes"]],
        _ => &[],
    }
}

/// More than any operation in the lists has.
const MAX_PROPERTIES: usize = 10;

/// The attribute of an operation with this name.
pub(super) fn property(opcode: &str, properties: &Reader<'_>, name: &str) -> Option<usize> {
    let place = |list: &&[&str]| list.iter().position(|entry| entry.strip_suffix('?').unwrap_or(entry) == name);
    let lists = lists(opcode);
    lists.iter().find_map(place)?;
    let total = properties.clone().count(MAX_PROPERTIES);
    let list = lists.iter().find(|list| list.len() == total)?;
    let mut reader = properties.clone();
    let mut read = |entry: &&str| reader.reference(entry.ends_with('?')).ok().flatten();
    list.get(..=place(list)?)?.iter().map(&mut read).last().flatten()
}
