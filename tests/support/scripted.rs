//! A timer that plays a script, and invocations for it. Simulated, so that the tuner's logic is tested without a
//! device.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use autotune_lowered::array::{DType, Fill, Reference, Tolerance};
use autotune_lowered::call::Call;
use autotune_lowered::config::Config;
use autotune_lowered::device::{DeviceFingerprint, DeviceIdentity, Environment};
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::hlo::Cost;
use autotune_lowered::ledger::Ledger;
use autotune_lowered::measured_by::Source;
use autotune_lowered::registry::{Argument, Candidate, Invocation, ProgramFormat, RecordedTarget, Registry};
use autotune_lowered::timer::events::{Event, EventKind, Events};
use autotune_lowered::timer::protocol::{ComparedOutput, KeptOutput};
use autotune_lowered::timer::{
    Job, OutputArray, OutputsAs, Prepared, ProgramSignature, RoundRequest, RoundSamples, TakenOutputs, Timer, TimerInfo,
};
use autotune_lowered::tune::{AutotuningResult, PlannedInvocation, Session, TuneError, TuneOptions, TuningPlan};

pub fn config(n: u64) -> Config {
    serde_json::from_str(&format!(r#"{{"block":{n}}}"#)).unwrap()
}

pub fn device() -> DeviceFingerprint {
    DeviceFingerprint {
        identity: DeviceIdentity {
            platform: "cpu".into(),
            device_kind: "simulated".into(),
            hardware: BTreeMap::from([("cores".into(), "2".into())]),
        },
        environment: Environment::default().platform_version("cpu".into()),
    }
}

/// A registry with one invocation whose candidates are `config(0)`, the baseline, to `config(n - 1)`.
pub fn registry(folder: &Path, n: u64, programs: &dyn Fn(u64) -> String) -> (Registry, Arc<Invocation>) {
    let mut registry = Registry::create_or_open(folder).unwrap();
    let candidates = (0..n)
        .map(|index| {
            let text = programs(index);
            let program = registry
                .writer()
                .put_program(ProgramFormat::StablehloText, text.as_bytes(), Digest::of(text.as_bytes()), vec![])
                .unwrap();
            Candidate::new(config(index)).program(Some(program))
        })
        .collect();
    let invocation = invocation("0123456789abcdef", config(0), candidates);
    registry.add(&invocation).unwrap();
    let stored = Arc::clone(&registry.invocations()[0]);
    (registry, stored)
}

/// An invocation of `op@v1` with one input.
pub fn invocation(call_key: &str, baseline: Config, candidates: Vec<Candidate>) -> Invocation {
    let x = Argument::new("x", "f32[4]".parse().unwrap(), Fill::Normal { scale: 1.0 });
    Invocation::new(RecordedTarget::Platform("cpu".into()), Call::new("op@v1", call_key), baseline)
        .arguments(vec![x])
        .candidates(candidates)
        .recorded_at(1)
        .recorder("tests".into())
}

pub fn distinct_program(index: u64) -> String {
    format!("module @m{{ func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{ // {index}\n }} }}")
}

/// The behaviour of a candidate at its n-th call over all methods.
pub type Script = Box<dyn FnMut(usize, &str, u64) -> Result<(), Failure> + Send>;

/// Plays times: candidate `i` takes `ns[i]`, with a small spread that differs by candidate.
pub struct ScriptedTimer {
    pub info: TimerInfo,
    pub ns: Vec<u64>,
    pub outputs: Vec<f32>,
    pub script: Script,
    pub calls: u64,
    pub measured: u64,
    /// Differences between runs, in thousandths.
    pub wobble: u64,
    pub restarts: Vec<Vec<usize>>,
    /// The signature of candidates other than `f32[4]`; `None` if it is unknown.
    pub signatures: BTreeMap<usize, Option<ProgramSignature>>,
    /// The executable of each candidate: equal bytes are the same executable.
    pub executables: Vec<u8>,
    /// Bytes of temporary memory and floating-point operations of candidates for which they are known.
    pub temporary_bytes: BTreeMap<usize, u64>,
    pub work: BTreeMap<usize, Cost>,
    /// The number of the restart that fails, counted from one.
    pub failing_restart: Option<usize>,
    /// What each program returns instead of an `f32[4]`: nothing, or an array without an element.
    pub returns: Option<Option<&'static str>>,
    /// What a program gives whose inputs are in `f64`: four of this number.
    pub in_f64: Option<f64>,
    /// What each program gives instead, from the first byte of its input.
    pub arrays: Option<fn(usize, u8) -> Vec<f32>>,
    /// The times of candidates for jobs whose first input begins with this byte.
    pub ns_of_input: BTreeMap<u8, Vec<u64>>,
    /// How many jobs began.
    pub begun: usize,
    kept: Option<Reference>,
    job: Option<Job>,
}

impl ScriptedTimer {
    pub fn new(ns: &[u64]) -> Self {
        Self {
            info: TimerInfo::new("scripted", Source::HostWall, device()),
            ns: ns.to_vec(),
            outputs: vec![1.0; ns.len()],
            script: Box::new(|_, _, _| Ok(())),
            calls: 0,
            measured: 0,
            wobble: 1,
            restarts: Vec::new(),
            signatures: BTreeMap::new(),
            executables: Vec::new(),
            temporary_bytes: BTreeMap::new(),
            work: BTreeMap::new(),
            failing_restart: None,
            returns: None,
            in_f64: None,
            arrays: None,
            ns_of_input: BTreeMap::new(),
            begun: 0,
            kept: None,
            job: None,
        }
    }

    pub fn with_script(mut self, script: impl FnMut(usize, &str, u64) -> Result<(), Failure> + Send + 'static) -> Self {
        self.script = Box::new(script);
        self
    }

    fn call(&mut self, candidate: usize, method: &str) -> Result<(), Failure> {
        self.calls += 1;
        (self.script)(candidate, method, self.calls)
    }

    /// The times of a candidate's next runs.
    pub fn times(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure> {
        self.call(candidate, "measure")?;
        self.measured += u64::from(runs);
        let input = self.job.as_ref().filter(|_| !self.ns_of_input.is_empty());
        let first = input.map_or(0, |job| std::fs::read(&job.inputs[0].path).unwrap()[0]);
        let base = self.ns_of_input.get(&first).unwrap_or(&self.ns)[candidate];
        Ok((0..u64::from(runs))
            .map(|run| base + base / 1000 * self.wobble * ((self.calls * 7 + run * 3) % 5))
            .collect())
    }

    fn files(&mut self, candidate: usize) -> Result<Vec<OutputArray>, Failure> {
        self.call(candidate, "outputs")?;
        let scratch = &self.job.as_ref().unwrap().scratch;
        if let Some(returned) = self.returns {
            let write = |spec: &str| OutputArray::write(spec.parse().unwrap(), &[], scratch).unwrap();
            return Ok(returned.map(write).into_iter().collect());
        }
        let job = self.job.as_ref().unwrap();
        let write = |spec: &str, bytes: &[u8]| OutputArray::write(spec.parse().unwrap(), bytes, scratch).unwrap();
        if job.inputs[0].spec.dtype == DType::F64 {
            let value = self.in_f64.ok_or_else(|| Failure::new(FailureKind::Execute, "no f64 here"))?;
            return Ok(vec![write("f64[4]", &value.to_le_bytes().repeat(4))]);
        }
        if let Some(arrays) = self.arrays {
            // the candidate's number in the first job, because a later one may have fewer
            let number = job.candidates[candidate].config.as_map()["block"].as_u64().unwrap();
            let values = arrays(number as usize, std::fs::read(&job.inputs[0].path).unwrap()[0]);
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            return Ok(vec![write(&format!("f32[{},100]", values.len() / 100), &bytes)]);
        }
        Ok(vec![write("f32[4]", &self.outputs[candidate].to_le_bytes().repeat(4))])
    }

    fn keep(&mut self, candidate: usize) -> Result<Vec<KeptOutput>, Failure> {
        self.call(candidate, "keep")?;
        if self.arrays.is_some() {
            let output = self.files(candidate)?.remove(0);
            let kept = self.kept.insert(Reference::new(output.spec.clone(), output.read().unwrap(), Tolerance::EXACT));
            return Ok(vec![KeptOutput::of(kept)]);
        }
        if let Some(returned) = self.returns {
            let keep =
                |spec: &str| KeptOutput::of(&Reference::new(spec.parse().unwrap(), Vec::new(), Tolerance::EXACT));
            return Ok(returned.map(keep).into_iter().collect());
        }
        let bytes = self.outputs[candidate].to_le_bytes().repeat(4);
        let kept = self.kept.insert(Reference::new("f32[4]".parse().unwrap(), bytes, Tolerance::EXACT));
        Ok(vec![KeptOutput::of(kept)])
    }

    fn compare(&mut self, candidate: usize, tolerance: Tolerance) -> Result<Vec<ComparedOutput>, Failure> {
        self.call(candidate, "compare")?;
        if let Some(returned) = self.returns {
            let same = |spec: &str| ComparedOutput::of(spec.parse().unwrap(), &[], None);
            return Ok(returned.map(same).into_iter().collect());
        }
        let kept = self.kept.take().unwrap().within(tolerance);
        if self.arrays.is_some() {
            let output = self.files(candidate)?.remove(0);
            let found = ComparedOutput::of(output.spec.clone(), &output.read().unwrap(), Some(&kept));
            self.kept = Some(kept);
            return Ok(vec![found]);
        }
        let bytes = self.outputs[candidate].to_le_bytes().repeat(4);
        let found = ComparedOutput::of("f32[4]".parse().unwrap(), &bytes, Some(&kept));
        self.kept = Some(kept);
        Ok(vec![found])
    }
}

impl Timer for ScriptedTimer {
    fn info(&self) -> &TimerInfo {
        &self.info
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        self.job = Some(job.clone());
        self.begun += 1;
        self.kept = None;
        Ok(())
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        self.call(candidate, "prepare")?;
        if self.job.as_ref().unwrap().candidates[candidate].program.is_none() {
            return Err(Failure::new(FailureKind::NoProgram, "no program"));
        }
        let executable = self.executables.get(candidate).map(|bytes| Digest::of(&[*bytes]));
        let (temporary_bytes, work) =
            (self.temporary_bytes.get(&candidate).copied(), self.work.get(&candidate).cloned());
        Ok(Prepared::new(1).executable(executable).temporary_bytes(temporary_bytes).work(work))
    }

    fn signature(&mut self, candidate: usize) -> Result<Option<ProgramSignature>, Failure> {
        self.call(candidate, "signature")?;
        let usual = || {
            let arrays = vec!["f32[4]".parse().unwrap()];
            ProgramSignature::new(arrays.clone()).results(Some(arrays))
        };
        Ok(self.signatures.get(&candidate).cloned().unwrap_or_else(|| Some(usual())))
    }

    fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure> {
        round.one_by_one(|candidate, runs| self.times(candidate, runs))
    }

    fn outputs(&mut self, candidate: usize, taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
        match taken {
            OutputsAs::KeptAbove(_) if self.info.can.compare_outputs => self.keep(candidate).map(TakenOutputs::Kept),
            OutputsAs::Compared(tolerances) => self.compare(candidate, tolerances[0]).map(TakenOutputs::Compared),
            _ => self.files(candidate).map(TakenOutputs::Files),
        }
    }

    fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
        self.restarts.push(without.to_vec());
        self.info.epoch += 1;
        if self.failing_restart == Some(self.restarts.len()) {
            return Err(Failure::new(FailureKind::Device, "the worker does not start"));
        }
        Ok(())
    }

    fn end(&mut self) {
        self.job = None;
    }
}

/// A plan of all recorded invocations, independent of any module.
pub fn planned<'a>(invocations: impl IntoIterator<Item = &'a Arc<Invocation>>) -> TuningPlan {
    invocations.into_iter().map(|invocation| PlannedInvocation::new(Arc::clone(invocation))).collect()
}

/// Runs the tuner; `cancel_after` counts finished rounds.
pub fn tune(
    registry: &Registry,
    invocation: &Arc<Invocation>,
    timer: &mut ScriptedTimer,
    ledger: &Ledger,
    options: &TuneOptions,
    cancel_after: Option<u64>,
) -> Result<AutotuningResult, TuneError> {
    tune_told(registry, invocation, timer, ledger, options, cancel_after, &Events::default())
}

/// The same, with events.
pub fn tune_told(
    registry: &Registry,
    invocation: &Arc<Invocation>,
    timer: &mut ScriptedTimer,
    ledger: &Ledger,
    options: &TuneOptions,
    cancel_after: Option<u64>,
    events: &Events,
) -> Result<AutotuningResult, TuneError> {
    let cancel = Arc::new(AtomicBool::new(false));
    let (flag, mut done) = (Arc::clone(&cancel), 0);
    let events = events.and(Arc::new(Mutex::new(move |event: &Event<'_>| {
        if let EventKind::Round { .. } = event.kind {
            done += 1;
            if cancel_after.is_some_and(|limit| done >= limit) {
                flag.store(true, Ordering::Relaxed);
            }
        }
    })));
    let session = Session::new(registry, ledger, timer).options(options.clone()).cancel(&cancel);
    session.events(events).run(&planned([invocation])).map_err(|stopped| *stopped.error)
}
