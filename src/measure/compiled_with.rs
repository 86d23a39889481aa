//! The options with which JAX compiles a module, from its side file: the compile options where the module is used.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::cache::{is_field_of_files, path_option, reaches_files};
use crate::candidates::spelled;
use crate::digest::Digest;
use crate::printable::printable;
use crate::wire::{Message, WireCursor, WireError, WireValue};

/// Fields of `CompileOptionsProto` (openxla/xla, xla/pjrt/proto/compile_options.proto).
mod options {
    pub(super) const BUILD: u32 = 3;
    /// Marks the executable as portable, which a plugin refuses together with a device assignment.
    pub(super) const PORTABLE: u32 = 4;
    pub(super) const OVERRIDES: u32 = 7;
}

/// Fields of `ExecutableBuildOptionsProto`. This machine decides which and how many devices run a program.
mod build {
    pub(super) const DEBUG_OPTIONS: u32 = 3;
    /// Compiler options in a compiler's own messages, which cannot be read here. JAX sends none.
    pub(super) const ENVIRONMENTS: u32 = 13;
    /// Device, replicas, partitions, use of SPMD partitioning, device assignment, choice of the partitioner.
    pub(super) const OF_DEVICES: [u32; 6] = [1, 4, 5, 6, 9, 19];
}

/// `OptionOverrideProto`.
mod value {
    pub(super) const TEXT: u32 = 1;
    pub(super) const SWITCH: u32 = 2;
    pub(super) const INTEGER: u32 = 3;
    pub(super) const REAL: u32 = 4;
}

/// A module's compile options in canonical form: without devices, and without options that reach files, because a side file may
/// come from anyone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompiledWith {
    /// A `CompileOptionsProto`; a second one, which is appended, adds devices and overrides.
    pub(super) bytes: Vec<u8>,
    /// Compiler options that the user set for this program (`jax.jit(compiler_options=…)`).
    pub named: BTreeMap<String, Value>,
    /// Names of the removed options, which reach files; safe for a terminal.
    left_out: BTreeSet<String>,
}

/// Maximum number of removed options in a note, and of characters of a name.
const MAX_NOTED: usize = 8;
const MAX_NOTED_CHARS: usize = 64;

impl CompiledWith {
    /// Reads a `CompileOptionsProto`.
    ///
    /// # Errors
    /// If the bytes are not one.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let mut kept = Message::default();
        let mut named = BTreeMap::new();
        let mut left_out = BTreeSet::new();
        for field in WireCursor::new(bytes) {
            match field? {
                (options::BUILD, WireValue::Bytes(bytes)) => {
                    kept.bytes(options::BUILD, &build_options(bytes, &mut left_out)?.0);
                }
                (options::PORTABLE, _) => {}
                (options::OVERRIDES, WireValue::Bytes(bytes)) => {
                    let (name, value) = named_option(bytes)?;
                    if reaches_files(&name) {
                        leave_out(&name, &mut left_out);
                    } else {
                        named.extend(value.map(|value| (name, value)));
                        kept.bytes(options::OVERRIDES, bytes);
                    }
                }
                (field, value) => kept.field(field, value),
            }
        }
        Ok(Self { bytes: kept.0, named, left_out })
    }

    /// A note on the removed options; `None` if there are none.
    pub fn note(&self) -> Option<String> {
        let names: Vec<String> = self.left_out.iter().map(|name| format!("`{name}`")).collect();
        (!names.is_empty()).then(|| {
            let names = names.join(", ");
            format!("compiled without options of its dump that reach files: {names}")
        })
    }

    /// The options that the user set, spelled as XLA reads them.
    pub(super) fn overrides(&self) -> BTreeMap<String, String> {
        self.named.iter().map(|(name, value)| (name.clone(), spelled(value))).collect()
    }

    /// Digest of the whole.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }
}

fn leave_out(name: &str, left_out: &mut BTreeSet<String>) {
    if left_out.len() < MAX_NOTED {
        left_out.insert(printable(&name.chars().take(MAX_NOTED_CHARS).collect::<String>()));
    }
}

fn build_options(bytes: &[u8], left_out: &mut BTreeSet<String>) -> Result<Message, WireError> {
    let mut kept = Message::default();
    for field in WireCursor::new(bytes) {
        match field? {
            (build::DEBUG_OPTIONS, WireValue::Bytes(bytes)) => {
                let mut debug = Message::default();
                for field in WireCursor::new(bytes) {
                    let (field, value) = field?;
                    if !is_field_of_files(field) {
                        debug.field(field, value);
                    } else if let Some(name) = path_option(field).filter(|_| value.as_bytes() != Some(b"")) {
                        leave_out(name, left_out);
                    }
                }
                kept.bytes(build::DEBUG_OPTIONS, &debug.0);
            }
            (field, _) if field == build::ENVIRONMENTS || build::OF_DEVICES.contains(&field) => {}
            (field, value) => kept.field(field, value),
        }
    }
    Ok(kept)
}

