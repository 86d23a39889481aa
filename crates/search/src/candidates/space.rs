//! A search space as its file describes it, checked.

use std::path::Path;

use serde_json::{Map, Value};

use super::error::SpaceError;
use super::file::{File, Head};
use super::locate::{PathStep, offset, offset_in_string};
use crate::config::{Config, canonical_json};
use crate::constraint::{self, Constraint, ConstraintError, Kinds};
use crate::digest::{Digest, FieldHasher};
use crate::outside_file;

/// Largest file of a space.
const MAX_FILE_BYTES: u64 = 1 << 20;

const SCHEMA: u64 = 1;
const MAX_PARAMETERS: usize = 64;
const MAX_CONSTRAINTS: usize = 256;
const MAX_LISTED: usize = 4096;

/// An operation's parameters, their values, and the constraints between them.
#[derive(Debug, Clone)]
pub struct CandidateSpace {
    pub(super) file: String,
    pub(super) text: String,
    pub(super) op: String,
    /// Names known from the call, before the parameters in `names`.
    pub(super) given: Vec<(String, Value)>,
    pub(super) parameters: Vec<(String, Vec<Value>)>,
    pub(super) constraints: Vec<Placed>,
    pub(super) listed: Vec<Config>,
    baseline: Config,
}

/// A constraint and the parameter after whose choice it can be checked.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub(super) constraint: Constraint,
    /// Number of parameters that must be chosen before it is checked.
    pub(super) after: usize,
}

impl CandidateSpace {
    /// Reads a space from a file of at most 1 MiB.
    ///
    /// # Errors
    /// If the file cannot be read, and as of [`parse`](Self::parse).
    pub fn open(file: &Path) -> Result<Self, SpaceError> {
        let name = file.display().to_string();
        match outside_file::text(file, MAX_FILE_BYTES) {
            Ok(text) => Self::parse(&name, &text),
            Err(error) => Err(SpaceError::unreadable(name, &error)),
        }
    }

    /// Reads a space from its text; `file` is what errors call it.
    ///
    /// # Errors
    /// If the text is not JSON, not of this schema, or is inconsistent; with the place.
    pub fn parse(file: &str, text: &str) -> Result<Self, SpaceError> {
        let of_serde = |error: serde_json::Error| SpaceError::of_json(file, &error);
        let wrong = |path: &[PathStep<'_>], message: String| SpaceError::at(file, text, offset(text, path), &message);
        let head: Head = serde_json::from_str(text).map_err(of_serde)?;
        if head.schema != SCHEMA {
            let message = format!("schema {}, this version reads {SCHEMA}: use a newer autotune-lowered", head.schema);
            return Err(wrong(&[PathStep::Key("schema")], message));
        }
        let read: File = serde_json::from_str(text).map_err(of_serde)?;
        if read.op.is_empty() {
            return Err(wrong(&[PathStep::Key("op")], "the operation has no name".to_owned()));
        }
        if read.parameters.0.len() + read.given.0.len() > MAX_PARAMETERS {
            let message = format!("more than {MAX_PARAMETERS} parameters and given values");
            return Err(wrong(&[PathStep::Key("parameters")], message));
        }
        for (name, count, limit) in
            [("constraints", read.constraints.len(), MAX_CONSTRAINTS), ("configs", read.configs.len(), MAX_LISTED)]
        {
            if count > limit {
                return Err(wrong(&[PathStep::Key(name)], format!("{count} {name}, at most {limit} are read")));
            }
        }
        let mut space = Self {
            file: file.to_owned(),
            text: text.to_owned(),
            op: read.op,
            given: read.given.0,
            parameters: Vec::new(),
            constraints: Vec::new(),
            listed: read.configs,
            baseline: read.baseline,
        };
        for (name, values) in read.parameters.0 {
            let at = |message: String| wrong(&[PathStep::Key("parameters"), PathStep::Key(&name)], message);
            let values = values.expand().map_err(at)?;
            if !is_name(&name) {
                return Err(at(format!("`{name}` is not a name: letters, digits and `_`, separated by dots")));
            }
            space.parameters.push((name, values));
        }
        space.check_names()?;
        for (index, constraint) in read.constraints.iter().enumerate() {
            let constraint = Constraint::compile(constraint, &space.kinds())
                .map_err(|error| space.constraint_error(index, &error, ""))?;
            let last = constraint.reads().last().map_or(0, |&last| last + 1);
            space.constraints.push(Placed { constraint, after: last.saturating_sub(space.given.len()) });
        }
        space.check_baseline()?;
        Ok(space)
    }

    /// The operation's name, without version.
    pub fn op(&self) -> &str {
        &self.op
    }

    /// The config in use without tuning.
    pub fn baseline(&self) -> &Config {
        &self.baseline
    }

    /// Digest of its text and of the given values; a space with another digest may have other configs.
    pub fn to_digest(&self) -> Digest {
        let mut hasher = FieldHasher::new("space-v1");
        hasher.field(self.text.as_bytes());
        for (name, value) in &self.given {
            hasher.field(name.as_bytes()).field(canonical_json(value).as_bytes());
        }
        hasher.finish()
    }

    /// The parameters in the order in which they vary, with their values.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &[Value])> {
        self.parameters.iter().map(|(name, values)| (name.as_str(), values.as_slice()))
    }

