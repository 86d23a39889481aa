//! How many terms a module sums in a narrow type.

use std::collections::BTreeSet;

use super::bytecode;
use super::found::ModuleForm;
use super::graph::{Computation, Node, NodeId, Type};
use super::mlir_text;
use crate::array::ArraySpec;

/// Most terms of a sum or product that StableHLO accumulates in a floating-point type narrower than `f32`; zero if
/// there is none, and for other forms. Matrix products do not count, because matrix units accumulate in `f32`, nor do
/// windows, whose sizes the readers do not keep.
pub(super) fn longest_narrow_sum(form: ModuleForm, bytes: &[u8]) -> u64 {
    let mut longest = 0;
    let mut see = |function: &Computation<'_>| longest = longest.max(longest_of(function));
    match form {
        ModuleForm::StablehloText => mlir_text::functions(bytes).iter().for_each(see),
        ModuleForm::StablehloBytecode => {
            bytecode::read(bytes, &mut |function| see(&function));
        }
        _ => {}
    }
    longest
}

fn longest_of(function: &Computation<'_>) -> u64 {
    let accumulates = |node: &&Node<'_>| [".add", ".multiply"].iter().any(|end| node.opcode.ends_with(end));
    let holders: BTreeSet<NodeId> = function.nodes.iter().filter(accumulates).filter_map(|node| node.holder).collect();
    let reductions = holders.into_iter().filter_map(|at| function.nodes.get(at));
    let reductions = reductions.filter(|node| node.opcode.ends_with(".reduce"));
    reductions.filter_map(|node| terms_of(function, node)).max().unwrap_or(0)
}

/// The terms of one result of a reduction, if it is in a narrow type.
fn terms_of(function: &Computation<'_>, node: &Node<'_>) -> Option<u64> {
    let of = node.operands.first()?;
    let operand = function.nodes.get(of.node)?.types(of.part).first()?;
    let (operand, result) = (array(operand)?, array(node.results.first()?)?);
    let is_narrow = result.dtype.is_narrow_float();
    is_narrow.then_some(operand.elements()? / result.elements()?.max(1))
}

fn array(of: &Type) -> Option<&ArraySpec> {
    match of {
        Type::Array(spec) => Some(spec),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(reducer: &str, element: &str) -> u64 {
        let text = format!(
            r#"module @m {{
  func.func public @main(%x: tensor<8x4096x{element}>) -> tensor<8x{element}> {{
    %zero = stablehlo.constant dense<0.0> : tensor<{element}>
    %y = "stablehlo.reduce"(%x, %zero) <{{dimensions = array<i64: 1>}}> ({{
    ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
      %c = stablehlo.{reducer} %a, %b : tensor<{element}>
      "stablehlo.return"(%c) : (tensor<{element}>) -> ()
    }}) : (tensor<8x4096x{element}>, tensor<{element}>) -> tensor<8x{element}>
    return %y : tensor<8x{element}>
  }}
}}
"#
        );
        longest_narrow_sum(ModuleForm::StablehloText, text.as_bytes())
    }

    #[test]
    fn sums_in_a_narrow_type_count_their_terms() {
        assert_eq!((longest("add", "bf16"), longest("multiply", "f16")), (4096, 4096));
        assert_eq!((longest("maximum", "bf16"), longest("add", "f32")), (0, 0));
    }

    /// Its reductions are in `f32`.
    #[test]
    fn bytecode_is_read_as_text_is() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/hlo/in_f64");
        for (name, terms) in [("narrow", 0), ("narrow_sum", 512)] {
            let bytes = std::fs::read(folder.join(format!("{name}.mlirbc"))).unwrap();
            assert_eq!(longest_narrow_sum(ModuleForm::StablehloBytecode, &bytes), terms, "{name}");
        }
    }
}
