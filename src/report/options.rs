//! Options of compilers: each with its values, what it may change, and its source.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::candidates::{CompilerOption, OptionClass, OptionScope, OptionSpace};
use crate::printable::printable;

use super::grid::cells;
use super::{Document, Grid};

/// The options of some platforms.
pub struct CompilerOptions<'a> {
    /// The platforms' spaces.
    pub spaces: Vec<&'a OptionSpace>,
}

impl<'a> CompilerOptions<'a> {
    /// Shows the options of these spaces.
    pub fn new(spaces: Vec<&'a OptionSpace>) -> Self {
        Self { spaces }
    }
}

/// Returns the smallest class that tries an option; options of a process, or in no class, are not tried.
fn tried_by(option: &CompilerOption) -> Option<&'static str> {
    let classes = [OptionClass::Safe, OptionClass::Passes, OptionClass::FastMath];
    let class = classes.into_iter().find(|class| class.includes(option.kind));
    class.filter(|_| option.scope == OptionScope::Compile).map(OptionClass::as_str)
}

impl Document for CompilerOptions<'_> {
    fn into_json(self) -> impl Serialize {
        let of = |option: &CompilerOption| {
            let with: Map<String, Value> =
                option.with.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
            json!({
                "name": option.name, "values": option.values, "kind": option.kind, "scope": option.scope, "with": with,
                "versions": option.versions, "tried_by": tried_by(option), "does": option.does, "source": option.source,
            })
        };
        let platforms: Vec<Value> = self
            .spaces
            .iter()
            .map(|space| {
                let options: Vec<Value> = space.options().iter().map(of).collect();
                json!({"platform": space.platform(), "asked": space.asked(), "options": options})
            })
            .collect();
        json!({"schema": 1, "platforms": platforms})
    }

    /// Writes one option per row; long lists of values are truncated.
    fn write_table(self, out: &mut dyn Write) -> io::Result<()> {
        let mut grid =
            Grid::new(&["platform", "option", "values", "kind", "tried by", "accepted by", "does", "source"]);
        for space in self.spaces {
            for option in space.options() {
                let (platform, kind) = (space.platform(), option.kind.as_str());
                let tried = tried_by(option).unwrap_or(match option.scope {
                    OptionScope::Process => "no class: process-wide",
                    OptionScope::Compile => "no class",
                });
                let (name, values) = (&option.name, values(option));
                let accepted = match option.versions.is_empty() {
                    true => "not asked".to_owned(),
                    false => option.versions.join(", "),
                };
                grid.row(cells![platform, name, values, kind, tried, accepted, option.does, option.source]);
            }
        }
        grid.write(out)
    }
}

/// Returns the first values of an option, and how many more there are.
fn values(option: &CompilerOption) -> String {
    const SHOWN: usize = 4;
    let first = option.values.iter().take(SHOWN).map(|value| match value {
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => printable(text),
        other => other.to_string(),
    });
    let first: Vec<String> = first.collect();
    match option.values.len().saturating_sub(SHOWN) {
        0 => first.join(" "),
        more => format!("{} and {more} more", first.join(" ")),
    }
}
