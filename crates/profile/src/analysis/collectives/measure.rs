//! Bandwidth, hidden part and straggler wait, by size and by operation.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::stats::Moments;

use super::align::{Alignment, Clocks, Skews};
use super::instance::{Instance, each_instance};
use super::kind::CollectiveKind;
use super::model::{Collectives, CommunicationKernel, Operation};

/// The results for a profile's collectives.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CollectiveMetrics {
    /// By kind, group size and message size.
    pub sizes: Vec<SizeRow>,
    /// By operation, the one that took longest first.
    pub operations: Vec<OperationRow>,
    /// How the clocks were compared.
    pub alignment: Alignment,
}

/// All collectives of one kind, group size and message size.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SizeRow {
    /// Their kind.
    pub kind: CollectiveKind,
    /// Devices in a group.
    pub group_size: Option<u64>,
    /// Bytes of the operands, as [`super::Communication::message_bytes`].
    pub message_bytes: Option<u64>,
    /// Their times.
    #[serde(flatten)]
    pub figures: Figures,
}

/// All executions of one operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OperationRow {
    /// The module's name; empty for kernels that belong to no program.
    pub module: String,
    /// The program's id.
    pub program_id: Option<i64>,
    /// The instruction's name, or the kernel's.
    pub name: String,
    /// Its kind.
    pub kind: CollectiveKind,
    /// Devices in a group.
    pub group_size: Option<u64>,
    /// Bytes of the operands.
    pub message_bytes: Option<u64>,
    /// Its times.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Figures over instances; an instance is one collective of one group of devices.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// Instances.
    pub instances: u64,
    /// Sum of the durations on all devices, in nanoseconds.
    pub total_ns: f64,
    /// Mean over instances of the shortest duration among the devices, in nanoseconds.
    pub fastest_ns: f64,
    /// Algorithm bandwidth by the fastest device of each instance, GB/s.
    pub algorithm_gb_per_s: Option<Bandwidth>,
    /// Bus bandwidth, likewise.
    pub bus_gb_per_s: Option<Bandwidth>,
    /// Part of the total that computation of the same device covers.
    pub hidden: f64,
    /// The same by the sum of the overlaps, where it differs.
    pub hidden_by_sum: Option<f64>,
    /// Time lost to stragglers; `None` if no instance has two devices whose clocks compare.
    pub wait: Option<Wait>,
}

/// A bandwidth over instances, in 10^9 bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Bandwidth {
    /// Mean.
    pub mean: f64,
    /// Its standard error, the sample's deviation over the root of the count; `None` for a single instance.
    pub error: Option<f64>,
    /// Lowest.
    pub low: f64,
    /// Highest.
    pub high: f64,
}

/// Time lost to stragglers over instances.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Wait {
    /// Mean, in nanoseconds.
    pub mean_ns: f64,
    /// Longest, in nanoseconds.
    pub longest_ns: f64,
    /// Sum over the sum of the fastest durations.
    pub of_fastest: f64,
}

/// Measures collectives; `clocks` says which clocks are aligned before computing waits.
pub fn collective_metrics(collectives: &Collectives<'_>, clocks: Clocks) -> CollectiveMetrics {
    let mut skews = Skews::new(collectives);
    let mut by_operation: BTreeMap<u32, Sums> = BTreeMap::new();
    let of = |instance: &Instance<'_>| collectives.operations.get(instance.key.operation as usize);
    let mut add = |instance: &Instance<'_>, operation: &Operation, alignment: &Alignment| {
        let wait = alignment.wait_ps(collectives, instance);
        by_operation.entry(instance.key.operation).or_default().add(instance, operation, wait);
    };
    // aligned waits need the skews first
    let recorded = (clocks == Clocks::Recorded).then(Alignment::none);
    each_instance(collectives, &mut |instance| {
        if let Some(operation) = of(instance) {
            skews.add(&operation.communication, instance);
            if let Some(recorded) = &recorded {
                add(instance, operation, recorded);
            }
        }
    });
    let alignment = skews.alignment(collectives, clocks);
    if recorded.is_none() {
        each_instance(collectives, &mut |instance| {
            if let Some(operation) = of(instance) {
                add(instance, operation, &alignment);
            }
        });
    }
    let mut sizes: BTreeMap<_, Sums> = BTreeMap::new();
    for (place, sums) in &by_operation {
        if let Some(Operation { communication, .. }) = collectives.operations.get(*place as usize) {
            let key = (communication.kind, communication.group_size, communication.message_bytes);
            sizes.entry(key).or_default().join(sums);
        }
    }
    let mut outside: BTreeMap<(CollectiveKind, &str), Sums> = BTreeMap::new();
    for kernel in &collectives.outside {
        let sums = Sums::of_kernel(kernel);
        sizes.entry((kernel.kind, None, None)).or_default().join(&sums);
        outside.entry((kernel.kind, &kernel.name)).or_default().join(&sums);
    }
    let sizes = sizes.into_iter().map(|((kind, group_size, message_bytes), sums)| SizeRow {
        kind,
        group_size,
        message_bytes,
        figures: sums.figures(),
    });
    let operations = by_operation.into_iter().filter_map(|(place, sums)| {
        let operation = collectives.operations.get(place as usize)?;
        Some(OperationRow {
            module: operation.module.clone(),
            program_id: operation.program_id,
            name: operation.name.clone(),
            kind: operation.communication.kind,
            group_size: operation.communication.group_size,
            message_bytes: operation.communication.message_bytes,
            figures: sums.figures(),
        })
    });
    let outside = outside.into_iter().map(|((kind, name), sums)| OperationRow {
        module: String::new(),
        program_id: None,
        name: name.to_owned(),
        kind,
        group_size: None,
        message_bytes: None,
        figures: sums.figures(),
    });
    let mut operations: Vec<OperationRow> = operations.chain(outside).collect();
    operations.sort_by(|one, other| other.figures.total_ns.total_cmp(&one.figures.total_ns));
    CollectiveMetrics { sizes: sizes.collect(), operations, alignment }
}

