//! The options with which JAX compiles a module, from its side file: the compile options where the module is used.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::cache::{OptionPolicy, field_policy, option_policy};
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
    /// Layouts, tuples, the version of profiles, in-place modification, precision, outputs: nothing that names
    /// anything.
    pub(super) const ALLOWED: [u32; 6] = [1, 2, 5, 9, 10, 12];
}

/// Fields of `ExecutableBuildOptionsProto`. This machine decides which and how many devices run a program.
mod build {
    pub(super) const DEBUG_OPTIONS: u32 = 3;
    /// Compiler options in a compiler's own messages, which cannot be read here. JAX sends none.
    pub(super) const ENVIRONMENTS: u32 = 13;
    /// Device, replicas, partitions, use of SPMD partitioning, device assignment, choice of the partitioner.
    pub(super) const OF_DEVICES: [u32; 6] = [1, 4, 5, 6, 9, 19];
    /// The result's layout, numbers and switches.
    pub(super) const ALLOWED: [u32; 14] = [2, 7, 8, 10, 11, 12, 15, 16, 17, 18, 22, 23, 24, 25];
}

/// `OptionOverrideProto`.
mod value {
    pub(super) const TEXT: u32 = 1;
    pub(super) const SWITCH: u32 = 2;
    pub(super) const INTEGER: u32 = 3;
    pub(super) const REAL: u32 = 4;
}

/// A module's compile options in canonical form: without devices, and with listed options alone
/// ([`option_policy`](crate::cache::option_policy())), because a side file may come from anyone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledWith {
    /// A `CompileOptionsProto`; a second one, which is appended, adds devices and overrides.
    pub(super) bytes: Vec<u8>,
    /// Compiler options that the user set for this program (`jax.jit(compiler_options=…)`).
    pub named: BTreeMap<String, Value>,
    /// Names of the removed options, which only write, log or find tools; safe for a terminal.
    skipped: BTreeSet<String>,
}

/// Why compile options cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompiledWithError {
    /// They are not a `CompileOptionsProto`.
    #[error(
        "that are not a CompileOptionsProto ({0}); write it again with `autotune_lowered.dump`, or remove the member"
    )]
    Damaged(#[from] WireError),
    /// Something is on no list of what a file may set. Without it, another program would be compiled.
    #[error(
        "with `{0}`, which is on no list of what a file may set (docs/options.md): tune with your own \
         `--base-options NAME=VALUE`, or remove the member"
    )]
    Refused(String),
}

/// Maximum number of removed options in a note, and of characters of a name.
const MAX_NOTED: usize = 8;
const MAX_NOTED_CHARS: usize = 64;

impl CompiledWith {
    /// Reads a `CompileOptionsProto`. An option in `own` is one that the user sets, whatever the file says: the file's
    /// value is passed over.
    ///
    /// # Errors
    /// If the bytes are not one, or if they set something that a file may not.
    pub fn read(bytes: &[u8], own: &[String]) -> Result<Self, CompiledWithError> {
        let mut reader = Reader { own, skipped: BTreeSet::new() };
        let mut kept = Message::default();
        let mut named = BTreeMap::new();
        for field in WireCursor::new(bytes) {
            match field? {
                (options::BUILD, WireValue::Bytes(bytes)) => {
                    kept.bytes(options::BUILD, &reader.build_options(bytes)?.0);
                }
                (options::PORTABLE, _) => {}
                (options::OVERRIDES, WireValue::Bytes(bytes)) => {
                    let (name, value) = named_option(bytes)?;
                    let policy = value.as_ref().map_or(OptionPolicy::Refused, |value| option_policy(&name, value));
                    if reader.keeps(policy, &name)? {
                        named.extend(value.map(|value| (name, value)));
                        kept.bytes(options::OVERRIDES, bytes);
                    }
                }
                (field, value) if options::ALLOWED.contains(&field) => kept.field(field, value),
                (field, _) => return Err(refused(&format!("field {field} of CompileOptionsProto"))),
            }
        }
        Ok(Self { bytes: kept.0, named, skipped: reader.skipped })
    }

