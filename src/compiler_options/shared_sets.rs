//! The sets that race on every module of a process.

use super::module::OptionModule;
use super::variant::{OptionVariant, Variants};
use crate::candidates::OptionSet;
use crate::counted::listed;

/// Maximum number of sets that race on every module: all together, and those found first.
const MOST_SETS: usize = 5;
/// The variants of a module.
pub(super) fn variants_of(module: &OptionModule) -> Variants<'_> {
    Variants { base: module.base.clone(), choices: &module.choices }
}

/// All sets together, as far as they are compatible, and each alone.
pub(super) fn with_all_together(mut sets: Vec<OptionVariant>, variants: &Variants<'_>) -> Vec<OptionVariant> {
    sets.truncate(MOST_SETS - 1);
    let together = sets.iter().skip(1).fold(sets.first().map(|first| first.set.clone()), |all, next| {
        all.map(|all| all.with(&next.set).unwrap_or(all))
    });
    let together = together.map(|set| variants.of_set(set));
    sets.extend(together.filter(|together| sets.iter().all(|set| set.config != together.config)));
    sets
}

/// The options of a set that the base lacks.
pub(super) fn without(set: &OptionSet, base: &OptionSet) -> OptionSet {
    let own = set.iter().filter(|(name, value)| base.get(name) != Some(value));
    let own = own.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    OptionSet::from_config(&crate::config::Config::new(own)).unwrap_or_default()
}

/// Why no set is taken. `modules` are those that were raced.
pub(super) fn losses(sets: &[OptionVariant], losses: &[Vec<usize>], modules: &[String]) -> String {
    if sets.is_empty() || modules.is_empty() {
        return "no module has options that are faster".to_owned();
    }
    let name = |module: &usize| modules.get(*module).map(|name| format!("`{name}`"));
    let of = sets.iter().zip(losses).map(|(set, on)| match on.is_empty() {
        true => format!("{} gains nothing in all", set.config.to_brief()),
        false => format!(
            "{} is slower, or not known not to be, on {}",
            set.config.to_brief(),
            listed(on.iter().filter_map(name))
        ),
    });
    format!("every set is slower somewhere: {}", of.collect::<Vec<_>>().join("; "))
}
