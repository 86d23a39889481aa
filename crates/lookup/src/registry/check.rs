//! The conditions for storing an invocation, and those for running it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use super::{Argument, Candidate, Invocation, Program, RecordedTarget};
use crate::array::{Fill, MAX_ARRAY_BYTES};
use crate::batch::{BatchAxis, MAX_AXES, split_variant, variant_of};
use crate::digest::{Digest, FieldHasher};

/// Largest relative tolerance: at one, zero is as good as any result.
pub(super) const MAX_TOLERANCE: f64 = 1.0;

/// Most distributions of a call's values besides its own.
const MAX_DISTRIBUTIONS: usize = 8;

/// Bytes of a distribution's name.
const MAX_NAME: usize = 64;

/// Why an invocation cannot be stored.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidInvocation {
    /// No operation.
    #[error("`op_id` is empty")]
    NoOperation,
    /// No call key.
    #[error("`call_key` is empty")]
    NoCallKey,
    /// The baseline is not among the candidates.
    #[error("the baseline `{0}` is not among the candidates")]
    Baseline(String),
    /// A config is listed twice.
    #[error("the config `{0}` occurs twice among the candidates")]
    Duplicate(String),
    /// An argument is larger than any device's memory.
    #[error("the argument `{0}` is larger than {limit} GiB", limit = MAX_ARRAY_BYTES >> 30)]
    TooLarge(String),
    /// The tolerance allows nothing that can be computed with.
    #[error("the tolerance is {0}; give a number from 0 to {MAX_TOLERANCE}")]
    Tolerance(f64),
    /// The axes of `vmap` are not those of the key or of the arguments.
    #[error("`batch`: {0}")]
    Batch(String),
    /// Other distributions of the arguments' values are too many, or are not of these arguments.
    #[error("`other_distributions`: {0}")]
    Distribution(String),
    /// A path that does not stay in `arrays/`.
    #[error("the argument `{0}` names the file `{1}`, which is not inside the registry's `arrays/`")]
    Path(String, String),
}

/// Why an invocation is not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotRunnable {
    /// Values that determine control flow are unknown.
    #[error("values-unknown: the values of `{}` steer control flow and were not known when it was recorded; record it \
             from an eager call", .0.join("`, `"))]
    ValuesUnknown(Vec<String>),
    /// The baseline, with which everything is compared, has no program.
    #[error("it was recorded without a program: {0}")]
    NoProgram(String),
}

/// Candidates that are the same program, to be measured once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramGroup {
    /// The program of the group's first candidate; `None` for one that a worker must lower.
    pub program: Option<Program>,
    /// Indices of the candidates, ascending.
    pub candidates: Vec<usize>,
}

/// Whether an argument has the axes that it is said to have; arguments that are not mapped are not said to have any.
fn has_axes(argument: &Argument, batch: &[BatchAxis]) -> Result<(), String> {
    let whole = argument.spec.dims.as_slice();
    let Err((size, place)) = axes_in(&argument.name, whole, batch) else { return Ok(()) };
    // a leading axis with one part per device of a mesh, not made by a `vmap`
    if whole.split_first().is_some_and(|(_, part)| axes_in(&argument.name, part, batch).is_ok()) {
        return Ok(());
    }
    let (name, spec) = (&argument.name, &argument.spec);
    Err(format!("the argument `{name}`, {spec}, has no axis of {size} at {place}"))
}

/// Checks that dimensions have an argument's axes; returns the size and place of the first missing one.
fn axes_in(name: &str, dimensions: &[u64], batch: &[BatchAxis]) -> Result<(), (u64, usize)> {
    let mut dimensions = dimensions.to_vec();
    for axis in batch {
        let Some(&place) = axis.axes.get(name) else { continue };
        let place = place as usize;
        if dimensions.get(place) != Some(&axis.size) {
            return Err((axis.size, place));
        }
        dimensions.remove(place);
    }
    Ok(())
}

impl Invocation {
    /// The digest of the invocation's identity: target, operation, call key and direction. Its derivation is
    /// part of the folder's format, see [`crate::registry`].
    pub fn key(&self) -> Digest {
        let mut hasher = FieldHasher::new("invocation-key");
        match &self.target {
            RecordedTarget::Device(identity) => hasher.field(b"device").field(identity.to_digest().as_bytes()),
            RecordedTarget::Platform(platform) => hasher.field(b"platform").field(platform.as_bytes()),
        };
        hasher.field(self.call.op_id.as_bytes()).field(self.call.call_key.as_bytes());
        hasher.field(self.direction.to_string().as_bytes()).finish()
    }

