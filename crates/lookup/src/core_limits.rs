//! The resources of a GPU's multiprocessor for concurrent blocks.
//!
//! ```
//! use autotune_lowered_lookup::core_limits::CoreLimits;
//!
//! let hopper = CoreLimits::of("9.0").ok_or("a built-in target has it")?;
//! // 65,536 registers hold 2,048 threads of 32, and half as many of 64
//! assert_eq!((hopper.resident_threads(32), hopper.resident_threads(64)), (1.0, 0.5));
//! assert_eq!(hopper.resident_blocks(100 << 10), 2);
//! assert_eq!(CoreLimits::of("1.0"), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::target::CUDA;

/// Shared memory that the driver reserves per block, from compute capability 8.0 on (CUDA C++ Programming Guide,
/// *Compute Capabilities*).
const KEPT_OF_EACH_BLOCK: u64 = 1024;
/// Granularity of a thread's registers.
const REGISTER_STEP: u64 = 8;
/// Maximum number of concurrent blocks of a multiprocessor, from compute capability 9.0 on; older ones run as many or
/// half.
const MOST_BLOCKS: u64 = 32;

/// The limits of one multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreLimits {
    registers: u64,
    shared_bytes: u64,
    threads: u64,
}

impl CoreLimits {
    /// Those of a compute capability such as `9.0`, from the built-in targets.
    pub fn of(compute_capability: &str) -> Option<Self> {
        let (major, minor) = compute_capability.split_once('.')?;
        let wanted = (major.parse::<u64>().ok()?, minor.parse::<u64>().ok()?);
        let is_wanted =
            |text: &&str| (number(text, "major"), number(text, "minor").unwrap_or(0)) == (Some(wanted.0), wanted.1);
        let text = CUDA.iter().map(|(_, text)| *text).find(|text| is_wanted(&cuda_capability(text)))?;
        Some(Self {
            registers: number(text, "registers_per_core_limit")?,
            shared_bytes: number(text, "shared_memory_per_core")?,
            threads: number(text, "threads_per_core_limit")?,
        })
    }

    /// The share of its threads that can run concurrently with this many registers each.
    pub fn resident_threads(&self, registers: u32) -> f64 {
        let each = u64::from(registers).max(1).next_multiple_of(REGISTER_STEP);
        (self.registers / each).min(self.threads) as f64 / self.threads.max(1) as f64
    }

    /// How many blocks can run concurrently with this much shared memory each.
    pub fn resident_blocks(&self, shared_bytes: u64) -> u64 {
        (self.shared_bytes / shared_bytes.saturating_add(KEPT_OF_EACH_BLOCK)).min(MOST_BLOCKS)
    }
}

/// The part of a target's config with the compute capability.
fn cuda_capability(text: &'static str) -> &'static str {
    text.split_once("cuda_compute_capability").map_or("", |(_, rest)| rest.split('}').next().unwrap_or_default())
}

fn number(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix(name)?.trim().strip_prefix(':'));
    lines.find_map(|value| value.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_at_one_time_is_what_nvidias_calculator_says() {
        // CUDA C++ Programming Guide: 65536 registers and 2048 threads, 228 KiB of shared memory on 9.0 and 100 KiB on
        // 8.9
        let hopper = CoreLimits::of("9.0").unwrap();
        assert_eq!((hopper.resident_threads(32), hopper.resident_threads(64)), (1.0, 0.5));
        assert_eq!(hopper.resident_threads(255), 256.0 / 2048.0);
        // the maximum for one block leaves no space for a second one
        assert_eq!(
            (hopper.resident_blocks(232_448), hopper.resident_blocks(48 * 1024), hopper.resident_blocks(0)),
            (1, 4, 32)
        );
        // a quarter of it each, plus the driver's reserve
        assert_eq!(hopper.resident_blocks(57 * 1024), 3);
        let ada = CoreLimits::of("8.9").unwrap();
        assert_eq!((ada.resident_blocks(48 * 1024), ada.resident_blocks(99 * 1024)), (2, 1));
        // 1536 threads, which fit with 40 registers each
        assert_eq!((ada.resident_threads(40), ada.resident_threads(48)), (1.0, 1365.0 / 1536.0));
        for none in ["", "9", "1.0", "9.0a"] {
            assert_eq!(CoreLimits::of(none), None, "{none}");
        }
    }
}
