//! Where one execution ends and the next begins, for events that name no run.

use std::collections::BTreeMap;

use super::gather::Record;

/// Cuts a program's events, by line, into its executions: where the operation that came first comes again. If `runs` tells
/// how many there are, an operation may come several times in each; they must then hold the same operations.
pub(super) fn cut(tracks: &[Vec<Record>], runs: Option<u64>) -> Vec<Vec<Vec<Record>>> {
    let first = tracks.iter().filter_map(|track| track.first()).min_by_key(|record| record.time.start_ps);
    let Some(first) = first.map(|record| record.operation) else { return Vec::new() };
    let all = tracks.iter().flatten();
    let mut starts: Vec<i64> =
        all.filter(|record| record.operation == first).map(|record| record.time.start_ps).collect();
    starts.sort_unstable();
    starts.dedup();
    if let Some(runs) = runs.and_then(|runs| usize::try_from(runs).ok()).filter(|&runs| runs > 0)
        && runs < starts.len()
        && starts.len().is_multiple_of(runs)
    {
        let of_runs: Vec<i64> = starts.iter().copied().step_by(starts.len() / runs).collect();
        let pieces = cut_at(tracks, &of_runs);
        if are_alike(&pieces) {
            return pieces;
        }
    }
    cut_at(tracks, &starts)
}

fn cut_at(tracks: &[Vec<Record>], starts: &[i64]) -> Vec<Vec<Vec<Record>>> {
    let mut cut: Vec<Vec<Vec<Record>>> = starts.iter().map(|_| vec![Vec::new(); tracks.len()]).collect();
    for (line, track) in tracks.iter().enumerate() {
        for record in track {
            let run = starts.partition_point(|&start| start <= record.time.start_ps).saturating_sub(1);
            if let Some(records) = cut.get_mut(run).and_then(|lines| lines.get_mut(line)) {
                records.push(*record);
            }
        }
    }
    cut
}

/// Whether every piece holds the same operations, each as often.
fn are_alike(pieces: &[Vec<Vec<Record>>]) -> bool {
    let operations = |piece: &Vec<Vec<Record>>| {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for record in piece.iter().flatten() {
            *counts.entry(record.operation).or_default() += 1;
        }
        counts
    };
    let mut all = pieces.iter().map(operations);
    let first = all.next();
    all.all(|counts| Some(counts) == first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::interval::Interval;

    /// Letters are operations, one a picosecond; a line each.
    fn tracks(lines: &[&str]) -> Vec<Vec<Record>> {
        let record = |(at, letter): (usize, char)| {
            let start_ps = at as i64;
            (letter != ' ').then(|| Record::new(Interval { start_ps, end_ps: start_ps + 1 }, letter as u32))
        };
        lines.iter().map(|line| line.chars().enumerate().filter_map(record).collect()).collect()
    }

    fn shown(pieces: &[Vec<Vec<Record>>]) -> Vec<String> {
        let letter = |record: &Record| char::from_u32(record.operation).unwrap();
        pieces.iter().map(|lines| lines.iter().flatten().map(letter).collect()).collect()
    }

    #[test]
    fn the_first_operation_or_the_runs_tell() {
        let twice = tracks(&["abacabac"]);
        assert_eq!(shown(&cut(&twice, None)), ["ab", "ac", "ab", "ac"]);
        assert_eq!(shown(&cut(&twice, Some(2))), ["abac", "abac"]);
        assert_eq!(shown(&cut(&tracks(&["abab", "    "]), Some(2))), ["ab", "ab"]);
        // another stream's work goes with what it started in
        assert_eq!(shown(&cut(&tracks(&["aba aba ", "   d   d"]), Some(2))), ["abad", "abad"]);
    }

    #[test]
    fn an_uneven_cut_is_none() {
        for (line, runs) in [("abacabac", 3), ("abacabad", 2), ("abacaba", 2), ("abac", 0), ("ab", 9)] {
            let tracks = tracks(&[line]);
            assert_eq!(shown(&cut(&tracks, Some(runs))), shown(&cut(&tracks, None)), "{line} {runs}");
        }
        assert!(cut(&[], Some(2)).is_empty());
    }
}
