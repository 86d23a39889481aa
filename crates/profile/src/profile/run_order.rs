//! Which run of a log folder is the newest: by the time in its name, by the numbers in it, else by when it was written.

use std::collections::BTreeMap;
use std::time::SystemTime;

/// What orders runs whose names are alike: the time that the name states, its numbers, when it was written, itself.
type Order = (Option<u64>, Vec<u128>, Option<SystemTime>, String);

/// Sorts runs by name and by when they were written, the newest last. Names of one form are compared by their time or
/// their numbers, so that `run_10` is newer than `run_9`; names of different forms by when they were written.
pub(super) fn newest_last<R>(
    runs: Vec<R>,
    name: impl Fn(&R) -> &str,
    written_at: impl Fn(&R) -> Option<SystemTime>,
) -> Vec<R> {
    let mut forms: BTreeMap<String, Vec<(Order, R)>> = BTreeMap::new();
    for run in runs {
        let (name, written_at) = (name(&run), written_at(&run));
        let time = seconds(name);
        // times compare across forms
        let form = if time.is_some() { String::new() } else { form(name) };
        let order = (time, numbers(name), written_at, name.to_owned());
        forms.entry(form).or_default().push((order, run));
    }
    let mut forms: Vec<Vec<(Order, R)>> = forms.into_values().collect();
    for runs in &mut forms {
        runs.sort_by(|(one, _), (other, _)| one.cmp(other));
    }
    forms.sort_by_cached_key(|runs| {
        let written_at = runs.iter().filter_map(|((_, _, written_at, _), _)| *written_at).max();
        (written_at, runs.last().map(|((.., name), _)| name.clone()))
    });
    forms.into_iter().flatten().map(|(_, run)| run).collect()
}

/// A name with a mark for each of its numbers.
fn form(name: &str) -> String {
    let mut form = String::new();
    for c in name.chars() {
        match c {
            '0'..='9' if form.ends_with('0') => {}
            '0'..='9' => form.push('0'),
            c => form.push(c),
        }
    }
    form
}

fn digits(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty())
}

fn numbers(name: &str) -> Vec<u128> {
    digits(name).map(|digits| digits.parse().unwrap_or(u128::MAX)).collect()
}

/// The time in a run's name, in seconds: `2025_01_31_10_20_30` as TensorBoard and JAX write it, `20250131-102030`, or
/// the seconds, milliseconds, microseconds or nanoseconds since 1970.
pub(super) fn seconds(name: &str) -> Option<u64> {
    let all: Vec<&str> = digits(name).collect();
    let apart = all.windows(6).find_map(|parts| {
        let is_date = parts.iter().map(|part| part.len()).eq([4, 2, 2, 2, 2, 2]);
        is_date.then(|| of_date(&parts.concat())).flatten()
    });
    let joined = || all.windows(2).find_map(|parts| of_date(&parts.concat()));
    let since_1970 = || {
        let per_second = |length: usize| Some(10_u64.pow(u32::try_from(length.checked_sub(10)?).ok()?));
        let time = all.iter().find(|digits| matches!(digits.len(), 10 | 13 | 16 | 19))?;
        time.parse::<u64>().ok()?.checked_div(per_second(time.len())?)
    };
    apart.or_else(joined).or_else(since_1970)
}

/// Seconds since 1970 of `YYYYMMDDhhmmss`.
fn of_date(digits: &str) -> Option<u64> {
    let part = |from: usize, to: usize| digits.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(8, 10)?, part(10, 12)?, part(12, 14)?);
    let is_time = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    if digits.len() != 14 || !(1970..3000).contains(&year) || !is_time {
        return None;
    }
    // days before a month of a year that begins in March, so that the leap day is its last
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    Some((days.checked_sub(719_468)? * 24 + hour) * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds are `date -u -d … +%s`.
    #[test]
    fn times_are_read_in_each_spelling() {
        for (name, expected) in [
            ("2026_05_06_04_47_38", Some(1_778_042_858)),
            ("plugins/2024-02-29_23-59-59", Some(1_709_251_199)),
            ("step_00000100-1778042858000000000-p0", Some(1_778_042_858)),
            ("20260506-044738", Some(1_778_042_858)),
            ("tune-1778042858", Some(1_778_042_858)),
            ("1970_01_01_00_00_01", Some(1)),
            ("2026_13_06_04_47_38", None),
            ("run_10", None),
        ] {
            assert_eq!(seconds(name), expected, "{name}");
        }
    }

    #[test]
    fn numbers_are_compared_as_numbers_and_forms_by_when_they_were_written() {
        let written_at =
            |(_, written): &(&str, u64)| Some(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(*written));
        let sorted = |runs: &[(&'static str, u64)]| {
            let sorted = newest_last(runs.to_vec(), |(name, _)| name, written_at);
            sorted.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        // copying wrote the older ones last
        assert_eq!(sorted(&[("run_10", 1), ("run_9", 2), ("run_100", 0)]), ["run_9", "run_10", "run_100"]);
        assert_eq!(sorted(&[("v1.10", 5), ("v1.9", 5)]), ["v1.9", "v1.10"]);
        assert_eq!(sorted(&[("2026_05_06_10_00_00", 1), ("2026_05_06_09_59_59", 2)])[1], "2026_05_06_10_00_00");
        assert_eq!(sorted(&[("before", 7), ("run_3", 1), ("run_2", 4)]), ["run_2", "run_3", "before"]);
        // a restarted program counts its steps anew
        let restarted = [("step_50-1778042859000000000-p0", 1), ("step_900-1778042858000000000-p0", 1)];
        assert_eq!(sorted(&restarted)[1], restarted[0].0);
    }
}
