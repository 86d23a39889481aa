//! Reads the configurations of instructions: the cost of custom calls, the dimensions of library matrix products, trip
//! counts of loops, and the cycles that a TPU's compiler estimates.

use serde::Deserialize;

use super::amount::{Cost, FlopUnit};
use super::graph::{Graph, Node};

/// Maximum size of a configuration: Mosaic's holds a whole kernel.
const MAX_CONFIG_BYTES: usize = 64 << 20;

/// `jax/_src/tpu_custom_call.py`, `CostEstimate`: what `pl.CostEstimate` became.
#[derive(Deserialize)]
struct CostEstimate {
    #[serde(default)]
    flops: f64,
    #[serde(default)]
    transcendentals: f64,
    #[serde(default)]
    bytes_accessed: f64,
}

#[derive(Deserialize)]
struct MosaicConfig {
    custom_call_config: Declared,
}

#[derive(Deserialize)]
struct Declared {
    cost_estimate: CostEstimate,
}

/// `xla/service/gpu/backend_configs.proto` as JSON, in which 64-bit numbers are strings.
#[derive(Deserialize)]
struct GpuConfig {
    gemm_backend_config: GemmConfig,
}

#[derive(Deserialize)]
struct GemmConfig {
    dot_dimension_numbers: DotDimensions,
}

#[derive(Deserialize)]
struct DotDimensions {
    #[serde(default)]
    lhs_contracting_dimensions: Vec<Number>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(u64),
    Text(String),
}

impl Number {
    fn value(&self) -> Option<u64> {
        match self {
            Self::Number(value) => Some(*value),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

/// `WhileLoopBackendConfig` in `xla/xla_data.proto`.
#[derive(Deserialize)]
struct LoopConfig {
    known_trip_count: TripCount,
}

#[derive(Deserialize)]
struct TripCount {
    n: Number,
}

/// The backend's configuration, if there is one of a plausible size.
fn config<'m>(node: &Node<'m>) -> Option<&'m [u8]> {
    Some(&node.message.backend_config[..]).filter(|config| (1..=MAX_CONFIG_BYTES).contains(&config.len()))
}

/// A loop's trip count, if XLA recorded it.
pub(super) fn trips(node: &Node<'_>) -> Option<f64> {
    let config = config(node)?;
    let config: LoopConfig = serde_json::from_slice(config).ok()?;
    Some(config.known_trip_count.n.value()? as f64)
}

/// Cycles that a TPU's compiler estimates for one of its own operations, from the configuration of its windows. The
/// value is a number or a string, because protobuf writes 64-bit numbers to JSON as strings.
pub(super) fn estimated_cycles(node: &Node<'_>) -> Option<f64> {
    const NAME: &[u8] = b"\"estimated_cycles\":";
    let config = config(node)?;
    let value = config.get(memchr::memmem::find(config, NAME)? + NAME.len()..)?;
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    let digits = value.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(value.len());
    std::str::from_utf8(value.get(..digits)?).ok()?.parse::<u64>().ok().map(|cycles| cycles as f64)
}

/// The cost of a custom call; `None` if unknown.
pub(super) fn custom_call(graph: &Graph<'_>, node: &Node<'_>, inputs: f64) -> Option<Cost> {
    let target = &node.message.custom_call_target;
    let config = config(node)?;
    if target.starts_with(b"__cublas$") {
        let config: GpuConfig = serde_json::from_slice(config).ok()?;
        let (lhs, result) = (graph.operand(node, 0)?.shape, node.shape.first());
        let mut width = 1.0;
        for dimension in config.gemm_backend_config.dot_dimension_numbers.lhs_contracting_dimensions {
            width *= lhs.dim(dimension.value()?) as f64;
        }
        let flops = 2.0 * result.elements() * width;
        // the rest of the tuple is scratch space of the library
        let bytes = inputs + result.operand_bytes();
        return Some(Cost::of_bytes(bytes).with_flops(FlopUnit::Matrix, lhs.dtype(), flops));
    }
    let config: MosaicConfig = serde_json::from_slice(config).ok()?;
    let CostEstimate { flops, transcendentals, bytes_accessed } = config.custom_call_config.cost_estimate;
    let is_count = |count: f64| count.is_finite() && count >= 0.0;
    if ![flops, transcendentals, bytes_accessed].into_iter().all(is_count) {
        return None;
    }
    // a kernel that declares FLOPs is assumed to multiply matrices
    let dtype = graph.operand(node, 0).and_then(|operand| operand.shape.dtype());
    let cost = Cost { transcendentals, ..Cost::of_bytes(bytes_accessed) };
    Some(cost.with_flops(FlopUnit::Matrix, dtype, flops))
}
