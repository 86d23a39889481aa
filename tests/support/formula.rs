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
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::measured_by::Source;
use autotune_lowered::registry::{Candidate, Program, Registry};
use autotune_lowered::timer::events::{Event, EventKind, Events};
use autotune_lowered::timer::{
    CompilerFigures, Foreknown, Job, OutputArray, OutputsAs, Prepared, ProgramFile, RoundRequest, RoundSamples,
    TakenOutputs, Timer, TimerInfo,
};
use autotune_lowered::tune::{AutotuningResult, OperationResult, PlannedInvocation, Session, TuneOptions};

/// Of this thread, so that other work on the machine and a slow disk do not count.
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The effect of a config when one of the timer's methods is called for it.
pub type Behaviour = Box<dyn FnMut(&Config, &str) -> Result<(), Failure> + Send>;

pub struct FormulaTimer {
    pub info: TimerInfo,
    pub ns: fn(&Config) -> u64,
    pub behaviour: Behaviour,
    /// Configs with wrong outputs.
    pub is_wrong: fn(&Config) -> bool,
    /// The configs of each job, except the first one, which is the baseline.
    pub jobs: Vec<Vec<Config>>,
    pub calls: u64,
    /// Digests of the programs that a compiler without a device refused, of configs with different programs.
    pub refused: Vec<Digest>,
    /// Processor time inside the timer in nanoseconds.
    pub spent: Arc<AtomicU64>,
    job: Option<Job>,
}

impl FormulaTimer {
    pub fn new(ns: fn(&Config) -> u64) -> Self {
        let identity =
            DeviceIdentity { platform: "cpu".into(), device_kind: "formula".into(), hardware: BTreeMap::new() };
        let device = DeviceFingerprint { identity, environment: Environment::default() };
        let mut info = TimerInfo::new("formula", Source::HostWall, device);
        (info.can.build_programs, info.epoch) = (true, 0);
        Self {
            info,
            ns,
            behaviour: Box::new(|_, _| Ok(())),
            is_wrong: |_| false,
            jobs: Vec::new(),
            calls: 0,
            refused: Vec::new(),
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

    fn times(&mut self, candidate: usize, runs: u32) -> Result<Vec<u64>, Failure> {
        let config = self.call(candidate, "measure")?;
        let base = (self.ns)(&config);
        Ok((0..u64::from(runs)).map(|run| base + base / 1000 * ((self.calls * 7 + run * 3) % 5)).collect())
    }
}

impl Timer for FormulaTimer {
    fn info(&self) -> &TimerInfo {
        &self.info
    }

    fn foreknown(&self, program: &Program, file: &dyn Fn() -> Option<ProgramFile>) -> Foreknown {
        match self.refused.contains(&program.digest) {
            true => {
                Foreknown { figures: Some(CompilerFigures::default()), refused: file().map(|_| "no room".to_owned()) }
            }
            false => Foreknown::default(),
        }
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
        let has_program = self.job.as_ref().unwrap().candidates[candidate].program.is_some();
        match has_program || self.info.can.build_programs {
            true => Ok(Prepared::new(1)),
            false => Err(Failure::new(FailureKind::NoProgram, "it builds none")),
        }
    }

    fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure> {
        round.one_by_one(|candidate, runs| self.times(candidate, runs))
    }

    fn outputs(&mut self, candidate: usize, _taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
        let begin = processor_time();
        let config = self.call(candidate, "outputs")?;
        let value: f32 = if (self.is_wrong)(&config) { 2.0 } else { 1.0 };
        let scratch = &self.job.as_ref().unwrap().scratch;
        let bytes = value.to_le_bytes().repeat(4);
        let output = OutputArray::write("f32[4]".parse().unwrap(), &bytes, scratch).unwrap();
        self.spent.fetch_add((processor_time() - begin).as_nanos() as u64, Ordering::Relaxed);
        Ok(TakenOutputs::Files(vec![output]))
    }

    fn restart(&mut self, _without: &[usize]) -> Result<(), Failure> {
        self.info.epoch += 1;
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
        if let EventKind::Evaluated { done, .. } = event.kind {
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
