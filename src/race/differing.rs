//! What is said about an output that is wrong: which one, which element, by how much, and what helps.

use crate::array::{ArrayError, ArraySpec, Disagreement, OutputDeviation};
use crate::timer::protocol::{ComparedOutput, DifferingElement, one_line};

use super::expected::ExpectedOutputs;
use super::{OutputDifference, ReferenceError};

/// Maximum number of outputs in a message.
const OUTPUTS_SHOWN: usize = 6;
/// Maximum number of characters of an element in a message: an `f64` may have more than three hundred.
const ELEMENT_SHOWN: usize = 400;
/// What helps if a candidate is right all the same.
const HELP: &str = "if it is right all the same, allow more with `--tolerance`, give real inputs, or let it accumulate \
                    in a wider type";

/// An output beside the baseline's.
pub(super) struct DifferingOutput<'a> {
    output: &'a ComparedOutput,
    pub(super) difference: OutputDifference,
    pub(super) deviation: OutputDeviation,
    /// The errors of the candidate's and of the baseline's against the program in `f64`.
    errors: Option<(ArrayError, ArrayError)>,
}

impl<'a> DifferingOutput<'a> {
    /// Puts together what is known of an output.
    ///
    /// # Errors
    /// What is wrong, if it cannot be compared.
    pub(super) fn of(
        index: usize,
        name: String,
        output: &'a Result<ComparedOutput, String>,
        expected: &ExpectedOutputs,
        errors: Option<(ArrayError, ArrayError)>,
    ) -> Result<Self, String> {
        let output = output.as_ref().map_err(Clone::clone)?;
        let Some(spec) = expected.spec(index) else { return Err(format!("output {index} is not the baseline's")) };
        if output.spec != *spec {
            return Err(format!("output {index} is `{}`, the baseline's is `{spec}`", output.spec));
        }
        let rms = expected.rms(index);
        let difference = OutputDifference {
            output: index,
            name,
            elements: spec.elements().unwrap_or_default(),
            differing: output.mismatches,
            max_absolute: output.max_absolute,
            of_rms: (rms > 0.0).then(|| output.max_absolute / rms),
        };
        Ok(Self { output, difference, deviation: output.deviation(rms), errors })
    }

    pub(super) fn reference_error(&self) -> Option<ReferenceError> {
        let (own, baseline) = self.errors?;
        Some(ReferenceError { output: self.difference.output, name: self.difference.name.clone(), own, baseline })
    }

    /// What is wrong with it, given whether the program in `f64` computes what the baseline does.
    pub(super) fn describe(&self, why: Disagreement, is_trusted: bool) -> String {
        let (difference, output) = (&self.difference, self.output);
        let in_f64 = self.in_f64(is_trusted);
        match why {
            Disagreement::Rms => {
                let of_rms = self.deviation.rms / self.deviation.baseline_rms;
                format!(
                    "{difference} is off by {of_rms:.1e} of the baseline's root mean square, more than the rounding \
                     of `{}` explains{in_f64}",
                    output.spec.dtype
                )
            }
            Disagreement::F64 if output.mismatches == 0 => {
                format!("{difference} differs from the baseline's by up to {:.3e}{in_f64}", output.max_absolute)
            }
            _ => {
                // no finite difference exists if one of the two is not a number
                let most = match output.max_absolute {
                    0.0 => String::new(),
                    most => format!(" by up to {most:.3e}"),
                };
                let together = if output.clustered { ", which lie together," } else { "" };
                let (count, of) = (output.mismatches, difference.elements);
                let worst = self.worst().unwrap_or_default();
                format!(
                    "{difference} differs from the baseline's in {count} of {of} elements{together}{most}{worst}{in_f64}"
                )
            }
        }
    }

    /// The worst element, or the first if a worker reports no other.
    fn worst(&self) -> Option<String> {
        let (place, element) = match (&self.output.worst, &self.output.first) {
            (Some(worst), _) => ("most", worst),
            (None, Some(first)) => ("first", first),
            (None, None) => return None,
        };
        let DifferingElement { element, own, kept, .. } = element;
        let (own, kept) = (one_line(own, ELEMENT_SHOWN), one_line(kept, ELEMENT_SHOWN));
        let at = coordinates(&self.output.spec, *element);
        let times = match self.output.of_tolerance {
            times if place == "most" && times < f64::MAX => format!(" ({times:.1} times the tolerance)"),
            _ => String::new(),
        };
        Some(format!(", {place} at {at}: {own}, the baseline's is {kept}{times}"))
    }

    fn in_f64(&self, is_trusted: bool) -> String {
        let Some((own, baseline)) = self.errors else { return String::new() };
        if !is_trusted {
            return format!(
                "; the same program in f64 is no measure, because the baseline is off by up to {:.3e} from it",
                baseline.max_absolute
            );
        }
        let error = |of: ArrayError| {
            let rms = of.rms.map_or_else(String::new, |rms| format!(", {rms:.1e} in the root mean square"));
            format!("{:.3e}{rms}", of.max_absolute)
        };
        format!("; from the same program in f64 it is off by up to {}, the baseline by {}", error(own), error(baseline))
    }
}

/// `[2,0,5]`, or the number alone in an array of one dimension.
fn coordinates(spec: &ArraySpec, element: u64) -> String {
    let mut rest = element;
    let mut places: Vec<String> = Vec::with_capacity(spec.dims.len());
    for &length in spec.dims.iter().rev() {
        let length = length.max(1);
        places.push((rest % length).to_string());
        rest /= length;
    }
    places.reverse();
    if places.len() == 1 { format!("element {element}") } else { format!("element [{}]", places.join(",")) }
}

/// One message on the wrong outputs, if there are any, with why there is no program in `f64`, and with what helps.
pub(super) fn message(mut wrong: Vec<String>, why_not_in_f64: Option<&String>) -> Option<String> {
    let more = wrong.len().saturating_sub(OUTPUTS_SHOWN);
    wrong.truncate(OUTPUTS_SHOWN);
    if more > 0 {
        wrong.push(format!("and {more} more"));
    }
    if wrong.is_empty() {
        return None;
    }
    wrong.extend(why_not_in_f64.map(|why| format!("no reference in f64: {why}")));
    Some(format!("{}; {HELP}", wrong.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_named_by_its_coordinates() {
        let at = |spec: &str, element| coordinates(&spec.parse().unwrap(), element);
        assert_eq!(at("f32[2,3,4]", 17), "element [1,1,1]");
        assert_eq!((at("f32[8]", 7), at("f32[]", 0)), ("element 7".to_owned(), "element []".to_owned()));
    }
}