    /// A note on the removed options; `None` if there are none.
    pub fn note(&self) -> Option<String> {
        let names: Vec<String> = self.skipped.iter().map(|name| format!("`{name}`")).collect();
        (!names.is_empty()).then(|| {
            let names = names.join(", ");
            format!("compiled without what only writes, logs or finds tools: {names}")
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

fn refused(what: &str) -> CompiledWithError {
    CompiledWithError::Refused(short(what))
}

/// A name from a file, safe for a terminal.
fn short(name: &str) -> String {
    printable(&name.chars().take(MAX_NOTED_CHARS).collect::<String>())
}

struct Reader<'a> {
    own: &'a [String],
    skipped: BTreeSet<String>,
}

impl Reader<'_> {
    /// Whether an option is kept.
    fn keeps(&mut self, policy: OptionPolicy, name: &str) -> Result<bool, CompiledWithError> {
        match policy {
            _ if self.own.iter().any(|own| own == name) => Ok(false),
            OptionPolicy::Allowed => Ok(true),
            OptionPolicy::Refused => Err(refused(name)),
            OptionPolicy::Aside => {
                if self.skipped.len() < MAX_NOTED {
                    self.skipped.insert(short(name));
                }
                Ok(false)
            }
        }
    }

    fn build_options(&mut self, bytes: &[u8]) -> Result<Message, CompiledWithError> {
        let mut kept = Message::default();
        for field in WireCursor::new(bytes) {
            match field? {
                (build::DEBUG_OPTIONS, WireValue::Bytes(bytes)) => {
                    kept.bytes(build::DEBUG_OPTIONS, &self.debug_options(bytes)?.0);
                }
                (field, _) if field == build::ENVIRONMENTS || build::OF_DEVICES.contains(&field) => {}
                (field, value) if build::ALLOWED.contains(&field) => kept.field(field, value),
                (field, _) => return Err(refused(&format!("field {field} of ExecutableBuildOptionsProto"))),
            }
        }
        Ok(kept)
    }

    fn debug_options(&mut self, bytes: &[u8]) -> Result<Message, CompiledWithError> {
        let mut kept = Message::default();
        for field in WireCursor::new(bytes) {
            let (number, value) = field?;
            let (policy, name) = field_policy(number, &value);
            if self.keeps(policy, &name)? {
                kept.field(number, value);
            }
        }
        Ok(kept)
    }
}

/// A map entry: a name, and its value if nothing but these is in it. A newer compiler may read what is unknown here.
fn named_option(bytes: &[u8]) -> Result<(String, Option<Value>), WireError> {
    let (mut name, mut found, mut is_known) = (String::new(), None, true);
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
                        _ => {
                            is_known = false;
                            found
                        }
                    };
                }
            }
            _ => is_known = false,
        }
    }
    Ok((name, found.filter(|_| is_known)))
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

    fn read(bytes: &[u8]) -> Result<CompiledWith, CompiledWithError> {
        CompiledWith::read(bytes, &[])
    }

    /// A `CompileOptionsProto` with these debug options.
    fn with_debug(debug: &Message) -> Vec<u8> {
        let (mut build, mut all) = (Message::default(), Message::default());
        build.bytes(3, &debug.0);
        all.bytes(3, &build.0);
        all.0
    }

    #[test]
    fn devices_and_what_only_writes_are_taken_out_and_the_rest_stays() {
        // field numbers from xla's protos, written by hand
        let mut debug = Message::default();
        debug.number(99, 1).bytes(109, b"/tmp/dump").number(112, 1).bytes(30, b"fusion").bytes(222, b"/tmp/results");
        let mut build = Message::default();
        build.number(1, 3).bytes(3, &debug.0).number(4, 8).number(5, 2).number(6, 1).bytes(9, b"\x08\x01").number(8, 1);
        // `comp_envs`: an `Any` with a compiler's own options
        build.bytes(13, b"\x0a\x04\x0a\x02xy");
        let mut all = Message::default();
        all.number(2, 1).bytes(3, &build.0).number(4, 1).number(5, 7);
        let with = read(&all.0).unwrap();
        let mut debug = Message::default();
        debug.number(99, 1).bytes(30, b"fusion");
        let mut build = Message::default();
        build.bytes(3, &debug.0).number(8, 1);
        let mut expected = Message::default();
        expected.number(2, 1).bytes(3, &build.0).number(5, 7);
        assert_eq!(with.bytes, expected.0);
        assert_eq!(with.named, BTreeMap::new());
        let message = "compiled without what only writes, logs or finds tools: `xla_dump_hlo_as_text`, `xla_dump_to`, \
                       `xla_gpu_dump_autotune_results_to`";
        assert_eq!(with.note().as_deref(), Some(message));
        let again = read(&with.bytes).unwrap();
        assert_eq!((again.note(), again.bytes), (None, with.bytes), "once is enough");
    }

    #[test]
    fn what_the_user_named_is_reported() {
        let own = vec!["xla_gpu_auto_spmd_partitioning_memory_budget_ratio".to_owned()];
        let refused = CompiledWithError::Refused(own[0].clone());
        assert_eq!(read(OF_JAX), Err(refused), "no list has it");
        let with = CompiledWith::read(OF_JAX, &own).unwrap();
        let named = json!({"xla_cpu_enable_fast_math": true, "xla_cpu_prefer_vector_width": -3,
            "xla_disable_hlo_passes": "dce"});
        assert_eq!(json!(with.named), named, "the user's own value of the fourth one counts");
        assert_eq!(with.note(), None, "JAX's defaults are no choice of the user's");
        assert!(with.bytes.len() > 900 && with.bytes.len() < OF_JAX.len(), "{} of {}", with.bytes.len(), OF_JAX.len());
    }

    /// Newer versions than those of the list would show here what the list lacks.
    #[test]
    fn what_jax_sends_of_itself_is_compiled_with() {
        for (version, bytes) in [
            ("0.10.2", &include_bytes!("../../tests/data/pjrt/jax-0.10.2-compile-options-default.pb")[..]),
            ("0.11.2", include_bytes!("../../tests/data/pjrt/jax-0.11.2-compile-options-default.pb")),
            ("0.12.0.1", include_bytes!("../../tests/data/pjrt/jax-0.12.0.1-compile-options-default.pb")),
        ] {
            let with = read(bytes).unwrap_or_else(|error| panic!("{version}: {error}"));
            assert!(with.note().is_none() && with.named.is_empty(), "{version}: {with:?}");
        }
    }

    #[test]
    fn what_is_on_no_list_is_refused_by_name_and_by_number() {
        let named = |name: &str, value: &Message| {
            let (mut entry, mut all) = (Message::default(), Message::default());
            entry.bytes(1, name.as_bytes()).bytes(2, &value.0);
            all.bytes(7, &entry.0);
            all.0
        };
        let mut text = Message::default();
        text.bytes(1, b"-o,/tmp/x");
        for name in
            ["xla_gpu_ptx_compiler_extra_flags", "xla_gpu_load_autotune_results_from", "xla_next", "", "\u{1b}[2J"]
        {
            let error = read(&named(name, &text)).unwrap_err();
            assert_eq!(error, CompiledWithError::Refused(printable(name)), "{name}");
            assert!(CompiledWith::read(&named(name, &text), &[name.to_owned()]).unwrap().named.is_empty());
        }
        // a kind of value that only a later version has, behind one that this version reads
        let mut both = Message::default();
        both.number(2, 1).bytes(5, b"/x");
        assert!(read(&named("xla_cpu_enable_fast_math", &both)).is_err());
        // an option without a value of a known kind
        assert!(read(&named("xla_cpu_enable_fast_math", &Message::default())).is_err());
        // a name after its value, and a name set twice: the later value counts
        let (mut late, mut twice) = (Message::default(), Message::default());
        late.bytes(2, &text.0).bytes(1, b"xla_dump_to");
        twice.bytes(1, b"xla_cpu_enable_fast_math").bytes(2, &text.0).bytes(1, b"xla_gpu_ptx_file");
        let mut all = Message::default();
        all.bytes(7, &late.0);
        assert!(read(&all.0).unwrap().named.is_empty());
        all.bytes(7, &twice.0);
        assert_eq!(read(&all.0).unwrap_err(), CompiledWithError::Refused("xla_gpu_ptx_file".to_owned()));
        for number in [491, 544, 548, 9999] {
            let mut debug = Message::default();
            debug.bytes(number, b"/tmp/x");
            assert!(matches!(read(&with_debug(&debug)), Err(CompiledWithError::Refused(_))), "{number}");
        }
        // a profile for the compiler, a message of a newer version, a compiler's variant
        let (mut build, mut variant) = (Message::default(), Message::default());
        build.bytes(14, b"profile");
        variant.bytes(11, b"other");
        for (field, message) in [(3, &build), (99, &build)] {
            let mut all = Message::default();
            all.bytes(field, &message.0);
            assert!(matches!(read(&all.0), Err(CompiledWithError::Refused(_))), "{field}");
        }
        assert!(matches!(read(&variant.0), Err(CompiledWithError::Refused(_))));
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_an_error_or_options() {
        for length in 0..OF_JAX.len() {
            let _ = read(&OF_JAX[..length]);
            let mut flipped = OF_JAX.to_vec();
            flipped[length] ^= 0x81;
            let _ = read(&flipped);
        }
        // a length beyond the end, a group, a number that is too long: outside and inside each message
        for bytes in [&b"\x1a\x7f"[..], b"\x0b", b"\x1a\x02\x1a\x7f", b"\x1a\x04\x1a\x02\x0d\x01", b"\x3a\x02\x12\x7f"]
        {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