/// A map entry: a name, and its value if the kind is known.
fn named_option(bytes: &[u8]) -> Result<(String, Option<Value>), WireError> {
    let (mut name, mut found) = (String::new(), None);
    for field in WireCursor::new(bytes) {
        match field? {
            (1, WireValue::Bytes(text)) => name = String::from_utf8_lossy(text).into_owned(),
            (2, WireValue::Bytes(option)) => {
                for field in WireCursor::new(option) {
                    found = match field? {
                        (value::TEXT, WireValue::Bytes(text)) => Some(String::from_utf8_lossy(text).into()),
                        (value::SWITCH, WireValue::Varint(switch)) => Some((switch != 0).into()),
                        // signed 64-bit integers in protobuf's encoding
                        (value::INTEGER, WireValue::Varint(integer)) => Some(integer.cast_signed().into()),
                        (value::REAL, WireValue::Fixed64(real)) => Some(real_value(f64::from_bits(real))),
                        _ => found,
                    };
                }
            }
            _ => {}
        }
    }
    Ok((name, found))
}

/// JSON has no non-finite numbers; XLA reads them as text.
fn real_value(real: f64) -> Value {
    if real.is_finite() { real.into() } else { real.to_string().into() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The output of jaxlib 0.10.2 for `jit(f, compiler_options={...})`; see `tests/data/pjrt/README.md`.
    const OF_JAX: &[u8] = include_bytes!("../../tests/data/pjrt/jax-0.10.2-compile-options.pb");

    #[test]
    fn devices_and_what_reaches_files_are_taken_out_and_the_rest_stays() {
        // field numbers from xla's protos, written by hand
        let mut debug = Message::default();
        debug.number(99, 1).bytes(109, b"/tmp/dump").number(112, 1).bytes(30, b"fusion").bytes(222, b"/tmp/results");
        let mut build = Message::default();
        build.number(1, 3).bytes(3, &debug.0).number(4, 8).number(5, 2).number(6, 1).bytes(9, b"\x08\x01").number(8, 1);
        // `comp_envs`: an `Any` with a compiler's own options
        build.bytes(13, b"\x0a\x04\x0a\x02xy");
        let mut all = Message::default();
        all.number(2, 1).bytes(3, &build.0).number(4, 1).number(5, 7);
        let with = CompiledWith::read(&all.0).unwrap();
        let mut debug = Message::default();
        debug.number(99, 1).bytes(30, b"fusion");
        let mut build = Message::default();
        build.bytes(3, &debug.0).number(8, 1);
        let mut expected = Message::default();
        expected.number(2, 1).bytes(3, &build.0).number(5, 7);
        assert_eq!(with.bytes, expected.0);
        assert_eq!(with.named, BTreeMap::new());
        let message =
            "compiled without options of its dump that reach files: `xla_dump_to`, `xla_gpu_dump_autotune_results_to`";
        assert_eq!(with.note().as_deref(), Some(message));
        let again = CompiledWith::read(&with.bytes).unwrap();
        assert_eq!((again.note(), again.bytes), (None, with.bytes), "once is enough");
    }

    #[test]
    fn what_the_user_named_is_reported() {
        let with = CompiledWith::read(OF_JAX).unwrap();
        let named = json!({"xla_cpu_enable_fast_math": true, "xla_cpu_prefer_vector_width": -3, "xla_disable_hlo_passes": "dce",
            "xla_gpu_auto_spmd_partitioning_memory_budget_ratio": 0.5});
        assert_eq!(json!(with.named), named);
        assert_eq!(with.note(), None, "JAX's defaults are no choice of the user's");
        assert!(with.bytes.len() > 900 && with.bytes.len() < OF_JAX.len(), "{} of {}", with.bytes.len(), OF_JAX.len());
    }

    #[test]
    fn options_of_one_program_that_reach_files_are_taken_out() {
        let named = |name: &str, value: &Message| {
            let mut entry = Message::default();
            entry.bytes(1, name.as_bytes()).bytes(2, &value.0);
            entry.0
        };
        let (mut text, mut real) = (Message::default(), Message::default());
        text.bytes(1, b"/tmp/dump");
        real.field(4, WireValue::Fixed64(f64::NAN.to_bits()));
        let mut all = Message::default();
        for name in ["xla_dump_to", "xla_gpu_kernel_cache_file", "xla_gpu_load_autotune_results_from"] {
            all.bytes(7, &named(name, &text));
        }
        // a name after its value, and a name set twice: the later value counts
        let (mut late, mut twice) = (Message::default(), Message::default());
        late.bytes(2, &text.0).bytes(1, b"xla_dump_to");
        twice.bytes(1, b"xla_a").bytes(2, &text.0).bytes(1, b"xla_gpu_ptx_file");
        all.bytes(7, &late.0).bytes(7, &twice.0);
        let mut expected = Message::default();
        expected.bytes(7, &named("xla_a", &real));
        all.bytes(7, &named("xla_a", &real));
        let with = CompiledWith::read(&all.0).unwrap();
        assert_eq!((&with.bytes, json!(with.named)), (&expected.0, json!({"xla_a": "NaN"})));
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_an_error_or_options() {
        for length in 0..OF_JAX.len() {
            let _ = CompiledWith::read(&OF_JAX[..length]);
            let mut flipped = OF_JAX.to_vec();
            flipped[length] ^= 0x81;
            let _ = CompiledWith::read(&flipped);
        }
        // a length beyond the end, a group, a number that is too long: outside and inside each message
        for bytes in [&b"\x1a\x7f"[..], b"\x0b", b"\x1a\x02\x1a\x7f", b"\x1a\x04\x1a\x02\x0d\x01", b"\x3a\x02\x12\x7f"]
        {
            assert!(CompiledWith::read(bytes).is_err(), "{bytes:?}");
        }
    }
}
