//! The bytes of a fusion: its inputs, as far as they are used inside, and its outputs.

use std::collections::BTreeMap;

use super::graph::{Body, Graph, Node};

/// Fused constants of up to this many elements are part of the code.
const IMMEDIATE_ELEMENTS: f64 = 1.0;
/// Maximum number of elements of one tuple parameter that are tracked.
const MAX_LEAVES: usize = 1 << 12;

/// By computation and number, the bytes read from each parameter.
#[derive(Default)]
pub(super) struct Reads(Vec<BTreeMap<u64, f64>>);

impl Reads {
    /// Adds those of the next computation.
    pub(super) fn add_body(&mut self, graph: &Graph<'_>, body: &Body) {
        let of_body = body.parameters.iter().map(|(&number, &place)| (number, self.of_parameter(graph, place)));
        let of_body = of_body.collect();
        self.0.push(of_body);
    }

    fn of_parameter(&self, graph: &Graph<'_>, place: usize) -> f64 {
        let Some(node) = graph.node(place) else { return 0.0 };
        if !node.shape.is_tuple() {
            return self.of_value(graph, place);
        }
        // for a tuple, the elements that are read from it
        let (mut open, mut bytes, mut seen) = (vec![place], 0.0, 0);
        while let Some(place) = open.pop() {
            let Some(node) = graph.node(place) else { continue };
            seen += 1;
            if !node.shape.is_tuple() || seen > MAX_LEAVES {
                bytes += self.of_value(graph, place);
                continue;
            }
            let is_taken = |user: &usize| graph.node(*user).is_some_and(|user| user.opcode == "get-tuple-element");
            open.extend(node.users.iter().copied().filter(is_taken));
        }
        bytes
    }

    /// Bytes that the users of a value inside a fusion read from it: `FusionParameterReadBytes`.
    fn of_value(&self, graph: &Graph<'_>, place: usize) -> f64 {
        let Some(node) = graph.node(place) else { return 0.0 };
        let (mut bytes, mut is_read) = (0.0, false);
        for user in node.users.iter().filter_map(|&user| graph.node(user)) {
            match user.opcode {
                "fusion" => {
                    let numbers = user.operands.iter().zip(0..).filter(|&(&operand, _)| operand == place);
                    bytes += numbers.map(|(_, number)| self.through_fusion(graph, user, number)).sum::<f64>();
                }
                "broadcast" | "reshape" => bytes += node.shape.operand_bytes(),
                _ => bytes += by_user(node, user, &mut is_read),
            }
        }
        bytes
    }

    /// Bytes read from the `number`th operand of a fusion inside a fusion.
    fn through_fusion(&self, graph: &Graph<'_>, fusion: &Node<'_>, number: u64) -> f64 {
        let Some(body) = graph.called(fusion, 0) else { return 0.0 };
        let root = body.root.and_then(|root| graph.node(root));
        let is_simple =
            root.is_some_and(|root| root.operands.is_empty() || root.operands.first() == body.parameters.get(&number));
        let of_inner = fusion.called.first().and_then(|&callee| self.0.get(callee));
        let whole = || of_inner.and_then(|reads| reads.get(&number)).copied().unwrap_or(0.0);
        let (mut bytes, mut is_read) = (0.0, false);
        for user in fusion.users.iter().filter_map(|&user| graph.node(user)) {
            let is_slice = matches!(user.opcode, "slice" | "dynamic-slice" | "dynamic-update-slice");
            if is_simple && is_slice {
                bytes += by_user(fusion, user, &mut is_read);
            } else if !std::mem::replace(&mut is_read, true) {
                bytes += whole();
            }
        }
        bytes
    }
}

/// Bytes that one user reads from a value: slices read a part, and all others share one full read.
fn by_user(value: &Node<'_>, user: &Node<'_>, is_read: &mut bool) -> f64 {
    let is_first = user.operands.first() == Some(&value.place);
    match user.opcode {
        "slice" => user.shape.operand_bytes(),
        "dynamic-slice" if is_first => user.shape.operand_bytes(),
        // it is written in place
        "dynamic-update-slice" if is_first => 0.0,
        _ if std::mem::replace(is_read, true) => 0.0,
        _ => value.shape.operand_bytes(),
    }
}

/// Bytes that a fusion reads and writes; `None` if its body is missing.
pub(super) fn fusion_bytes(graph: &Graph<'_>, fusion: &Node<'_>, reads: &Reads) -> Option<f64> {
    let callee = *fusion.called.first()?;
    let body = graph.bodies.get(callee)?;
    let constants = body.nodes.clone().filter_map(|place| graph.node(place));
    let constants = constants.filter(|one| one.opcode == "constant" && one.shape.elements() > IMMEDIATE_ELEMENTS);
    let read: f64 = reads.0.get(callee)?.values().sum();
    Some(written(graph, fusion, body)? + constants.map(|one| one.shape.operand_bytes()).sum::<f64>() + read)
}

fn written(graph: &Graph<'_>, fusion: &Node<'_>, body: &Body) -> Option<f64> {
    let root = graph.node(body.root?)?;
    if !fusion.shape.is_tuple() {
        return Some(output_bytes(graph, root, fusion.shape.operand_bytes()));
    }
    let mut bytes = 0.0;
    for (number, shape) in fusion.shape.tuple_shapes.iter().enumerate() {
        let part = if root.opcode == "tuple" { graph.operand(root, number)? } else { root };
        bytes += match shape.is_tuple() {
            true => shape.leaves().iter().filter(|leaf| leaf.dtype().is_some()).map(|leaf| leaf.operand_bytes()).sum(),
            false => output_bytes(graph, part, shape.operand_bytes()),
        };
    }
    Some(bytes)
}

/// An update in place writes only the update.
fn output_bytes(graph: &Graph<'_>, root: &Node<'_>, whole: f64) -> f64 {
    let update = graph.operand(root, 1).filter(|_| root.opcode == "dynamic-update-slice");
    update.map_or(whole, |update| update.shape.operand_bytes())
}
