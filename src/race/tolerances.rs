//! Tolerances that the user set for outputs.

use std::collections::BTreeMap;

use crate::digest::{Digest, FieldHasher};

/// Relative tolerances that replace those of the element types, for all outputs or for single ones.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OutputTolerances {
    of_all: Option<f64>,
    /// By the output's name or number.
    of_each: BTreeMap<String, f64>,
}

impl OutputTolerances {
    /// The same with one for all outputs that have none of their own.
    #[must_use]
    pub fn of_all(self, relative: f64) -> Self {
        Self { of_all: Some(relative), ..self }
    }

    /// The same with one for the output of this name or number.
    #[must_use]
    pub fn of_output(mut self, output: impl Into<String>, relative: f64) -> Self {
        self.of_each.insert(output.into(), relative);
        self
    }

    /// The tolerance of an output, if one is set.
    pub(super) fn get(&self, output: usize, name: Option<&str>) -> Option<f64> {
        let by_name = name.and_then(|name| self.of_each.get(name));
        by_name.or_else(|| self.of_each.get(&output.to_string())).copied().or(self.of_all)
    }

    /// The digest of a job with them, because they decide who is right; the same if there are none.
    pub(crate) fn in_digest(&self, job: Digest) -> Digest {
        if *self == Self::default() {
            return job;
        }
        let mut hasher = FieldHasher::new("job and tolerances, 1");
        hasher.field(job.as_bytes());
        if let Some(relative) = self.of_all {
            hasher.field(b"tolerance").field(&relative.to_le_bytes());
        }
        for (output, relative) in &self.of_each {
            hasher.field(b"tolerance of").field(output.as_bytes()).field(&relative.to_le_bytes());
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_has_its_own_tolerance_by_name_or_number_or_that_of_all() {
        let tolerances = OutputTolerances::default().of_output("loss", 0.5).of_output("2", 0.25);
        assert_eq!((tolerances.get(0, Some("loss")), tolerances.get(2, None)), (Some(0.5), Some(0.25)));
        assert_eq!((tolerances.get(1, Some("grads")), tolerances.get(1, None)), (None, None));
        let tolerances = tolerances.of_all(0.125);
        assert_eq!((tolerances.get(1, Some("grads")), tolerances.get(0, Some("loss"))), (Some(0.125), Some(0.5)));
    }
}
