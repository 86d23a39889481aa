//! What is tuned or checked in a module: its labels, the matching recordings, and the requested part.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::device::{DeviceIdentity, MatchMode};
use crate::hlo::{Scan, ScanOptions, UserLabels};
use crate::matching::ByName;
use crate::registry::Registry;
use crate::tune::{NoSuchCall, PlanOptions, Shard, TuningPlan, plan};

use super::fault::Fault;
use super::options::LabelArgs;
use super::say::say;
use super::scan::{NoLabels, scan_whole, user_labels};
use super::{exit, registry};

/// Which calls, and which devices' recordings.
#[derive(Debug, Clone, Args)]
pub(super) struct PlanArgs {
    /// Folder of recorded invocations [default: `registry` beside the module]
    #[arg(long, value_name = "DIR", env = "AUTOTUNE_LOWERED_REGISTRY")]
    pub registry: Option<PathBuf>,
    /// Which devices' recordings may apply to this device: exact, kind or any
    #[arg(long = "match", value_name = "MODE", default_value = "exact")]
    pub match_mode: MatchMode,
    /// Only this operation (`op@vN`), or this call of it (`op@vN:key`); may be repeated
    #[arg(long, value_name = "OP[:KEY]")]
    pub only: Vec<String>,
    /// Only part I of N, counted from 0, of the module's calls: each run of a fleet takes another part (docs/fleet.md)
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// What to do with a label that kept only its operation's name
    #[arg(long, value_enum, default_value_t = ByName::Few)]
    pub by_name: ByName,
    #[command(flatten)]
    pub labels: LabelArgs,
}

/// A module and the recordings to match it with.
pub(super) struct PlanSource {
    pub(super) scan: Scan,
    pub(super) registry: Registry,
    /// The user's own labels, if there are any.
    pub(super) labels: Option<UserLabels>,
}

impl PlanArgs {
    /// Reads the module; a module without labels needs no registry.
    pub(super) fn read(&self, module: &Path, no_labels: NoLabels) -> Result<Result<PlanSource, Scan>, Fault> {
        let registry = || registry::open(&registry::folder_for(module, self.registry.as_deref())?);
        self.read_with(module, no_labels, registry)
    }

    /// The same with another registry.
    pub(super) fn read_with(
        &self,
        module: &Path,
        no_labels: NoLabels,
        registry: impl FnOnce() -> Result<Registry, Fault>,
    ) -> Result<Result<PlanSource, Scan>, Fault> {
        let options = ScanOptions::default().user_labels(user_labels(&self.labels)?);
        let scan = scan_whole(module, &options, no_labels)?;
        if scan.labels.is_empty() {
            return Ok(Err(scan));
        }
        Ok(Ok(PlanSource { scan, registry: registry()?, labels: options.user_labels }))
    }

    /// The library's form of it.
    pub(super) fn options(&self) -> PlanOptions {
        PlanOptions {
            match_mode: self.match_mode,
            by_name: self.by_name,
            only: self.only.clone(),
            shard: self.shard,
            ..PlanOptions::default()
        }
    }
}

/// What a page calls the module that it is about.
pub(super) fn subject_of_page(module: &Path) -> Cow<'_, str> {
    if module == Path::new("-") { "standard input".into() } else { module.to_string_lossy() }
}

/// The fault of `--only` that names nothing.
pub(super) fn no_such_call(error: &NoSuchCall) -> Fault {
    Fault::new(exit::NOTHING_MATCHED, format!("{error}; `registry ls` lists those that are recorded"))
}

impl PlanSource {
    /// The plan for a device; for a shard it reports how much it holds.
    pub(super) fn plan(&self, device: &DeviceIdentity, options: &PlanOptions) -> Result<TuningPlan, Fault> {
        let plan = plan(&self.scan, &self.registry, device, options).map_err(|error| no_such_call(&error))?;
        if let Some(note) = plan.shard_note() {
            say(&note);
        }
        Ok(plan)
    }
}
