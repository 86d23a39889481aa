//! The result of compiling for absent devices.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::compile::{CompileResult, CompiledCall, CompiledTarget};
use crate::config::Config;
use crate::counted::counted;
use crate::timer::Forecast;
use crate::timer::pjrt::CompileOutcome;
use crate::timer::protocol::{CostAnalysis, KernelUse, MemoryStats};

use super::changes::write_comparison;
use super::grid::dash;
use super::{Document, Grid, format_bytes, line, write_notes};

/// What a TPU's compiler says of a program, and how it is written; a column if it says it of any.
type CostFigure = (&'static str, fn(&CostAnalysis) -> Option<f64>, fn(f64) -> String);

const FIGURES: [CostFigure; 3] = [
    (">cycles", |cost| cost.estimated_cycles, |cycles| format!("{cycles:.0}")),
    (">bundles", |cost| cost.schedule?.bundles, |bundles| format!("{bundles:.0}")),
    (">VMEM", |cost| Some(cost.schedule?.vmem_bytes? as f64), |bytes| format_bytes(bytes as u64)),
];

const NOTHING: &str = "nothing to compile";

impl Document for CompileResult {
    fn into_json(self) -> impl Serialize {
        self
    }

    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        for (number, target) in self.targets.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            write_target(target, out)?;
        }
        Ok(())
    }
}

fn write_target(target: &CompiledTarget, out: &mut dyn Write) -> io::Result<()> {
    let compiler = target.device.environment.compiler().unwrap_or_else(|| "an unknown compiler".to_owned());
    let identity = &target.device.identity;
    line!(out, "{}: {identity}, compiled by {compiler}", target.target)?;
    let mut headings = vec!["what", ">programs", ">compiled", ">refused", ">failed", ">seconds", ">temporary", ">peak"];
    let outcomes = target.outcomes();
    let knows_kernels = outcomes.clone().any(|outcome| !kernels_of(outcome).is_empty());
    if knows_kernels {
        headings.extend([">registers", ">stack", ">shared"]);
    }
    let is_known = |figure: &&CostFigure| outcomes.clone().any(|outcome| cost_of(outcome).and_then(figure.1).is_some());
    let figures: Vec<&CostFigure> = FIGURES.iter().filter(is_known).collect();
    headings.extend(figures.iter().map(|(heading, ..)| heading));
    let mut grid = Grid::new(&headings);
    for call in &target.calls {
        add(&mut grid, &call.name(), call.outcomes().collect(), (knows_kernels, &figures));
        for line in refusals(call) {
            grid.line(&line);
        }
    }
    if let Some(outcome) = &target.module {
        let name = match target.devices {
            0 | 1 => "the module".to_owned(),
            devices => format!("the module, on each of {devices} devices"),
        };
        add(&mut grid, &name, vec![outcome], (knows_kernels, &figures));
        if let Some(reason) = reason_of(outcome) {
            grid.line(reason);
        }
    }
    match &target.forecast {
        Some(forecast) => line!(out, "{}", forecast_line(forecast))?,
        None => grid.write_or(out, NOTHING)?,
    }
    write_findings(target, out)?;
    write_notes(out, &target.notes)
}

/// Writes whether the module fits, and what became worse than the baseline.
fn write_findings(target: &CompiledTarget, out: &mut dyn Write) -> io::Result<()> {
    if let Some((needed, memory)) = target.module_memory() {
        let verdict = if needed <= memory { "it fits" } else { "it does not fit" };
        let (needed, memory) = (format_bytes(needed), format_bytes(memory));
        line!(out, "{verdict}: a run is allocated {needed} of a device's {memory}")?;
    }
    target.baseline.iter().try_for_each(|comparison| write_comparison(comparison, out))
}

/// Says what compiling costs.
fn forecast_line(forecast: &Forecast) -> String {
    let Forecast { to_compile, kept, jobs, seconds, bytes, .. } = forecast;
    if to_compile + kept == 0 {
        return NOTHING.to_owned();
    }
    let programs = counted(*to_compile, "program");
    let cost = match (seconds, bytes) {
        (Some(seconds), Some(bytes)) => {
            format!("about {:.1} min with {jobs} at once, and {}", seconds / 60.0, format_bytes(*bytes))
        }
        _ => format!("{jobs} at once; how long it takes is unknown, because nothing is kept yet"),
    };
    format!("{programs} to compile, {kept} kept: {cost}")
}

