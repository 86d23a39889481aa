//! Where one execution ends and the next begins, for events that name no run.

use std::collections::BTreeMap;

use super::record::Record;

/// What a program's executions begin with: an operation, and which of its kernels. A matrix product of cuBLAS is a fill
/// and a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FirstKernel {
    operation: u32,
    kernel: u32,
}

/// The first event; among simultaneous ones that on the lowest line. Records are by start, as everywhere here.
pub(super) fn first_kernel(records: &[Record]) -> Option<FirstKernel> {
    let at_once = records.chunk_by(|one, next| one.time.start_ps == next.time.start_ps).next()?;
    let first = at_once.iter().min_by_key(|record| record.place())?;
    Some(FirstKernel { operation: first.operation, kernel: first.kernel })
}

/// The positions of a kernel: among simultaneous events the first one's. One that comes again in the same launch of a
/// command buffer does not count.
pub(super) fn places_of(first: FirstKernel, records: &[Record]) -> Vec<usize> {
    let (mut places, mut at) = (Vec::new(), 0);
    let begins =
        |record: &Record| (record.operation, record.kernel) == (first.operation, first.kernel) && !record.continues();
    for at_once in records.chunk_by(|one, next| one.time.start_ps == next.time.start_ps) {
        if at_once.iter().any(begins) {
            places.push(at);
        }
        at += at_once.len();
    }
    places
}

/// Splits a program's events into its executions: where the first kernel occurs again. If `runs` tells how
/// many there are, an operation may come several times in each; they must then hold the same operations.
pub(super) fn split(records: &[Record], runs: Option<u64>) -> Vec<&[Record]> {
    let Some(first) = first_kernel(records) else { return Vec::new() };
    let places = places_of(first, records);
    if let Some(runs) = runs.and_then(|runs| usize::try_from(runs).ok()).filter(|&runs| runs > 0)
        && runs < places.len()
        && places.len().is_multiple_of(runs)
    {
        let of_runs: Vec<usize> = places.iter().copied().step_by(places.len() / runs).collect();
        let pieces = split_at(records, &of_runs);
        if are_alike(&pieces) {
            return pieces;
        }
    }
    split_at(records, &places)
}

fn split_at<'r>(records: &'r [Record], places: &[usize]) -> Vec<&'r [Record]> {
    let ends = places.iter().skip(1).copied().chain([records.len()]);
    places.iter().zip(ends).filter_map(|(&start, end)| records.get(start..end)).collect()
}

/// Whether every piece holds the same operations, each as often.
fn are_alike(pieces: &[&[Record]]) -> bool {
    let operations = |piece: &&[Record]| {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for record in *piece {
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

    /// Letters are operations, one per picosecond; a line each.
    fn tracks(lines: &[&str]) -> Vec<Record> {
        let record = |(place, (at, letter)): (usize, (usize, char))| {
            let time = Interval { start_ps: at as i64, end_ps: at as i64 + 1 };
            (letter != ' ').then(|| Record::new(time, letter as u32, place as u32))
        };
        let letters = lines.iter().enumerate().flat_map(|(place, line)| line.char_indices().map(move |at| (place, at)));
        let mut records: Vec<Record> = letters.filter_map(record).collect();
        records.sort_by_key(Record::order);
        records
    }

    fn shown(pieces: &[&[Record]]) -> Vec<String> {
        let letter = |record: &Record| char::from_u32(record.operation).unwrap();
        pieces.iter().map(|piece| piece.iter().map(letter).collect()).collect()
    }

    #[test]
    fn the_first_operation_or_the_runs_tell() {
        let twice = tracks(&["abacabac"]);
        assert_eq!(shown(&split(&twice, None)), ["ab", "ac", "ab", "ac"]);
        assert_eq!(shown(&split(&twice, Some(2))), ["abac", "abac"]);
        assert_eq!(shown(&split(&tracks(&["abab", "    "]), Some(2))), ["ab", "ab"]);
        // another stream's work goes with what it started in
        assert_eq!(shown(&split(&tracks(&["aba aba ", "   d   d"]), Some(2))), ["abad", "abad"]);
        // events that start together with the first operation belong to the same run, and the lowest line decides which
        // is first
        assert_eq!(shown(&split(&tracks(&["ba ba", "a  a "]), None)), ["baa", "baa"]);
        assert_eq!(shown(&split(&tracks(&["a  a ", "ba ba"]), None)), ["ab", "a", "ab", "a"]);
    }

    #[test]
    fn an_uneven_cut_is_none() {
        for (line, runs) in [("abacabac", 3), ("abacabad", 2), ("abacaba", 2), ("abac", 0), ("ab", 9)] {
            let tracks = tracks(&[line]);
            assert_eq!(shown(&split(&tracks, Some(runs))), shown(&split(&tracks, None)), "{line} {runs}");
        }
        assert!(split(&[], Some(2)).is_empty());
    }
}