    /// The same space for a call about which more is known: replaces a value of `given`.
    ///
    /// # Errors
    /// If the space has no such name.
    pub fn given(mut self, name: &str, value: Value) -> Result<Self, SpaceError> {
        match self.given.iter_mut().find(|(known, _)| known == name) {
            Some((_, slot)) => {
                *slot = value;
                Ok(self)
            }
            None => Err(self.error(&[PathStep::Key("given")], format!("the space has no given value `{name}`"))),
        }
    }

    /// How many configs there are at most: those listed, and the product of the parameters' values.
    pub fn count_bound(&self) -> u128 {
        let product = |bound: u128, (_, values): &(String, Vec<Value>)| bound.saturating_mul(values.len() as u128);
        let space = if self.parameters.is_empty() { 0 } else { self.parameters.iter().fold(1, product) };
        space.saturating_add(self.listed.len() as u128)
    }

    /// The configs to try before those of the space.
    pub fn listed(&self) -> &[Config] {
        &self.listed
    }

    /// Whether there can be as few configs as this: not if there are no constraints and the product is larger.
    pub fn is_bounded_by(&self, count: u128) -> bool {
        !self.constraints.is_empty() || self.count_bound() <= count
    }

    /// The configs of the space that differ from one in the value of a single parameter.
    ///
    /// # Errors
    /// If a constraint cannot be evaluated.
    pub fn neighbours(&self, config: &Config) -> Result<Vec<Config>, SpaceError> {
        let values = self.parameters.iter().map(|(name, _)| value_at(config.as_map(), name).cloned());
        // one of those listed need not have the parameters
        let Some(values) = values.collect::<Option<Vec<Value>>>() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for (at, (_, allowed)) in self.parameters.iter().enumerate() {
            for value in allowed.iter().filter(|value| values.get(at) != Some(value)) {
                let mut other = values.clone();
                if let Some(slot) = other.get_mut(at) {
                    *slot = value.clone();
                }
                let config = self.config_of(&other);
                if self.contains(&config)? {
                    found.push(config);
                }
            }
        }
        Ok(found)
    }

