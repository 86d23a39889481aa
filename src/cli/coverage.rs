//! `cache coverage`: which labels of a module have a config for a device.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::cache::{Cached, ConfigStore, FlagKind, Hit, Lookup, MemoryStore, TieredCache};
use crate::call::{Direction, split_op_id};
use crate::config::Config;
use crate::counted::counted;
use crate::device::{DeviceFingerprint, DeviceIdentity, Environment, MatchMode};
use crate::hlo::Evidence;
use crate::hlo::{FoundLabel, Label, Scan};
use crate::matching::{ByName, Matching, match_labels};
use crate::report::{Grid, write_json, write_line};

use super::fault::Fault;
use super::options::{CacheArgs, Format, FormatArg, LabelArgs, PluginArgs};
use super::{cache, device, exit, merge, registry, scan};

/// Arguments of `cache coverage`.
#[derive(Debug, Args)]
pub(super) struct CoverageArgs {
    /// The module, or `-` for standard input
    pub module: PathBuf,
    /// Folder of recorded invocations, for labels that lost a part of themselves [default: `registry` beside the module,
    /// if there is one]
    #[arg(long, value_name = "DIR", env = "AUTOTUNE_LOWERED_REGISTRY")]
    pub registry: Option<PathBuf>,
    /// Look in this cache folder, snapshot or JSON file alone, whatever `--cache` says
    #[arg(long, value_name = "CACHE")]
    pub of: Option<PathBuf>,
    /// For the device of the cache whose name, as `cache ls` prints it, contains this [default: this machine's]
    #[arg(long = "for", value_name = "TEXT", conflicts_with_all = ["plugin", "device", "client_options"])]
    pub only_for: Option<String>,
    /// Whose results may stand for the device's: exact, kind or any
    #[arg(long = "match", value_name = "MODE", default_value = "exact")]
    pub match_mode: MatchMode,
    /// How many of the calls must have a config: `all`, or a part such as `90%`
    #[arg(long, value_name = "PART", default_value = "all", value_parser = part)]
    pub require: f64,
    #[command(flatten)]
    pub labels: LabelArgs,
    #[command(flatten)]
    pub plugin: PluginArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

/// A part of one.
fn part(text: &str) -> Result<f64, String> {
    let percent = match text {
        "all" => Some(100.0),
        _ => text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok()),
    };
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| "expected `all` or a part such as `90%`".to_owned())
}

/// A call that a label stands for, and its config.
#[derive(Debug, Serialize)]
struct LabelledCall {
    #[serde(flatten)]
    label: Label,
    evidence: Evidence,
    occurrences: u64,
    covered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<Direction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Config>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Prints which calls of a module have a config; exit code 1 where too few have.
pub(super) fn run(args: &CoverageArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let scan = scan::scan_module(&args.module, &args.labels)?;
    scan::refuse_truncated(&scan, &args.module)?;
    for diagnosis in &scan.diagnosis {
        tracing::warn!("{}: {}", diagnosis.code, diagnosis.message);
    }
    let ledger;
    let alone;
    let cache = match &args.of {
        Some(path) => {
            alone = alone_in(merge::open(path)?.cached)?;
            &alone
        }
        None => {
            ledger = cache::open_for_reading(&args.cache)?;
            ledger.cache()
        }
    };
    let (device, is_here) = match &args.only_for {
        Some(text) => (device_named(cache, text)?, false),
        None => (device::chosen(&args.plugin)?, true),
    };
    let matching = match registry_folder(args) {
        Some(folder) => match_labels(&scan, &registry::open(&folder)?, &device.identity, args.match_mode, ByName::All),
        None => Matching::default(),
    };
    let asked = Asked { cache, device: &device, is_here, mode: args.match_mode };
    let calls = asked.calls(&scan, &matching)?;
    let covered = calls.iter().filter(|call| call.covered).count();
    match args.format.format {
        Format::Json => write_json(
            out,
            &json!({"schema": 1, "device": device.identity, "calls": calls, "covered": covered, "required": args.require}),
        )?,
        Format::Table => {
            list(&calls, out)?;
            let (of, device) = (counted(calls.len(), "call"), &device.identity);
            write_line(out, format_args!("{covered} of {of} with a config for {device}"))?;
        }
    }
    Ok(match calls.len() {
        0 => exit::NOTHING_MATCHED,
        // rounded up: 90 % of 11 calls are 10
        all if covered as f64 >= (all as f64 * args.require - 1e-9).ceil() => exit::FINE,
        _ => exit::SOME_FAILED,
    })
}

fn list(calls: &[LabelledCall], out: &mut dyn Write) -> Result<(), Fault> {
    let mut grid = Grid::new(&["operation", "evidence", ">occurrences", "state", "config"]);
    for call in calls {
        grid.row([
            call.label.to_string(),
            call.evidence.to_string(),
            call.occurrences.to_string(),
            if call.covered { "covered" } else { "missing" }.to_owned(),
            call.config.as_ref().map_or_else(String::new, Config::to_brief),
        ]);
        call.reason.iter().chain(&call.flags).for_each(|line| grid.line(line));
    }
    if grid.is_empty() { Ok(()) } else { Ok(grid.write(out)?) }
}

/// The registry that is named, or the one beside the module.
fn registry_folder(args: &CoverageArgs) -> Option<PathBuf> {
    let beside = args.module.parent().unwrap_or(Path::new("")).join("registry");
    args.registry.clone().or_else(|| beside.is_dir().then_some(beside))
}

/// One cache as the only tier.
fn alone_in(cached: Cached) -> Result<TieredCache, Fault> {
    let tier: Box<dyn ConfigStore> = match cached {
        Cached::Snapshot(store) => store,
        Cached::Entries(entries) => {
            let store = MemoryStore::default();
            store.put_all(&entries)?;
            Box::new(store)
        }
    };
    Ok(TieredCache::new(vec![tier]))
}

/// The one device of a cache whose name contains a text; of its software nothing is known.
fn device_named(cache: &TieredCache, text: &str) -> Result<DeviceFingerprint, Fault> {
    let devices: BTreeSet<DeviceIdentity> = cache.entries()?.into_iter().map(|(key, ..)| key.device).collect();
    let mut named = devices.into_iter().filter(|device| device.to_string().contains(text));
    match (named.next(), named.next()) {
        (Some(identity), None) => Ok(DeviceFingerprint { identity, environment: Environment::default() }),
        (Some(one), Some(other)) => {
            let message = format!("`{text}` is in the name of {one} and of {other}; `--for` needs more of the name");
            Err(Fault::new(exit::USAGE, message))
        }
        (None, _) => {
            let message = format!("no entry is of a device with `{text}` in its name; `cache ls` lists them");
            Err(Fault::new(exit::NOTHING_MATCHED, message))
        }
    }
}

/// What is looked in, and for whom.
struct Asked<'a> {
    cache: &'a TieredCache,
    device: &'a DeviceFingerprint,
    /// Whether the device is at hand, with its software.
    is_here: bool,
    mode: MatchMode,
}

