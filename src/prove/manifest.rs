//! The folder that `dump(…, variants=…)` writes: `prove.json` and one file per program, named by its digest.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::error::ProveError;
use super::tree::Tree;
use crate::call::{Call, Direction};
use crate::compare::Contestant;
use crate::config::Config;
use crate::counted::counted;
use crate::digest::Digest;
use crate::measure::{CompiledWith, MAX_PROGRAM_BYTES, MeasuredProgram};
use crate::outside_file::{self, OutsideFolder};
use crate::printable::printable;
use crate::stats::Interval;

/// The file that identifies such a folder, and the format that it states.
const MANIFEST: &str = "prove.json";
const FORMAT: &str = "autotune-lowered-prove-v1";
/// Maximum number of calls, and maximum size of a manifest: twice as many variants name as many calls each, in five
/// bytes.
const MAX_CALLS: usize = 1024;
const MAX_MANIFEST_BYTES: u64 = 32 << 20;
/// Placeholder of the manifest's own digest while it is computed.
const NO_DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A tuned call of the step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepCall {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// What was tuned.
    pub direction: Direction,
    /// The config in use without tuning.
    pub baseline: Config,
    /// The config that tuning found.
    pub tuned: Config,
    /// Its share of the step's time in a profile, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// The baseline's time over the tuned config's, measured alone; above one is faster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<f64>,
    /// Interval of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone_interval: Option<Interval>,
}

#[derive(Deserialize)]
struct VariantsManifest {
    format: String,
    digest: Digest,
    calls: Vec<StepCall>,
    variants: Vec<StepVariant>,
    /// A `CompileOptionsProto` in base64.
    #[serde(default)]
    compile_options: Option<String>,
}

/// The step with some calls tuned.
#[derive(Debug, Deserialize)]
struct StepVariant {
    /// The calls, by number, in rising order.
    tuned: Vec<usize>,
    file: PathBuf,
    sha256: Digest,
}

/// A step in several forms, as `dump` wrote it.
#[derive(Debug)]
pub struct StepVariants {
    path: PathBuf,
    folder: OutsideFolder,
    /// The calls that some variant has tuned, and those that `without=` reverted in all variants.
    pub calls: Vec<StepCall>,
    variants: Vec<StepVariant>,
    /// The compile options that JAX passes for the step.
    compiled_with: Option<CompiledWith>,
    /// The variants with no call tuned, and with all.
    pub(super) baseline: usize,
    pub(super) whole: usize,
    pub(super) tree: Tree,
}

impl StepVariants {
    /// Reads the manifest of a folder, and checks every program against it.
    ///
    /// # Errors
    /// If a file cannot be read, is a link or is outside the folder, or the manifest or a program is damaged.
    pub fn open(path: &Path) -> Result<Self, ProveError> {
        let place = path.join(MANIFEST);
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source| ProveError::Unreadable { path, source }
        };
        let folder = OutsideFolder::open(path).map_err(unreadable(path))?;
        let text = folder
            .open_file(Path::new(MANIFEST), MAX_MANIFEST_BYTES)
            .and_then(|file| outside_file::read_text(file, MAX_MANIFEST_BYTES))
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => ProveError::NoManifest { path: place.clone() },
                _ => unreadable(&place)(source),
            })?;
        let wrong = |reason: String| ProveError::Damaged { path: place.clone(), reason: printable(&reason) };
        let manifest: VariantsManifest = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(wrong(format!("has the format `{}`, expected `{FORMAT}`", manifest.format)));
        }
        let unsigned = text.replacen(&manifest.digest.to_string(), NO_DIGEST, 1);
        if Digest::of(unsigned.as_bytes()) != manifest.digest {
            return Err(wrong("its digest differs from its content".to_owned()));
        }
        let VariantsManifest { calls, variants, compile_options, .. } = manifest;
        let compiled_with = compile_options.map(|text| read_compile_options(&text)).transpose().map_err(&wrong)?;
        check_calls(&calls).map_err(&wrong)?;
        let (baseline, whole, tree) = placed(&variants, calls.len()).map_err(&wrong)?;
        let found = Self { path: path.to_owned(), folder, calls, variants, compiled_with, baseline, whole, tree };
        // damage must be found before a device starts
        let files: BTreeMap<Digest, &StepVariant> =
            found.variants.iter().map(|variant| (variant.sha256, variant)).collect();
        files.values().try_for_each(|variant| found.bytes(variant).map(drop))?;
        Ok(found)
    }

    /// The digest of a variant's program.
    pub(super) fn program(&self, variant: usize) -> Option<Digest> {
        self.variants.get(variant).map(|variant| variant.sha256)
    }

    /// The calls that a variant has tuned, by number.
    pub(super) fn tuned(&self, variant: usize) -> &[usize] {
        self.variants.get(variant).map_or(&[], |variant| &variant.tuned)
    }

    /// A set of calls in the words of a line: the call, or how many there are.
    pub(super) fn name_of(&self, calls: &[usize]) -> String {
        match calls {
            &[call] => self.calls.get(call).map_or_else(String::new, |of| of.call.to_short()),
            calls => counted(calls.len(), "call"),
        }
    }

    /// A variant as a contestant.
    ///
    /// # Errors
    /// If its program cannot be read or is not a program.
    pub(super) fn contestant(&self, variant: usize, name: String) -> Result<Contestant, ProveError> {
        let Some(variant) = self.variants.get(variant) else {
            let reason = format!("has no variant {variant}");
            return Err(ProveError::Damaged { path: self.path.join(MANIFEST), reason });
        };
        let mut program = MeasuredProgram::of_bytes(&self.bytes(variant)?, &self.path.join(&variant.file))?;
        program.compiled_with.clone_from(&self.compiled_with);
        Ok(Contestant::new(name, program))
    }

    fn bytes(&self, variant: &StepVariant) -> Result<Vec<u8>, ProveError> {
        let path = || self.path.join(&variant.file);
        let file = self.folder.open_file(&variant.file, MAX_PROGRAM_BYTES);
        let bytes = file.and_then(|file| outside_file::read(file, MAX_PROGRAM_BYTES));
        let bytes = bytes.map_err(|source| ProveError::Unreadable { path: path(), source })?;
        if Digest::of(&bytes) != variant.sha256 {
            let reason = "its digest differs from the manifest's".to_owned();
            return Err(ProveError::Damaged { path: path(), reason });
        }
        Ok(bytes)
    }
}

