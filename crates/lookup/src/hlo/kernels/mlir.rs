//! The kernels of StableHLO.

use super::call::{Call, METADATA, is_target, metadata};
use super::names::scopes;
use crate::array::ArraySpec;
use crate::hlo::escape::{Escapes, Unescaper};
use crate::hlo::graph::{Computation, Node, Type};
use crate::hlo::mlir_text::attribute;
use crate::hlo::text_cursor::quoted;

/// Each custom call of a kernel in a function whose scopes are spelled with these escapes.
pub(super) fn calls(function: &Computation<'_>, escapes: Escapes) -> Vec<Call> {
    let is_kernel = |node: &&Node<'_>| node.opcode.contains("custom_call") && is_target(node.name.as_bytes());
    function.nodes.iter().filter(is_kernel).map(|node| call(function, node, escapes)).collect()
}

fn call(function: &Computation<'_>, node: &Node<'_>, escapes: Escapes) -> Call {
    let scope = unescaped(&node.scope, escapes);
    let mut names = scopes(&scope);
    names.extend(node.functions.iter().map(|function| function.clone().into_owned()));
    let operands = node.operands.iter().filter_map(|operand| {
        let types = function.nodes.get(operand.node)?.types(operand.part);
        match types {
            [Type::Array(spec)] => Some(spec.clone()),
            _ => None::<ArraySpec>,
        }
    });
    let mut call = Call {
        target: node.name.clone().into_owned(),
        name: string(node, b"kernel_name").map(|name| String::from_utf8_lossy(&name).into_owned()),
        names,
        places: node.place.clone().map(|(file, line)| (file.into_owned(), line)).into_iter().collect(),
        metadata: string(node, METADATA).map(|json| metadata(&json)).unwrap_or_default(),
        operands: operands.collect(),
        scope,
        line: node.line,
        ..Call::default()
    };
    let config = [&b"mhlo.backend_config"[..], b"backend_config"].into_iter();
    config.filter_map(|key| attribute(&node.attributes, key)).for_each(|config| call.read_launch(config));
    call
}

/// The string of an attribute.
fn string(node: &Node<'_>, key: &[u8]) -> Option<Vec<u8>> {
    let value = attribute(&node.attributes, key)?.strip_prefix(b"\"")?;
    Some(Unescaper::new(quoted(value), Escapes::Mlir).collect())
}

fn unescaped(text: &[u8], escapes: Escapes) -> String {
    let plain: Vec<u8> = Unescaper::new(text, escapes).collect();
    String::from_utf8_lossy(&plain).into_owned()
}
