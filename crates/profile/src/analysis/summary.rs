//! The summary of captures: devices, modules, operations, and their time by opcode, source line, `op_name` and label.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::counted::counted;
use crate::hlo::{Evidence, KnownKernel, Label, ProgramMemory};
use crate::peaks::Peaks;
use crate::profile::Finding;
use crate::profile::interval::Interval;
use crate::setters;

use super::attribution::UserNames;
use super::by_kind::{ByKind, MeanStd, OperationSummary, Part};
use super::capture::Capture;
use super::host_work::{HostWork, host_work, window};
use super::known::{attribute, missing};
use super::minor::{Counting, Minor};
use super::modules::{Modules, add};
use super::outside::{self, KernelShare};
use super::programs::{HloFiles, Programs};
use super::runtime::{Counted, DeviceRuntime, Skipped, device_runtimes, ns};
use super::totals::Totals;
use super::work::{Work, peaks_of};

/// What is counted, and the user's names.
#[derive(Debug, Clone, Copy, Default)]
pub struct SummaryOptions<'a> {
    /// Which executions count.
    pub counting: Counting,
    /// Labels and kernels of the user's own.
    pub names: UserNames<'a>,
    /// The peaks of the device; without them those of the device that the captures name.
    pub peaks: Option<&'a Peaks>,
}

setters!(SummaryOptions<'a> { counting: Counting, names: UserNames<'a>, peaks: Option<&'a Peaks> });

/// Where the time of one or several captures went.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Version of this schema: 1.
    pub schema: u32,
    /// The captures.
    pub profiles: Vec<ProfileRead>,
    /// Each device separately.
    pub devices: Vec<DeviceRuntime>,
    /// The modules, the one with the most time first.
    pub modules: Vec<ModuleSummary>,
    /// The operations, the one with the most time first.
    pub operations: Vec<OperationSummary>,
    /// Their time by opcode, including idle time inside modules, so that the shares add up to one.
    pub opcodes: Vec<Part>,
    /// By source line.
    pub sources: Vec<Part>,
    /// By `op_name`.
    pub op_names: Vec<Part>,
    /// By label; the rest is unlabelled.
    pub labels: Vec<LabelShare>,
    /// By kernel whose name is known, labelled or not.
    pub known_kernels: Vec<KnownKernelShare>,
    /// The peaks of the rooflines; `None` if the device's are unknown.
    pub peaks: Option<Peaks>,
    /// Data that moved between host and device.
    pub transfers: Vec<HostWork>,
    /// Kernels that belong to no program, by device, the longest first.
    pub kernels: Vec<KernelShare>,
    /// Compilations while the profiler ran.
    pub compilations: Vec<HostWork>,
    /// Executions that do not count.
    pub skipped: AllSkipped,
    /// Notes, one line each.
    pub notes: Vec<String>,
    /// Warnings.
    pub findings: Vec<Finding>,
}

/// A capture that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProfileRead {
    /// Where it was read.
    pub path: String,
    /// The host, by the file's name.
    pub host: String,
}

/// All executions of one program, on all devices.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ModuleSummary {
    /// Its name.
    pub module: String,
    /// The program's id.
    pub program_id: Option<i64>,
    /// Devices that ran it, on all hosts.
    pub devices: usize,
    /// Executions that count.
    pub executions: u64,
    /// Operation events in an execution.
    pub operations: MeanStd,
    /// Time of an execution at which an operation was in progress.
    pub active_ns: MeanStd,
    /// Time of an execution from its first start to its last end.
    pub span_ns: MeanStd,
    /// All spans together.
    pub total_ns: f64,
    /// Share of all modules' spans.
    pub share: f64,
    /// The work of its operations, as far as their cost is known.
    pub work: Option<Work>,
    /// Its memory on each device, if its HLO has a buffer assignment.
    pub memory: Option<ProgramMemory>,
}

/// The time of the operations that are part of one tunable call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LabelShare {
    /// The call, as far as its label was kept.
    #[serde(flatten)]
    pub label: Label,
    /// How much of it was kept.
    pub evidence: Evidence,
    /// How many operations.
    pub operations: u64,
    /// Their time.
    pub time_ns: f64,
    /// As a share of all modules' spans.
    pub share: f64,
    /// Their work, as far as their cost is known.
    pub work: Option<Work>,
}