impl Asked<'_> {
    /// Every call of a module's labels.
    fn calls(&self, scan: &Scan, matching: &Matching) -> Result<Vec<LabelledCall>, Fault> {
        let mut calls = Vec::new();
        for (index, found) in scan.labels.iter().enumerate() {
            let of_label =
                matching.matched.iter().filter(|matched| matched.labels.iter().any(|label| label.index == index));
            let recorded: Vec<_> = of_label.map(|matched| &matched.invocation).collect();
            for invocation in &recorded {
                let call = self.call(found, &invocation.call.op_id, &invocation.call.call_key)?;
                let why = invocation.runnable().err().filter(|_| !call.covered);
                calls.push(LabelledCall { reason: why.map(|why| why.to_string()).or(call.reason), ..call });
            }
            if recorded.is_empty() {
                calls.push(self.unrecorded(found, matching, index)?);
            }
        }
        Ok(calls)
    }

    /// The call of a label that no recording completes.
    fn unrecorded(&self, found: &FoundLabel, matching: &Matching, index: usize) -> Result<LabelledCall, Fault> {
        let label = &found.label;
        if let Some(key) = &label.call_key {
            if found.evidence == Evidence::Exact {
                return self.call(found, &label.op_id, key);
            }
            // the version is lost: the newest one that is cached
            let mut versions: Vec<String> = Vec::new();
            for (cached, ..) in self.cache.entries()? {
                if cached.call.call_key == *key && cached.call.op_name() == label.op_name() {
                    versions.push(cached.call.op_id);
                }
            }
            let newest = versions.into_iter().max_by_key(|op_id| split_op_id(op_id).1);
            return self.call(found, newest.as_deref().unwrap_or(&label.op_id), key);
        }
        let missed = matching.missed.iter().find(|missed| missed.index == index);
        let why = missed.map_or_else(
            || "only its name is left of the label; name the recordings with `--registry`".to_owned(),
            |missed| missed.text.clone(),
        );
        Ok(LabelledCall { reason: Some(why), ..bare(found, &label.op_id, None) })
    }

    fn call(&self, found: &FoundLabel, op_id: &str, key: &str) -> Result<LabelledCall, Fault> {
        let call = bare(found, op_id, Some(key.to_owned()));
        Ok(match self.cache.lookup(self.device, op_id, key, None, self.mode)? {
            Lookup::Hit(hit) => LabelledCall {
                covered: true,
                direction: Some(hit.key().direction),
                config: Some(hit.entry.config.clone()),
                flags: self.flags(found, &hit),
                ..call
            },
            Lookup::Miss(miss) => LabelledCall { reason: Some(miss.reason()?.to_string()), ..call },
        })
    }

    fn flags(&self, found: &FoundLabel, hit: &Hit<'_>) -> Vec<String> {
        let known = hit.flags.iter().filter(|flag| self.is_here || flag.kind != FlagKind::StaleEnvironment);
        let mut flags: Vec<String> =
            known.map(|flag| format!("{}: {}", json!(flag.kind).as_str().unwrap_or_default(), flag.detail)).collect();
        if found.backward && hit.key().direction == Direction::Forward {
            flags.push("tuned forward only, and the module runs it backward too".to_owned());
        }
        flags
    }
}

fn bare(found: &FoundLabel, op_id: &str, call_key: Option<String>) -> LabelledCall {
    LabelledCall {
        label: Label::new(op_id, call_key),
        evidence: found.evidence,
        occurrences: found.occurrences,
        covered: false,
        direction: None,
        config: None,
        flags: Vec::new(),
        reason: None,
    }
}
