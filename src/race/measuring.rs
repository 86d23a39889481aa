//! Measuring one job: compile, compare outputs, warm up, then interleaved rounds until the race is decided.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::contention::{ContentionWatch, LoadPolicy};
use super::evidence::JobEvidence;
use super::expected::{ExpectedOutputs, LARGE_OUTPUTS};
use super::in_f64::WideOutputs;
use super::process::Process;
use super::sampling::WarmUp;
use super::{DeviceSlot, JobIdentity, RaceError, Referee, Runner};
use crate::ledger::Ledger;
use crate::measured_by::Source;
use crate::timer::events::{Phase, Slice};
use crate::timer::{Job, OutputsAs};

/// Measures a job until the race is decided or the budget spent, and adds the rounds to the evidence. Returns how many
/// were measured.
pub(crate) fn measure<'a>(
    runner: Runner<'a>,
    job: &'a Job,
    referee: Referee<'a>,
    compiling: Compiling<'a>,
    evidence: &'a mut JobEvidence,
) -> Result<u32, RaceError> {
    Measuring::of((runner, job), referee, compiling, evidence).run()
}

/// Who says which candidates are compiled next.
pub(crate) trait NextWave {
    /// Candidates to compile next, if so many calls compile at the same time; none if the rest is skipped.
    fn next(&mut self, evidence: &JobEvidence, identity: &JobIdentity, calls: usize) -> Vec<usize>;
}

/// How the candidates of a race are compiled.
pub(crate) struct Compiling<'a> {
    /// The waves in which candidates are compiled; all at once if `None`.
    pub(super) waves: Option<&'a mut dyn NextWave>,
    /// The race's place among those of the calls that are tuned side by side on this device.
    pub(super) slot: Option<&'a mut DeviceSlot>,
    /// Calls that compiled at the same time in the last wave, this one included.
    pub(super) beside: usize,
    /// Programs submitted so far.
    pub(super) tried: usize,
}

impl<'a> Compiling<'a> {
    /// All at once, or in waves.
    pub(crate) fn new(waves: Option<&'a mut dyn NextWave>, slot: Option<&'a mut DeviceSlot>) -> Self {
        Self { waves, beside: slot.as_ref().map_or(1, |slot| slot.slots()), slot, tried: 0 }
    }
}

/// One job being measured.
pub(super) struct Measuring<'a> {
    /// Who starts the measuring process.
    pub(super) process: Process<'a>,
    /// What is known so far.
    pub(super) evidence: &'a mut JobEvidence,
    /// Who decides.
    pub(super) referee: Referee<'a>,
    pub(super) compiling: Compiling<'a>,
    pub(super) ledger: &'a Ledger,
    pub(super) forgiven: Forgiven,
    pub(super) spent: TimeSpent,
    /// What other processes do on the cores.
    pub(super) watch: ContentionWatch,
    /// The candidates to measure beside the baseline if its rounds confirm what others chose.
    pub(super) confirms: Option<&'a [usize]>,
    /// Whether the timer keeps the baseline's outputs, to compare others with them.
    pub(super) keeps_outputs: bool,
    /// Most terms that the baseline's program sums in a narrow type.
    pub(super) narrow_sum: u64,
    /// The baseline's outputs in `f64` or why there are none, once a candidate needed them.
    pub(super) in_f64: Option<Result<WideOutputs, String>>,
}

impl<'a> Measuring<'a> {
    /// A job that nothing was done for yet.
    pub(super) fn of(
        (runner, job): (Runner<'a>, &'a Job),
        referee: Referee<'a>,
        compiling: Compiling<'a>,
        evidence: &'a mut JobEvidence,
    ) -> Self {
        Self {
            ledger: runner.ledger,
            process: Process::new(runner, job),
            evidence,
            referee,
            compiling,
            forgiven: Forgiven::default(),
            spent: TimeSpent::default(),
            watch: ContentionWatch::default(),
            confirms: None,
            keeps_outputs: false,
            narrow_sum: 0,
            in_f64: None,
        }
    }
}

/// Who had a second chance.
#[derive(Debug, Default)]
pub(super) struct Forgiven {
    /// Candidates: one that occasionally breaks a worker is dropped, however fast it is.
    pub(super) candidates: BTreeSet<usize>,
    /// Whether the round before failed without a culprit.
    pub(super) round: bool,
}

/// The time that a race took so far.
#[derive(Debug, Default)]
pub(super) struct TimeSpent {
    pub(super) compiling: Duration,
    pub(super) in_rounds: Duration,
    /// The part of the time in rounds in which programs ran.
    pub(super) running: Duration,
}

