//! The baseline at both ends of each round shows whether the machine was disturbed in between.

use super::paired::Round;
use crate::stats::median;

/// A round may be set aside once this many precede it.
const MIN_BEFORE: usize = 4;
/// It is set aside if the baseline changed by this part from start to end,
const LEAST: f64 = 0.05;
/// and by this multiple of its usual change.
const TIMES: f64 = 5.0;
/// Quiet rounds that are enough to leave out those of a busy machine.
const LEAST_QUIET: usize = 6;
/// Rounds at either end of the run that are compared for drift.
const MIN_FOR_DRIFT: usize = 6;

/// Once enough is known, one round in this many has the baseline at its ends.
const EVERY: usize = 4;

/// Whether the next round needs the baseline at both ends: always until its usual change is known, then occasionally,
/// but always while the machine changes within rounds.
pub fn wants_bracket(rounds: &[Round]) -> bool {
    let swings = || rounds.iter().rev().map(Round::swing);
    let known: Vec<f64> = swings().flatten().map(f64::abs).collect();
    let is_restless = known.first().is_some_and(|last| *last > LEAST);
    known.len() <= MIN_BEFORE || is_restless || swings().take(EVERY - 1).all(|swing| swing.is_none())
}

/// What the baseline's repetitions say about the machine.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Disturbance {
    /// Numbers of the disturbed rounds: they are not counted, and measured again.
    pub set_aside: Vec<usize>,
    /// Whether the rounds that count are of a busy machine: other processes used its cores.
    pub is_contended: bool,
    /// The baseline's time in the last third of the rounds over that in the first, less one.
    pub drift: Option<f64>,
}

/// Finds disturbed rounds. At most a third of the rounds is set aside: if more are disturbed, that is the machine's
/// normal state, and the resolution shows it.
///
/// Rounds of a busy machine and of a quiet one are never mixed: those of the quiet one count if they are enough.
pub fn disturbance(rounds: &[Round]) -> Disturbance {
    let contended = rounds.iter().filter(|round| round.is_contended).count();
    let is_contended = contended > 0 && rounds.len() - contended < LEAST_QUIET;
    let (mut set_aside, mut others): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut usual: Vec<f64> = Vec::new();
    for (index, round) in rounds.iter().enumerate() {
        if round.is_contended != is_contended {
            others.push(index);
            continue;
        }
        let Some(swing) = round.swing().map(f64::abs) else { continue };
        let limit = median(&usual).map_or(f64::INFINITY, |usual| (usual * TIMES).max(LEAST));
        if usual.len() >= MIN_BEFORE && swing > limit && 3 * (set_aside.len() + 1) <= index + 1 {
            set_aside.push(index);
        } else {
            usual.push(swing);
        }
    }
    set_aside.extend(others);
    set_aside.sort_unstable();
    Disturbance { drift: drift(rounds, &set_aside), set_aside, is_contended }
}

fn drift(rounds: &[Round], set_aside: &[usize]) -> Option<f64> {
    // levels of two processes are not compared: the last one's rounds alone
    let epoch = rounds.last()?.epoch;
    let kept = rounds.iter().enumerate().filter(|(index, round)| !set_aside.contains(index) && round.epoch == epoch);
    let levels: Vec<f64> = kept
        .filter_map(|(_, round)| {
            round.swing()?;
            round.sentinel_ns.map(|[begin, end]| (begin * end).sqrt())
        })
        .collect();
    if levels.len() < MIN_FOR_DRIFT {
        return None;
    }
    let third = levels.len() / 3;
    Some(median(levels.get(levels.len() - third..)?)? / median(levels.get(..third)?)? - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(begin: f64, end: f64) -> Round {
        Round { sentinel_ns: Some([begin, end]), ..Round::default() }
    }

    #[test]
    fn a_neighbour_that_comes_in_the_middle_is_seen() {
        let mut rounds: Vec<Round> = (0..12).map(|n| round(100.0, 100.0 + f64::from(n % 3))).collect();
        rounds[7] = round(100.0, 140.0);
        rounds[9] = round(140.0, 100.0);
        rounds[11] = round(140.0, 141.0);
        assert_eq!(disturbance(&rounds).set_aside, [7, 9], "slower from end to end is paired away");
        rounds[2] = round(100.0, 200.0);
        assert_eq!(disturbance(&rounds).set_aside, [7, 9], "what is usual is not known yet");
    }

    #[test]
    fn a_restless_machine_is_taken_as_it_is() {
        let rounds: Vec<Round> =
            (0..30).map(|n| if n < 5 { round(100.0, 101.0) } else { round(100.0, 150.0) }).collect();
        assert!(disturbance(&rounds).set_aside.len() <= 10);
        let noisy: Vec<Round> = (0..30).map(|n| round(100.0, 100.0 + f64::from(n * 7 % 30))).collect();
        assert_eq!(disturbance(&noisy).set_aside, [] as [usize; 0]);
    }

    #[test]
    fn a_quiet_machine_is_asked_less_often() {
        let mut rounds = Vec::new();
        let mut bracketed = Vec::new();
        for n in 0..24 {
            bracketed.push(wants_bracket(&rounds));
            let swing = if (12..16).contains(&n) { 1.3 } else { 1.0 };
            rounds.push(if bracketed[n] { round(100.0, 100.0 * swing) } else { Round::default() });
        }
        let asked = |range: std::ops::Range<usize>| bracketed[range].iter().filter(|asked| **asked).count();
        assert_eq!((asked(0..8), asked(8..12), asked(12..24)), (5, 1, 6), "{bracketed:?}");
    }

    #[test]
    fn drift_is_last_over_first() {
        let rounds: Vec<Round> = (0..9).map(|n| round(100.0 + f64::from(n), 100.0 + f64::from(n))).collect();
        let drift = disturbance(&rounds).drift.unwrap();
        assert!((drift - (107.0 / 101.0 - 1.0)).abs() < 1e-12, "{drift}");
        assert_eq!(disturbance(&rounds[..5]).drift, None);
        assert_eq!(disturbance(&[round(0.0, f64::NAN)]), Disturbance::default());
    }
}
