//! A program's parameters and results, read from the `HloModuleProto` of a compiled executable.
//!
//! Plugins check only the byte count of an argument: they run `s32` bytes as `f32` without an error. Field numbers and
//! element types: openxla/xla, `xla/service/hlo.proto` and `xla/xla_data.proto`.

use crate::array::{ArraySpec, DType};
use crate::timer::protocol::ProgramSignature;
use crate::wire::{WireCursor, WireError, WireValue, repeated_varints};

/// `PrimitiveType` numbers.
const ELEMENT_TYPES: [(u64, DType); 28] = [
    (1, DType::Pred),
    (2, DType::S8),
    (3, DType::S16),
    (4, DType::S32),
    (5, DType::S64),
    (6, DType::U8),
    (7, DType::U16),
    (8, DType::U32),
    (9, DType::U64),
    (10, DType::F16),
    (11, DType::F32),
    (12, DType::F64),
    (15, DType::C64),
    (16, DType::Bf16),
    (18, DType::C128),
    (19, DType::F8E5M2),
    (20, DType::F8E4M3Fn),
    (21, DType::S4),
    (22, DType::U4),
    (23, DType::F8E4M3B11Fnuz),
    (24, DType::F8E5M2Fnuz),
    (25, DType::F8E4M3Fnuz),
    (26, DType::S2),
    (27, DType::U2),
    (28, DType::F8E4M3),
    (29, DType::F8E3M4),
    (32, DType::F4E2M1Fn),
    (33, DType::F8E8M0Fnu),
];

/// `PrimitiveType::TUPLE`.
const TUPLE: u64 = 13;

/// The signature of an optimized program of the given format; `None` if it has none, or one that is not made of arrays.
pub(crate) fn read_signature(code: &[u8], format: &str) -> Option<ProgramSignature> {
    let module = module_of(code, format)?;
    let parameters = parameters(module).ok().flatten()?;
    Some(ProgramSignature::new(parameters).results(results(module).ok().flatten()))
}

/// The `HloModuleProto` of an optimized program.
pub(crate) fn module_of<'a>(code: &'a [u8], format: &str) -> Option<&'a [u8]> {
    match format {
        "hlo" => Some(code),
        // HloModuleProtoWithConfig: the module is field 1
        "hlo_with_config" => message(code, 1).ok().flatten(),
        _ => None,
    }
}

/// The last occurrence of a length-delimited field, which counts in protobuf.
fn message(buffer: &[u8], number: u32) -> Result<Option<&[u8]>, WireError> {
    let mut found = None;
    for field in WireCursor::new(buffer) {
        let (field, value) = field?;
        if field == number {
            found = value.as_bytes();
        }
    }
    Ok(found)
}

/// A module's parameters; for a partitioned module, the parts of one device. `None` if one is not an array.
pub(crate) fn parameters(module: &[u8]) -> Result<Option<Vec<ArraySpec>>, WireError> {
    let Some(program_shape) = message(module, 4)? else { return Ok(None) };
    let mut parameters = Vec::new();
    for field in WireCursor::new(program_shape) {
        if let (1, WireValue::Bytes(shape)) = field? {
            let Some(spec) = array_spec(shape)? else { return Ok(None) };
            parameters.push(spec);
        }
    }
    Ok(Some(parameters))
}

/// Maximum number of arrays in a result; real programs have thousands.
const MAX_RESULTS: usize = 1 << 16;

/// A module's results: the arrays of its result, tuples in order. `None` if it has other types than arrays.
fn results(module: &[u8]) -> Result<Option<Vec<ArraySpec>>, WireError> {
    let Some(program_shape) = message(module, 4)? else { return Ok(None) };
    let Some(result) = message(program_shape, 2)? else { return Ok(None) };
    let (mut open, mut found) = (vec![result], Vec::new());
    while let Some(shape) = open.pop() {
        let mut parts = Vec::new();
        let mut is_tuple = false;
        for field in WireCursor::new(shape) {
            match field? {
                (2, WireValue::Varint(number)) => is_tuple = number == TUPLE,
                (4, WireValue::Bytes(part)) => parts.push(part),
                _ => {}
            }
        }
        if is_tuple {
            open.extend(parts.into_iter().rev());
        } else {
            let Some(spec) = array_spec(shape)? else { return Ok(None) };
            found.push(spec);
        }
        if open.len() + found.len() > MAX_RESULTS {
            return Ok(None);
        }
    }
    Ok(Some(found))
}

fn array_spec(shape: &[u8]) -> Result<Option<ArraySpec>, WireError> {
    let (mut element_type, mut dims) = (0, Vec::new());
    for field in WireCursor::new(shape) {
        match field? {
            (2, WireValue::Varint(number)) => element_type = number,
            (3, value) => repeated_varints(value, &mut dims)?,
            _ => {}
        }
    }
    let dtype = ELEMENT_TYPES.iter().find(|(number, _)| *number == element_type).map(|(_, dtype)| *dtype);
    Ok(dtype.map(|dtype| ArraySpec::new(dtype, dims)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_hand_made_module() {
        // ProgramShapeProto { f32[2,300], s32[], result ignored } inside HloModuleProto inside ...WithConfig
        let shape = [0x0a, 7, 0x10, 11, 0x1a, 3, 2, 0xac, 2, 0x0a, 2, 0x10, 4, 0x12, 2, 0x10, 1];
        let shape: Vec<u8> = shape.to_vec();
        let module: Vec<u8> = [&[0x0a, 1, b'm', 0x22, shape.len() as u8], &shape[..]].concat();
        let wrapped: Vec<u8> = [&[0x0a, module.len() as u8], &module[..]].concat();
        let expected = vec!["f32[2,300]".parse().unwrap(), "s32[]".parse().unwrap()];
        assert_eq!(read_signature(&module, "hlo").unwrap().parameters, expected);
        assert_eq!(read_signature(&wrapped, "hlo_with_config").unwrap().parameters, expected);
        assert_eq!(read_signature(&module, "hlo").unwrap().results.unwrap(), ["pred[]".parse().unwrap()]);
        // a tuple of an array, an empty tuple, and a tuple of an array
        let result = [
            0x12, 22, 0x10, 13, 0x22, 6, 0x10, 11, 0x1a, 2, 2, 4, 0x22, 2, 0x10, 13, 0x22, 6, 0x10, 13, 0x22, 2, 0x10,
            4,
        ];
        let tuple: Vec<u8> = [&[0x22, result.len() as u8], &result[..]].concat();
        let signature = read_signature(&tuple, "hlo").unwrap();
        assert_eq!(signature.results.unwrap(), ["f32[2,4]", "s32[]"].map(|spec| spec.parse().unwrap()));
        assert_eq!(read_signature(&module, "mlir"), None);
        assert_eq!(read_signature(b"\x22\x7f", "hlo"), None);
        assert_eq!(read_signature(b"\x0a\x01m", "hlo"), None);
    }
}
