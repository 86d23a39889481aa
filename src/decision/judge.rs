//! The verdict on one invocation: winner, interval, tie set.

use serde::{Deserialize, Serialize};

use super::{Round, paired_ratios};
use crate::stats::{Interval, median, median_interval};

/// What a candidate must show to win.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DecisionRules {
    /// Part of the baseline's time that a winner must save: 0.02 is two per cent.
    pub min_improvement: f64,
    /// Confidence of every interval.
    pub confidence: f64,
    /// Paired rounds without which nothing is decided.
    pub min_rounds: usize,
}

impl Default for DecisionRules {
    fn default() -> Self {
        Self { min_improvement: 0.02, confidence: 0.95, min_rounds: 6 }
    }
}

/// What is known of one candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateVerdict {
    /// Paired rounds.
    pub rounds: usize,
    /// Median of its samples, nanoseconds.
    pub median_ns: f64,
    /// Median of its time over the baseline's, round by round; below one is faster.
    pub ratio: f64,
    /// Interval of that median.
    pub interval: Interval,
    /// Whether it cannot be told from the best candidate.
    pub tied_with_best: bool,
}

/// How an invocation was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A candidate beats the baseline by the minimum improvement, and its interval lies below one.
    Faster,
    /// Nothing does: the baseline stays.
    BaselineKept,
    /// Too few paired rounds of the baseline or of every candidate.
    Undecided,
}

/// The verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// How it was decided.
    pub outcome: Outcome,
    /// Index of the config to use: the winner, or the baseline.
    pub winner: usize,
    /// One line that says why.
    pub reason: String,
    /// One a candidate; `None` where it has too few paired rounds.
    pub candidates: Vec<Option<CandidateVerdict>>,
}

impl Judgement {
    /// Indices of all candidates that cannot be told from the best one, the best included.
    pub fn tie_set(&self) -> Vec<usize> {
        let tied = |verdict: &Option<CandidateVerdict>| verdict.as_ref().is_some_and(|verdict| verdict.tied_with_best);
        self.candidates.iter().enumerate().filter(|(_, verdict)| tied(verdict)).map(|(index, _)| index).collect()
    }
}

/// Decides one invocation.
///
/// The best candidate has the least median ratio to the baseline. It wins when that ratio is at most
/// `1 - min_improvement` and its interval lies below one. `incumbent`, the config already cached, stays when it wins by
/// the same rule and cannot be told from the best, so that caches do not flap.
pub fn judge(
    rounds: &[Round],
    candidates: usize,
    baseline: usize,
    incumbent: Option<usize>,
    rules: &DecisionRules,
) -> Judgement {
    let mut verdicts: Vec<Option<CandidateVerdict>> =
        (0..candidates).map(|candidate| verdict(rounds, candidate, baseline, rules)).collect();
    let undecided = |reason: &str, candidates| Judgement {
        outcome: Outcome::Undecided,
        winner: baseline,
        reason: reason.to_owned(),
        candidates,
    };
    if verdicts.get(baseline).is_none_or(Option::is_none) {
        return undecided("too few rounds of the baseline", verdicts);
    }
    let ratio_of =
        |verdicts: &[Option<CandidateVerdict>], index: usize| verdicts.get(index)?.as_ref().map(|known| known.ratio);
    let best = (0..candidates)
        .filter_map(|index| Some((index, ratio_of(&verdicts, index)?)))
        // the baseline's ratio is one by construction: it comes first among equals
        .min_by(|a, b| a.1.total_cmp(&b.1).then((a.0 != baseline).cmp(&(b.0 != baseline))));
    let Some((best, _)) = best else {
        return undecided("too few rounds of every candidate", verdicts);
    };
    for (index, verdict) in verdicts.iter_mut().enumerate() {
        if let Some(verdict) = verdict {
            let ratios = paired_ratios(rounds, index, best);
            verdict.tied_with_best =
                index == best || median_interval(&ratios, rules.confidence).is_some_and(|interval| interval.low <= 1.0);
        }
    }
    let beats = |index: usize| {
        verdicts.get(index).and_then(Option::as_ref).is_some_and(|verdict| {
            index != baseline && verdict.ratio <= 1.0 - rules.min_improvement && verdict.interval.high < 1.0
        })
    };
    let tied = |index: usize| verdicts.get(index).and_then(Option::as_ref).is_some_and(|v| v.tied_with_best);
    let (outcome, winner, reason) = match incumbent {
        Some(incumbent) if incumbent != best && beats(incumbent) && tied(incumbent) => {
            (Outcome::Faster, incumbent, "the cached config is as fast as the best".to_owned())
        }
        _ if beats(best) => (Outcome::Faster, best, "faster than the baseline beyond its interval".to_owned()),
        _ if best == baseline => (Outcome::BaselineKept, baseline, "nothing is faster than the baseline".to_owned()),
        _ => {
            let reason = format!("nothing is faster by {} % beyond its interval", percent(rules.min_improvement));
            (Outcome::BaselineKept, baseline, reason)
        }
    };
    Judgement { outcome, winner, reason, candidates: verdicts }
}

