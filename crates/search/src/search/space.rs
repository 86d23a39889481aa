//! The configs that a search may ask for, as points on a grid of parameters.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::candidates::SpaceError;
use crate::config::Config;

/// Maximum number of configs of a space.
pub const MAX_POINTS: usize = 1 << 20;
/// Maximum number of parameters, and of values of one of them.
pub(super) const MAX_PARAMETERS: usize = 128;
pub(super) const MAX_VALUES: usize = 1 << 15;
/// Maximum nesting depth of a config.
pub(super) const MAX_DEPTH: usize = 16;

/// Why a space cannot be searched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoSpace {
    /// The constraints contradict each other, or nothing was listed.
    #[error("the space holds no config: its constraints exclude every one; loosen them")]
    Empty,
    /// More listed configs than a search keeps.
    #[error("more than {MAX_POINTS} configs are listed; list fewer, or describe them by parameters")]
    TooLarge,
    /// Neither a config nor a proof that there is none was found.
    #[error("no config was found in {0} steps through the values; narrow the values or loosen the constraints")]
    NoneFound(u64),
    /// More parameters, values or nesting than a search keeps.
    #[error(
        "configs with more than {MAX_PARAMETERS} parameters, {MAX_VALUES} values of one, or {MAX_DEPTH} nested objects"
    )]
    TooWide,
    /// The same config twice.
    #[error("the config `{0}` occurs twice; remove one")]
    Twice(String),
    /// The space itself is invalid.
    #[error(transparent)]
    Candidates(#[from] SpaceError),
}

/// One parameter: its path in a config, and the values that it takes.
#[derive(Debug, Clone)]
pub struct Parameter {
    pub(super) path: Vec<String>,
    /// `None` if a config lacks the parameter.
    pub(super) values: Vec<Option<Value>>,
    pub(super) ordered: bool,
}

impl Parameter {
    /// Its name, with a point between an object's name and a member's.
    pub fn name(&self) -> String {
        self.path.join(".")
    }

    /// Its values: numbers in ascending order, others in order of first appearance. `None` is a config without the
    /// parameter.
    pub fn values(&self) -> &[Option<Value>] {
        &self.values
    }

    /// Whether its values are numbers and therefore have distances.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }
}

/// Configs by number, each a point on the grid of all parameters' values.
///
/// Only configs that exist are held, never the product of the values.
#[derive(Debug, Clone)]
pub struct Space {
    pub(super) parameters: Vec<Parameter>,
    /// Parameters with more than one value.
    pub(super) varying: Vec<usize>,
    /// A point's levels, parameter by parameter, then the next point's.
    pub(super) levels: Vec<u16>,
    pub(super) places: HashMap<Box<[u16]>, u32>,
    pub(super) count: usize,
    pub(super) sampled: bool,
}

impl Space {
    /// Whether these are a random sample of a space that is too large to hold.
    pub fn is_sample(&self) -> bool {
        self.sampled
    }

    /// How many configs there are, at least one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The numbers of the parameters that have more than one value.
    pub fn varying(&self) -> &[usize] {
        &self.varying
    }

    /// For each parameter the number of a point's value.
    pub fn levels(&self, point: usize) -> &[u16] {
        let width = self.parameters.len();
        self.levels.get(point * width..(point + 1) * width).unwrap_or_default()
    }

    /// The point with these levels, if there is one.
    pub fn at(&self, levels: &[u16]) -> Option<usize> {
        self.places.get(levels).map(|&point| point as usize)
    }

    /// A point's config.
    pub fn config(&self, point: usize) -> Config {
        let mut fields = Map::new();
        for (parameter, &level) in self.parameters.iter().zip(self.levels(point)) {
            if let Some(Some(value)) = parameter.values.get(usize::from(level)) {
                insert(&mut fields, &parameter.path, value.clone());
            }
        }
        Config::new(fields)
    }

    /// The point of a config, if it is one of the space.
    pub fn find(&self, config: &Config) -> Option<usize> {
        let levels: Option<Vec<u16>> = self.levels_of(config).into_iter().collect();
        self.at(&levels?).filter(|&point| self.config(point) == *config)
    }

