//! What a custom call says of its kernel.

use serde_json::{Map, Value};

use crate::array::ArraySpec;
use crate::hlo::escape::{Escapes, Unescaper};
use crate::hlo::text_cursor::{Cursor, parts, quoted};
use crate::hlo::triton_call::{self, TritonLaunch};

/// The targets of custom calls that hold a kernel.
const TARGETS: [&str; 6] = [
    "tpu_custom_call",
    "__gpu$xla.gpu.triton",
    "triton_kernel_call",
    "triton_kernel_call_ffi",
    "mosaic_gpu",
    "mosaic_gpu_v2",
];

/// The attribute in which Pallas writes what a kernel says of itself.
pub(in crate::hlo) const METADATA: &[u8] = b"kernel_metadata";
/// The member of it that is a document of its own.
const XPROF: &str = "xprof_metadata";
const MAX_METADATA_BYTES: usize = 1 << 16;

/// A custom call.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) target: String,
    /// The name that the kernel was given.
    pub(super) name: Option<String>,
    /// What else it may be known by, the nearest first: its instruction, the scopes and the functions around it.
    pub(super) names: Vec<String>,
    /// The files and lines of those functions, the innermost first.
    pub(super) places: Vec<(String, u64)>,
    pub(super) grid: Vec<u64>,
    pub(super) num_warps: Option<u64>,
    pub(super) num_stages: Option<u64>,
    pub(super) metadata: Map<String, Value>,
    pub(super) operands: Vec<ArraySpec>,
    pub(super) scope: String,
    pub(super) line: Option<u64>,
}

impl Call {
    /// Where it is in the source.
    pub(super) fn source(&self) -> Option<String> {
        self.places.first().map(|(file, line)| format!("{file}:{line}"))
    }

    /// Reads what a configuration says of Triton's launch: a dictionary, a string, or the bytes of one.
    pub(super) fn read_launch(&mut self, config: &[u8]) {
        match config.first() {
            Some(b'{') => self.read_dictionary(config),
            Some(b'"') => self.read_message(&unquoted(config)),
            _ => self.read_message(config),
        }
    }

    /// `{grid_x = 8 : i32, ir = "…", name = "mha", num_warps = 4 : i32}`, or `{name = "mha", opaque = "…"}`.
    fn read_dictionary(&mut self, dictionary: &[u8]) {
        let Some(inner) = Cursor::new(dictionary).bracketed().filter(|_| dictionary.starts_with(b"{")) else { return };
        let (mut x, mut y, mut z) = (None, None, None);
        for member in parts(inner) {
            let Some(equals) = memchr::memchr(b'=', member) else { continue };
            let (key, value) = member.split_at(equals);
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            match key.trim_ascii() {
                b"grid_x" => x = number(value),
                b"grid_y" => y = number(value),
                b"grid_z" => z = number(value),
                b"num_warps" => self.num_warps = number(value),
                b"num_stages" => self.num_stages = number(value),
                b"opaque" => self.read_message(&unquoted(value)),
                b"name" => {
                    let name = value.strip_prefix(b"\"").map(quoted);
                    self.name = name.map(|name| String::from_utf8_lossy(name).into_owned());
                }
                _ => {}
            }
        }
        if x.is_some() {
            self.grid = [x, y, z].into_iter().map_while(|side| side).collect();
        }
    }

    fn read_message(&mut self, message: &[u8]) {
        let Some(TritonLaunch { name, grid, num_warps, metadata: said }) = triton_call::launch(message) else { return };
        self.name = self.name.take().or(Some(name).filter(|name| !name.is_empty()));
        (self.grid, self.num_warps) = (grid, num_warps);
        self.metadata.extend(metadata(said.as_bytes()));
    }
}

/// Whether a call of this target holds a kernel.
pub(super) fn is_target(target: &[u8]) -> bool {
    TARGETS.iter().any(|known| known.as_bytes() == target)
}

/// Whether a module may call a kernel.
pub(super) fn holds_target(module: &[u8]) -> bool {
    // the others begin with one of these
    ["tpu_custom_call", "gpu.triton", "triton_kernel_call", "mosaic_gpu"]
        .iter()
        .any(|target| memchr::memmem::find(module, target.as_bytes()).is_some())
}

/// What a kernel says of itself in JSON; nothing if it is none, or too much.
pub(super) fn metadata(json: &[u8]) -> Map<String, Value> {
    if json.len() > MAX_METADATA_BYTES {
        return Map::new();
    }
    let Ok(Value::Object(mut said)) = serde_json::from_slice(json) else { return Map::new() };
    if let Some(Value::String(inner)) = said.get(XPROF)
        && let Ok(Value::Object(inner)) = serde_json::from_str(inner)
    {
        said.remove(XPROF);
        said.extend(inner);
    }
    said
}

/// The bytes of a string of MLIR.
fn unquoted(value: &[u8]) -> Vec<u8> {
    Unescaper::new(value.strip_prefix(b"\"").unwrap_or_default(), Escapes::Mlir).collect()
}

/// The number that a value begins with: `8 : i32`.
fn number(value: &[u8]) -> Option<u64> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(value.get(..digits)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_read_past_a_program_that_spells_the_same_words() {
        let mut call = Call::default();
        call.read_launch(
            br#"{debug = false, grid_x = 16 : i32, grid_y = 2 : i32, ir = "name = \22x\22, num_warps = 9, }", name = "mha_forward", num_stages = 3 : i32, num_warps = 4 : i32}"#,
        );
        assert_eq!((call.name.as_deref(), &call.grid[..]), (Some("mha_forward"), &[16, 2][..]));
        assert_eq!((call.num_warps, call.num_stages), (Some(4), Some(3)));
        let mut other = Call::default();
        other.read_launch(br#""an opaque string""#);
        assert!(other.name.is_none() && other.grid.is_empty());
    }

    #[test]
    fn a_document_in_the_metadata_counts_like_its_members() {
        let said = metadata(br#"{"a": 1, "xprof_metadata": "{\"block_q\": 512}"}"#);
        assert_eq!((said["a"].as_u64(), said["block_q"].as_u64(), said.len()), (Some(1), Some(512), 2));
        assert!(metadata(b"[1]").is_empty() && metadata(b"{").is_empty());
        assert_eq!(metadata(br#"{"xprof_metadata": "text"}"#).len(), 1);
        assert!(metadata(format!("{{\"a\": \"{}\"}}", "x".repeat(MAX_METADATA_BYTES)).as_bytes()).is_empty());
    }
}