fn read_compile_options(text: &str) -> Result<CompiledWith, String> {
    let bytes =
        STANDARD.decode(text).map_err(|error| format!("has `compile_options` that are not base64 ({error})"))?;
    CompiledWith::read(&bytes, &[]).map_err(|error| format!("has `compile_options` {error}"))
}

fn check_calls(calls: &[StepCall]) -> Result<(), String> {
    if calls.is_empty() || calls.len() > MAX_CALLS {
        return Err(format!("has {} calls, expected 1 to {MAX_CALLS}", calls.len()));
    }
    let mut seen = BTreeSet::new();
    for StepCall { call, share, alone, alone_interval, .. } in calls {
        if !seen.insert(call) {
            return Err(format!("names `{call}` twice"));
        }
        if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err(format!("`share` of `{call}` is not between 0 and 1"));
        }
        if alone.is_some_and(|alone| !(alone.is_finite() && alone > 0.0)) {
            return Err(format!("`alone` of `{call}` is not above 0"));
        }
        if alone_interval.is_some_and(|held| !(held.low > 0.0 && held.low <= held.high && held.high.is_finite())) {
            return Err(format!("`alone_interval` of `{call}` is no interval above 0"));
        }
    }
    Ok(())
}

/// The variant with no call tuned, the one with all, and the tree of the sets that the others revert.
fn placed(variants: &[StepVariant], calls: usize) -> Result<(usize, usize, Tree), String> {
    if variants.len() > 2 * calls {
        return Err(format!("has {} variants, expected at most {}", variants.len(), 2 * calls));
    }
    for StepVariant { tuned, .. } in variants {
        let is_rising = tuned.windows(2).all(|pair| matches!(pair, [a, b] if a < b));
        if !is_rising || tuned.last().is_some_and(|&last| last >= calls) {
            return Err(format!("a variant's `tuned` is not a list of increasing numbers below {calls}"));
        }
    }
    let baseline = variants.iter().position(|variant| variant.tuned.is_empty());
    let baseline = baseline.ok_or("has no variant with all calls at their baselines")?;
    let sizes = variants.iter().enumerate().filter(|(_, variant)| !variant.tuned.is_empty());
    let whole = sizes.max_by_key(|(_, variant)| variant.tuned.len()).ok_or("has no variant with tuned calls")?;
    let (whole, all) = (whole.0, whole.1.tuned.iter().copied().collect::<BTreeSet<usize>>());
    let others = variants.iter().enumerate().filter(|(place, _)| ![baseline, whole].contains(place));
    let sets = others.map(|(place, variant)| {
        let tuned: BTreeSet<usize> = variant.tuned.iter().copied().collect();
        let is_part = tuned.is_subset(&all);
        is_part
            .then(|| (all.difference(&tuned).copied().collect(), place))
            .ok_or("a variant tunes a call that the whole does not")
    });
    let sets = sets.collect::<Result<Vec<(Vec<usize>, usize)>, _>>()?;
    let tree = Tree::of(sets, calls).ok_or("the sets that its variants revert are not a tree")?;
    Ok((baseline, whole, tree))
}
