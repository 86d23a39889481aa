//! A program's parameters and results, read from the `HloModuleProto` of a compiled executable.
//!
//! Plugins check only the byte count of an argument: they run `s32` bytes as `f32` without an error.

use prost::Message;
use prost::bytes::Bytes;

use crate::array::ArraySpec;
use crate::hlo::schema::hlo::{HloModuleProto, HloModuleProtoWithConfig};
use crate::hlo::schema::xla_data::ShapeProto;
use crate::timer::protocol::ProgramSignature;

/// The signature of an optimized program of the given format; `None` if it has none, or one that is not made of arrays.
pub(crate) fn read_signature(code: &[u8], format: &str) -> Option<ProgramSignature> {
    let module = HloModuleProto::decode(module_of(code, format)?).ok()?;
    Some(ProgramSignature::new(parameters(&module)?).results(results(&module)))
}

/// The `HloModuleProto` of an optimized program.
pub(crate) fn module_of(code: &[u8], format: &str) -> Option<Bytes> {
    let code = Bytes::copy_from_slice(code);
    match format {
        "hlo" => Some(code),
        "hlo_with_config" => HloModuleProtoWithConfig::decode(code).ok()?.hlo_module,
        _ => None,
    }
}

/// A module's parameters; for a partitioned module, the parts of one device. `None` if one is not an array.
pub(crate) fn parameters(module: &HloModuleProto) -> Option<Vec<ArraySpec>> {
    module.host_program_shape.as_ref()?.parameters.iter().map(ShapeProto::array).collect()
}

/// A module's results: the arrays of its result, tuples in order. `None` if it has other types than arrays.
fn results(module: &HloModuleProto) -> Option<Vec<ArraySpec>> {
    let result = module.host_program_shape.as_ref()?.result.as_ref()?;
    result.leaves().into_iter().map(ShapeProto::array).collect()
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
