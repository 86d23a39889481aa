//! A compiler's figures for a program compiled for an absent device.

use super::protocol::{CostAnalysis, KernelUse, MemoryStats};
use crate::core_limits::CoreLimits;

/// A compiler's figures for a program, without running it.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct CompilerFigures {
    /// Memory for a run.
    pub memory: Option<MemoryStats>,
    /// The GPU resources of its kernels.
    pub kernels: Vec<KernelUse>,
    /// Its counts for a run.
    pub cost: Option<CostAnalysis>,
}

impl CompilerFigures {
    /// Figures that may correlate with the time of a run, in the same order for all programs; `limits` are those of the
    /// device. Sizes are logarithms, because ratios matter.
    ///
    /// The sign of a figure's effect is open: spilling costs time, but a single block that uses all of the memory may
    /// be the fastest.
    pub fn figures(&self, limits: Option<&CoreLimits>) -> Vec<Option<f64>> {
        let of_kernels = |most: &dyn Fn(&KernelUse) -> f64| self.kernels.iter().map(most).reduce(f64::max);
        let of_memory =
            |bytes: fn(&MemoryStats) -> u64| self.memory.as_ref().map(|memory| (bytes(memory) as f64).ln_1p());
        let code = |kernels: &[KernelUse]| kernels.iter().map(|kernel| kernel.code_bytes as f64).sum::<f64>().ln_1p();
        vec![
            of_kernels(&|kernel| kernel.stack_bytes as f64).map(f64::ln_1p),
            of_kernels(&|kernel| {
                limits.map_or(f64::from(kernel.registers), |limits| -limits.resident_threads(kernel.registers))
            }),
            of_kernels(&|kernel| match limits {
                Some(limits) => -(limits.resident_blocks(kernel.shared_bytes) as f64).ln_1p(),
                None => (kernel.shared_bytes as f64).ln_1p(),
            }),
            (!self.kernels.is_empty()).then(|| code(&self.kernels)),
            of_memory(|memory| memory.temporary_bytes),
            self.cost.map(|cost| cost.accessed_bytes.ln_1p()),
            self.cost.and_then(|cost| cost.estimated_cycles).map(f64::ln_1p),
            self.cost.and_then(|cost| cost.schedule?.bundles).map(f64::ln_1p),
            self.cost.and_then(|cost| cost.schedule?.vmem_bytes).map(|bytes| (bytes as f64).ln_1p()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_that_takes_the_most_counts_and_what_is_not_known_is_no_figure() {
        let kernels = vec![KernelUse::new("a", 100, 255, 8, 0), KernelUse::new("b", 28, 32, 0, 232_448)];
        let own = CompilerFigures { kernels, memory: Some(MemoryStats::new(1, 2, 0)), cost: None };
        let hopper = CoreLimits::of("9.0").unwrap();
        // an eighth of the threads, one block
        let expected =
            [Some(9_f64.ln()), Some(-0.125), Some(-2_f64.ln()), Some(129_f64.ln()), Some(0.0), None, None, None, None];
        assert_eq!(own.figures(Some(&hopper)), expected);
        assert_eq!(own.figures(None)[1], Some(255.0));
        assert_eq!(CompilerFigures::default().figures(Some(&hopper)), [None; 9]);
    }
}
