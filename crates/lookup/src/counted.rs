//! A number with its noun: `1 program`, `2 programs`, `3 entries`; lists that end with a count; and durations in words.
//!
//! ```
//! use autotune_lowered_lookup::counted::counted;
//!
//! assert_eq!(counted(1_usize, "program"), "1 program");
//! assert_eq!(counted(3_usize, "entry"), "3 entries");
//! ```

use std::time::Duration;

/// Maximum number of names in a line before it says how many more there are.
const MAX_LISTED: usize = 12;

/// The count and the noun, which is passed in the singular.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let plural = match noun.strip_suffix('y') {
        _ if count == 1 => noun.to_owned(),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if noun.ends_with('s') => format!("{noun}es"),
        _ => format!("{noun}s"),
    };
    format!("{count} {plural}")
}

/// The first of these, joined by commas, and how many more there are.
pub fn listed(all: impl IntoIterator<Item = String>) -> String {
    let mut all = all.into_iter();
    let first: Vec<String> = all.by_ref().take(MAX_LISTED).collect();
    match all.count() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// A duration in one unit, as coarse as a guess is.
pub fn roughly(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..95.0 => format!("{:.0} s", (seconds / 10.0).round() * 10.0),
        ..5400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_end_with_a_count() {
        let names = |count: usize| listed((0..count).map(|number| number.to_string()));
        assert_eq!((names(0), names(2)), (String::new(), "0, 1".to_owned()));
        assert!(names(12).ends_with("10, 11") && names(14).ends_with("11 and 2 more"), "{}", names(14));
    }

    #[test]
    fn one_is_one_and_all_others_are_many() {
        let nouns = ["program", "entry", "process", "key"].map(|noun| (counted(1_u32, noun), counted(2_usize, noun)));
        let expected = [("1 program", "2 programs"), ("1 entry", "2 entries"), ("1 process", "2 processes")];
        assert_eq!(nouns[..3], expected.map(|(one, many)| (one.to_owned(), many.to_owned())));
        assert_eq!(nouns[3], ("1 key".to_owned(), "2 keys".to_owned()));
        assert_eq!(counted(0_u64, "config"), "0 configs");
    }
}
