//! The result of one candidate.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::array::{ArrayError, ArraySpec, ComparedBy, SpecialKind};
use crate::config::Config;
use crate::decision::DropReason;
use crate::failure::Failure;
use crate::hlo::Cost;
use crate::printable::printable;
use crate::search::ExpectedRatio;
use crate::stats::Interval;

/// How a candidate ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CandidateStatus {
    /// It was measured.
    Measured,
    /// Its program is another candidate's; that one was measured.
    SameProgram,
    /// It was dropped; the failure says why.
    Failed,
    /// It has too few samples.
    NotMeasured,
    /// It was skipped: the other candidates' times predict too little gain.
    NotCompiled,
}

/// The same with its data.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CandidateOutcome {
    /// It was measured.
    Measured(CandidateTimes),
    /// Its program is another candidate's, whose times these are, if there are any.
    SameProgram(Option<CandidateTimes>),
    /// It was dropped.
    Failed(Failure),
    /// It has too few samples.
    NotMeasured,
    /// It was skipped; this is the predicted ratio of its time to the baseline's.
    NotCompiled(ExpectedRatio),
}

/// The statistics of a candidate's rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CandidateTimes {
    /// Paired rounds.
    pub rounds: usize,
    /// Median of its samples, nanoseconds.
    pub median_ns: f64,
    /// Median of its time over the baseline's, round by round.
    pub ratio: f64,
    /// Interval of that ratio.
    pub interval: Interval,
}

/// Which of several races of compiler options a candidate's numbers are from. Times of two races are not comparable,
/// because the machine changes between them; their ratios are, each to the baseline of its own race.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CandidateRace {
    /// The race.
    pub stage: RaceStage,
    /// Median of the baseline's samples in that race, nanoseconds.
    pub baseline_ns: f64,
}

/// The races of compiler options, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RaceStage {
    /// Every value alone.
    Alone,
    /// Two together.
    Pairs,
    /// Three together.
    Triples,
    /// The last rounds, which decide.
    Last,
}

/// One sample of a candidate, and the baseline's of the same round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PairedSample {
    /// The round, from zero in the order of the sample log.
    pub round: usize,
    /// The measuring process.
    pub epoch: u32,
    /// The candidate's time, nanoseconds.
    pub ns: f64,
    /// The baseline's, nanoseconds.
    pub baseline_ns: f64,
    /// Whether the round counts; a disturbed one does not.
    pub is_counted: bool,
}

impl PairedSample {
    /// The candidate's time over the baseline's.
    pub fn ratio(&self) -> f64 {
        self.ns / self.baseline_ns
    }
}

/// How one output of a candidate differs from the baseline's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputDifference {
    /// Its number among the outputs.
    pub output: usize,
    /// Its name, such as `grads/w`; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its elements.
    pub elements: u64,
    /// Elements beyond the tolerance; for special values, those of another class.
    pub differing: u64,
    /// The largest absolute difference of two finite elements.
    pub max_absolute: f64,
    /// The same over the root mean square of the baseline's finite elements; absent if that is zero, and for integers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_rms: Option<f64>,
}

/// `output 3 \`loss\``.
impl fmt::Display for OutputDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_output(f, self.output, &self.name)
    }
}

impl OutputDifference {
    /// Elements of another class, which cannot be subtracted.
    pub(crate) fn of_class(output: usize, name: String, spec: &ArraySpec, differing: u64) -> Self {
        let elements = spec.elements().unwrap_or_default();
        Self { output, name, elements, differing, max_absolute: 0.0, of_rms: None }
    }
}

/// How a candidate under unsafe options treats special values that it need not honour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpecialValues {
    /// The values that were put among the inputs.
    pub values: SpecialKind,
    /// The outputs with elements of another class than the baseline's: NaN, an infinity by its sign, a denormal,
    /// another number.
    pub outputs: Vec<OutputDifference>,
    /// Why there are none, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// How far one output is from that of the same program in `f64`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReferenceError {
    /// Its number among the outputs.
    pub output: usize,
    /// Its name, such as `grads/w`; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The candidate's.
    pub own: ArrayError,
    /// The baseline's.
    pub baseline: ArrayError,
}

