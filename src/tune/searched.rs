//! The result of a search.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::counted::counted;
use crate::failure::FailureKind;

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SearchEnd {
    /// Its evaluations or its time were used up.
    Budget,
    /// There was no config left to try.
    Exhausted,
    /// The user ended it; what was tried is kept.
    Interrupted,
    /// The baseline or the worker failed.
    Failed,
}

/// How the raced configs were picked from a larger space.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Searched {
    /// The strategy's name.
    pub strategy: String,
    /// Its seed.
    pub seed: u64,
    /// Configs that it chose from, the baseline among them.
    pub configs: usize,
    /// Whether these are a sample of a space that is too large to list.
    pub sampled: bool,
    /// Configs that it asked for.
    pub evaluations: usize,
    /// How many of those the sample log already held.
    pub reused: usize,
    /// How many of them failed.
    pub failed: usize,
    /// How many of them failed of each kind; a config without a usable time is of kind `no-time`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<FailureKind, usize>,
    /// Configs that a compiler had refused without the device; none of them was asked for.
    #[serde(default, skip_serializing_if = "is_none")]
    pub refused: usize,
    /// The smallest ratio to the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_ratio: Option<f64>,
    /// Why it ended.
    pub ended: SearchEnd,
}

// serde passes a reference to the field
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_none(count: &usize) -> bool {
    *count == 0
}

impl Searched {
    /// One line: `searched 4096 configs: 128 tried (auto, seed 0), 3 failed (compile 3), before the race the best at
    /// 0.620 of the baseline's time`.
    pub fn to_line(&self) -> String {
        let of = if self.sampled { "a sample of " } else { "" };
        let (configs, strategy, seed) = (counted(self.configs, "config"), &self.strategy, self.seed);
        let mut line = format!("searched {of}{configs}: {} tried ({strategy}, seed {seed})", self.evaluations);
        if self.reused > 0 {
            line += &format!(", {} of them already known", self.reused);
        }
        if self.failed > 0 {
            let kinds: Vec<String> = self.failures.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            line += &format!(", {} failed ({})", self.failed, kinds.join(", "));
        }
        if self.refused > 0 {
            line += &format!(", {} left out because a compiler refused them", self.refused);
        }
        if let Some(best) = self.best_ratio {
            line += &format!(", before the race the best at {best:.3} of the baseline's time");
        }
        line + match self.ended {
            SearchEnd::Interrupted => "; ended by the user",
            SearchEnd::Exhausted => "; no other is left",
            SearchEnd::Budget | SearchEnd::Failed => "",
        }
    }
}
