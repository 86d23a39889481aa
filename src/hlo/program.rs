//! A module that is to be compiled: the bytes that a compiler takes, and whether it may destroy its arguments.

use super::detect::{self, Content, HEAD_BYTES};
use super::error::{ScanError, ScanErrorKind};
use super::found::ModuleForm;
use super::proto;
use crate::wire::{WireCursor, WireError, WireValue};

/// A module in memory, as a compiler takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program<'a> {
    /// Its form.
    pub form: ModuleForm,
    /// The module: of an `HloProto` the `HloModuleProto` inside.
    pub bytes: &'a [u8],
    /// Whether it may write its outputs over arguments: they must be given anew for each run.
    pub donates: bool,
}

/// What MLIR's printer and its bytecode call an argument that may be overwritten: jax, `jax/_src/interpreters/mlir.py`.
const DONATED: [&[u8]; 2] = [b"tf.aliasing_output", b"jax.buffer_donor"];
/// Fields of `HloModuleProto` that say so: `input_output_alias` and `buffer_donor` of `xla/service/hlo.proto`.
const DONATING_FIELDS: [u32; 2] = [8, 18];

/// Reads a program; `place` names it in errors.
pub fn read_program<'a>(bytes: &'a [u8], place: &str) -> Result<Program<'a>, ScanError> {
    read(bytes).map_err(|kind| kind.at(place))
}

fn read(bytes: &[u8]) -> Result<Program<'_>, ScanErrorKind> {
    let form = match detect::detect(bytes.get(..HEAD_BYTES).unwrap_or(bytes))? {
        Content::Module(form) => form,
        Content::Gzip | Content::Zstd => {
            return Err(ScanErrorKind::NotAModule { seen: "it is compressed: decompress it first".to_owned() });
        }
    };
    if form != ModuleForm::HloProto {
        let donates = DONATED.iter().any(|mark| memchr::memmem::find(bytes, mark).is_some());
        return Ok(Program { form, bytes, donates });
    }
    let (start, end) = proto::module_range(&bytes)?;
    let range = usize::try_from(start).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
    let bytes = bytes.get(range).unwrap_or_default();
    let donates = donates(bytes).map_err(|error| ScanErrorKind::Truncated {
        what: error.what.to_owned(),
        offset: start + error.offset as u64,
    })?;
    Ok(Program { form, bytes, donates })
}

fn donates(module: &[u8]) -> Result<bool, WireError> {
    let mut found = false;
    for field in WireCursor::new(module) {
        if let (number, WireValue::Bytes(entries)) = field? {
            found |= DONATING_FIELDS.contains(&number) && !entries.is_empty();
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn sample(name: &str) -> Vec<u8> {
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer").join(name)).unwrap()
    }

    #[test]
    fn every_form_is_told_and_donation_with_it() {
        for (name, form, donates) in [
            ("add.mlir", ModuleForm::StablehloText, false),
            ("donated.mlir", ModuleForm::StablehloText, true),
            ("add.mlirbc", ModuleForm::StablehloBytecode, false),
            ("add.hlo.pb", ModuleForm::HloProto, false),
        ] {
            let bytes = sample(name);
            let program = read_program(&bytes, name).unwrap();
            assert_eq!((program.form, program.donates, program.bytes), (form, donates, &bytes[..]), "{name}");
        }
    }

    #[test]
    fn an_hlo_proto_is_unwrapped() {
        let mut module = sample("add.hlo.pb");
        // input_output_alias { entries { parameter_number: 1 } }
        module.extend([0x42, 4, 0x0a, 2, 0x10, 1]);
        let mut length = module.len();
        let mut wrapped = vec![0x0a];
        while length >= 0x80 {
            wrapped.push(length as u8 | 0x80);
            length >>= 7;
        }
        wrapped.push(length as u8);
        wrapped.extend(&module);
        let program = read_program(&wrapped, "wrapped").unwrap();
        assert_eq!((program.bytes, program.donates), (&module[..], true));
        let cut = read_program(&wrapped[..wrapped.len() - 9], "cut").unwrap_err();
        assert!(cut.to_string().contains("`cut`: is truncated"), "{cut}");
    }

    #[test]
    fn what_is_no_program_is_said() {
        let said = |bytes: &[u8]| read_program(bytes, "file").unwrap_err().to_string();
        assert!(said(b"").contains("is empty"));
        assert!(said(b"\x1f\x8b\x08").contains("decompress it first"));
        assert!(said(b"{\"a\": 1}").contains("JSON"));
    }
}
