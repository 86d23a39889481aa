//! The outputs of a candidate: as files, kept in the worker, or compared there.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::{Bench, no_folder};
use crate::array::Tolerance;
use crate::failure::{Failure, FailureKind};
use crate::timer::answers::{AnswerFolder, OutputArray};
use crate::timer::call_time_limits::AwaitedCall;
use crate::timer::job::{Job, scratch};
use crate::timer::measured::{OutputsAs, TakenOutputs};
use crate::timer::protocol::{
    ComparedOutput, ComparedOutputs, DifferingElement, KeptOutput, KeptOutputs, Method, OutputRef, OutputsAnswer,
    capability,
};

impl Bench {
    /// Runs a candidate once and takes its outputs.
    pub(crate) fn outputs(
        &mut self,
        candidate: usize,
        taken: OutputsAs<'_>,
        job: &Option<Job>,
    ) -> Result<TakenOutputs, Failure> {
        match taken {
            OutputsAs::Compared(tolerances) => self.compare_outputs(candidate, tolerances).map(TakenOutputs::Compared),
            OutputsAs::KeptAbove(above) => match self.keep_outputs(candidate, above)? {
                Some(kept) => Ok(TakenOutputs::Kept(kept)),
                None => self.output_files(candidate, &scratch(job)?).map(TakenOutputs::Files),
            },
            OutputsAs::Files => self.output_files(candidate, &scratch(job)?).map(TakenOutputs::Files),
        }
    }

    /// Runs a candidate once; its outputs are in a folder in `scratch`.
    fn output_files(&mut self, candidate: usize, scratch: &Path) -> Result<Vec<OutputArray>, Failure> {
        self.check_loaded(candidate)?;
        let limit = self.limit(AwaitedCall::Outputs);
        let folder = Arc::new(AnswerFolder::make(scratch).map_err(|error| no_folder(scratch, error))?);
        let call = Method::Outputs { candidate, folder: folder.path().to_owned() };
        let begin = Instant::now();
        let outputs: Result<OutputsAnswer, Failure> = self.client()?.request(call, limit.time);
        let outputs = outputs.map_err(|failure| limit.explain(failure))?;
        self.call_time_limits.took_outputs(begin.elapsed());
        let check = |output: OutputRef| {
            let shown = output.path.display().to_string();
            OutputArray::answered(output.spec, output.path, &folder)
                .map_err(|error| Failure::new(FailureKind::Protocol, format!("the worker's output `{shown}`: {error}")))
        };
        outputs.outputs.into_iter().map(check).collect()
    }

    /// Makes the worker keep the outputs of a candidate, if it can and they are larger than this many bytes.
    fn keep_outputs(&mut self, candidate: usize, above: u64) -> Result<Option<Vec<KeptOutput>>, Failure> {
        self.kept = None;
        if !self.hello.can(capability::COMPARE_OUTPUTS) {
            return Ok(None);
        }
        let kept: KeptOutputs = self.on_outputs(candidate, Method::KeepOutputs { candidate, above })?;
        self.kept = kept.outputs.clone().map(|outputs| (candidate, outputs, self.info.epoch));
        Ok(kept.outputs)
    }

    /// Makes the worker compare the outputs of a candidate with the kept ones. A worker started since must first keep
    /// them again.
    fn compare_outputs(&mut self, candidate: usize, tolerances: &[Tolerance]) -> Result<Vec<ComparedOutput>, Failure> {
        if let Some((kept, before, epoch)) = self.kept.clone()
            && epoch != self.info.epoch
        {
            let lost = |reason: String| {
                let message = format!("the baseline's outputs cannot be produced again: {reason}");
                Failure::new(FailureKind::Device, message)
            };
            let again = self.keep_outputs(kept, 0).map_err(|failure| lost(failure.message));
            // they are requested again next time
            self.kept.get_or_insert((kept, before.clone(), epoch));
            let again = again?.ok_or_else(|| lost("the worker keeps none".to_owned()))?;
            let specs = |outputs: &[KeptOutput]| outputs.iter().map(|one| one.spec.clone()).collect::<Vec<_>>();
            if specs(&again) != specs(&before) {
                return Err(lost("they are different arrays".to_owned()));
            }
            if again != before {
                tracing::info!("candidate {kept} gives other outputs in another process");
            }
        }
        let call = Method::CompareOutputs { candidate, tolerances: tolerances.to_vec() };
        let compared: ComparedOutputs = self.on_outputs(candidate, call)?;
        match compared.outputs.iter().find(|output| !is_plausible(output)) {
            Some(output) => {
                let message = format!("the worker counts more differences than `{}` has elements", output.spec);
                Err(Failure::new(FailureKind::Protocol, message))
            }
            None => Ok(compared.outputs),
        }
    }

    /// A call that runs a candidate once and examines its outputs.
    fn on_outputs<T: serde::de::DeserializeOwned>(&mut self, candidate: usize, call: Method) -> Result<T, Failure> {
        self.check_loaded(candidate)?;
        let limit = self.limit(AwaitedCall::Outputs);
        let begin = Instant::now();
        let answer = self.client()?.request(call, limit.time).map_err(|failure| limit.explain(failure))?;
        self.call_time_limits.took_outputs(begin.elapsed());
        Ok(answer)
    }
}

/// Whether a worker's comparison can be true.
fn is_plausible(output: &ComparedOutput) -> bool {
    let ComparedOutput { spec, mismatches, max_absolute, first, worst, other_class, .. } = output;
    let elements = spec.elements().unwrap_or(u64::MAX);
    let is_element = |one: &DifferingElement| one.element < elements;
    *mismatches.max(other_class) <= elements
        && [*max_absolute, output.of_tolerance, output.rms, output.of_tile].iter().all(|part| *part >= 0.0)
        && first.is_some() == (*mismatches > 0)
        && first.iter().chain(worst).all(is_element)
}
