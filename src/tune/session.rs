//! The session: takes a plan, a device and a cache folder, and commits the best configs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::Config;
use crate::decision::Round;
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::lowering::Lowering;
use crate::race::{DeviceSlots, RaceError};
use crate::registry::{Invocation, Registry};
use crate::timer::Timer;
use crate::timer::events::Events;

use super::devices::run_on_devices;
use super::tuner::{Autotuner, ProvisionalWinners, Surrogates};
use super::{AutotuningResult, Remeasurement, TuneError, TuneOptions, TuningPlan};

/// The stop flag of runs that nothing ends from outside.
static NEVER: AtomicBool = AtomicBool::new(false);

/// The resources that plans are run with: a registry's programs, the timers of one or several devices, a ledger, and
/// options.
pub struct Session<'a> {
    registry: &'a Registry,
    ledger: &'a Ledger,
    first: SessionDevice<'a>,
    others: Vec<SessionDevice<'a>>,
    /// Whether the others are the same device.
    is_one_device: bool,
    pub(crate) options: TuneOptions,
    cancel: &'a AtomicBool,
    lowering: Option<&'a Lowering>,
}

/// A device's timer and its event sink.
struct SessionDevice<'a> {
    timer: &'a mut dyn Timer,
    events: Events,
}

/// A run stopped by an error, with what was decided, and committed, before it.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Stopped<R> {
    /// The result of the run so far; calls that were not started say so.
    pub so_far: Box<R>,
    /// The error that stopped it.
    #[source]
    pub error: Box<TuneError>,
}

impl<R> Stopped<R> {
    /// The result of a run, and the error that stopped it.
    pub(crate) fn split(outcome: Result<R, Self>) -> (R, Option<TuneError>) {
        outcome.map_or_else(|Self { so_far, error }| (*so_far, Some(*error)), |result| (result, None))
    }

    /// The result, or the partial result with the error that stopped the run.
    pub(crate) fn unless_ended(so_far: R, stopped_by: Option<TuneError>) -> Result<R, Self> {
        match stopped_by {
            None => Ok(so_far),
            Some(error) => Err(Self { so_far: Box::new(so_far), error: Box::new(error) }),
        }
    }
}

impl<'a> Session<'a> {
    /// A session on one device, with default options.
    pub fn new(registry: &'a Registry, ledger: &'a Ledger, timer: &'a mut dyn Timer) -> Self {
        let first = SessionDevice { timer, events: Events::default() };
        Self {
            registry,
            ledger,
            first,
            others: Vec::new(),
            is_one_device: false,
            options: TuneOptions::default(),
            cancel: &NEVER,
            lowering: None,
        }
    }

    /// The same with other options.
    #[must_use]
    pub fn options(self, options: TuneOptions) -> Self {
        Self { options, ..self }
    }

    /// The same with a flag that ends a run after the call in flight.
    #[must_use]
    pub fn cancel(self, cancel: &'a AtomicBool) -> Self {
        Self { cancel, ..self }
    }

    /// The same with recorders, which lower candidates on demand.
    #[must_use]
    pub fn lowering(self, lowering: Option<&'a Lowering>) -> Self {
        Self { lowering, ..self }
    }

    /// The same with an event sink for the first device.
    #[must_use]
    pub fn events(mut self, events: Events) -> Self {
        self.first.events = events;
        self
    }

    /// The same with one more device and its event sink. All devices must have one identity, since a result is
    /// for all of that identity.
    #[must_use]
    pub fn device(mut self, timer: &'a mut dyn Timer, events: Events) -> Self {
        self.others.push(SessionDevice { timer, events });
        self
    }

    /// The same with one more timer of the first device ([`Timer::beside`]), and its event sink: calls of different
    /// operations are tuned side by side, so that their programs compile together. Nothing is measured meanwhile, and
    /// one call is measured at a time.
    #[must_use]
    pub fn beside(self, timer: &'a mut dyn Timer, events: Events) -> Self {
        Self { is_one_device: true, ..self.device(timer, events) }
    }

    /// The timer of the first device.
    pub(crate) fn timer(&self) -> &dyn Timer {
        &*self.first.timer
    }

