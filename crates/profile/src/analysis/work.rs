//! The work of operations per time, and their share of the device's roof.

use serde::{Deserialize, Serialize};

use crate::hlo::{Cost, FlopUnit};
use crate::peaks::Peaks;
use crate::profile::XSpace;

/// The work of operations over all their runs, and how fast it was done. Operations of unknown cost, control flow,
/// whose body consists of operations of its own, and communication between devices are excluded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Work {
    /// Floating-point operations, as XLA counts them.
    pub flops: f64,
    /// Evaluations of `exp`, `tanh` and the like, which are not among [`Work::flops`].
    pub transcendentals: f64,
    /// Bytes read and written, as XLA counts them: caches are not seen.
    pub bytes: f64,
    /// The time that it took.
    pub time_ns: f64,
    /// The roof, if the device's peaks are known.
    pub roofline: Option<Roofline>,
}

/// What limits work, and how close it comes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Roofline {
    /// The least time that a device at its peaks would take.
    pub least_ns: f64,
    /// It as a share of the actual time. More than 1 if caches served what counts as read from memory.
    pub share: f64,
    /// What bounds that least time.
    pub bound: Bound,
}

/// Which of a device's peaks limits work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Bound {
    /// Arithmetic.
    Compute,
    /// The memory's bandwidth.
    Memory,
}

impl Bound {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
        }
    }
}

impl Work {
    /// A number of runs in an amount of time.
    pub fn of(cost: &Cost, runs: u64, time_ns: f64, peaks: Option<&Peaks>) -> Self {
        let runs = runs as f64;
        let roof = peaks.and_then(|peaks| {
            let (compute, memory) = least_seconds(cost, peaks);
            let bound = if compute > memory { Bound::Compute } else { Bound::Memory };
            Roofline::of(compute.max(memory) * runs * 1e9, time_ns, bound)
        });
        Self {
            flops: cost.total_flops() * runs,
            transcendentals: cost.transcendentals * runs,
            bytes: cost.bytes * runs,
            time_ns,
            roofline: roof,
        }
    }

    /// The sum of several: each has its own roof, so the least times add up. The bound is that of the largest part.
    pub(super) fn sum<'w>(parts: impl Iterator<Item = &'w Self>) -> Option<Self> {
        let (mut sum, mut least_ns, mut compute_ns, mut has_roof) = (Self::default(), 0.0, 0.0, false);
        let mut any = false;
        for part in parts {
            any = true;
            sum.flops += part.flops;
            sum.transcendentals += part.transcendentals;
            sum.bytes += part.bytes;
            sum.time_ns += part.time_ns;
            if let Some(roof) = part.roofline {
                has_roof = true;
                least_ns += roof.least_ns;
                compute_ns += if roof.bound == Bound::Compute { roof.least_ns } else { 0.0 };
            }
        }
        let bound = if compute_ns * 2.0 > least_ns { Bound::Compute } else { Bound::Memory };
        sum.roofline = has_roof.then(|| Roofline::of(least_ns, sum.time_ns, bound)).flatten();
        any.then_some(sum)
    }

    /// Floating-point operations in a second.
    pub fn flops_per_second(&self) -> f64 {
        self.flops / self.time_ns * 1e9
    }

    /// Bytes in a second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes / self.time_ns * 1e9
    }
}

impl Roofline {
    fn of(least_ns: f64, time_ns: f64, bound: Bound) -> Option<Self> {
        let share = least_ns / time_ns;
        share.is_finite().then_some(Self { least_ns, share, bound })
    }
}

/// The least time of the arithmetic and of the memory. The units compute one after the other; those without a published
/// figure take no time.
fn least_seconds(cost: &Cost, peaks: &Peaks) -> (f64, f64) {
    let compute = cost.flops.iter().map(|flops| {
        let per_second = match flops.unit {
            FlopUnit::Matrix => peaks.matrix_per_second(flops.dtype),
            FlopUnit::Vector => peaks.vector_per_second(flops.dtype),
        };
        per_second.map_or(0.0, |per_second| flops.count / per_second)
    });
    (compute.sum(), cost.bytes / peaks.bytes_per_second)
}

/// The peaks of the device that a capture names, or whose figures it has: ROCm's profiler writes no name.
pub(super) fn peaks_of(space: &XSpace) -> Option<Peaks> {
    let mut devices = space.planes().filter(|plane| plane.name().starts_with("/device:"));
    devices.find_map(|plane| {
        let stat = |wanted: &[u8]| plane.stats().find(|stat| plane.stat_name(stat.metadata_id) == Some(wanted));
        let text = |name: &[u8]| plane.stat_text(stat(name)?.value);
        let number = |name: &[u8]| u64::try_from(stat(name)?.value.as_integer()?).ok();
        let by_figures = || {
            let memory_gib = (number(b"memory_size")? as f64 / f64::from(1 << 30)).round();
            Some(format!(
                "{} {}.{}, {} cores, {memory_gib} GiB, {} MHz",
                text(b"device_vendor")?,
                number(b"compute_cap_major")?,
                number(b"compute_cap_minor")?,
                number(b"core_count")?,
                number(b"clock_rate")? / 1000,
            ))
        };
        let named = text(b"device_type_string").or_else(|| text(b"gpu_device_name"));
        Peaks::of_kind(&named.map(Into::into).or_else(by_figures)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: a device of 100 FLOP/s for matrices, 10 for the rest and 50 bytes/s.
    #[test]
    fn least_times_by_hand() {
        let peaks: Peaks = serde_json::from_str(
            r#"{"name": "own", "kinds": [], "bytes_per_second": 50, "matrix": {"f32": 100},
                "vector": {"f32": 10}, "sources": []}"#,
        )
        .unwrap();
        let mut cost = Cost { bytes: 100.0, ..Cost::default() };
        let memory = Work::of(&cost, 3, 12e9, Some(&peaks));
        assert_eq!(memory.roofline, Some(Roofline { least_ns: 6e9, share: 0.5, bound: Bound::Memory }));
        assert_eq!((memory.bytes, memory.bytes_per_second()), (300.0, 25.0));
        cost.flops.push(flops(FlopUnit::Matrix, 200.0));
        cost.flops.push(flops(FlopUnit::Vector, 20.0));
        // 2 s + 2 s of arithmetic, 2 s of memory beside it
        let compute = Work::of(&cost, 1, 16e9, Some(&peaks));
        assert_eq!(compute.roofline, Some(Roofline { least_ns: 4e9, share: 0.25, bound: Bound::Compute }));
        let sum = Work::sum([&memory, &compute].into_iter()).unwrap();
        assert_eq!(sum.roofline, Some(Roofline { least_ns: 10e9, share: 10.0 / 28.0, bound: Bound::Memory }));
        assert_eq!((sum.flops, sum.time_ns), (220.0, 28e9));
        assert_eq!(
            (Work::of(&cost, 1, 1.0, None).roofline, Work::of(&cost, 1, 0.0, Some(&peaks)).roofline),
            (None, None)
        );
        assert!(Work::sum([].into_iter()).is_none());
    }

    fn flops(unit: FlopUnit, count: f64) -> crate::hlo::Flops {
        crate::hlo::Flops { unit, dtype: Some(autotune_lowered_lookup::array::DType::F32), count }
    }
}
