//! What a call of a Triton kernel says of its launch where jaxlib runs it, as jax-triton and Pallas write it: a message
//! of `proto/triton.proto`, compressed by zlib.

use std::io::Read;

use prost::Message;
use prost::bytes::Bytes;
use serde_json::{Value, json};

use super::schema::triton::{TritonAnyKernelCall, TritonKernelCall};

/// Most bytes of a message, which holds the kernel's code, some of it as text.
const MAX_BYTES: u64 = 1 << 26;
/// The same per byte of the compressed one, so that many of them take no longer than their module is large.
const MAX_BYTES_PER_BYTE: u64 = 64;
/// Configs of which the descriptions are kept.
const MAX_CONFIGS: usize = 256;

/// A launch.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TritonLaunch {
    pub(super) name: String,
    pub(super) grid: Vec<u64>,
    pub(super) num_warps: Option<u64>,
    /// What the kernel says of itself, in JSON; of several that are chosen from as they run, their descriptions.
    pub(super) metadata: String,
}

/// The launch in a call's configuration; `None` if it holds none.
pub(super) fn launch(compressed: &[u8]) -> Option<TritonLaunch> {
    // the first byte of zlib's streams
    if compressed.first() != Some(&0x78) {
        return None;
    }
    let most = MAX_BYTES_PER_BYTE.saturating_mul(compressed.len() as u64).min(MAX_BYTES);
    let mut message = Vec::new();
    flate2::bufread::ZlibDecoder::new(compressed).take(most).read_to_end(&mut message).ok()?;
    let call = TritonAnyKernelCall::decode(Bytes::from(message)).ok()?;
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    if let Some(one) = &call.kernel_call {
        let name = one.kernel.as_ref().map(|kernel| text(&kernel.kernel_name)).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| text(&call.name));
        return Some(TritonLaunch { name, metadata: text(&call.metadata), ..launch_of(one) });
    }
    let several = call.autotuned_kernel_call.as_ref()?;
    let described: Vec<Value> =
        several.configs.iter().take(MAX_CONFIGS).map(|config| text(&config.description).into()).collect();
    let metadata = json!({ "autotuned_configs": described }).to_string();
    // they may differ in all that a launch has
    Some(TritonLaunch { name: text(&several.name), metadata, ..TritonLaunch::default() })
}

fn launch_of(call: &TritonKernelCall) -> TritonLaunch {
    let grid = [call.grid_0, call.grid_1, call.grid_2].map(u64::from).to_vec();
    let num_warps = call.kernel.as_ref().map(|kernel| kernel.num_warps.into());
    TritonLaunch { grid, num_warps, ..TritonLaunch::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hlo::schema::triton::{TritonAutotunedKernelCall, TritonKernel, triton_autotuned_kernel_call::Config};
    use std::io::Write;

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn several_kernels_are_told_by_their_descriptions() {
        let config = |text: &'static str| Config { description: Bytes::from(text), kernel_call: None };
        let several = TritonAutotunedKernelCall { name: "add".into(), configs: vec![config("a"), config("b")] };
        let call = TritonAnyKernelCall { autotuned_kernel_call: Some(several), ..TritonAnyKernelCall::default() };
        let found = launch(&compressed(&call.encode_to_vec())).unwrap();
        assert_eq!((found.name.as_str(), found.metadata.as_str()), ("add", r#"{"autotuned_configs":["a","b"]}"#));
        assert!(found.grid.is_empty() && found.num_warps.is_none());
    }

    #[test]
    fn what_is_no_launch_is_none() {
        let kernel = TritonKernel { kernel_name: "add".into(), num_warps: 4 };
        let one = TritonKernelCall { kernel: Some(kernel), grid_0: 128, grid_1: 1, grid_2: 1 };
        let call = TritonAnyKernelCall { kernel_call: Some(one), ..TritonAnyKernelCall::default() };
        let whole = compressed(&call.encode_to_vec());
        let found = launch(&whole).unwrap();
        assert_eq!((found.name.as_str(), &found.grid[..], found.num_warps), ("add", &[128, 1, 1][..], Some(4)));
        (0..whole.len()).for_each(|length| assert!(launch(&whole[..length]).is_none(), "cut at {length}"));
        assert!(launch(b"not compressed").is_none() && launch(&compressed(b"\xff\xff")).is_none());
        // far more code than real kernels have: read no further, and so no message
        let bomb = [&call.encode_to_vec()[..], &[0x1a, 0x80, 0x80, 0x80, 0x08][..], &vec![0; 1 << 24]].concat();
        assert!(launch(&compressed(&bomb)).is_none());
    }
}