    /// The point nearest to a config that may be from another space: the config itself, or the first of those with the
    /// smallest sum of distances over the parameters, each at most 1; a value outside this space counts 1, unless its
    /// parameter is ordered and it lies between two values.
    pub fn nearest(&self, config: &Config) -> Option<usize> {
        if let Some(point) = self.find(config) {
            return Some(point);
        }
        let wanted: Vec<Option<f64>> = self
            .parameters
            .iter()
            .map(|parameter| place_between(parameter, value_at(config.as_map(), &parameter.path)))
            .collect();
        let distance = |point: usize| -> f64 {
            let parts = self.varying.iter().map(|&index| {
                let (Some(parameter), Some(&level)) = (self.parameters.get(index), self.levels(point).get(index))
                else {
                    return 1.0;
                };
                match wanted.get(index).copied().flatten() {
                    None => 1.0,
                    Some(place) if parameter.ordered => {
                        (place - f64::from(level)).abs() / (parameter.values.len() - 1).max(1) as f64
                    }
                    Some(place) => f64::from(u8::from(place != f64::from(level))),
                }
            });
            parts.sum()
        };
        let distances = (0..self.count).map(|point| (point, distance(point)));
        distances.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(point, _)| point)
    }

    /// The points that differ from one in a single parameter: by one step if `steps`, otherwise by any value.
    pub fn neighbours(&self, point: usize, steps: bool) -> Vec<usize> {
        let mut levels = self.levels(point).to_vec();
        let mut found = Vec::new();
        for &index in &self.varying {
            let (Some(parameter), Some(&own)) = (self.parameters.get(index), self.levels(point).get(index)) else {
                continue;
            };
            for level in 0..parameter.values.len() as u16 {
                let near = !steps || !parameter.ordered || level.abs_diff(own) == 1;
                if level == own || !near {
                    continue;
                }
                if let Some(slot) = levels.get_mut(index) {
                    *slot = level;
                }
                found.extend(self.at(&levels));
            }
            if let Some(slot) = levels.get_mut(index) {
                *slot = own;
            }
        }
        found
    }

    fn levels_of(&self, config: &Config) -> Vec<Option<u16>> {
        let level = |parameter: &Parameter| {
            let value = value_at(config.as_map(), &parameter.path);
            parameter.values.iter().position(|known| known.as_ref() == value).map(|level| level as u16)
        };
        self.parameters.iter().map(level).collect()
    }
}

fn value_at<'a>(fields: &'a Map<String, Value>, path: &[String]) -> Option<&'a Value> {
    let (last, outer) = path.split_last()?;
    let mut inside = fields;
    for name in outer {
        inside = inside.get(name)?.as_object()?;
    }
    inside.get(last)
}

fn insert(fields: &mut Map<String, Value>, path: &[String], value: Value) {
    let Some((name, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        fields.insert(name.clone(), value);
    } else if let Value::Object(inner) = fields.entry(name.as_str()).or_insert_with(|| Value::Object(Map::new())) {
        insert(inner, rest, value);
    }
}

/// The position of a value among a parameter's levels; a number that is not a level lies between two of them.
fn place_between(parameter: &Parameter, value: Option<&Value>) -> Option<f64> {
    if let Some(level) = parameter.values.iter().position(|known| known.as_ref() == value) {
        return Some(level as f64);
    }
    if !parameter.ordered {
        return None;
    }
    let wanted = value?.as_f64()?;
    let numbers: Vec<f64> = parameter.values.iter().flatten().filter_map(Value::as_f64).collect();
    let above = numbers.partition_point(|&number| number < wanted);
    let (Some(&low), Some(&high)) = (numbers.get(above.checked_sub(1)?), numbers.get(above)) else { return None };
    Some((above - 1) as f64 + (wanted - low) / (high - low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn configs_come_back_as_they_were_given() {
        let texts = [r#"{"m":64,"p":{"s":2},"k":"a"}"#, r#"{"m":16,"p":{"s":1},"k":"b"}"#, r#"{"m":16,"e":{}}"#];
        let space = Space::new(texts.map(config)).unwrap();
        for (point, text) in texts.iter().enumerate() {
            assert_eq!(space.config(point), config(text));
            assert_eq!(space.find(&config(text)), Some(point));
        }
        let m = space.parameters().iter().find(|parameter| parameter.name() == "m").unwrap();
        assert!(m.is_ordered());
        assert_eq!(m.values(), [Some(Value::from(16)), Some(Value::from(64))]);
        assert_eq!(space.find(&config(r#"{"m":64,"e":{}}"#)), None);
    }

    #[test]
    fn neighbours_differ_in_one_parameter() {
        let grid = (0..3).flat_map(|a| (0..4).map(move |b| config(&format!("{{\"a\":{a},\"b\":{b}}}"))));
        let space = Space::new(grid.filter(|c| c != &config(r#"{"a":1,"b":2}"#))).unwrap();
        let at = |text: &str| space.find(&config(text)).unwrap();
        let mut near = space.neighbours(at(r#"{"a":1,"b":1}"#), true);
        near.sort_unstable();
        let mut expected = [r#"{"a":0,"b":1}"#, r#"{"a":2,"b":1}"#, r#"{"a":1,"b":0}"#].map(at);
        expected.sort_unstable();
        assert_eq!(near, expected);
        assert_eq!(space.neighbours(at(r#"{"a":1,"b":1}"#), false).len(), 4);
        // {1, 2} is not there: one step of one parameter away, the first of them
        let nearest = space.nearest(&config(r#"{"a":1,"b":2}"#)).unwrap();
        assert_eq!(space.config(nearest), config(r#"{"a":1,"b":1}"#));
        assert_eq!(space.nearest(&config(r#"{"a":0.1,"b":2.9}"#)), space.find(&config(r#"{"a":0,"b":3}"#)));
    }

    #[test]
    fn what_cannot_be_searched_is_an_error() {
        assert_eq!(Space::new([]).unwrap_err(), NoSpace::Empty);
        assert!(matches!(Space::new([config("{\"a\":1}"), config("{\"a\":1}")]), Err(NoSpace::Twice(_))));
        let wide: String = (0..200).map(|index| format!("\"p{index}\":0,")).collect();
        let wide = config(&format!("{{{}}}", wide.trim_end_matches(',')));
        assert_eq!(Space::new([wide]).unwrap_err(), NoSpace::TooWide);
    }
}
