//! Reference times of all candidates, as precise as this machine allows.
//!
//! All candidates of a case are loaded in one worker and run in interleaved rounds, the baseline first and the others
//! in a shuffled order. A sample is the median of a round's runs, which are as many for each candidate. A candidate's
//! reference time is the baseline's median times the median of its paired ratios to the baseline. It is measured twice,
//! before and after the judged runs, by different workers; the two halves together are the reference, and their
//! difference bounds its accuracy.

use autotune_lowered::stats::{Interval, median};
use autotune_lowered::timer::{Timer, TimerExt};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::Serialize;

use crate::options::Options;
use crate::programs::{Operation, Programs};
use crate::summary::{Summary, jaccard};
use crate::{repeats, tool};

/// The shortest sample, and the fewest runs in it.
const SAMPLE_NS: f64 = 2e6;
const LEAST_RUNS: u32 = 3;
const WARM_UP_ROUNDS: usize = 5;
const CONFIDENCE: f64 = 0.95;

/// For each round, each candidate's time in nanoseconds.
pub(crate) type Rounds = Vec<Vec<f64>>;

/// The rounds of each case, by one worker.
pub(crate) struct Half(Vec<Rounds>);

impl Half {
    pub(crate) fn measure(options: &Options, programs: &Programs, half: u64) -> Self {
        let module = &programs.cases;
        let scratch = tool::fresh_folder(options);
        let mut rounds = vec![Rounds::new(); module.operations.len()];
        for worker in 0..options.workers {
            eprintln!("reference, half {}, worker {} of {}", half + 1, worker + 1, options.workers);
            let mut timer = tool::timer(options, &options.work.join("executables"));
            for (operation, rounds) in module.operations.iter().zip(&mut rounds) {
                timer.begin(&operation.job(&module.registry, scratch.path())).unwrap();
                for candidate in 0..operation.len() {
                    timer.prepare(candidate).unwrap();
                }
                let seed = half << 32 | worker as u64;
                rounds.extend(measure(&mut timer, operation, options.rounds.div_ceil(options.workers), seed));
                timer.end();
            }
        }
        Self(rounds)
    }
}

fn measure(timer: &mut dyn Timer, operation: &Operation, rounds: usize, seed: u64) -> Rounds {
    let mut random = ChaCha8Rng::seed_from_u64(operation.seed() ^ seed);
    let mut order: Vec<usize> = (0..operation.len()).filter(|&index| index != operation.baseline).collect();
    let mut one_round = |runs: u32| {
        for last in (1..order.len()).rev() {
            order.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
        }
        let mut times = vec![f64::NAN; operation.len()];
        for &candidate in std::iter::once(&operation.baseline).chain(&order) {
            let ns = timer.run(candidate, runs).unwrap();
            times[candidate] = median(&ns.iter().map(|&ns| ns as f64).collect::<Vec<_>>()).unwrap();
        }
        times
    };
    let warm: Rounds = (0..WARM_UP_ROUNDS).map(|_| one_round(LEAST_RUNS)).collect();
    let shortest = warm.last().unwrap().iter().copied().fold(f64::INFINITY, f64::min);
    let runs = ((SAMPLE_NS / shortest).ceil() as u32).max(LEAST_RUNS);
    (0..rounds).map(|_| one_round(runs)).collect()
}

/// The result of a set of rounds, for all candidates.
pub(crate) struct Judged {
    /// Candidate with the smallest ratio.
    pub(crate) best: usize,
    /// Reference time of each candidate.
    pub(crate) ns: Vec<f64>,
    /// Each candidate's median paired ratio to the best, and its interval.
    to_best: Vec<(f64, Interval)>,
}

impl Judged {
    pub(crate) fn of(rounds: &[&Rounds], candidates: usize, baseline: usize) -> Self {
        let column = |of: &dyn Fn(&Vec<f64>) -> f64| -> Vec<f64> { rounds.iter().copied().flatten().map(of).collect() };
        let base = median(&column(&|round| round[baseline])).unwrap();
        let to_baseline = |index: usize| median(&column(&|round| round[index] / round[baseline])).unwrap();
        let ns: Vec<f64> = (0..candidates).map(|index| base * to_baseline(index)).collect();
        let best = (0..candidates).min_by(|&a, &b| ns[a].total_cmp(&ns[b])).unwrap();
        let to_best = (0..candidates).map(|index| {
            let ratios = column(&|round| round[index] / round[best]);
            (median(&ratios).unwrap(), median_interval(&ratios, CONFIDENCE).unwrap())
        });
        Self { best, to_best: to_best.collect(), ns }
    }

    /// How much longer a candidate takes than the best, relative to the best's time.
    pub(crate) fn regret(&self, candidate: usize) -> f64 {
        self.ns[candidate] / self.ns[self.best] - 1.0
    }

    /// Candidates whose interval of the ratio to the best reaches one, or whose median ratio is within the resolution.
    pub(crate) fn ties(&self, resolution: f64) -> Vec<usize> {
        let tied = |&(ratio, interval): &(f64, Interval)| interval.low <= 1.0 || ratio < 1.0 + resolution;
        (0..self.to_best.len()).filter(|&index| tied(&self.to_best[index])).collect()
    }
}

