//! The members of a space's file.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;

use crate::config::Config;

const MAX_VALUES: usize = 4096;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(rename = "schema")]
    _schema: u64,
    pub(super) op: String,
    #[serde(default)]
    pub(super) given: OrderedMembers<Value>,
    #[serde(default)]
    pub(super) parameters: OrderedMembers<ParameterValues>,
    #[serde(default)]
    pub(super) constraints: Vec<String>,
    #[serde(default)]
    pub(super) configs: Vec<Config>,
    pub(super) baseline: Config,
}

#[derive(Deserialize)]
pub(super) struct Head {
    pub(super) schema: u64,
}

/// The values of one parameter.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a list of values, or `from` and `to` with `step` or `times`")]
pub(super) enum ParameterValues {
    List(Vec<Value>),
    Range(Range),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Range {
    from: i64,
    to: i64,
    step: Option<i64>,
    times: Option<i64>,
}

/// The members of an object in the file's order.
pub(super) struct OrderedMembers<T>(pub(super) Vec<(String, T)>);

impl<T> Default for OrderedMembers<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedMembers<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = OrderedMembers<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members: Vec<(String, T)> = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(OrderedMembers(members))
            }
        }

        deserializer.deserialize_map(Members(std::marker::PhantomData))
    }
}

impl ParameterValues {
    /// The values in order, checked.
    pub(super) fn expand(self) -> Result<Vec<Value>, String> {
        let values = match self {
            Self::List(values) => values,
            Self::Range(range) => range.expand()?.into_iter().map(Value::from).collect(),
        };
        if values.is_empty() {
            return Err("there is no value".to_owned());
        }
        if values.len() > MAX_VALUES {
            return Err(format!("more than {MAX_VALUES} values"));
        }
        if let Some(value) = values.iter().find(|value| value.is_array() || value.is_object()) {
            return Err(format!("`{value}` is not a single value; a dot in the parameter's name makes an object"));
        }
        match values.iter().enumerate().find(|(index, value)| values.iter().take(*index).any(|known| known == *value)) {
            Some((_, twice)) => Err(format!("the value `{twice}` occurs twice")),
            None => Ok(values),
        }
    }
}

impl Range {
    fn expand(self) -> Result<Vec<i64>, String> {
        let next: Box<dyn Fn(i64) -> Option<i64>> = match (self.step, self.times) {
            (Some(step), None) if step > 0 => Box::new(move |value| value.checked_add(step)),
            (None, Some(times)) if times > 1 && self.from > 0 => Box::new(move |value| value.checked_mul(times)),
            (Some(_), None) => return Err("`step` must be above 0".to_owned()),
            (None, Some(_)) => return Err("`times` must be above 1, and `from` above 0".to_owned()),
            _ => return Err("give one of `step` and `times`".to_owned()),
        };
        let values = std::iter::successors(Some(self.from), |&value| next(value));
        Ok(values.take_while(|&value| value <= self.to).take(MAX_VALUES + 1).collect())
    }
}
