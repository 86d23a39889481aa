//! Pallas kernels for a TPU. Their custom calls contain a module of the Mosaic compiler.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::bytecode::integers_attribute;
use super::module::HloModule;

/// Maximum size of a configuration: it holds a whole kernel.
const MAX_CONFIG_BYTES: usize = 64 << 20;

/// A custom call of a Pallas kernel for a TPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TpuKernel {
    /// The instruction's name, such as `matmul.1`.
    pub name: String,
    /// Number of steps of its grid; `None` if unknown.
    pub grid_steps: Option<u64>,
}

impl TpuKernel {
    /// A kernel with this many steps in its grid.
    pub fn new(name: impl Into<String>, grid_steps: Option<u64>) -> Self {
        Self { name: name.into(), grid_steps }
    }
}

#[derive(Deserialize)]
struct MosaicConfig {
    custom_call_config: Body,
}

/// MLIR bytecode, in Base64 (`jax/_src/tpu_custom_call.py`).
#[derive(Deserialize)]
struct Body {
    body: String,
}

impl HloModule {
    /// Its Pallas kernels for a TPU, one for each call.
    pub fn tpu_kernels(&self) -> Vec<TpuKernel> {
        let calls = self.instructions.iter().filter(|one| one.opcode() == "custom-call");
        let kernels = calls.filter(|call| call.message.custom_call_target == "tpu_custom_call");
        kernels.map(|call| TpuKernel::new(call.name(), grid_steps(&call.message.backend_config))).collect()
    }
}

/// The product of the grid's sides, which Pallas writes as `iteration_bounds`.
fn grid_steps(config: &[u8]) -> Option<u64> {
    let config = Some(config).filter(|config| config.len() <= MAX_CONFIG_BYTES)?;
    let config: MosaicConfig = serde_json::from_slice(config).ok()?;
    let module = STANDARD.decode(config.custom_call_config.body).ok()?;
    let sides = integers_attribute(&module, b"iteration_bounds").ok()??;
    // a size that is known only at run time is negative
    sides.into_iter().try_fold(1_u64, |steps, side| steps.checked_mul(u64::try_from(side).ok()?))
}
