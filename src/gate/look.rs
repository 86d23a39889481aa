//! Pure: from the rounds of a config beside its baseline, whether its ratio changed.

use serde::{Deserialize, Serialize};

use crate::decision::{
    ProcessQuestion, ProcessRatio, ProcessSpread, Round, anytime_interval, disturbance, most_evidence, paired_ratios,
    process_ratios,
};
use crate::stats::{Interval, median};

/// Candidates of every round: the baseline, and the config that is checked.
const BASELINE: usize = 0;
const CONFIG: usize = 1;
/// Minimum number of rounds.
pub const MIN_ROUNDS: usize = 6;
/// Confidence of the interval that is reported.
const CONFIDENCE: f64 = 0.95;
/// The normal quantile of a confidence of 99%, two-sided.
const QUANTILE_99: f64 = 2.576;

/// Ratios to the baseline beyond which a config has changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Above: it is slower.
    pub slower: f64,
    /// Below: it is faster. `None` if no earlier ratio is comparable.
    pub faster: Option<f64>,
}

impl Limits {
    /// From the ratio's interval at the decision, and a [`margin`]. A former winner counts as slower at the latest when
    /// it is slower than the baseline, which is the only limit without an interval.
    pub fn new(stored: Option<Interval>, margin: f64) -> Self {
        let usable = stored.filter(|stored| stored.low > 0.0 && stored.low <= stored.high && stored.high.is_finite());
        let high = usable.map_or(1.0, |stored| stored.high.min(1.0));
        Self { slower: high * margin.exp(), faster: usable.map(|stored| stored.low * (-margin).exp()) }
    }
}

/// How far beyond an interval a ratio must be to count as changed, as a logarithm: the smallest change that matters, as
/// a fraction, and more than a program differs from itself.
///
/// `resolution` is what `selftest` found 99% of the pairs of one program's copies to differ by at most. Two such
/// differences add up here, the old and the new one, and the extreme of `compared` pairs differs by more than a single
/// one: the normal quantile of 1 - p/m is about the root of z² + 2 ln m, z that of 1 - p.
pub fn margin(min_change: f64, resolution: f64, compared: usize) -> f64 {
    let luckiest = (1.0 + 2.0 * (compared.max(1) as f64).ln() / (QUANTILE_99 * QUANTILE_99)).sqrt();
    let placement = std::f64::consts::SQRT_2 * resolution.max(0.0).ln_1p() * luckiest;
    (-(-min_change).ln_1p()).max(placement)
}

/// How a ratio changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RatioChange {
    /// It increased.
    Slower,
    /// It decreased.
    Faster,
}

/// The evidence of the rounds so far.
#[derive(Debug, Clone, PartialEq)]
pub struct EvidenceLook {
    /// Rounds that count.
    pub rounds: usize,
    /// Worker processes that measured them.
    pub processes: usize,
    /// Median of the baseline, nanoseconds.
    pub baseline_ns: f64,
    /// Median of the config, nanoseconds.
    pub config_ns: f64,
    /// The config's time over the baseline's: the geometric mean over processes of the median over rounds.
    pub ratio: f64,
    /// Interval of that mean; of a single process that of its median.
    pub interval: Interval,
    /// The change that the medians of all processes show, if it is the same in all.
    pub change: Option<RatioChange>,
    /// The e-value of the processes against "it did not change this way". Without a change there is no hypothesis to
    /// reject.
    pub e_value: f64,
    /// The largest e-value that so many processes can give, however large the change.
    pub most_e_value: f64,
}

impl EvidenceLook {
    /// Whether the change is significant, by the required e-value.
    pub fn is_proven(&self, e_value_needed: f64) -> bool {
        self.change.is_some() && self.e_value >= e_value_needed
    }

    /// Whether so many processes could prove any change.
    pub fn could_prove(&self, e_value_needed: f64) -> bool {
        self.most_e_value >= e_value_needed
    }
}

/// Evaluates rounds of two candidates, the baseline first. `None` if fewer than [`MIN_ROUNDS`] count.
///
/// The e-value is that of the processes ([`crate::decision::ProcessRatio`]), of which `spread_of` tells the spread: all
/// rounds of a process share its memory layout and its state of the machine. If the config did not change, the
/// probability that it ever reaches x is at most 1/x, at any number of looks.
pub fn look(
    rounds: &[Round],
    limits: &Limits,
    spread_of: impl Fn(&[ProcessRatio]) -> ProcessSpread,
) -> Option<EvidenceLook> {
    let is_usable = |round: &&Round| round.sample_ns(BASELINE).is_some() && round.sample_ns(CONFIG).is_some();
    let under_one_load = under_one_load(rounds);
    let set_aside = disturbance(&under_one_load).set_aside;
    let kept = under_one_load.iter().enumerate().filter(|(index, _)| !set_aside.contains(index));
    let counted: Vec<Round> = kept.map(|(_, round)| round).filter(is_usable).cloned().collect();
    if counted.len() < MIN_ROUNDS {
        return None;
    }
    let ratios = paired_ratios(&counted, CONFIG, BASELINE);
    let processes = process_ratios(&counted, CONFIG, BASELINE);
    let spread = spread_of(&processes);
    let (above, below) = (limits.slower, limits.faster);
    let change = if processes.iter().all(|process| process.ratio > above) {
        Some(RatioChange::Slower)
    } else if below.is_some_and(|below| processes.iter().all(|process| process.ratio < below)) {
        Some(RatioChange::Faster)
    } else {
        None
    };
    let limit = match change {
        Some(RatioChange::Faster) => below.unwrap_or(above),
        _ => above,
    };
    let question = ProcessQuestion::difference(CONFIDENCE, 0.0, 1);
    // how far each process is beyond the limit
    let beyond: Vec<ProcessRatio> = processes.iter().map(|process| process.over(limit)).collect();
    let e_value = question.judge(&beyond, &[spread]).map_or(1.0, |verdict| verdict.e_value);
    let over_processes = question.judge(&processes, &[spread]).filter(|_| processes.len() > 1);
    let interval = match over_processes {
        Some(verdict) => verdict.interval,
        None => anytime_interval(&ratios, CONFIDENCE)?,
    };
    let times = |candidate| counted.iter().filter_map(|round| round.sample_ns(candidate)).collect::<Vec<_>>();
    Some(EvidenceLook {
        rounds: counted.len(),
        processes: processes.len(),
        baseline_ns: median(&times(BASELINE))?,
        config_ns: median(&times(CONFIG))?,
        ratio: over_processes.map_or(median(&ratios)?, |verdict| verdict.ratio),
        interval,
        change,
        e_value: if change.is_some() { e_value } else { 1.0 },
        most_e_value: most_evidence(&processes),
    })
}

/// The rounds of the quiet machine, or those of the busy one if these are of more processes: the two are never mixed.
/// What they measured has no part in the choice.
fn under_one_load(rounds: &[Round]) -> Vec<Round> {
    let (busy, quiet): (Vec<Round>, Vec<Round>) = rounds.iter().cloned().partition(|round| round.is_contended);
    let processes = |rounds: &[Round]| process_ratios(rounds, CONFIG, BASELINE).len();
    let is_quiet = quiet.len() >= MIN_ROUNDS && processes(&quiet) >= processes(&busy);
    if is_quiet || busy.is_empty() { quiet } else { busy }
}
