//! Candidates that compute something else are out.

use crate::array::{Tolerance, compare_bytes, element_text};
use crate::timer::{Failure, FailureKind, OutputArray};

use super::measure::{Ended, Measuring};

impl Measuring<'_, '_> {
    /// Takes candidates out whose outputs are not the baseline's.
    pub(super) fn compare_outputs(&mut self) -> Result<(), Ended> {
        let baseline = self.identity.baseline;
        let reading = self.span_of(baseline);
        let reference = match self.try_twice(baseline, |timer| timer.outputs(baseline))? {
            Some(outputs) => outputs,
            None => return Err(self.baseline_failed()),
        };
        let reference: Vec<(OutputArray, Vec<u8>)> = reference
            .into_iter()
            .map(|output| std::fs::read(&output.path).map(|bytes| (output, bytes)))
            .collect::<Result<_, _>>()
            .map_err(|error| {
                let message = format!("the baseline's outputs cannot be read: {error}");
                Ended::Failed(Failure::new(FailureKind::Device, message))
            })?;
        // where the baseline's files had room a candidate's have it too: none is blamed for a full disk
        for (output, _) in &reference {
            let _ = std::fs::remove_file(&output.path);
        }
        drop(reading);
        for candidate in self.active() {
            if candidate == baseline {
                continue;
            }
            self.check_cancelled()?;
            let _span = self.span_of(candidate);
            let Some(outputs) = self.try_twice(candidate, |timer| timer.outputs(candidate))? else { continue };
            if let Some(difference) = first_difference(&outputs, &reference) {
                self.fail(candidate, Failure::new(FailureKind::WrongOutput, difference))?;
            }
            for output in outputs {
                let _ = std::fs::remove_file(output.path);
            }
        }
        Ok(())
    }
}

/// What the first differing output is, in one phrase.
fn first_difference(outputs: &[OutputArray], reference: &[(OutputArray, Vec<u8>)]) -> Option<String> {
    if outputs.len() != reference.len() {
        return Some(format!("{} outputs, the baseline has {}", outputs.len(), reference.len()));
    }
    outputs.iter().zip(reference).enumerate().find_map(|(index, (output, (expected, reference)))| {
        if output.spec != expected.spec {
            return Some(format!("output {index} is `{}`, the baseline's is `{}`", output.spec, expected.spec));
        }
        let bytes = match std::fs::read(&output.path) {
            Ok(bytes) => bytes,
            Err(error) => return Some(format!("output {index} cannot be read: {error}")),
        };
        let found = compare_bytes(&output.spec, &bytes, reference, Tolerance::for_dtype(output.spec.dtype));
        (!found.matches).then(|| {
            let text = |bytes: &[u8], at| element_text(&output.spec, bytes, at).unwrap_or_else(|| "nothing".to_owned());
            let first = found.first.map_or_else(String::new, |at| {
                format!(", first at element {at}: {}, the baseline's is {}", text(&bytes, at), text(reference, at))
            });
            // nothing finite differs where one of the two is no number
            let most = match found.max_absolute {
                0.0 => String::new(),
                most => format!(" by up to {most:.3e}"),
            };
            format!("output {index} differs from the baseline's in {} elements{most}{first}", found.mismatches)
        })
    })
}
