//! The options that come with the program.

use std::sync::LazyLock;

use super::space::OptionSpace;

/// Every file of `candidates/options`, by its platform.
const FILES: &[(&str, &str)] = &[
    ("cpu", include_str!("../../../candidates/options/cpu.json")),
    ("cuda", include_str!("../../../candidates/options/cuda.json")),
    ("tpu", include_str!("../../../candidates/options/tpu.json")),
];

static SPACES: LazyLock<Vec<OptionSpace>> = LazyLock::new(|| {
    let parse =
        |(platform, text): &(&str, &str)| OptionSpace::parse(&format!("candidates/options/{platform}.json"), text);
    // all of them are valid, which a test checks
    FILES.iter().filter_map(|file| parse(file).ok()).collect()
});

impl OptionSpace {
    /// The options of a platform, `cpu`, `cuda` or `tpu`, that come with the program.
    pub fn built_in(platform: &str) -> Option<&'static Self> {
        SPACES.iter().find(|space| space.platform() == platform)
    }

    /// Those of every platform, by its name.
    pub fn all_built_in() -> &'static [Self] {
        &SPACES
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use autotune_lowered_lookup::cache::why_refused;

    use super::super::{OptionClass, OptionKind, OptionScope, OptionSet};
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../candidates/options");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = files.collect();
        // the fields of XLA's own options, and what writes them
        files.retain(|file| !file.starts_with("debug_options."));
        files.sort();
        assert_eq!(FILES.iter().map(|(platform, _)| format!("{platform}.json")).collect::<Vec<_>>(), files);
        for (platform, text) in FILES {
            let space = OptionSpace::parse(&format!("{platform}.json"), text).unwrap();
            assert_eq!(space.platform(), *platform, "a file is named after its platform");
            assert!(OptionSpace::built_in(platform).is_some());
        }
        assert!(OptionSpace::built_in("rocm").is_none());
    }

    /// `benches/compiler_options.py` asked: whatever is in a list is accepted by someone, and a range is of compilers
    /// that were asked.
    #[test]
    fn who_accepts_an_option_is_known_where_compilers_were_asked() {
        for (platform, is_asked) in [("cpu", true), ("cuda", true), ("tpu", false)] {
            let space = OptionSpace::built_in(platform).unwrap();
            assert_eq!(!space.asked().is_empty(), is_asked, "{platform}");
            for option in space.options() {
                // one of a process is not asked for
                let wants = is_asked && option.scope == OptionScope::Compile;
                assert_eq!(!option.versions.is_empty(), wants, "{platform}: {}", option.name);
                let place = |name: &str| space.asked().iter().position(|asked| asked == name);
                let mut before = None;
                for known in &option.versions {
                    let (first, last) = known.split_once(" to ").unwrap_or((known, ""));
                    let (package, version) = first.split_once(' ').unwrap();
                    let last = format!("{package} {}", if last.is_empty() { version } else { last });
                    let [first, last] = [first, &last].map(|name| place(name).unwrap_or_else(|| panic!("{known}")));
                    assert!(before < Some(first) && first <= last, "{}: {known}", option.name);
                    assert!(space.asked()[first..=last].iter().all(|asked| asked.starts_with(package)), "{known}");
                    before = Some(last);
                }
            }
        }
    }

    /// Fast-math honours NaN, infinities, division and functions until each is disabled, and no other option sets any
    /// of these.
    #[test]
    fn fast_math_of_a_cpu_says_what_it_honours() {
        let space = OptionSpace::built_in("cpu").unwrap();
        for choice in space.choices(OptionClass::FastMath) {
            let overrides = choice.overrides();
            let of_fast_math = overrides.keys().filter(|name| name.contains("fast_math")).count();
            match overrides.get("xla_cpu_enable_fast_math") {
                Some(value) => assert_eq!((&**value, of_fast_math, choice.kind), ("True", 5, OptionKind::FastMath)),
                None => assert_eq!(of_fast_math, 0, "{choice}"),
            }
        }
    }

    #[test]
    fn every_choice_of_the_programs_own_lists_is_allowed() {
        for space in OptionSpace::all_built_in() {
            let choices = space.choices(OptionClass::FastMath);
            assert!(choices.iter().all(|choice| why_refused(&choice.set.to_config()).is_none()));
            // and any two lists of passes together
            let passes = choices.iter().filter(|choice| choice.name == "xla_disable_hlo_passes");
            let all = passes.map(|choice| &choice.set).try_fold(OptionSet::default(), |set, more| set.with(more));
            assert_eq!(why_refused(&all.unwrap().to_config()), None);
        }
    }
}