    /// Checks that the record is consistent.
    ///
    /// # Errors
    /// The first inconsistency: no operation or call key, an array that is too large or whose file lies elsewhere, axes
    /// that the key or the arguments do not have, a config that is listed twice, or a baseline that is not a candidate.
    pub fn check(&self) -> Result<(), InvalidInvocation> {
        if let Some(tolerance) = self.tolerance.filter(|tolerance| !(0.0..=MAX_TOLERANCE).contains(tolerance)) {
            return Err(InvalidInvocation::Tolerance(tolerance));
        }
        if self.call.op_id.is_empty() {
            return Err(InvalidInvocation::NoOperation);
        }
        if self.call.call_key.is_empty() {
            return Err(InvalidInvocation::NoCallKey);
        }
        for argument in &self.arguments {
            if argument.spec.host_bytes().is_none_or(|size| size > MAX_ARRAY_BYTES) {
                return Err(InvalidInvocation::TooLarge(argument.name.clone()));
            }
        }
        for (argument, fill) in self.fills() {
            if let Fill::File { path, .. } = fill
                && !is_inside_arrays(path)
            {
                return Err(InvalidInvocation::Path(argument.to_owned(), path.display().to_string()));
            }
        }
        self.check_distributions().map_err(InvalidInvocation::Distribution)?;
        self.check_batch().map_err(InvalidInvocation::Batch)?;
        let mut seen = BTreeSet::new();
        if let Some(twice) = self.candidates.iter().find(|candidate| !seen.insert(&candidate.config)) {
            return Err(InvalidInvocation::Duplicate(twice.config.to_string()));
        }
        if !seen.contains(&self.baseline) {
            return Err(InvalidInvocation::Baseline(self.baseline.to_string()));
        }
        Ok(())
    }

    fn check_distributions(&self) -> Result<(), String> {
        let count = self.other_distributions.len();
        if count > MAX_DISTRIBUTIONS {
            return Err(format!("{count} distributions are more than the {MAX_DISTRIBUTIONS} that are read"));
        }
        let mut names: BTreeSet<&str> = self.distribution.iter().map(String::as_str).collect();
        for other in &self.other_distributions {
            let is_name = (1..=MAX_NAME).contains(&other.name.len());
            if !is_name || !names.insert(&other.name) {
                return Err(format!("`{}` is no name of its own, of at most {MAX_NAME} bytes", other.name));
            }
            let is_known = |name: &String| self.arguments.iter().any(|argument| argument.name == *name);
            if let Some(unknown) = other.fills.keys().find(|name| !is_known(name)) {
                return Err(format!("`{}` has values for `{unknown}`, which is no argument", other.name));
            }
        }
        Ok(())
    }

    fn check_batch(&self) -> Result<(), String> {
        if self.batch.len() > MAX_AXES {
            return Err(format!("{} axes are more than the {MAX_AXES} that are read", self.batch.len()));
        }
        let Some(variant) = variant_of(&self.batch) else { return Ok(()) };
        if split_variant(&self.call.call_key).1 != Some(&variant) {
            return Err(format!("its axes are the variant `{variant}`, which `{}` does not name", self.call.call_key));
        }
        self.arguments.iter().try_for_each(|argument| has_axes(argument, &self.batch))
    }

    /// Whether a timer that builds no programs itself can run it.
    ///
    /// # Errors
    /// If the values of an argument are unknown, or the baseline has no program.
    pub fn runnable(&self) -> Result<(), NotRunnable> {
        let unknown = self.arguments.iter().filter(|argument| argument.fill == Fill::ValuesUnknown);
        let unknown: Vec<String> = unknown.map(|argument| argument.name.clone()).collect();
        if !unknown.is_empty() {
            return Err(NotRunnable::ValuesUnknown(unknown));
        }
        let baseline = self.candidates.iter().find(|candidate| candidate.config == self.baseline);
        if let Some(Candidate { program: None, not_lowered, .. }) = baseline {
            let reason = not_lowered.clone().unwrap_or_else(|| "the record gives no reason".to_owned());
            return Err(NotRunnable::NoProgram(reason));
        }
        Ok(())
    }

    /// The candidates grouped by semantic digest, in the order of each group's first candidate. A candidate without
    /// a program is a group of its own.
    pub fn program_groups(&self) -> Vec<ProgramGroup> {
        let mut groups: Vec<ProgramGroup> = Vec::new();
        let mut places: BTreeMap<Digest, usize> = BTreeMap::new();
        for (index, candidate) in self.candidates.iter().enumerate() {
            let place = candidate.program.as_ref().map(|program| {
                let next = groups.len();
                *places.entry(program.semantic_digest).or_insert(next)
            });
            match place.and_then(|place| groups.get_mut(place)) {
                Some(group) => group.candidates.push(index),
                None => groups.push(ProgramGroup { program: candidate.program.clone(), candidates: vec![index] }),
            }
        }
        groups
    }
}

/// Whether a path is `arrays/<name>` and nothing else.
fn is_inside_arrays(path: &Path) -> bool {
    let mut parts = path.components();
    let inside = matches!(parts.next(), Some(Component::Normal(first)) if first == "arrays");
    inside && matches!(parts.next(), Some(Component::Normal(_))) && parts.next().is_none()
}