fn verdict(rounds: &[Round], candidate: usize, baseline: usize, rules: &DecisionRules) -> Option<CandidateVerdict> {
    let ratios = paired_ratios(rounds, candidate, baseline);
    if ratios.len() < rules.min_rounds.max(1) {
        return None;
    }
    let samples: Vec<f64> = rounds.iter().filter_map(|round| round.sample_ns(candidate)).collect();
    Some(CandidateVerdict {
        rounds: ratios.len(),
        median_ns: median(&samples)?,
        ratio: median(&ratios)?,
        interval: median_interval(&ratios, rules.confidence)?,
        tied_with_best: false,
    })
}

/// `0.02` as `2`, `0.005` as `0.5`.
fn percent(part: f64) -> String {
    format!("{}", (part * 1e4).round() / 1e2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds in which candidate `i` takes `base * factors[i]`, the machine drifting by `drift` a round.
    fn rounds(n: usize, factors: &[f64], drift: f64) -> Vec<Round> {
        (0..n)
            .map(|round| {
                let base = 1000.0 * (1.0 + drift * round as f64);
                // a small spread of its own for each candidate, the same at every run
                let wobble = |i: usize| 1.0 + 0.001 * (((round * 7 + i * 3) % 5) as f64 - 2.0);
                let samples = factors.iter().enumerate().map(|(i, f)| Some(base * f * wobble(i))).collect();
                Round { epoch: 1, samples_ns: samples }
            })
            .collect()
    }

    #[test]
    fn drift_does_not_choose_the_winner() {
        let judgement = judge(&rounds(20, &[1.0, 0.9, 0.95], 0.5), 3, 0, None, &DecisionRules::default());
        assert_eq!((judgement.outcome, judgement.winner), (Outcome::Faster, 1));
        let best = judgement.candidates[1].as_ref().unwrap();
        assert!((best.ratio - 0.9).abs() < 0.004, "{}", best.ratio);
        assert_eq!(judgement.tie_set(), [1]);
    }

    #[test]
    fn a_gain_below_the_minimum_keeps_the_baseline() {
        let rules = DecisionRules::default();
        let judgement = judge(&rounds(20, &[1.0, 0.985], 0.0), 2, 0, None, &rules);
        assert_eq!((judgement.outcome, judgement.winner), (Outcome::BaselineKept, 0));
        assert!(judgement.reason.contains("2 %"), "{}", judgement.reason);
        let eager = DecisionRules { min_improvement: 0.0, ..rules };
        assert_eq!(judge(&rounds(20, &[1.0, 0.985], 0.0), 2, 0, None, &eager).winner, 1);
    }

    #[test]
    fn a_wide_interval_keeps_the_baseline() {
        // median ratio 0.9, but four rounds in ten are slower: the interval reaches over one
        let samples = [0.9, 1.3, 0.9, 1.3, 0.9, 1.3, 0.9, 1.3, 0.9, 0.9];
        let rounds: Vec<Round> =
            samples.iter().map(|s| Round { epoch: 0, samples_ns: vec![Some(1.0), Some(*s)] }).collect();
        let judgement = judge(&rounds, 2, 0, None, &DecisionRules::default());
        assert_eq!(judgement.winner, 0);
        assert_eq!(judgement.candidates[1].as_ref().unwrap().ratio, 0.9);
    }

    #[test]
    fn the_cached_config_stays_among_ties() {
        let rounds = rounds(20, &[1.0, 0.8, 0.8, 0.85], 0.0);
        let rules = DecisionRules::default();
        let free = judge(&rounds, 4, 0, None, &rules);
        assert_eq!(free.tie_set(), [1, 2]);
        for incumbent in [1, 2] {
            assert_eq!(judge(&rounds, 4, 0, Some(incumbent), &rules).winner, incumbent);
        }
        assert_eq!(judge(&rounds, 4, 0, Some(3), &rules).winner, free.winner, "a slower one does not stay");
    }

    #[test]
    fn unusable_samples_decide_nothing() {
        let rules = DecisionRules::default();
        for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            let rounds = vec![Round { epoch: 0, samples_ns: vec![Some(1.0), Some(bad)] }; 20];
            let judgement = judge(&rounds, 2, 0, None, &rules);
            assert_eq!((judgement.outcome, judgement.winner), (Outcome::BaselineKept, 0), "{bad}");
            assert!(judgement.candidates[1].is_none());
            let rounds = vec![Round { epoch: 0, samples_ns: vec![Some(bad), Some(1.0)] }; 20];
            assert_eq!(judge(&rounds, 2, 0, None, &rules).outcome, Outcome::Undecided);
        }
        assert_eq!(judge(&[], 2, 0, None, &rules).outcome, Outcome::Undecided);
        assert_eq!(judge(&[], 0, 5, None, &rules).outcome, Outcome::Undecided);
        let constant = vec![Round { epoch: 0, samples_ns: vec![Some(5.0), Some(5.0)] }; 20];
        assert_eq!(judge(&constant, 2, 0, None, &rules).outcome, Outcome::BaselineKept);
    }
}