    /// Whether a config is in the space or listed.
    ///
    /// # Errors
    /// If a constraint cannot be evaluated.
    pub fn contains(&self, config: &Config) -> Result<bool, SpaceError> {
        if self.listed.contains(config) {
            return Ok(true);
        }
        let mut values: Vec<&Value> = Vec::new();
        for (name, allowed) in &self.parameters {
            match value_at(config.as_map(), name) {
                Some(value) if allowed.contains(value) => values.push(value),
                _ => return Ok(false),
            }
        }
        // nothing besides the parameters
        let chosen = values.iter().map(|&value| value.clone()).collect::<Vec<_>>();
        if values.is_empty() || self.config_of(&chosen) != *config {
            return Ok(false);
        }
        for index in 0..self.constraints.len() {
            if !self.holds(index, &values)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Names that constraints may read: the given ones, then the parameters.
    fn names(&self) -> Vec<&str> {
        let given = self.given.iter().map(|(name, _)| name.as_str());
        given.chain(self.parameters.iter().map(|(name, _)| name.as_str())).collect()
    }

    /// The config with these values of the parameters, in order.
    pub(super) fn config_of(&self, values: &[Value]) -> Config {
        let mut fields = Map::new();
        for ((name, _), value) in self.parameters.iter().zip(values) {
            insert(&mut fields, name, value.clone());
        }
        Config::new(fields)
    }

    /// The names with the kinds of their values; a caller may give any.
    fn kinds(&self) -> Vec<(&str, Kinds)> {
        let kinds = |values: &[Value]| {
            let kinds =
                values.iter().filter_map(|value| Some(constraint::ConstraintValue::try_from(value).ok()?.kinds()));
            kinds.fold(Kinds::NONE, |all, kinds| all | kinds)
        };
        let given = self.given.iter().map(|(name, _)| (name.as_str(), Kinds::ANY));
        given.chain(self.parameters.iter().map(|(name, values)| (name.as_str(), kinds(values)))).collect()
    }

    /// The parameters that a constraint reads.
    pub(super) fn parameters_read(&self, placed: &Placed) -> Vec<usize> {
        placed.constraint.reads().iter().filter_map(|name| name.checked_sub(self.given.len())).collect()
    }

    /// Whether a constraint holds for values of the parameters up to those that it reads.
    pub(super) fn holds(&self, index: usize, values: &[&Value]) -> Result<bool, SpaceError> {
        let Some(Placed { constraint, .. }) = self.constraints.get(index) else { return Ok(true) };
        let value = |name: usize| match self.given.get(name) {
            Some((_, value)) => value.try_into(),
            None => match values.get(name - self.given.len()) {
                Some(&value) => value.try_into(),
                None => Err("the parameter has no value".to_owned()),
            },
        };
        constraint.holds(value).map_err(|error| self.constraint_error(index, &error, "the constraint failed: "))
    }

    fn constraint_error(&self, index: usize, error: &ConstraintError, before: &str) -> SpaceError {
        let start = offset(&self.text, &[PathStep::Key("constraints"), PathStep::Index(index)]);
        let place = offset_in_string(&self.text, start, error.at);
        SpaceError::at(&self.file, &self.text, place, &format!("{before}{}", error.message))
    }

    pub(super) fn error(&self, path: &[PathStep<'_>], message: String) -> SpaceError {
        SpaceError::at(&self.file, &self.text, offset(&self.text, path), &message)
    }

    /// No name may occur twice or be both a value and an object.
    fn check_names(&self) -> Result<(), SpaceError> {
        let names = self.names();
        for (index, name) in names.iter().enumerate() {
            let clash =
                |other: &&str| other.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            let others = names.iter().enumerate().filter(|(place, _)| *place != index).map(|(_, other)| other);
            if let Some(other) = others.copied().find(|other| clash(other)) {
                let path = [PathStep::Key("parameters"), PathStep::Key(other)];
                let message = if other == *name {
                    format!("`{name}` occurs twice")
                } else {
                    format!("`{other}` clashes with `{name}`")
                };
                return Err(self.error(&path, message));
            }
        }
        Ok(())
    }

    fn check_baseline(&self) -> Result<(), SpaceError> {
        if self.contains(&self.baseline)? {
            return Ok(());
        }
        let message = "the baseline is neither a config of the space nor one of `configs`";
        Err(self.error(&[PathStep::Key("baseline")], message.to_owned()))
    }
}

fn is_name(name: &str) -> bool {
    name.split('.').all(|part| {
        part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && part.bytes().next().is_some_and(|first| !first.is_ascii_digit())
    })
}

fn value_at<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    match name.split_once('.') {
        None => fields.get(name),
        Some((key, rest)) => value_at(fields.get(key)?.as_object()?, rest),
    }
}

fn insert(fields: &mut Map<String, Value>, name: &str, value: Value) {
    match name.split_once('.') {
        None => {
            fields.insert(name.to_owned(), value);
        }
        Some((key, rest)) => {
            let inner = fields.entry(key).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}
