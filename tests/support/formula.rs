//! A timer that builds every program and computes its times from a formula of the config. Simulated: no device.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::scripted::invocation;
use autotune_lowered::candidates::CandidateSpace;
use autotune_lowered::config::Config;
use autotune_lowered::device::{DeviceFingerprint, DeviceIdentity, Environment};
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::Failure;
use autotune_lowered::ledger::Ledger;
use autotune_lowered::measured_by::Source;
use autotune_lowered::registry::{Candidate, Program, Registry};
use autotune_lowered::timer::events::{Event, Events, Kind};
use autotune_lowered::timer::{CompilerFigures, Job, OutputArray, Prepared, ProgramFile, Timer};
use autotune_lowered::tune::{AutotuningResult, OperationResult, PlannedInvocation, Session, TuneOptions};

/// Of this thread, so that other work on the machine and a slow disk do not count.
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The effect of a config when one of the timer's methods is called for it.
pub type Behaviour = Box<dyn FnMut(&Config, &str) -> Result<(), Failure> + Send>;

pub struct FormulaTimer {
    pub device: DeviceFingerprint,
    pub ns: fn(&Config) -> u64,
    pub behaviour: Behaviour,
    /// Configs with wrong outputs.
    pub is_wrong: fn(&Config) -> bool,
    /// The configs of each job, except the first one, which is the baseline.
    pub jobs: Vec<Vec<Config>>,
    pub calls: u64,
    pub has_one_job_a_call: bool,
    pub compiles_beside_outputs: bool,
    /// Digests of the programs that a compiler without a device refused, of configs with different programs.
    pub refused: Vec<Digest>,
    pub restarts: u64,
    /// Processor time inside the timer in nanoseconds.
    pub spent: Arc<AtomicU64>,
    job: Option<Job>,
}

impl FormulaTimer {
    pub fn new(ns: fn(&Config) -> u64) -> Self {
        let identity =
            DeviceIdentity { platform: "cpu".into(), device_kind: "formula".into(), hardware: BTreeMap::new() };
        Self {
            device: DeviceFingerprint { identity, environment: Environment::default() },
            ns,
            behaviour: Box::new(|_, _| Ok(())),
            is_wrong: |_| false,
            jobs: Vec::new(),
            calls: 0,
            has_one_job_a_call: false,
            compiles_beside_outputs: false,
            refused: Vec::new(),
            restarts: 0,
            spent: Arc::default(),
            job: None,
        }
    }

    pub fn behaving(mut self, behaviour: impl FnMut(&Config, &str) -> Result<(), Failure> + Send + 'static) -> Self {
        self.behaviour = Box::new(behaviour);
        self
    }

    /// The configs that were tried one by one, in order.
    pub fn tried(&self) -> Vec<Config> {
        self.jobs.iter().filter(|job| job.len() == 1).map(|job| job[0].clone()).collect()
    }

    fn call(&mut self, candidate: usize, method: &str) -> Result<Config, Failure> {
        self.calls += 1;
        let config = self.job.as_ref().unwrap().candidates[candidate].config.clone();
        (self.behaviour)(&config, method).map(|()| config)
    }
}

impl Timer for FormulaTimer {
    fn name(&self) -> &str {
        "formula"
    }

    fn source(&self) -> Source {
        Source::HostWall
    }

    fn device(&self) -> &DeviceFingerprint {
        &self.device
    }

    fn builds_programs(&self) -> bool {
        true
    }

    fn has_one_job_a_call(&self) -> bool {
        self.has_one_job_a_call
    }

    fn compiles_beside_outputs(&self) -> bool {
        self.compiles_beside_outputs
    }

    fn compiler_figures(&self, program: &Program) -> Option<CompilerFigures> {
        self.refused.contains(&program.digest).then(CompilerFigures::default)
    }

    fn refused(&self, program: &ProgramFile) -> Option<String> {
        self.refused.contains(&program.program.digest).then(|| "no room".to_owned())
    }

    fn begin(&mut self, job: &Job) -> Result<(), Failure> {
        let begin = processor_time();
        assert!(job.inputs.iter().all(|input| input.path.exists()), "the inputs are there");
        self.jobs.push(job.candidates.iter().skip(1).map(|candidate| candidate.config.clone()).collect());
        self.job = Some(job.clone());
        self.spent.fetch_add((processor_time() - begin).as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
        self.call(candidate, "prepare")?;
        Ok(Prepared::new(1))
    }

    fn measure(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure> {
        let config = self.call(candidate, "measure")?;
        let base = (self.ns)(&config);
        Ok((0..u64::from(runs)).map(|run| base + base / 1000 * ((self.calls * 7 + run * 3) % 5)).collect())
    }

    fn outputs(&mut self, candidate: usize) -> Result<Vec<OutputArray>, Failure> {
        let begin = processor_time();
        let config = self.call(candidate, "outputs")?;
        let value: f32 = if (self.is_wrong)(&config) { 2.0 } else { 1.0 };
        let scratch = &self.job.as_ref().unwrap().scratch;
        let bytes = value.to_le_bytes().repeat(4);
        let output = OutputArray::write("f32[4]".parse().unwrap(), &bytes, scratch).unwrap();
        self.spent.fetch_add((processor_time() - begin).as_nanos() as u64, Ordering::Relaxed);
        Ok(vec![output])
    }

    fn epoch(&self) -> u32 {
        self.restarts as u32
    }

    fn restart(&mut self, _without: &[usize]) -> Result<(), Failure> {
        self.restarts += 1;
        Ok(())
    }

    fn end(&mut self) {
        self.job = None;
    }
}

/// A call whose only recorded config is the baseline, with a space that extends it.
pub fn planned(call_key: &str, space: &CandidateSpace) -> PlannedInvocation {
    let baseline = space.baseline().clone();
    let candidate = Candidate::new(baseline.clone());
    let invocation = invocation(call_key, baseline, vec![candidate]);
    let mut planned = PlannedInvocation::new(Arc::new(invocation));
    planned.extend_from(space);
    planned
}

/// Runs the tuner; `on_evaluated` receives the number of tried configs and may set the flag that ends the run.
pub fn tune_with(
    plan: &[PlannedInvocation],
    timer: &mut dyn Timer,
    ledger: &Ledger,
    options: &TuneOptions,
    mut on_evaluated: impl FnMut(usize, &AtomicBool) + Send + 'static,
) -> AutotuningResult {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::create_or_open(folder.path()).unwrap();
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancel);
    let events = Events::default().and(Arc::new(Mutex::new(move |event: &Event<'_>| {
        if let Kind::Evaluated { done, .. } = event.kind {
            on_evaluated(done, &flag);
        }
    })));
    let session = Session::new(&registry, ledger, timer).options(options.clone()).cancel(&cancel);
    session.events(events).run(&plan.iter().cloned().collect()).unwrap()
}

pub fn tune_one(
    planned: &PlannedInvocation,
    timer: &mut dyn Timer,
    ledger: &Ledger,
    options: &TuneOptions,
) -> OperationResult {
    let mut result = tune_with(std::slice::from_ref(planned), timer, ledger, options, |_, _| {});
    result.operations.remove(0)
}

/// Ends the run after this many configs.
pub fn after(count: usize) -> impl FnMut(usize, &AtomicBool) + Send {
    move |done, cancel| cancel.store(done >= count, Ordering::Relaxed)
}