/// `output 3 \`loss\``.
impl fmt::Display for ReferenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_output(f, self.output, &self.name)
    }
}

fn write_output(f: &mut fmt::Formatter<'_>, output: usize, name: &str) -> fmt::Result {
    write!(f, "output {output}")?;
    if name.is_empty() { Ok(()) } else { write!(f, " `{}`", printable(name)) }
}

/// What is known about one candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "CandidateJson", into = "CandidateJson")]
pub struct CandidateResult {
    /// The config.
    pub config: Config,
    /// How it ended.
    pub outcome: CandidateOutcome,
    /// The race that its times are from, if there were several.
    pub race: Option<CandidateRace>,
    /// Whether it is within the resolution of the best.
    pub tied_with_best: bool,
    /// Why the race dropped it, if it did.
    pub dropped: Option<DropReason>,
    /// The samples that it was judged by, for plots. Empty if it failed or shares another's program.
    pub samples: Vec<PairedSample>,
    /// Peak temporary bytes of a run (neither arguments nor results), if known.
    pub temporary_bytes: Option<u64>,
    /// The work of one run of its program, if known; not in JSON, where the baseline and the best have it.
    pub work: Option<Cost>,
    /// The outputs that are not bitwise equal to the baseline's, if they were compared in this run.
    pub differences: Vec<OutputDifference>,
    /// How it treats NaN, infinities and denormals, if that was tried.
    pub special_values: Vec<SpecialValues>,
    /// How far its outputs are from those of the program in `f64`, if that was run.
    pub reference_errors: Vec<ReferenceError>,
    /// The rule by which its outputs were accepted, if they were compared in this run.
    pub compared_by: Option<ComparedBy>,
}

impl CandidateResult {
    /// How it ended, in one word.
    pub fn status(&self) -> CandidateStatus {
        match self.outcome {
            CandidateOutcome::Measured(_) => CandidateStatus::Measured,
            CandidateOutcome::SameProgram(_) => CandidateStatus::SameProgram,
            CandidateOutcome::Failed(_) => CandidateStatus::Failed,
            CandidateOutcome::NotMeasured => CandidateStatus::NotMeasured,
            CandidateOutcome::NotCompiled(_) => CandidateStatus::NotCompiled,
        }
    }

    /// Its times, or those of the program that it shares.
    pub fn times(&self) -> Option<&CandidateTimes> {
        match &self.outcome {
            CandidateOutcome::Measured(times) => Some(times),
            CandidateOutcome::SameProgram(times) => times.as_ref(),
            CandidateOutcome::Failed(_) | CandidateOutcome::NotMeasured | CandidateOutcome::NotCompiled(_) => None,
        }
    }

    /// The predicted ratio of its time to the baseline's, if it was skipped.
    pub fn expected(&self) -> Option<ExpectedRatio> {
        match self.outcome {
            CandidateOutcome::NotCompiled(expected) => Some(expected),
            _ => None,
        }
    }

    /// Why it was dropped, if it was.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.outcome {
            CandidateOutcome::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

/// The JSON of a candidate.
#[derive(Serialize, Deserialize)]
struct CandidateJson {
    config: Config,
    status: CandidateStatus,
    rounds: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    median_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<Interval>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    race: Option<CandidateRace>,
    tied_with_best: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dropped: Option<DropReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expected: Option<ExpectedRatio>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    temporary_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    differences: Vec<OutputDifference>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    special_values: Vec<SpecialValues>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reference_errors: Vec<ReferenceError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compared_by: Option<ComparedBy>,
}

impl From<CandidateResult> for CandidateJson {
    fn from(candidate: CandidateResult) -> Self {
        let (status, times) = (candidate.status(), candidate.times().copied());
        let (failure, expected) = (candidate.failure().cloned(), candidate.expected());
        let CandidateResult { config, race, tied_with_best, dropped, differences, special_values, .. } = candidate;
        let CandidateResult { reference_errors, temporary_bytes, compared_by, .. } = candidate;
        Self {
            config,
            status,
            rounds: times.map_or(0, |times| times.rounds),
            median_ns: times.map(|times| times.median_ns),
            ratio: times.map(|times| times.ratio),
            interval: times.map(|times| times.interval),
            race,
            tied_with_best,
            dropped,
            failure,
            expected,
            temporary_bytes,
            differences,
            special_values,
            reference_errors,
            compared_by,
        }
    }
}

impl TryFrom<CandidateJson> for CandidateResult {
    type Error = String;