/// Adds a row for several programs, with the maximum of their memory and of their kernels' figures.
fn add(grid: &mut Grid, name: &str, outcomes: Vec<&CompileOutcome>, (knows_kernels, figures): (bool, &[&CostFigure])) {
    let count = |is: fn(&CompileOutcome) -> bool| outcomes.iter().filter(|outcome| is(outcome)).count();
    let compiled = count(|outcome| matches!(outcome, CompileOutcome::Compiled { .. }));
    let refused = count(|outcome| matches!(outcome, CompileOutcome::Refused { .. }));
    let seconds = outcomes.iter().map(|outcome| match outcome {
        CompileOutcome::Compiled { seconds, reused: false, .. }
        | CompileOutcome::Refused { seconds, reused: false, .. } => *seconds,
        _ => 0.0,
    });
    let memory = |outcome: &&CompileOutcome| match outcome {
        CompileOutcome::Compiled { memory, .. } => *memory,
        _ => None,
    };
    let most = |bytes: fn(MemoryStats) -> u64| dash(outcomes.iter().filter_map(memory).map(bytes).max(), format_bytes);
    let mut row = vec![
        name.to_owned(),
        outcomes.len().to_string(),
        compiled.to_string(),
        refused.to_string(),
        (outcomes.len() - compiled - refused).to_string(),
        // a sum of nothing is a negative zero
        format!("{:.1}", seconds.fold(0.0, |sum, seconds| sum + seconds)),
        most(|memory| memory.temporary_bytes),
        most(|memory| memory.peak_bytes),
    ];
    if knows_kernels {
        let kernels: Vec<&KernelUse> = outcomes.iter().flat_map(|outcome| kernels_of(outcome)).collect();
        let most = |bytes: fn(&KernelUse) -> u64| dash(kernels.iter().map(|kernel| bytes(kernel)).max(), format_bytes);
        row.push(dash(kernels.iter().map(|kernel| kernel.registers).max(), |most| most.to_string()));
        row.extend([most(|kernel| kernel.stack_bytes), most(|kernel| kernel.shared_bytes)]);
    }
    for (_, figure, format) in figures {
        let most = outcomes.iter().filter_map(|outcome| cost_of(outcome).and_then(figure)).reduce(f64::max);
        row.push(dash(most, format));
    }
    grid.row(row);
}

fn cost_of(outcome: &CompileOutcome) -> Option<&CostAnalysis> {
    match outcome {
        CompileOutcome::Compiled { cost, .. } => cost.as_ref(),
        _ => None,
    }
}

fn kernels_of(outcome: &CompileOutcome) -> &[KernelUse] {
    match outcome {
        CompileOutcome::Compiled { kernels, .. } => kernels,
        _ => &[],
    }
}

fn reason_of(outcome: &CompileOutcome) -> Option<&str> {
    match outcome {
        CompileOutcome::Refused { reason, .. } | CompileOutcome::Failed { reason } => Some(reason),
        _ => None,
    }
}

/// Returns each reason once, with the configs that it concerns.
fn refusals(call: &CompiledCall) -> Vec<String> {
    let mut by_reason: BTreeMap<&str, Vec<&Config>> = BTreeMap::new();
    for candidate in &call.candidates {
        if let Some(reason) = candidate.outcome.as_ref().and_then(reason_of) {
            by_reason.entry(reason).or_default().push(&candidate.config);
        }
    }
    let line = |(reason, mut configs): (&str, Vec<&Config>)| {
        // the baseline first: without it nothing can be measured
        configs.sort_by_key(|config| **config != call.baseline);
        let first = match configs.first() {
            Some(first) if **first == call.baseline => format!("{first} (the baseline)"),
            Some(first) => first.to_string(),
            None => String::new(),
        };
        match configs.len() {
            0 | 1 => format!("{first}: {reason}"),
            more => format!("{first} and {}: {reason}", counted(more - 1, "other")),
        }
    };
    by_reason.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(memory_and_kernels: &str) -> String {
        of_calls("[]", memory_and_kernels)
    }

    fn of_calls(calls: &str, memory_and_kernels: &str) -> String {
        let result = format!(
            r#"{{"schema":1,"tool":"t","interrupted":false,"targets":[{{"target":"cuda:x","calls":{calls},
                "device":{{"identity":{{"platform":"cuda","device_kind":"X","hardware":{{}}}},
                           "environment":{{"platform_version":"1"}}}},
                "module":{{"status":"compiled","seconds":1.0,"executable_bytes":9,
                           "reused":false{memory_and_kernels}}}}}]}}"#
        );
        let mut out = Vec::new();
        serde_json::from_str::<CompileResult>(&result).unwrap().write_table(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_call_that_was_not_begun_took_no_time() {
        let call =
            r#"[{"op_id":"op@v1","call_key":"k","direction":"forward","baseline":{},"candidates":[{"config":{}}]}]"#;
        let shown = of_calls(call, "");
        let words: Vec<&str> =
            shown.lines().find(|line| line.starts_with("op@v1")).unwrap().split_whitespace().collect();
        assert_eq!(words[..6], ["op@v1:k", "0", "0", "0", "0", "0.0"], "{shown}");
    }

    #[test]
    fn the_most_that_a_kernel_takes_is_shown_where_kernels_are_known() {
        assert!(!table("").contains("registers"));
        let kernels = r#","kernels":[
            {"name":"a","code_bytes":9,"registers":32,"stack_bytes":3384,"shared_bytes":0},
            {"name":"b","code_bytes":9,"registers":255,"stack_bytes":0,"shared_bytes":65536}]"#;
        let shown = table(kernels);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<_> = shown.lines().map(words).collect();
        assert!(lines[1].ends_with(&["registers", "stack", "shared"].map(str::to_owned)), "{shown}");
        assert!(lines[2].ends_with(&["255", "3.38", "kB", "65.5", "kB"].map(str::to_owned)), "{shown}");
    }
}