impl Measuring<'_> {
    fn run(mut self) -> Result<u32, RaceError> {
        self.process.timer.follow(self.process.events);
        let _job = self.process.events.try_open(Slice::Job(self.process.job)).map_err(RaceError::Failed)?;
        let epoch = self.evidence.next_epoch();
        self.in_phase(Phase::LoadInputs, |this| this.process.begin(epoch)).map_err(RaceError::Failed)?;
        let measured = self.run_begun();
        let _ending = self.process.events.open(Slice::Step("end"));
        self.process.timer.end();
        measured
    }

    /// Begins the job again, after the timer did something else, with the candidates that compete.
    pub(super) fn begin_again(&mut self) -> Result<(), RaceError> {
        let epoch = self.process.epoch().saturating_add(1).max(self.evidence.next_epoch());
        self.process.begin(epoch).map_err(RaceError::Failed)?;
        for candidate in self.active() {
            if let Err(failure) = self.process.timer.prepare(candidate) {
                self.blamed(candidate, failure)?;
            }
        }
        if self.keeps_outputs {
            let baseline = self.referee.identity.baseline;
            self.try_twice(baseline, |timer| timer.outputs(baseline, OutputsAs::KeptAbove(LARGE_OUTPUTS)))?;
        }
        Ok(())
    }

    fn run_begun(&mut self) -> Result<u32, RaceError> {
        let mut warm = WarmUp::of(self.process.job.candidates.len());
        let mut reference = None;
        let (mut measured, mut raced) = (0, false);
        // candidates still competing from an earlier run are loaded with the first wave
        let mut wave = self.active();
        loop {
            wave.extend(self.next_wave());
            if wave.is_empty() {
                if raced {
                    return Ok(measured);
                }
                measured += self.in_phase(Phase::Measure, |this| this.measure_rounds(&warm))?;
                if self.compiling.waves.is_none() {
                    return Ok(measured);
                }
                // the race's outcomes may bring back a skipped candidate
                raced = true;
                continue;
            }
            raced = false;
            self.bring_in(&mut wave, &mut reference, &mut warm)?;
            if self.compiling.waves.is_some() {
                measured += self.in_phase(Phase::Measure, |this| this.look(&wave, &warm))?;
            }
            wave.clear();
        }
    }

    /// Compiles a wave, compares its outputs and warms it up.
    fn bring_in(
        &mut self,
        wave: &mut Vec<usize>,
        reference: &mut Option<ExpectedOutputs>,
        warm: &mut WarmUp,
    ) -> Result<(), RaceError> {
        // comparing outputs while the next one compiles saves doing it afterwards
        let compared = reference.as_ref().filter(|_| self.process.timer.info().can.compile_beside_outputs);
        self.compile(wave, compared)?;
        wave.retain(|&candidate| !self.evidence.is_left(candidate));
        let is_compared = compared.is_some();
        if reference.is_none() {
            // the baseline's time comes first, because it bounds how long to wait for the others
            self.in_phase(Phase::WarmUp, |this| this.warm_up_baseline(warm))?;
        }
        if !is_compared {
            self.in_phase(Phase::CompareOutputs, |this| {
                let reference = match reference {
                    Some(reference) => reference,
                    None => reference.insert(this.reference_outputs()?),
                };
                this.compare_outputs(wave, reference)
            })?;
        }
        // everything is compiled: from here on, whatever runs besides the measuring process is others'
        self.watch_cores();
        self.in_phase(Phase::WarmUp, |this| this.warm_up(wave, warm))
    }

    /// Observes the cores from now on, if samples depend on them.
    pub(super) fn watch_cores(&mut self) {
        let info = self.process.timer.info();
        // a device's own clock does not tell of them
        let depends = info.can.on_these_cores && info.source == Source::HostWall;
        let policy = if depends { self.referee.options.load } else { LoadPolicy::Ignore };
        self.watch = ContentionWatch::begin(policy, info.process);
    }

    /// Whether the time is used up, with what passed since `begin`. A comparison needs all its programs, so compiling
    /// them does not count there.
    pub(super) fn is_late(&self, begin: Instant) -> bool {
        let compiling = if self.referee.terms.wants_each_ratio() { Duration::ZERO } else { self.spent.compiling };
        let budget = self.referee.options.budget;
        budget.is_some_and(|budget| compiling + self.spent.in_rounds + begin.elapsed() >= budget)
    }

    /// Does a part of the work.
    pub(super) fn in_phase<T>(&mut self, phase: Phase, work: impl FnOnce(&mut Self) -> T) -> T {
        let _phase = self.process.events.open(Slice::Phase(phase));
        work(self)
    }

    /// Candidates that were not dropped and have a program of their own, the baseline included. A fresh process measures
    /// whatever it shall confirm: what was dropped in the one that chose may be the best elsewhere.
    pub(super) fn active(&self) -> Vec<usize> {
        let Some(candidates) = self.confirms else { return self.referee.race_state(self.evidence).contenders };
        let all = std::iter::once(self.referee.identity.baseline).chain(candidates.iter().copied());
        all.filter(|candidate| !self.evidence.failures.contains_key(candidate)).collect()
    }

    /// Whether its rounds confirm what others chose.
    pub(super) fn is_confirming(&self) -> bool {
        self.confirms.is_some()
    }
}