    fn try_from(row: CandidateJson) -> Result<Self, String> {
        let CandidateJson {
            config, status, rounds, median_ns, ratio, interval, tied_with_best, dropped, failure, ..
        } = row;
        let CandidateJson { race, expected, differences, special_values, temporary_bytes, .. } = row;
        let CandidateJson { reference_errors, compared_by, .. } = row;
        let times = median_ns.zip(ratio).zip(interval);
        let times = times.map(|((median_ns, ratio), interval)| CandidateTimes { rounds, median_ns, ratio, interval });
        let outcome = match (status, times, failure) {
            (CandidateStatus::NotCompiled, ..) => {
                let lacks = || format!("the candidate {config} is `not-compiled` and lacks its expected time");
                CandidateOutcome::NotCompiled(expected.ok_or_else(lacks)?)
            }
            (CandidateStatus::Measured, Some(times), _) => CandidateOutcome::Measured(times),
            (CandidateStatus::SameProgram, times, _) => CandidateOutcome::SameProgram(times),
            (CandidateStatus::Failed, _, Some(failure)) => CandidateOutcome::Failed(failure),
            (CandidateStatus::NotMeasured, ..) => CandidateOutcome::NotMeasured,
            (CandidateStatus::Measured, None, _) => {
                return Err(format!("the candidate {config} is `measured` and lacks a time"));
            }
            (CandidateStatus::Failed, _, None) => {
                return Err(format!("the candidate {config} is `failed` and lacks a failure"));
            }
        };
        let (samples, work) = (Vec::new(), None);
        Ok(Self {
            config,
            outcome,
            race,
            tied_with_best,
            dropped,
            samples,
            temporary_bytes,
            work,
            differences,
            special_values,
            reference_errors,
            compared_by,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_is_the_same_json_again_and_one_without_its_parts_is_refused() {
        let interval = r#""interval":{"low":0.4,"high":0.6,"confidence":0.95}"#;
        let times = format!(r#""rounds":6,"median_ns":5.0,"ratio":0.5,{interval},"tied_with_best":true"#);
        let none = r#""rounds":0,"tied_with_best":false"#;
        let failure = r#""failure":{"kind":"crash","message":"gone"}"#;
        for rest in [
            format!(r#""measured",{times}}}"#),
            format!(r#""measured",{times},"dropped":"slower"}}"#),
            format!(r#""measured",{times},"temporary_bytes":4096}}"#),
            format!(
                r#""measured",{}}}"#,
                times.replace(r#""tied"#, r#""race":{"stage":"pairs","baseline_ns":9.0},"tied"#)
            ),
            format!(r#""same-program",{times}}}"#),
            format!(r#""same-program",{none}}}"#),
            format!(r#""failed",{none},{failure}}}"#),
            format!(r#""not-measured",{none},"dropped":"no-time"}}"#),
            format!(r#""not-compiled",{none},"expected":{{"ratio":1.8,"low":1.4,"high":2.3}}}}"#),
        ] {
            let text = format!(r#"{{"config":{{"block":1}},"status":{rest}"#);
            let candidate: CandidateResult = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&candidate).unwrap(), text);
        }
        for (rest, message) in [
            ("measured", "lacks a time"),
            ("failed", "lacks a failure"),
            ("not-compiled", "lacks its expected time"),
            ("unheard-of", "variant"),
        ] {
            let text = format!(r#"{{"config":{{"block":1}},"status":"{rest}",{none}}}"#);
            let error = serde_json::from_str::<CandidateResult>(&text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