#[derive(Default)]
struct Sums {
    instances: u64,
    total_ps: u128,
    hidden_ps: u128,
    overlaps_ps: u128,
    fastest_ps: u128,
    algorithm: Spread,
    bus: Spread,
    waits: u64,
    waited_ps: u128,
    longest_wait_ps: u64,
    fastest_of_waits_ps: u128,
}

impl Sums {
    /// Each event of a kernel in no program is an instance of its own, since nothing says which belong together.
    fn of_kernel(kernel: &CommunicationKernel) -> Self {
        let total_ps = u128::from(kernel.time.total_ps);
        Self { instances: kernel.time.count, total_ps, fastest_ps: total_ps, ..Self::default() }
    }

    fn add(&mut self, instance: &Instance<'_>, operation: &Operation, wait: Option<u64>) {
        let fastest = instance.fastest_ps();
        self.instances += 1;
        self.fastest_ps += u128::from(fastest);
        for part in instance.parts {
            self.total_ps += u128::from(part.duration_ps());
            self.hidden_ps += u128::from(part.hidden_ps);
            self.overlaps_ps += u128::from(part.overlaps_ps);
        }
        let communication = &operation.communication;
        if let (Some(n), Some(bytes)) = (communication.group_size, communication.message_bytes)
            && fastest > 0
        {
            // bytes a picosecond are 10^12 bytes a second
            let algorithm = communication.kind.algorithm_factor(n) * bytes as f64 / fastest as f64 * 1e3;
            self.algorithm.add(algorithm);
            self.bus.add(algorithm * communication.kind.bus_factor(n));
        }
        if let Some(wait) = wait {
            self.waits += 1;
            self.waited_ps += u128::from(wait);
            self.longest_wait_ps = self.longest_wait_ps.max(wait);
            self.fastest_of_waits_ps += u128::from(fastest);
        }
    }

    fn join(&mut self, other: &Self) {
        self.instances += other.instances;
        self.total_ps += other.total_ps;
        self.hidden_ps += other.hidden_ps;
        self.overlaps_ps += other.overlaps_ps;
        self.fastest_ps += other.fastest_ps;
        self.algorithm.join(&other.algorithm);
        self.bus.join(&other.bus);
        self.waits += other.waits;
        self.waited_ps += other.waited_ps;
        self.longest_wait_ps = self.longest_wait_ps.max(other.longest_wait_ps);
        self.fastest_of_waits_ps += other.fastest_of_waits_ps;
    }

    fn figures(&self) -> Figures {
        let part = |some: u128, of: u128| if of == 0 { 0.0 } else { some as f64 / of as f64 };
        let ns = |ps: u128| ps as f64 / 1e3;
        Figures {
            instances: self.instances,
            total_ns: ns(self.total_ps),
            fastest_ns: ns(self.fastest_ps) / self.instances.max(1) as f64,
            algorithm_gb_per_s: self.algorithm.bandwidth(),
            bus_gb_per_s: self.bus.bandwidth(),
            hidden: part(self.hidden_ps, self.total_ps),
            hidden_by_sum: (self.overlaps_ps != self.hidden_ps).then(|| part(self.overlaps_ps, self.total_ps)),
            wait: (self.waits > 0).then(|| Wait {
                mean_ns: ns(self.waited_ps) / self.waits as f64,
                longest_ns: self.longest_wait_ps as f64 / 1e3,
                of_fastest: part(self.waited_ps, self.fastest_of_waits_ps),
            }),
        }
    }
}

/// Mean, deviation and extremes of a stream of values.
#[derive(Default)]
struct Spread {
    moments: Moments,
    low: f64,
    high: f64,
}

impl Spread {
    fn add(&mut self, value: f64) {
        let is_first = self.moments.count() == 0;
        self.moments.add(value);
        (self.low, self.high) = if is_first { (value, value) } else { (self.low.min(value), self.high.max(value)) };
    }

    fn join(&mut self, other: &Self) {
        if other.moments.count() > 0 {
            let is_first = self.moments.count() == 0;
            self.moments.join(other.moments);
            (self.low, self.high) =
                if is_first { (other.low, other.high) } else { (self.low.min(other.low), self.high.max(other.high)) };
        }
    }

    fn bandwidth(&self) -> Option<Bandwidth> {
        let n = self.moments.count();
        let error = self.moments.deviation().map(|deviation| deviation / (n as f64).sqrt());
        (n > 0).then_some(Bandwidth { mean: self.moments.mean(), error, low: self.low, high: self.high })
    }
}
