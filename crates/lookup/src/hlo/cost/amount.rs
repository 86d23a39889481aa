//! The work of an instruction, as counts that can be added up.

use serde::{Deserialize, Serialize};

use crate::array::DType;

/// Maximum number of pairs of unit and type: there are two units and some thirty types.
const MAX_KINDS: usize = 128;

/// The units of a device that do the arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlopUnit {
    /// Those that multiply matrices: dots and convolutions.
    Matrix,
    /// All others.
    Vector,
}

/// Floating-point operations of one unit on one element type. Integer arithmetic counts too, as in XLA.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Flops {
    /// The unit.
    pub unit: FlopUnit,
    /// The element type; `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
    /// How many; a multiply-add is two.
    pub count: f64,
}

/// The work of one run of an instruction, or of everything in a computation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Floating-point operations; each unit and type once.
    #[serde(default)]
    pub flops: Vec<Flops>,
    /// Evaluations of `exp`, `tanh` and the like, which XLA does not count as floating-point operations.
    #[serde(default)]
    pub transcendentals: f64,
    /// Bytes read and written.
    pub bytes: f64,
    /// How many instructions in it have an unknown cost, which the other counts exclude: custom calls that declare
    /// none.
    #[serde(default)]
    pub unknown: f64,
    /// Cycles that the compiler estimates. XLA for TPUs writes them to its own operations, but not to Pallas kernels.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub estimated_cycles: f64,
}

fn is_zero(count: &f64) -> bool {
    *count == 0.0
}

impl Cost {
    /// The work of an unknown instruction.
    pub(super) fn unknown() -> Self {
        Self { unknown: 1.0, ..Self::default() }
    }

    /// The work of an instruction that only moves bytes.
    pub(super) fn of_bytes(bytes: f64) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// All floating-point operations.
    pub fn total_flops(&self) -> f64 {
        // a sum of nothing would be −0
        self.flops.iter().fold(0.0, |sum, flops| sum + flops.count)
    }

    /// Whether its counts are finite and not negative, since counts from outside may be anything.
    pub fn is_plausible(&self) -> bool {
        let flops = self.flops.iter().map(|flops| flops.count);
        let mut counts = flops.chain([self.transcendentals, self.bytes, self.unknown, self.estimated_cycles]);
        self.flops.len() <= MAX_KINDS && counts.all(|count| count.is_finite() && count >= 0.0)
    }

    /// Whether every instruction in it is counted.
    pub fn is_known(&self) -> bool {
        self.unknown == 0.0
    }

    pub(super) fn with_flops(mut self, unit: FlopUnit, dtype: Option<DType>, count: f64) -> Self {
        self.add_flops(Flops { unit, dtype, count });
        self
    }

    fn add_flops(&mut self, more: Flops) {
        match self.flops.iter_mut().find(|flops| (flops.unit, flops.dtype) == (more.unit, more.dtype)) {
            Some(flops) => flops.count += more.count,
            None => self.flops.push(more),
        }
    }

    /// Adds another amount several times.
    pub fn add(&mut self, other: &Self, times: f64) {
        self.add_arithmetic(other, times);
        self.bytes += other.bytes * times;
        self.estimated_cycles += other.estimated_cycles * times;
    }

    /// The same without the bytes: those of a function that is applied to elements stay in registers.
    pub(super) fn add_arithmetic(&mut self, other: &Self, times: f64) {
        for flops in &other.flops {
            self.add_flops(Flops { count: flops.count * times, ..*flops });
        }
        self.transcendentals += other.transcendentals * times;
        self.unknown += other.unknown * times;
    }

    /// The larger of each count: an upper bound for one of two branches.
    pub(super) fn join_branch(&mut self, other: Self) {
        if other.total_flops() > self.total_flops() {
            self.flops = other.flops;
        }
        self.transcendentals = self.transcendentals.max(other.transcendentals);
        self.bytes = self.bytes.max(other.bytes);
        self.unknown = self.unknown.max(other.unknown);
        self.estimated_cycles = self.estimated_cycles.max(other.estimated_cycles);
    }
}