/// The time of the operations that are one kernel with the same parameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KnownKernelShare {
    /// The kernel.
    #[serde(flatten)]
    pub kernel: KnownKernel,
    /// How many operations.
    pub operations: u64,
    /// Their time.
    pub time_ns: f64,
    /// As a share of all modules' spans.
    pub share: f64,
}

/// What is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AllSkipped {
    /// First executions of a module on a device.
    pub warm_up: LeftOutTime,
    /// What XLA's autotuner ran.
    pub autotuner: LeftOutTime,
    /// Minor modules ([`Counting::minor`]).
    pub minor: LeftOutTime,
}

/// Executions and their spans.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LeftOutTime {
    /// How many.
    pub executions: u64,
    /// Their spans, added up.
    pub span_ns: f64,
}

impl From<Skipped> for LeftOutTime {
    fn from(skipped: Skipped) -> Self {
        Self { executions: skipped.executions, span_ns: ns(skipped.span_ps) }
    }
}

/// The part of an execution during which no operation ran.
pub const IDLE_INSIDE: &str = "[idle inside modules]";

/// Summarizes captures of one run: equal module names and program ids are the same program in all of them.
pub fn summarize(captures: &[Capture], files: &HloFiles, options: SummaryOptions<'_>) -> Summary {
    let mut modules = Modules::new();
    let (mut devices, mut profiles, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    let (mut transfers, mut compilations, mut kernels) = (Vec::new(), Vec::new(), Vec::new());
    let (mut warm_up, mut autotuner, mut minor) = (Skipped::default(), Skipped::default(), Skipped::default());
    let with_warm_up = options.counting.with_warm_up;
    let skipped_programs = Minor::of(captures, options.counting);
    let mut notes: Vec<String> = files.notes().to_vec();
    for (number, capture) in captures.iter().enumerate() {
        let mut totals = Totals::read(capture, with_warm_up);
        totals.leave_out(&skipped_programs);
        let time = &totals.time;
        let mut counted = Counted::new(time, with_warm_up);
        counted.leave_out(time, &skipped_programs);
        let programs = Programs::new(capture.timeline(), files);
        add(&mut modules, number, &totals, &counted);
        attribute(&mut modules, &programs, options.names, &mut notes);
        let on_plane = |plane: usize| time.executions.iter().filter(move |one| one.plane == plane);
        let of_programs = |plane: usize| on_plane(plane).map(|one| ns(one.busy_ps)).sum();
        let (outside, named) = outside::kernels(capture, time, &of_programs);
        kernels.extend(outside);
        notes.extend(named);
        devices.extend(device_runtimes(capture, time, &counted));
        let spans = counted.executions.iter().map(|one| Interval { start_ps: one.start_ps, end_ps: one.end_ps });
        let [moved, compiled] = host_work(capture.timeline(), capture.host(), window(spans.collect()));
        transfers.extend(moved);
        compilations.extend(compiled);
        warm_up.join(counted.warm_up);
        autotuner.join(counted.autotuner);
        minor.join(counted.minor);
        if counted.only_first {
            notes.push(format!(
                "`{}` holds one execution of each module: these count, though they may be warm-up",
                capture.path().display()
            ));
        }
        notes.extend(programs.problems());
        profiles.push(ProfileRead { path: capture.path().display().to_string(), host: capture.host().to_owned() });
        findings.extend(totals.time.findings);
    }
    notes.extend(missing(&modules));
    let skipped = AllSkipped { warm_up: warm_up.into(), autotuner: autotuner.into(), minor: minor.into() };
    let mut summary = Summary {
        schema: 1,
        profiles,
        devices,
        modules: Vec::new(),
        operations: Vec::new(),
        opcodes: Vec::new(),
        sources: Vec::new(),
        op_names: Vec::new(),
        labels: Vec::new(),
        known_kernels: Vec::new(),
        peaks: options.peaks.cloned().or_else(|| captures.iter().find_map(|capture| peaks_of(capture.timeline()))),
        transfers,
        kernels,
        compilations,
        skipped,
        notes,
        findings,
    };
    summary.fill(modules);
    summary
}

/// Says which part of the time kernels take that run on their projects' defaults, if any do.
fn on_defaults(kernels: &[KnownKernelShare]) -> Option<String> {
    let those = || kernels.iter().filter(|one| one.kernel.on_defaults == Some(true));
    let names: BTreeSet<&str> = those().map(|one| one.kernel.operation.as_str()).collect();
    let (count, share) = (those().map(|one| one.operations).sum::<u64>(), those().map(|one| one.share).sum::<f64>());
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    (count > 0).then(|| {
        let (runs, whose) = if count == 1 { ("runs", "its") } else { ("run", "their") };
        let counted = counted(count, "kernel");
        format!("{counted} {runs} on the defaults of {whose} project, {:.1} % of the time: {names}", 100.0 * share)
    })
}

impl Summary {
    /// Truncates each list to this many entries: the operations, and the time by category.
    pub fn cut(&mut self, top: usize) {
        self.operations.truncate(top);
        for parts in [&mut self.opcodes, &mut self.sources, &mut self.op_names] {
            parts.truncate(top);
        }
        self.labels.truncate(top);
        self.known_kernels.truncate(top);
        self.modules
            .iter_mut()
            .filter_map(|module| module.memory.as_mut())
            .for_each(|memory| memory.live.truncate(top));
    }

    fn fill(&mut self, modules: Modules) {
        let all_ns: f64 = modules.values().map(|of_module| of_module.total_ns).sum();
        let share = |time_ns: f64| if all_ns > 0.0 { time_ns / all_ns } else { 0.0 };
        let mut by_kind = ByKind::default();
        for ((module, program_id), mut of_module) in modules {
            let first = self.operations.len();
            for (operation, of_operation) in std::mem::take(&mut of_module.operations) {
                let of = (module.as_str(), program_id, operation);
                let summary = by_kind.operation(of, of_operation, self.peaks.as_ref(), &share);
                self.operations.push(summary);
            }
            let of_module_operations = self.operations.get(first..).unwrap_or_default();
            self.modules.push(ModuleSummary {
                module,
                program_id,
                devices: of_module.devices.len(),
                executions: of_module.span.count(),
                operations: of_module.events.into(),
                active_ns: of_module.active.into(),
                span_ns: of_module.span.into(),
                total_ns: of_module.total_ns,
                share: share(of_module.total_ns),
                work: Work::sum(of_module_operations.iter().filter_map(|operation| operation.work.as_ref())),
                memory: of_module.memory,
            });
        }
        let ByKind { mut opcodes, sources, op_names, labels, kernels } = by_kind;
        let idle_ns: f64 = self.devices.iter().map(|device| device.idle_inside_ns).sum();
        opcodes.0.insert(IDLE_INSIDE.to_owned(), (0, idle_ns));
        [self.opcodes, self.sources, self.op_names] = [opcodes, sources, op_names].map(|parts| parts.sorted(&share));
        let labels = labels.into_iter().map(|((label, evidence), (operations, time_ns, works))| LabelShare {
            label,
            evidence,
            operations,
            time_ns,
            share: share(time_ns),
            work: Work::sum(works.iter()),
        });
        self.labels = labels.collect();
        let kernels = kernels.into_values();
        self.known_kernels = kernels
            .map(|(kernel, operations, time_ns)| KnownKernelShare {
                kernel,
                operations,
                time_ns,
                share: share(time_ns),
            })
            .collect();
        self.known_kernels.sort_by(|one, other| other.time_ns.total_cmp(&one.time_ns));
        self.notes.extend(on_defaults(&self.known_kernels));
        // stable, so that equals stay in the order of their names
        self.labels.sort_by(|one, other| other.time_ns.total_cmp(&one.time_ns));
        self.modules.sort_by(|one, other| other.total_ns.total_cmp(&one.total_ns));
        self.operations.sort_by(|one, other| other.time_ns.total_cmp(&one.time_ns));
    }
}
