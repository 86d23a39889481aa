//! One instruction.

use super::attributes::{dim_labels, grid, groups, inside, members, numbers, unescaped, window};
use super::shape::shape;
use crate::hlo::graph::{Node, NodeKind};
use crate::hlo::hlo_text::{attribute, is_word, number, without_sign};
use crate::hlo::kernels::METADATA as KERNEL_METADATA;
use crate::hlo::module::PAYLOAD_ATTRIBUTE;
use crate::hlo::schema::hlo::HloInstructionProto;
use crate::hlo::schema::xla_data::{
    DotDimensionNumbers, FrontendAttributes, MeshAxesReplicaGroupListProto, OpMetadata, RaggedDotDimensionNumbers,
    frontend_attributes::Entry,
};
use crate::hlo::text_cursor::{Cursor, quoted};

/// The instruction of a node at a place of its computation; `id_of_node` numbers nodes, `id_of` computations.
pub(super) fn instruction(
    node: &Node<'_>,
    place: usize,
    id_of_node: &dyn Fn(usize) -> i64,
    id_of: &mut dyn FnMut(&[u8]) -> i64,
) -> HloInstructionProto {
    let mut message = HloInstructionProto {
        name: node.name.as_bytes().to_vec().into(),
        opcode: node.opcode.as_bytes().to_vec().into(),
        id: id_of_node(place),
        operand_ids: node.operands.iter().map(|operand| id_of_node(operand.node)).collect(),
        called_computation_ids: node.called.iter().map(|callee| id_of(callee)).collect(),
        ..HloInstructionProto::default()
    };
    if let Some(part) = node.operands.first().and_then(|operand| operand.part) {
        message.tuple_index = part as u64;
    }
    if !node.payload.is_empty() {
        let entry = Entry { key: PAYLOAD_ATTRIBUTE.into(), value: unescaped(&node.payload).into() };
        message.frontend_attributes = Some(Box::new(FrontendAttributes { map: vec![entry] }));
    }
    let mut cursor = Cursor::new(&node.attributes);
    message.shape = shape(&mut cursor);
    cursor.word(is_word);
    let given = cursor.bracketed().unwrap_or_default();
    if node.kind == NodeKind::Argument {
        message.parameter_number = number(given).unwrap_or_default();
    }
    while let Some((key, value)) = attribute(&mut cursor) {
        describe(key, value, &mut message, id_of);
    }
    message
}

fn describe(key: &[u8], value: &[u8], message: &mut HloInstructionProto, id_of: &mut dyn FnMut(&[u8]) -> i64) {
    match key {
        b"metadata" => message.metadata = Some(metadata(value)),
        // protos have the body before the condition
        b"body" => {
            let body = id_of(without_sign(value));
            message.called_computation_ids.sort_by_key(|&called| called != body);
        }
        b"dimensions" => message.dimensions = numbers(value),
        b"dynamic_slice_sizes" => message.dynamic_slice_sizes = numbers(value),
        b"frontend_attributes" => {
            let said = members(inside(value)).find(|(key, _)| *key == KERNEL_METADATA);
            if let Some((key, value)) = said {
                // a dictionary stands there as it is, without its braces here
                let value = [b"{", value, b"}"].concat();
                let entry = Entry { key: key.to_vec().into(), value: value.into() };
                message.frontend_attributes.get_or_insert_default().map.push(entry);
            }
        }
        b"custom_call_target" => message.custom_call_target = string(value).into(),
        b"backend_config" => message.backend_config = config(value).into(),
        b"fft_length" => message.fft_length = numbers(value),
        b"window" => message.window = Some(Box::new(window(value))),
        b"dim_labels" => message.convolution_dimension_numbers = dim_labels(value).map(Box::new),
        b"feature_group_count" => message.feature_group_count = number(value).unwrap_or_default(),
        b"batch_group_count" => message.batch_group_count = number(value).unwrap_or_default(),
        b"use_global_device_ids" => message.use_global_device_ids = value == b"true",
        b"replica_groups" => set_groups(value, message),
        b"lhs_contracting_dims" => {
            let lhs_contracting_dimensions = numbers(value);
            message.dot_dimension_numbers = Some(Box::new(DotDimensionNumbers { lhs_contracting_dimensions }));
        }
        b"lhs_ragged_dims" => {
            let ragged = RaggedDotDimensionNumbers {
                dot_dimension_numbers: message.dot_dimension_numbers.take().map(|dot| *dot),
                lhs_ragged_dimensions: numbers(value),
            };
            message.ragged_dot_dimension_numbers = Some(Box::new(ragged));
        }
        _ => {}
    }
}

/// Groups of devices in whichever form; those along axes of a mesh are not read, and so unknown.
fn set_groups(value: &[u8], message: &mut HloInstructionProto) {
    match value.first() {
        Some(b'{') => message.replica_groups = groups(value),
        Some(b'[') if let Some(grid) = grid(value) => message.iota_collective_device_list = Some(Box::new(grid)),
        _ => message.mesh_axes_replica_group_list = Some(Box::new(MeshAxesReplicaGroupListProto::default())),
    }
}

fn metadata(value: &[u8]) -> OpMetadata {
    let mut metadata = OpMetadata::default();
    for (key, value) in members(inside(value)) {
        match key {
            b"op_name" => metadata.op_name = unescaped(value).into(),
            b"source_file" => metadata.source_file = unescaped(value).into(),
            b"source_line" => metadata.source_line = number(value).unwrap_or_default(),
            b"stack_frame_id" => metadata.stack_frame_id = number(value).unwrap_or_default(),
            _ => {}
        }
    }
    metadata
}

fn string(value: &[u8]) -> Vec<u8> {
    unescaped(value.strip_prefix(b"\"").map(quoted).unwrap_or_default())
}

/// JSON as it is, or a string.
fn config(value: &[u8]) -> Vec<u8> {
    if value.starts_with(b"{") { value.to_vec() } else { string(value) }
}
