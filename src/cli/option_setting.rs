//! An option of the compiler and its value, as a user or a process spells it.

use serde_json::{Map, Value};

use crate::candidates::OptionSet;
use crate::config::Config;

use super::exit;
use super::fault::Fault;

/// `name=value`, with or without the dashes of XLA_FLAGS; the value as JSON if it is a scalar, otherwise as text.
pub(super) fn setting(text: &str) -> Result<(String, Value), String> {
    let wrong = || format!("`{text}` is not `NAME=VALUE`, such as `xla_backend_optimization_level=2`");
    let (name, value) = text.trim_start_matches("--").split_once('=').ok_or_else(wrong)?;
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

/// Settings as one set; if an option is set twice, the last value counts.
pub(super) fn option_set(settings: impl IntoIterator<Item = (String, Value)>) -> Result<OptionSet, Fault> {
    let config = Config::new(settings.into_iter().collect());
    OptionSet::from_config(&config).map_err(|error| Fault::new(exit::USAGE, error))
}
