//! An option of the compiler and its value, as a user or a process spells it.

use serde_json::{Map, Value};

use crate::candidates::OptionSet;
use crate::config::Config;

use super::exit;
use super::fault::Fault;

/// Name and value of `name=value`, with or without the dashes of XLA_FLAGS.
pub(super) fn named(text: &str) -> Option<(&str, &str)> {
    text.trim_start_matches("--").split_once('=').filter(|(name, _)| !name.is_empty())
}

/// `name=value`, with or without the dashes of XLA_FLAGS; the value as JSON if it is a scalar, otherwise as text.
pub(super) fn setting(text: &str) -> Result<(String, Value), String> {
    let wrong = || format!("`{text}` is not `NAME=VALUE`, such as `xla_backend_optimization_level=2`");
    let (name, value) = named(text).ok_or_else(wrong)?;
    let value = match value {
        "True" => Value::Bool(true),
        "False" => Value::Bool(false),
        other => match serde_json::from_str(other) {
            Ok(value @ (Value::Bool(_) | Value::Number(_))) => value,
            _ => Value::from(other),
        },
    };
    let setting = Config::new(Map::from_iter([(name.to_owned(), value.clone())]));
    OptionSet::from_config(&setting).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value))
}

/// The settings of a variable such as `XLA_FLAGS`. A flag without a value is a boolean that is on, as in XLA. Words
/// that are no flags are left out.
pub(super) fn settings_of(variable: &str) -> Vec<(String, Value)> {
    let of = |word: &str| match word.contains('=') {
        true => setting(word).ok(),
        false => word.strip_prefix("--").and_then(|name| setting(&format!("{name}=True")).ok()),
    };
    variable.split_whitespace().filter_map(of).collect()
}

/// Settings as one set; if an option is set twice, the last value counts.
pub(super) fn option_set(settings: impl IntoIterator<Item = (String, Value)>) -> Result<OptionSet, Fault> {
    let config = Config::new(settings.into_iter().collect());
    OptionSet::from_config(&config).map_err(|error| Fault::new(exit::USAGE, error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_flag_without_a_value_is_a_boolean_that_is_on() {
        let found = settings_of("--xla_a --xla_b=false xla_c=2 --xla_d= /flags.txt -- --xla_a=False --XLA --xla_e=x=y");
        let of = |name: &str, value| (name.to_owned(), value);
        let expected = [
            of("xla_a", json!(true)),
            of("xla_b", json!(false)),
            of("xla_c", json!(2)),
            of("xla_d", json!("")),
            of("xla_a", json!(false)),
            of("xla_e", json!("x=y")),
        ];
        assert_eq!(found, expected);
        assert_eq!(option_set(found).unwrap_or_default().get("xla_a"), Some(&json!(false)), "the last one holds");
    }
}
