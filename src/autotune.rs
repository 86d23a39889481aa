//! A module's calls tuned in one call: from the paths of the module, its recordings and a cache to their best configs.
//!
//! It is the walk of the program `autotune-lowered` on one device. For several devices, another order of the plan or
//! another end of the run, take the steps one by one, as [`tune`](crate::tune) shows.

use std::path::PathBuf;

use crate::cache::{ConfigStore, ShippedConfigs};
use crate::candidates::{SpaceError, Spaces};
use crate::decision::Resolution;
use crate::hlo::{Diagnosis, Scan, ScanError, ScanOptions, scan_path};
use crate::ledger::{Ledger, LedgerError};
use crate::registry::{Registry, RegistryError};
use crate::selftest::StoredFigures;
use crate::setters;
use crate::timer::Timer;
use crate::timer::events::Events;
use crate::tune::{AutotuningResult, NoSuchCall, PlanOptions, Session, Stopped, TuneOptions, plan};

/// What is tuned, and where its decisions are kept.
#[derive(Debug, Clone)]
pub struct Autotune {
    /// The lowered module, in any form.
    pub module: PathBuf,
    /// The folder of recorded invocations; by default `registry` beside the module.
    pub registry: Option<PathBuf>,
    /// The cache folder, whose decisions are not measured again; by default what is decided is only returned.
    pub cache: Option<PathBuf>,
    /// How labels are found.
    pub scan: ScanOptions,
    /// Which calls are tuned. A timer that builds programs takes the shipped search spaces if there are no others.
    pub plan: PlanOptions,
    /// How they are tuned. The noise floor is the cache folder's, unless it is set here.
    pub options: TuneOptions,
    /// The sinks that are told how the run goes.
    pub events: Events,
}

setters!(Autotune { scan: ScanOptions, plan: PlanOptions, options: TuneOptions, events: Events });

/// Why a module was not tuned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AutotuneError {
    /// The module cannot be read.
    #[error(transparent)]
    Module(#[from] ScanError),
    /// The module was read, and there is nothing in it to tune.
    #[error("`{module}`: {message}")]
    Unusable {
        /// The module.
        module: PathBuf,
        /// Why, and what to do.
        message: String,
    },
    /// The registry cannot be read.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The shipped search spaces cannot be read.
    #[error(transparent)]
    Spaces(#[from] SpaceError),
    /// The module has none of the requested calls.
    #[error(transparent)]
    Call(#[from] NoSuchCall),
    /// The cache folder cannot be used.
    #[error(transparent)]
    Cache(#[from] LedgerError),
    /// An error stopped the run; it has what was decided before.
    #[error(transparent)]
    Stopped(#[from] Stopped<AutotuningResult>),
}

impl Autotune {
    /// The calls of a module, with the recordings beside it, and without a cache.
    pub fn module(path: impl Into<PathBuf>) -> Self {
        Self {
            module: path.into(),
            registry: None,
            cache: None,
            scan: ScanOptions::default(),
            plan: PlanOptions::default(),
            options: TuneOptions::default(),
            events: Events::default(),
        }
    }

    /// The same with the recordings of another folder.
    #[must_use]
    pub fn registry(self, folder: impl Into<PathBuf>) -> Self {
        Self { registry: Some(folder.into()), ..self }
    }

    /// The same with a cache folder, which is made if there is none.
    #[must_use]
    pub fn cache(self, folder: impl Into<PathBuf>) -> Self {
        Self { cache: Some(folder.into()), ..self }
    }

    /// Tunes every planned call on the timer's device. A failure affects one call, as its result then says.
    ///
    /// # Errors
    /// If the module, the registry or the cache cannot be used, nothing is to be tuned, or a store fails during the run.
    pub fn run(&self, timer: &mut dyn Timer) -> Result<AutotuningResult, AutotuneError> {
        let scan = self.labels()?;
        let registry = Registry::open(self.registry.clone().unwrap_or_else(|| Registry::beside(&self.module)))?;
        let mut options = self.plan.clone();
        if timer.info().can.build_programs && options.spaces.iter().next().is_none() {
            options.spaces = Spaces::built_in()?;
        }
        let mut plan = plan(&scan, &registry, &timer.info().device.identity, &options)?;
        plan.leave_open();
        let shipped: Vec<Box<dyn ConfigStore>> = vec![Box::new(ShippedConfigs::built_in())];
        let ledger = match &self.cache {
            Some(folder) => Ledger::open(folder, shipped)?,
            None => Ledger::in_memory(shipped),
        };
        let (options, damage) = self.options_here(timer);
        let mut beside = plan.timers_beside(timer);
        let session = Session::new(&registry, &ledger, timer).options(options).events(self.events.clone());
        let mut session =
            beside.iter_mut().fold(session, |session, other| session.beside(&mut **other, self.events.clone()));
        let mut result = session.run(&plan)?;
        result.notes.extend(damage);
        Ok(result)
    }

    /// The module's labels: a module without any, and a truncated one, is nothing to tune.
    fn labels(&self) -> Result<Scan, AutotuneError> {
        let scan = scan_path(&self.module, &self.scan)?;
        let unusable =
            |why: &Diagnosis| AutotuneError::Unusable { module: self.module.clone(), message: why.message.clone() };
        let without_labels = || scan.diagnosis.iter().find(|why| scan.labels.is_empty() && why.is_of_no_label());
        match scan.truncation().or_else(without_labels) {
            Some(why) => Err(unusable(why)),
            None => Ok(scan),
        }
    }

    /// The options with this machine's noise floor, and why its figures cannot be used.
    fn options_here(&self, timer: &dyn Timer) -> (TuneOptions, Option<String>) {
        let known = StoredFigures::known(self.cache.as_deref(), timer, &self.options.race.cache_state);
        let mut options = self.options.clone();
        if options.race.resolution == Resolution::default() {
            options.race.resolution = known.resolution;
        }
        options.race.spread = options.race.spread.or(known.spread);
        (options, known.damage)
    }
}
