//! Thunks, the steps of XLA's executables: finds the kernels that they launch.

use super::cubin::read_kernel;
use super::fields::{at_most_one, the_bytes};
use crate::timer::protocol::KernelUse;
use crate::wire::WireCursor;

/// As many as fit into the header of a kept executable.
const MAX_KERNELS: usize = 1024;
/// More than any GPU has for a block; a larger number has another meaning.
const MAX_SHARED_BYTES: u64 = 1 << 20;
/// Maximum nesting of loops and branches.
const MAX_DEPTH: usize = 32;

// fields of openxla/xla, xla/backends/gpu/runtime/thunk.proto: ThunkSequenceProto and SequentialThunkProto,
const THUNKS: u32 = 1;
// CustomKernelThunkProto
const CUSTOM_KERNEL: u32 = 3;
// xla/backends/gpu/codegen/kernels/custom_kernel.proto, CustomKernelProto
const KERNEL_SPEC: u32 = 2;
const SHARED_MEMORY_BYTES: u32 = 6;
// xla/stream_executor/kernel_spec.proto, KernelLoaderSpecProto and CudaCubinProto
const CUBIN: u32 = 2;
const KERNEL_NAME: u32 = 4;
const IN_PROCESS_SYMBOL: u32 = 6;
const CUBIN_DATA: u32 = 1;

/// What a thunk has to do with kernels.
enum ThunkKind {
    /// A sequence of thunks.
    Sequence,
    /// It has sequences in these fields.
    Sequences(&'static [u32]),
    /// It launches a kernel that it contains.
    CustomKernel,
    /// No kernel of its own: it copies, or runs kernels of the libraries and the driver.
    None,
}

/// The kind by its field in `ThunkProto`. A custom call or a collective may run unseen kernels, and so may an unknown
/// kind.
fn kind_of(field: u32) -> Option<ThunkKind> {
    match field {
        2 => Some(ThunkKind::Sequence),
        // conditional; while, its condition and its body; dynamic slice; start of asynchronous execution; dynamic slice
        // fusion
        6 => Some(ThunkKind::Sequences(&[2])),
        7 => Some(ThunkKind::Sequences(&[2, 3])),
        18 => Some(ThunkKind::Sequences(&[1])),
        57 => Some(ThunkKind::Sequences(&[3])),
        60 => Some(ThunkKind::Sequences(&[6])),
        36 => Some(ThunkKind::CustomKernel),
        // the thunk's name; copies; GEMM, triangular solve, replica id, copy on the device, partition id, cuDNN;
        // memzero, select-k, infeed, cuBLASLt, outfeed, norm, convolutions, FFT, memset; end of asynchronous execution
        1 | 3..=5 | 9 | 11..=15 | 19..=28 | 58 => Some(ThunkKind::None),
        _ => None,
    }
}

/// The kernels found so far.
#[derive(Debug, Default)]
pub(super) struct Kernels {
    pub(super) found: Vec<KernelUse>,
    depth: usize,
    is_opaque: bool,
}

impl Kernels {
    /// Whether a thunk could not be read because it may run kernels that nobody can see.
    pub(super) fn is_opaque(&self) -> bool {
        self.is_opaque
    }

    /// Adds the kernels of a thunk and of the thunks within it.
    pub(super) fn read_thunk(&mut self, thunk: &[u8]) -> Option<()> {
        for field in WireCursor::new(thunk) {
            let (number, value) = field.ok()?;
            let thunk = value.as_bytes()?;
            let Some(kind) = kind_of(number) else {
                self.is_opaque = true;
                return None;
            };
            match kind {
                ThunkKind::None => {}
                ThunkKind::CustomKernel => self.read_custom_kernel(thunk)?,
                ThunkKind::Sequence => self.read_sequence(thunk)?,
                ThunkKind::Sequences(fields) => {
                    for field in WireCursor::new(thunk) {
                        let (number, value) = field.ok()?;
                        if fields.contains(&number) {
                            self.read_sequence(value.as_bytes()?)?;
                        }
                    }
                }
            }
        }
        Some(())
    }

    fn read_sequence(&mut self, sequence: &[u8]) -> Option<()> {
        self.depth = Some(self.depth + 1).filter(|&depth| depth <= MAX_DEPTH)?;
        for field in WireCursor::new(sequence) {
            let (number, value) = field.ok()?;
            if number == THUNKS {
                self.read_thunk(value.as_bytes()?)?;
            }
        }
        self.depth -= 1;
        Some(())
    }

    fn read_custom_kernel(&mut self, thunk: &[u8]) -> Option<()> {
        let kernel = the_bytes(thunk, CUSTOM_KERNEL)?;
        let spec = the_bytes(kernel, KERNEL_SPEC)?;
        if at_most_one(spec, IN_PROCESS_SYMBOL)?.is_some() {
            // the plugin's own
            return Some(());
        }
        let dynamic = match at_most_one(kernel, SHARED_MEMORY_BYTES)? {
            Some(bytes) => bytes.as_varint()?,
            None => 0,
        };
        let mut kernel = read_kernel(the_bytes(the_bytes(spec, CUBIN)?, CUBIN_DATA)?, the_bytes(spec, KERNEL_NAME)?)?;
        kernel.shared_bytes = kernel.shared_bytes.checked_add(dynamic).filter(|&bytes| bytes <= MAX_SHARED_BYTES)?;
        if !self.found.contains(&kernel) {
            self.found.push(kernel);
        }
        (self.found.len() <= MAX_KERNELS).then_some(())
    }
}
