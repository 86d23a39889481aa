//! One way to compile a module.

use std::collections::BTreeMap;

use crate::candidates::{OptionChoice, OptionKind, OptionScope, OptionSet};
use crate::config::Config;

/// Settings, and the choices that they consist of.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OptionVariant {
    pub(super) config: Config,
    pub(super) set: OptionSet,
    pub(super) overrides: BTreeMap<String, String>,
    /// The settings with which the compiling process starts.
    pub(super) process: BTreeMap<String, String>,
    /// Numbers of the choices, ascending.
    pub(super) choices: Vec<usize>,
}

/// Makes variants of a module.
#[derive(Debug, Clone)]
pub(super) struct Variants<'a> {
    pub(super) base: OptionSet,
    pub(super) choices: &'a [OptionChoice],
}

impl Variants<'_> {
    /// The base itself.
    pub(super) fn base(&self) -> OptionVariant {
        self.variant(self.base.clone(), Vec::new())
    }

    /// The base with these choices; `None` if they exclude each other or change nothing.
    pub(super) fn with(&self, choices: &[usize]) -> Option<OptionVariant> {
        let mut wanted = choices.iter().filter_map(|&choice| self.choices.get(choice));
        let set = wanted.try_fold(self.base.clone(), |set, choice| set.with(&choice.set)).ok()?;
        let mut choices = choices.to_vec();
        choices.sort_unstable();
        (set != self.base).then(|| self.variant(set, choices))
    }

    /// Every choice alone.
    pub(super) fn singles(&self) -> Vec<OptionVariant> {
        (0..self.choices.len()).filter_map(|choice| self.with(&[choice])).collect()
    }

    /// The variant of this config, without its choices.
    pub(super) fn of(&self, config: &Config) -> Option<OptionVariant> {
        OptionSet::from_config(config).ok().map(|set| self.of_set(set))
    }

    /// The variant of a set, without its choices.
    pub(super) fn of_set(&self, set: OptionSet) -> OptionVariant {
        self.variant(set, Vec::new())
    }

    fn variant(&self, set: OptionSet, choices: Vec<usize>) -> OptionVariant {
        // a name has the same scope throughout a list
        let of_process = |name: &str| {
            let mut process = self.choices.iter().filter(|choice| choice.scope == OptionScope::Process);
            process.any(|choice| choice.name == name)
        };
        let (process, overrides) = set.overrides().into_iter().partition(|(name, _)| of_process(name));
        OptionVariant { config: set.to_config(), overrides, process, set, choices }
    }

    /// Whether a set changes arithmetic beyond what the base does.
    pub(super) fn changes_arithmetic(&self, variant: &OptionVariant) -> bool {
        let is_set = |choice: &OptionChoice| variant.set.get(&choice.name) == Some(&choice.value);
        let mut of_kind = self.choices.iter().filter(|choice| choice.kind == OptionKind::FastMath);
        of_kind.any(|choice| is_set(choice) && self.base.get(&choice.name) != Some(&choice.value))
    }

    /// Every subset of a set, itself included, the largest first; no duplicates.
    pub(super) fn parts(&self, set: &[usize]) -> Vec<OptionVariant> {
        let part = |mask: u32| {
            let of = set.iter().enumerate().filter(|(bit, _)| mask & (1 << bit) != 0);
            of.map(|(_, &choice)| choice).collect::<Vec<_>>()
        };
        let mut parts: Vec<Vec<usize>> = (1..1_u32 << set.len().min(8)).map(part).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
        let mut variants: Vec<OptionVariant> = Vec::new();
        for variant in parts.iter().filter_map(|part| self.with(part)) {
            if variants.iter().all(|other| other.config != variant.config) {
                variants.push(variant);
            }
        }
        variants
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidates::{OptionClass, OptionSpace};

    #[test]
    fn parts_of_a_set_are_each_there_once() {
        let choices = OptionSpace::built_in("cpu").unwrap().choices(OptionClass::Safe);
        let variants = Variants { base: OptionSet::default(), choices: &choices };
        assert_eq!(variants.singles().len(), choices.len());
        let number = |name: &str| choices.iter().position(|choice| choice.name == name).unwrap();
        let set = [
            number("xla_cpu_use_xnnpack"),
            number("xla_cpu_prefer_vector_width"),
            number("xla_cpu_multi_thread_eigen"),
        ];
        let sizes: Vec<usize> = variants.parts(&set).iter().map(|part| part.choices.len()).collect();
        assert_eq!(sizes, [3, 2, 2, 2, 1, 1, 1]);
        // two values of one option exclude each other
        let level = number("xla_backend_optimization_level");
        assert_eq!(variants.with(&[level, level + 1]), None);
        assert_eq!(variants.parts(&[level, level + 1]).len(), 2);
        // an option that the base already has changes nothing
        let set = Variants { base: choices[level].set.clone(), choices: &choices };
        assert_eq!(set.with(&[level]), None);
    }
}
