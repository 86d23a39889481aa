//! From changes of times to a verdict.

use super::change::{Change, Shift};
use super::result::{ChangeCause, UpgradeVerdict};

/// The verdict on a call that runs under both compilers.
///
/// `in_force` is its config's time under the new compiler over that under the old one. `best` is there if the new
/// compiler has another config that tuning chose: its time over that of the config in force, under the new compiler,
/// and over that of the config in force under the old one.
pub fn judge(in_force: &Change, best: Option<(&Change, &Change)>) -> UpgradeVerdict {
    let to_own = best.map(|(to_own, _)| to_own.shift);
    let is_slower_than_old = best.is_some_and(|(_, to_old)| to_old.shift == Shift::Slower);
    match (in_force.shift, to_own) {
        (Shift::Slower, Some(Shift::Faster)) if !is_slower_than_old => UpgradeVerdict::Retune,
        // whether another config is a way out is open
        (Shift::Slower, Some(Shift::Open)) if !is_slower_than_old => UpgradeVerdict::Retune,
        (Shift::Slower, _) => UpgradeVerdict::CompilerRegressed,
        (_, Some(Shift::Faster)) => UpgradeVerdict::Retune,
        (Shift::Open, _) | (_, Some(Shift::Open)) => UpgradeVerdict::Undecided,
        (Shift::Faster, _) => UpgradeVerdict::Improved,
        (Shift::Same, _) => UpgradeVerdict::Holds,
    }
}

/// One line that says why.
pub(super) fn reason(verdict: UpgradeVerdict, in_force: &Change, best: Option<(&Change, &Change)>) -> String {
    let own = format!("its config takes {} with the new compiler", in_percent(in_force));
    let other = best.map(|(to_own, to_old)| {
        format!(
            "the best one there takes {} of that config's time now ({} of its time before)",
            part(to_own),
            part(to_old)
        )
    });
    let least = in_force.least.map_or_else(
        || "; so few processes show no difference, however large".to_owned(),
        |least| format!("; so many processes show a gain of {:.0} %", (100.0 * least).ceil()),
    );
    match (verdict, other) {
        (UpgradeVerdict::Undecided, Some(other)) => format!("{own}, {other}{least}"),
        (UpgradeVerdict::Undecided, None) => format!("{own}{least}"),
        (UpgradeVerdict::CompilerRegressed, None) => format!("{own}, and no other is known to be faster"),
        (_, Some(other)) => format!("{own}, {other}"),
        (_, None) => own,
    }
}

fn in_percent(change: &Change) -> String {
    let [low, high] = [change.interval.low, change.interval.high].map(|end| 100.0 * (end - 1.0));
    let by = change.percent();
    let how = if by < 0.0 { "less" } else { "more" };
    format!("{:.1} % {how} ({low:+.1} to {high:+.1} %)", by.abs())
}

fn part(change: &Change) -> String {
    format!("{:.3}", change.ratio)
}

/// What made a program slower: the compiler, whose own change is known, or else the lowering; `None` if it is open.
pub(super) fn cause(all: &Change, of_compiler: &Change, least: f64) -> Option<ChangeCause> {
    let of_lowering = all.interval.low / of_compiler.interval.high;
    match of_compiler.shift {
        Shift::Slower => Some(ChangeCause::Compiler),
        Shift::Same | Shift::Faster => Some(ChangeCause::Lowering),
        // the compiler may have a part in it, and the lowering has one that matters
        Shift::Open if of_lowering >= 1.0 + least => Some(ChangeCause::Lowering),
        Shift::Open => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Interval;

    fn change(shift: Shift, ratio: f64) -> Change {
        let interval = Interval { low: ratio - 0.01, high: ratio + 0.01, confidence: 0.99 };
        Change { shift, ratio, interval, least: Some(0.02), processes: Vec::new() }
    }

    #[test]
    fn a_verdict_follows_from_the_changes() {
        use Shift::{Faster, Open, Same, Slower};
        use UpgradeVerdict::{CompilerRegressed, Holds, Improved, Retune, Undecided};
        for (in_force, best, expected) in [
            (Same, None, Holds),
            (Faster, None, Improved),
            (Slower, None, CompilerRegressed),
            (Open, None, Undecided),
            (Same, Some((Faster, Faster)), Retune),
            (Slower, Some((Faster, Same)), Retune),
            (Slower, Some((Faster, Faster)), Retune),
            // even the new best is slower
            (Slower, Some((Faster, Slower)), CompilerRegressed),
            (Slower, Some((Same, Slower)), CompilerRegressed),
            (Slower, Some((Open, Open)), Retune),
            (Faster, Some((Faster, Faster)), Retune),
            (Open, Some((Faster, Open)), Retune),
            (Same, Some((Open, Open)), Undecided),
            (Same, Some((Slower, Slower)), Holds),
            (Faster, Some((Same, Faster)), Improved),
        ] {
            let in_force = change(in_force, 1.0);
            let best = best.map(|(to_own, to_old)| (change(to_own, 0.9), change(to_old, 0.9)));
            let best = best.as_ref().map(|(to_own, to_old)| (to_own, to_old));
            assert_eq!(judge(&in_force, best), expected, "{in_force:?} {best:?}");
        }
    }

    #[test]
    fn a_reason_names_the_interval_and_what_could_be_seen() {
        let said = reason(UpgradeVerdict::Undecided, &change(Shift::Open, 1.03), None);
        assert_eq!(
            said,
            "its config takes 3.0 % more (+2.0 to +4.0 %) with the new compiler; so many processes show a gain of 2 %"
        );
        let best = (change(Shift::Faster, 0.8), change(Shift::Same, 0.97));
        let said = reason(UpgradeVerdict::Retune, &change(Shift::Slower, 1.2), Some((&best.0, &best.1)));
        assert_eq!(
            said,
            "its config takes 20.0 % more (+19.0 to +21.0 %) with the new compiler, the best one there takes 0.800 of \
             that config's time now (0.970 of its time before)"
        );
    }

    #[test]
    fn the_lowering_is_to_blame_for_what_the_compiler_cannot_explain() {
        let all = change(Shift::Slower, 1.5);
        for (shift, ratio, expected) in [
            (Shift::Slower, 1.5, Some(ChangeCause::Compiler)),
            (Shift::Same, 1.0, Some(ChangeCause::Lowering)),
            (Shift::Faster, 0.9, Some(ChangeCause::Lowering)),
            // open, and far less than all of it
            (Shift::Open, 1.03, Some(ChangeCause::Lowering)),
            (Shift::Open, 1.45, None),
        ] {
            assert_eq!(cause(&all, &change(shift, ratio), 0.05), expected, "{shift:?} {ratio}");
        }
    }
}