/// Both halves of one case, and the two together.
pub(crate) struct Reference {
    pub(crate) halves: [Judged; 2],
    pub(crate) pooled: Judged,
}

impl Reference {
    pub(crate) fn of_halves(programs: &Programs, first: &Half, second: &Half) -> Vec<Self> {
        let of_one = |(operation, (first, second)): (&Operation, (&Rounds, &Rounds))| {
            let judged = |rounds: &[&Rounds]| Judged::of(rounds, operation.len(), operation.baseline);
            Self { halves: [judged(&[first]), judged(&[second])], pooled: judged(&[first, second]) }
        };
        programs.cases.operations.iter().zip(first.0.iter().zip(&second.0)).map(of_one).collect()
    }
}

/// The reference of one case in the report.
#[derive(Serialize)]
pub(crate) struct Row {
    /// Busy processes meanwhile.
    pub(crate) load: usize,
    pub(crate) case: String,
    pub(crate) best: String,
    pub(crate) best_ns: f64,
    pub(crate) baseline: String,
    pub(crate) baseline_regret: f64,
    /// How much slower the second-best candidate is.
    pub(crate) second_regret: f64,
    pub(crate) slowest_regret: f64,
    /// Difference up to which the tie sets here count candidates as equal.
    pub(crate) resolution: f64,
    pub(crate) ties: usize,
    pub(crate) ties_of_halves: [usize; 2],
    /// Regret of the first half's best in the second half, and vice versa.
    pub(crate) halves_regret: [f64; 2],
    pub(crate) halves_jaccard: f64,
    /// How much the halves differ in a candidate's ratio to the best of both, over all candidates.
    pub(crate) halves_differ: Summary,
    /// Times by candidate.
    pub(crate) candidates: Vec<(String, f64)>,
}

pub(crate) fn rows(programs: &Programs, load: usize, references: &[Reference], repeats: &[repeats::Row]) -> Vec<Row> {
    let row = |(operation, reference): (&Operation, &Reference)| {
        let Reference { halves: [first, second], pooled } = reference;
        let said = repeats
            .iter()
            .find(|row| (row.load, &row.case) == (load, &operation.name))
            .map(|row| row.resolution.median);
        let resolution = said.filter(|said| said.is_finite()).unwrap_or(repeats::ASSUMED_RESOLUTION);
        let mut regrets: Vec<f64> = (0..operation.len()).map(|index| pooled.regret(index)).collect();
        regrets.sort_by(f64::total_cmp);
        let to_best = |half: &Judged, index: usize| half.ns[index] / half.ns[pooled.best];
        let differ = |index| (to_best(first, index) / to_best(second, index) - 1.0).abs();
        let named = |index| (operation.brief(index), pooled.ns[index]);
        Row {
            load,
            case: operation.name.clone(),
            best: operation.brief(pooled.best),
            best_ns: pooled.ns[pooled.best],
            baseline: operation.brief(operation.baseline),
            baseline_regret: pooled.regret(operation.baseline),
            second_regret: regrets[1],
            slowest_regret: regrets[regrets.len() - 1],
            resolution,
            ties: pooled.ties(resolution).len(),
            ties_of_halves: [first, second].map(|half| half.ties(resolution).len()),
            halves_regret: [second.regret(first.best), first.regret(second.best)],
            halves_differ: Summary::of((0..operation.len()).map(differ).collect()),
            halves_jaccard: jaccard(&first.ties(resolution), &second.ties(resolution)),
            candidates: (0..operation.len()).map(named).collect(),
        }
    };
    programs.cases.operations.iter().zip(references).map(row).collect()
}

/// The narrowest pair of order statistics that covers the median with at least `confidence`, from the binomial
/// distribution with p = 1/2 (the inverted sign test; Conover, Practical Nonparametric Statistics, section 3.2).
///
/// With too few values for that confidence (five at 95%) it is the whole range, with the range's confidence.
fn median_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len();
    if n == 0 {
        return None;
    }
    let mut chosen = 0;
    let mut covered = 1.0 - 2.0 * binomial_half_cdf(n, 0);
    for k in 1..n.div_ceil(2) {
        let inner = 1.0 - 2.0 * binomial_half_cdf(n, k);
        if inner < confidence {
            break;
        }
        chosen = k;
        covered = inner;
    }
    Some(Interval { low: *sorted.get(chosen)?, high: *sorted.get(n - 1 - chosen)?, confidence: covered.max(0.0) })
}

/// `P(X <= k)` for `X ~ Binomial(n, 1/2)`.
fn binomial_half_cdf(n: usize, k: usize) -> f64 {
    // in logarithms, since 2^-n underflows beyond a thousand samples
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut sum = log_term.exp();
    for i in 1..=k.min(n) {
        log_term += ((n - i + 1) as f64 / i as f64).ln();
        sum += log_term.exp();
    }
    sum.min(1.0)
}
