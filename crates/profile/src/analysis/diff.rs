//! Compares two profiles: which operations became faster, and whether that is significant.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use crate::stats::{Moments, holm, welch};

use super::capture::Capture;
use super::runtime::Counted;

/// Confidence of the intervals.
const CONFIDENCE: f64 = 0.95;
/// The probability of any false verdict among all operations, or all modules.
const THRESHOLD: f64 = 0.05;

/// The differences between two profiles.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ProfileDiff {
    /// Spans of the modules that ran in both, then what ran in one; the largest change of the whole time first.
    pub modules: Vec<DiffRow>,
    /// Self time of their operations, likewise.
    pub operations: Vec<DiffRow>,
    /// Caveats, one line each.
    pub notes: Vec<String>,
}

/// One module or operation in both profiles.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DiffRow {
    /// The module.
    pub module: String,
    /// The operation; absent for the module as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// Launches and mean time of one in the first profile.
    pub before: Option<Sample>,
    /// In the second.
    pub after: Option<Sample>,
    /// Second mean less first, in nanoseconds.
    pub difference_ns: Option<f64>,
    /// Its 95% interval, for this row alone; `None` with fewer than two launches in either.
    pub interval_ns: Option<[f64; 2]>,
    /// The p-value, adjusted for all rows of the list.
    pub p_adjusted: Option<f64>,
}

/// The launches of one profile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sample {
    /// Launches.
    pub launches: u64,
    /// Mean time of one, the mean over its devices, in nanoseconds.
    pub mean_ns: f64,
}

/// The verdict on a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Verdict {
    /// The second is significantly faster.
    Faster,
    /// The second is significantly slower.
    Slower,
    /// The difference may be chance.
    NotTold,
    /// Fewer than two launches in one of them.
    TooFew,
    /// Only the first has it.
    Gone,
    /// Only the second has it.
    New,
}

impl Verdict {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NotTold => "not significant",
            Self::TooFew => "too few launches",
            Self::Gone => "gone",
            Self::New => "new",
        }
    }
}

/// A module's name and its place among the programs of that name, and the operation.
type Row = (String, usize, Option<String>);

/// Compares two profiles, each one run of one or more hosts. A sample is a launch: the mean of its devices, whose times
/// are correlated within a launch.
pub fn profile_diff(before: &[Capture], after: &[Capture], with_warm_up: bool) -> ProfileDiff {
    let mut notes = Vec::new();
    let samples = [samples(before, with_warm_up, &mut notes), samples(after, with_warm_up, &mut notes)];
    let rows: BTreeSet<&Row> = samples.iter().flat_map(BTreeMap::keys).collect();
    let of = |is_operation: bool| {
        let rows = rows.iter().filter(|(_, _, operation)| operation.is_some() == is_operation);
        let mut made: Vec<(DiffRow, f64)> =
            rows.map(|row| compared(row, samples[0].get(row), samples[1].get(row))).collect();
        // rows that cannot be tested do not count as tests
        let tested: Vec<usize> = (0..made.len())
            .filter(|&place| made.get(place).is_some_and(|(row, _)| row.interval_ns.is_some()))
            .collect();
        let adjusted = holm(&tested.iter().filter_map(|&place| Some(made.get(place)?.1)).collect::<Vec<f64>>());
        for (place, p) in tested.into_iter().zip(adjusted) {
            let Some((row, _)) = made.get_mut(place) else { continue };
            row.p_adjusted = Some(p);
            row.verdict = match row.difference_ns {
                Some(difference) if p <= THRESHOLD && difference < 0.0 => Verdict::Faster,
                Some(difference) if p <= THRESHOLD && difference > 0.0 => Verdict::Slower,
                _ => Verdict::NotTold,
            };
        }
        let mut rows: Vec<DiffRow> = made.into_iter().map(|(row, _)| row).collect();
        rows.sort_by(|one, other| change(other).total_cmp(&change(one)));
        rows
    };
    let (modules, operations) = (of(false), of(true));
    let in_both = |row: &&DiffRow| row.before.is_some() && row.after.is_some();
    for module in modules.iter().filter(in_both).map(|row| &row.module) {
        let other = operations.iter().filter(|row| row.module == *module && !in_both(row)).count();
        if other > 0 {
            notes.push(format!(
                "`{module}` is not the same program in both ({other} operations in one only): operations are matched \
                 by name, and a name may stand for another one"
            ));
        }
    }
    ProfileDiff { modules, operations, notes }
}

/// How much a row changes a launch.
fn change(row: &DiffRow) -> f64 {
    let mean = |sample: Option<Sample>| sample.map_or(0.0, |sample| sample.mean_ns);
    (mean(row.after) - mean(row.before)).abs()
}

fn compared(row: &Row, before: Option<&Moments>, after: Option<&Moments>) -> (DiffRow, f64) {
    let sample = |moments: Option<&Moments>| {
        moments.map(|moments| Sample { launches: moments.count(), mean_ns: moments.mean() })
    };
    let both = before.zip(after);
    let difference = both.and_then(|(before, after)| welch(before, after, CONFIDENCE));
    let verdict = match (before, after) {
        (Some(_), None) => Verdict::Gone,
        (None, _) => Verdict::New,
        _ => Verdict::TooFew,
    };
    let (module, number, operation) = row;
    let module = if *number == 0 { module.clone() } else { format!("{module} #{}", number + 1) };
    let row = DiffRow {
        module,
        operation: operation.clone(),
        verdict,
        before: sample(before),
        after: sample(after),
        difference_ns: both.map(|(before, after)| after.mean() - before.mean()),
        interval_ns: difference.map(|difference| [difference.low, difference.high]),
        p_adjusted: None,
    };
    (row, difference.map_or(1.0, |difference| difference.p))
}

/// Each row's time by launch.
fn samples(captures: &[Capture], with_warm_up: bool, notes: &mut Vec<String>) -> BTreeMap<Row, Moments> {
    // by row and launch: sum over devices, and how many
    let mut launches: BTreeMap<(Row, usize), (f64, u32)> = BTreeMap::new();
    for capture in captures {
        let time = capture.executions();
        let counted = Counted::new(&time, with_warm_up);
        notes.extend(capture.import_findings().iter().map(ToString::to_string));
        if counted.only_first {
            let path = capture.path().display();
            notes.push(format!("`{path}`: there are only first executions, so they count"));
        }
        let mut programs: BTreeMap<&str, BTreeSet<Option<i64>>> = BTreeMap::new();
        for execution in &counted.executions {
            programs.entry(time.name(execution.module)).or_default().insert(execution.program_id);
        }
        let mut next: HashMap<_, usize> = HashMap::new();
        for execution in &counted.executions {
            let module = time.name(execution.module);
            let number = programs.get(module).and_then(|ids| ids.iter().position(|id| *id == execution.program_id));
            let launch = next.entry((execution.plane, execution.device, module, execution.program_id)).or_default();
            let mut add = |operation: Option<&str>, ps: u64| {
                let row = (module.to_owned(), number.unwrap_or(0), operation.map(str::to_owned));
                let (sum, devices) = launches.entry((row, *launch)).or_default();
                *sum += ps as f64 / 1e3;
                *devices += 1;
            };
            add(None, execution.span_ps);
            for operation in &execution.operations {
                add(Some(time.name(operation.name)), operation.self_ps);
            }
            *launch += 1;
        }
    }
    let mut rows: BTreeMap<Row, Moments> = BTreeMap::new();
    for ((row, _), (sum, devices)) in launches {
        rows.entry(row).or_default().add(sum / f64::from(devices.max(1)));
    }
    rows
}
