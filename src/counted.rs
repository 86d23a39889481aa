//! A number with its noun: `1 program`, `2 programs`, `3 entries`.

/// The count and the noun, which is given in the singular.
pub(crate) fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let plural = match noun.strip_suffix('y') {
        _ if count == 1 => noun.to_owned(),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if noun.ends_with('s') => format!("{noun}es"),
        _ => format!("{noun}s"),
    };
    format!("{count} {plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one_and_all_others_are_many() {
        let nouns = ["program", "entry", "process", "key"].map(|noun| (counted(1_u32, noun), counted(2_usize, noun)));
        let expected = [("1 program", "2 programs"), ("1 entry", "2 entries"), ("1 process", "2 processes")];
        assert_eq!(nouns[..3], expected.map(|(one, many)| (one.to_owned(), many.to_owned())));
        assert_eq!(nouns[3], ("1 key".to_owned(), "2 keys".to_owned()));
        assert_eq!(counted(0_u64, "config"), "0 configs");
    }
}
