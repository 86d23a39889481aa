//! How a time changed, by what pairs of processes say.

use serde::{Deserialize, Serialize};

use crate::decision::{ProcessQuestion, ProcessRatio, ProcessSpread};
use crate::stats::Interval;

/// How one program's time compares with another's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// In a word.
    pub shift: Shift,
    /// Geometric mean over pairs of processes of the one's time over the other's.
    pub ratio: f64,
    /// Interval of that mean, valid after every pair.
    pub interval: Interval,
    /// The least gain that so many pairs would have shown, as a part of the time; `None` if they are too few for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// What each pair says.
    pub processes: Vec<ProcessRatio>,
}

/// A [`Change`] in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Shift {
    /// It takes less time, by as much as matters.
    Faster,
    /// It takes more time, by as much as matters.
    Slower,
    /// The whole interval is nearer to one than what matters.
    Same,
    /// More pairs would tell.
    Open,
}

impl Change {
    /// The answer to a two-sided question; `None` without processes.
    pub(super) fn of(
        processes: Vec<ProcessRatio>,
        spreads: &[ProcessSpread],
        question: &ProcessQuestion,
    ) -> Option<Self> {
        let verdict = question.judge(&processes, spreads)?;
        let (ratio, interval) = (verdict.ratio, verdict.interval);
        let (fast, slow) = (1.0 - question.least, 1.0 + question.least);
        let shift = match verdict.e_value >= question.needed {
            true if ratio <= fast => Shift::Faster,
            true if ratio >= slow => Shift::Slower,
            // a difference that is sure may be too small to matter, and too large to deny that it does
            _ if interval.low > fast && interval.high < slow => Shift::Same,
            _ => Shift::Open,
        };
        Some(Self { shift, ratio, interval, least: verdict.least_gain, processes })
    }

    /// By how many per cent the time changed, with its sign.
    pub fn percent(&self) -> f64 {
        100.0 * (self.ratio - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ratios: &[f64]) -> Vec<ProcessRatio> {
        ratios.iter().zip(0..).map(|(ratio, epoch)| ProcessRatio::new(epoch, *ratio, 0.002)).collect()
    }

    fn shift(ratios: &[f64]) -> Shift {
        let question = ProcessQuestion::difference(0.99, 0.05, 1);
        Change::of(pairs(ratios), &[ProcessSpread::QUIET], &question).unwrap().shift
    }

    #[test]
    fn what_is_sure_and_matters_is_a_shift() {
        assert_eq!(shift(&[1.2, 1.21, 1.19, 1.2]), Shift::Slower);
        assert_eq!(shift(&[0.8, 0.81, 0.79, 0.8]), Shift::Faster);
        assert_eq!(shift(&[1.0, 1.001, 0.999, 1.0, 1.0, 1.001, 0.999, 1.0]), Shift::Same);
        assert_eq!(shift(&[1.3, 0.9]), Shift::Open, "two pairs that differ");
        assert_eq!(shift(&[1.2]), Shift::Open, "one pair says nothing");
        // sure, and about as large as what matters
        assert_eq!(shift(&[1.045, 1.046, 1.044, 1.045, 1.045, 1.046, 1.044, 1.045]), Shift::Open);
        let question = ProcessQuestion::difference(0.99, 0.05, 1);
        assert_eq!(Change::of(Vec::new(), &[ProcessSpread::QUIET], &question), None);
    }
}