    /// Where samples and decisions go.
    pub(crate) fn ledger(&self) -> &'a Ledger {
        self.ledger
    }

    /// Whether the user ended it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// The event sink of the first device.
    pub(crate) fn first_events(&self) -> &Events {
        &self.first.events
    }

    /// What [`run`](Self::run) would tune; nothing is measured.
    pub fn preview(&mut self, plan: &TuningPlan) -> AutotuningResult {
        let of_timer = self.first.timer.info().notes.clone();
        let result = self.first_tuner().preview(&plan.invocations);
        self.with_plan(result, plan, of_timer)
    }

    /// Tunes everything that is planned, each invocation on the next free device. A failure affects one operation.
    ///
    /// # Errors
    /// If the ledger or the scratch folder fails; what was decided before is returned with the error.
    pub fn run(&mut self, plan: &TuningPlan) -> Result<AutotuningResult, Stopped<AutotuningResult>> {
        let mut of_timer = self.first.timer.info().notes.clone();
        let (result, stopped_by) = if self.others.is_empty() {
            self.first_tuner().run(&plan.invocations)
        } else {
            let nothing_yet = self.first_tuner().nothing_yet(&plan.invocations);
            let (ledger, is_one_device) = (self.ledger, self.is_one_device);
            run_on_devices(nothing_yet, ledger, &mut self.tuners(), &plan.invocations, is_one_device)
        };
        of_timer.extend(self.first.timer.info().clocks_seen.clone());
        Stopped::unless_ended(self.with_plan(result, plan, of_timer), stopped_by)
    }

    /// Prepares to measure a config of an invocation beside its baseline, on the first device.
    ///
    /// The samples go to the log under a job of their own: a check decides nothing, so neither a tuner nor a search
    /// takes them for its own.
    ///
    /// # Errors
    /// If the inputs cannot be made or written, or the recorded baseline is not among the candidates.
    pub fn remeasure(&mut self, invocation: &Invocation, config: &Config) -> Result<Remeasurement, RaceError> {
        self.first_tuner().remeasure(invocation, config)
    }

    /// Measures a series of rounds, as many as the options request. Each series after the first has a worker process of
    /// its own, with a different memory layout. Returns all rounds so far, in which candidate 0 is the baseline and
    /// candidate 1 the config, or the config's failure.
    ///
    /// # Errors
    /// If the baseline or the worker fails, the user ends it, or the ledger fails.
    pub fn measure_series(
        &mut self,
        remeasurement: &mut Remeasurement,
    ) -> Result<Result<Vec<Round>, Failure>, RaceError> {
        self.first_tuner().measure_series(remeasurement)
    }

    fn first_tuner(&mut self) -> Autotuner<'_> {
        let Self { registry, ledger, first, options, cancel, lowering, .. } = self;
        Autotuner { lowering: *lowering, ..first.tuner(registry, ledger, options, cancel) }
    }

    fn tuners(&mut self) -> Vec<Autotuner<'_>> {
        let Self { registry, ledger, first, others, is_one_device, options, cancel, lowering } = self;
        let devices = std::iter::once(first).chain(others);
        let mut tuners: Vec<_> = devices.map(|device| device.tuner(registry, ledger, options, cancel)).collect();
        tuners.iter_mut().for_each(|tuner| tuner.lowering = *lowering);
        if *is_one_device {
            let (device_slots, surrogates) = (DeviceSlots::default(), Surrogates::default());
            let winners = ProvisionalWinners::default();
            for tuner in &mut tuners {
                tuner.slot = Some(device_slots.slot());
                tuner.surrogates = Arc::clone(&surrogates);
                tuner.winners = Arc::clone(&winners);
            }
        }
        tuners
    }

    /// The result of a run with what the plan, the ledger and the timer have to say.
    fn with_plan(&self, mut result: AutotuningResult, plan: &TuningPlan, of_timer: Vec<String>) -> AutotuningResult {
        result.missed.clone_from(&plan.missed);
        result.step = plan.step.as_ref().map(|step| step.gain(&result));
        result.notes.splice(0..0, plan.notes.iter().chain(self.ledger.notes()).cloned());
        result.notes.extend(plan.of_step.iter().cloned().chain(of_timer).chain(plan.shard_note()));
        result
    }
}

impl SessionDevice<'_> {
    fn tuner<'s>(
        &'s mut self,
        registry: &'s Registry,
        ledger: &'s Ledger,
        options: &'s TuneOptions,
        cancel: &'s AtomicBool,
    ) -> Autotuner<'s> {
        Autotuner {
            registry,
            timer: &mut *self.timer,
            ledger,
            options,
            cancel,
            events: self.events.clone(),
            surrogates: Default::default(),
            winners: Default::default(),
            lowering: None,
            slot: None,
        }
    }
}
