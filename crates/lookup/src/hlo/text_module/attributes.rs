//! Attributes of instructions as the messages that protos have for them.

use crate::hlo::escape::{Escapes, Unescaper};
use crate::hlo::hlo_text::{is_word, number};
use crate::hlo::schema::xla_data::{
    ConvolutionDimensionNumbers, IotaReplicaGroupListProto, ReplicaGroup, Window, WindowDimension,
};
use crate::hlo::text_cursor::{Cursor, parts, quoted};

/// A string as people write it.
pub(super) fn unescaped(text: &[u8]) -> Vec<u8> {
    Unescaper::new(text, Escapes::C).collect()
}

/// What is between the brackets of a value, or the value itself.
pub(super) fn inside(value: &[u8]) -> &[u8] {
    Cursor::new(value).bracketed().unwrap_or(value)
}

/// `{1,0}`.
pub(super) fn numbers(value: &[u8]) -> Vec<u64> {
    parts(inside(value)).filter_map(number).collect()
}

/// The members of `op_name="a b" line=3 size=2x2`; a string is still escaped.
pub(super) fn members(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut cursor = Cursor::new(text);
    std::iter::from_fn(move || {
        let key = cursor.word(is_word);
        if key.is_empty() || !cursor.eat(b"=") {
            return None;
        }
        let value = match cursor.next() {
            Some(b'"') => {
                let value = quoted(cursor.rest().get(1..).unwrap_or_default());
                cursor.take(value.len() + 2);
                value
            }
            Some(b'{' | b'(' | b'[') => cursor.bracketed().unwrap_or_default(),
            _ => cursor.word(is_word),
        };
        Some((key, value))
    })
}

fn signed(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// `{size=3x3 stride=2x2 pad=1_1x0_1 lhs_dilate=2x2 rhs_dilate=1x2}`.
pub(super) fn window(value: &[u8]) -> Window {
    let mut dimensions: Vec<WindowDimension> = Vec::new();
    for (key, value) in members(inside(value)) {
        for (at, text) in value.split(|&byte| byte == b'x').enumerate() {
            if at == dimensions.len() {
                let plain =
                    WindowDimension { size: 1, stride: 1, window_dilation: 1, base_dilation: 1, ..Default::default() };
                dimensions.push(plain);
            }
            let Some(dimension) = dimensions.get_mut(at) else { continue };
            let value = signed(text);
            match key {
                b"size" => dimension.size = value.unwrap_or(1),
                b"stride" => dimension.stride = value.unwrap_or(1),
                b"lhs_dilate" => dimension.base_dilation = value.unwrap_or(1),
                b"rhs_dilate" => dimension.window_dilation = value.unwrap_or(1),
                b"pad" => {
                    let mut both = text.split(|&byte| byte == b'_').map(|one| signed(one).unwrap_or_default());
                    dimension.padding_low = both.next().unwrap_or_default();
                    dimension.padding_high = both.next().unwrap_or_default();
                }
                _ => {}
            }
        }
    }
    Window { dimensions }
}

/// `b01f_01io->b01f`: where batch, features and the dimensions of the window are in input, kernel and output.
pub(super) fn dim_labels(value: &[u8]) -> Option<ConvolutionDimensionNumbers> {
    let at = memchr::memmem::find(value, b"->")?;
    let (operands, output) = (value.get(..at)?, value.get(at + b"->".len()..)?);
    let (input, kernel) = operands.split_at(memchr::memchr(b'_', operands)?);
    let kernel = kernel.get(1..)?;
    let place = |labels: &[u8], label: u8| labels.iter().position(|&one| one == label).map(|at| at as u64);
    let spatial = |labels: &[u8]| -> Vec<u64> { (b'0'..=b'9').map_while(|label| place(labels, label)).collect() };
    Some(ConvolutionDimensionNumbers {
        kernel_spatial_dimensions: spatial(kernel),
        input_batch_dimension: place(input, b'b')?,
        input_feature_dimension: place(input, b'f')?,
        output_feature_dimension: place(output, b'f')?,
        input_spatial_dimensions: spatial(input),
        output_spatial_dimensions: spatial(output),
    })
}

/// `{{0,1},{2,3}}`.
pub(super) fn groups(value: &[u8]) -> Vec<ReplicaGroup> {
    let group = |group: &[u8]| ReplicaGroup { replica_ids: numbers(group) };
    parts(inside(value)).map(group).collect()
}

/// `[2,4]<=[4,2]T(1,0)`.
pub(super) fn grid(value: &[u8]) -> Option<IotaReplicaGroupListProto> {
    let mut cursor = Cursor::new(value);
    let groups = cursor.bracketed().map(numbers)?;
    let iota_reshape_dims = if cursor.eat(b"<=") { cursor.bracketed().map(numbers)? } else { return None };
    let iota_transpose_perm = if cursor.eat(b"T") { cursor.bracketed().map(numbers)? } else { Vec::new() };
    let [num_replica_groups, num_devices_per_group] = groups[..] else { return None };
    Some(IotaReplicaGroupListProto {
        num_replica_groups,
        num_devices_per_group,
        iota_reshape_dims,
        iota_transpose_perm,
    })
}
