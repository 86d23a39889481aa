//! What of a module is tuned or checked: labels, the recordings that they match, and the part that was asked for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use crate::counted::counted;
use crate::device::{DeviceIdentity, MatchMode};
use crate::hlo::Scan;
use crate::matching::{ByName, Matching, match_labels};
use crate::registry::{Invocation, Registry};
use crate::tune::{MissedLabel, PlannedInvocation, Shard};

use super::fault::Fault;
use super::options::{ByNameArg, LabelArgs};
use super::{exit, registry, scan};

/// Which calls, and whose recordings.
#[derive(Debug, Clone, Args)]
pub(super) struct PlanArgs {
    /// Folder of recorded invocations [default: `registry` beside the module]
    #[arg(long, value_name = "DIR", env = "AUTOTUNE_LOWERED_REGISTRY")]
    pub registry: Option<PathBuf>,
    /// Whose recordings may stand for this device's: exact, kind or any
    #[arg(long = "match", value_name = "MODE", default_value = "exact")]
    pub match_mode: MatchMode,
    /// Only this operation (`op@vN`), or this call of it (`op@vN:key`); may be given again
    #[arg(long, value_name = "OP[:KEY]")]
    pub only: Vec<String>,
    /// Only part I of N parts, counted from 0, of the module's calls: each run of a fleet takes another one (docs/fleet.md)
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// What to do with a label that only kept its operation's name
    #[arg(long, value_enum, default_value_t = ByNameArg::Few)]
    pub by_name: ByNameArg,
    #[command(flatten)]
    pub labels: LabelArgs,
}

/// A module and the recordings that it is matched with.
pub(super) struct Source {
    pub(super) scan: Scan,
    pub(super) registry: Registry,
}

impl PlanArgs {
    /// Reads the module; one without labels gives no registry.
    pub(super) fn read(&self, module: &Path) -> Result<Result<Source, Scan>, Fault> {
        let scan = scan::scan_module(module, &self.labels)?;
        scan::refuse_truncated(&scan, module)?;
        for diagnosis in &scan.diagnosis {
            tracing::warn!("{}: {}", diagnosis.code, diagnosis.message);
        }
        if scan.labels.is_empty() {
            return Ok(Err(scan));
        }
        let registry = registry::open(&self.registry_folder(module)?)?;
        Ok(Ok(Source { scan, registry }))
    }

    /// The registry: the one that is named, else `registry` beside the module.
    fn registry_folder(&self, module: &Path) -> Result<PathBuf, Fault> {
        if let Some(folder) = &self.registry {
            return Ok(folder.clone());
        }
        let beside = module.parent().unwrap_or(Path::new("")).join("registry");
        if beside.is_dir() {
            return Ok(beside);
        }
        let message = format!("no registry: `{}` is not there; name one with `--registry DIR`", beside.display());
        Err(Fault::new(exit::BAD_INPUT, message))
    }

    /// All calls of the module that were asked for, whatever the shard, and the labels of the shard that led to none.
    pub(super) fn plan(
        &self,
        source: &Source,
        device: &DeviceIdentity,
    ) -> Result<(Vec<PlannedInvocation>, Vec<MissedLabel>), Fault> {
        self.plan_by(source, device, |_| {})
    }

    /// The same, with all calls of the module put in order before those that were asked for are taken.
    pub(super) fn plan_by(
        &self,
        source: &Source,
        device: &DeviceIdentity,
        order: impl FnOnce(&mut [PlannedInvocation]),
    ) -> Result<(Vec<PlannedInvocation>, Vec<MissedLabel>), Fault> {
        let by_name = match self.by_name {
            ByNameArg::Few => ByName::Few,
            ByNameArg::All => ByName::All,
        };
        let matching = match_labels(&source.scan, &source.registry, device, self.match_mode, by_name);
        let mut plan = planned(&source.scan, &matching);
        order(&mut plan);
        if !self.only.is_empty() {
            plan.retain(|planned| self.only.iter().any(|only| is_named(only, &planned.invocation)));
            if plan.is_empty() {
                let message =
                    format!("no operation to tune is called {}; `--dry-run` lists them", self.only.join(", "));
                return Err(Fault::new(exit::NOTHING_MATCHED, message));
            }
        }
        let mut missed = missed(&source.scan, &matching);
        if let Some(shard) = self.shard {
            missed.retain(|missed| {
                shard.holds(&missed.label.op_id, missed.label.call_key.as_deref().unwrap_or_default())
            });
        }
        Ok((plan, missed))
    }

    /// Whether a call is of the shard that was asked for.
    pub(super) fn is_mine(&self, invocation: &Invocation) -> bool {
        self.shard.is_none_or(|shard| shard.holds(&invocation.call.op_id, &invocation.call.call_key))
    }

    /// One line on how much of the module is this shard's.
    pub(super) fn shard_note(&self, held: usize, of: usize) -> Option<String> {
        self.shard.map(|shard| format!("shard {shard} holds {held} of {}", counted(of, "operation")))
    }
}

/// What is known of a run before it begins, one line each.
pub(super) fn notes(source: &Source, of_ledger: &[String]) -> Vec<String> {
    let diagnosis = source.scan.diagnosis.iter();
    let mut notes: Vec<String> =
        diagnosis.map(|diagnosis| format!("{}: {}", diagnosis.code, diagnosis.message)).collect();
    notes.extend(source.registry.problems().iter().map(ToString::to_string));
    notes.extend(of_ledger.iter().cloned());
    notes
}

/// Whether `op@vN` or `op@vN:key` names this call.
fn is_named(name: &str, invocation: &Invocation) -> bool {
    let rest = name.strip_prefix(&invocation.call.op_id);
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix(':') == Some(&invocation.call.call_key))
}

fn planned(scan: &Scan, matching: &Matching) -> Vec<PlannedInvocation> {
    let planned = matching.matched.iter().map(|matched| {
        let mut how: Vec<String> = matched.labels.iter().map(|label| label.how.to_string()).collect();
        how.dedup();
        PlannedInvocation {
            invocation: Arc::clone(&matched.invocation),
            labels: matched.labels.iter().filter_map(|label| scan.labels.get(label.index).cloned()).collect(),
            how: how.join("; "),
            flags: matched.flags.clone(),
            space: None,
            share: None,
        }
    });
    planned.collect()
}

fn missed(scan: &Scan, matching: &Matching) -> Vec<MissedLabel> {
    let missed = matching.missed.iter().filter_map(|missed| {
        Some(MissedLabel {
            label: missed.label.clone(),
            evidence: scan.labels.get(missed.index)?.evidence,
            reason: missed.text.clone(),
        })
    });
    missed.collect()
}
