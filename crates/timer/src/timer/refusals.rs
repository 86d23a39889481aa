//! Compiler options that a plugin does not know, and values of the wrong type: tried once, in a worker that may die,
//! and stored by the digest of the plugin's file, or of another compiler.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::atomic_write::write_atomic;
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::outside_file;
use crate::timer::protocol::one_line;

/// The file, beside the executables.
const FILE: &str = "refused-options.json";
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum number of plugins, and of options of each.
const MOST_PLUGINS: usize = 16;
const MOST_OPTIONS: usize = 512;
/// Maximum number of characters of a reason.
const MOST_OF_REASON: usize = 200;
/// Maximum length of a name or value.
const MAX_TEXT_BYTES: usize = 128;

/// How the message begins when a flag of a compiling process is refused; the flag with its dashes follows.
pub(super) const NOT_ACCEPTED: &str = "this plugin does not accept `";

/// A refusal by a plugin or another compiler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RefusedOption {
    name: String,
    /// The value of the wrong type; `None` if there is no such option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    reason: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct PluginRefusals {
    plugin: Digest,
    refused: Vec<RefusedOption>,
}

/// The refusals of one plugin.
#[derive(Debug, Clone)]
pub(super) struct Refusals {
    path: PathBuf,
    plugin: Digest,
    refused: Vec<RefusedOption>,
}

impl Refusals {
    /// The folder's refusals of a plugin; a file that is damaged, or not this user's own, counts as empty.
    pub(super) fn open(folder: &Path, plugin: Digest) -> Self {
        let path = folder.join(FILE);
        let of_plugin = read(&path).into_iter().find(|one| one.plugin == plugin);
        Self { path, plugin, refused: of_plugin.map(|one| one.refused).unwrap_or_default() }
    }

    /// Why a set of options is refused, if known. Flags of a process have their dashes.
    pub(super) fn find(&self, options: &BTreeMap<String, String>) -> Option<Failure> {
        let holds = |one: &&RefusedOption| {
            options.get(&one.name).is_some_and(|given| one.value.as_ref().is_none_or(|value| value == given))
        };
        let refused = self.refused.iter().find(holds)?;
        Some(Failure::new(FailureKind::Compile, refused.reason.clone()))
    }

    /// Stores what a failure says about a program's compile options. If it cannot be written, the next run needs one
    /// more compilation.
    pub(super) fn take(&mut self, options: &BTreeMap<String, String>, failure: &Failure) {
        if failure.kind != FailureKind::Compile || self.refused.len() >= MOST_OPTIONS || self.find(options).is_some() {
            return;
        }
        let Some(refused) = refused(options, &failure.message) else { return };
        self.refused.push(refused);
        let mut all = read(&self.path);
        all.retain(|one| one.plugin != self.plugin);
        all.insert(0, PluginRefusals { plugin: self.plugin, refused: self.refused.clone() });
        all.truncate(MOST_PLUGINS);
        let _ = serde_json::to_vec(&all).map(|text| write_atomic(&self.path, |file| file.write_all(&text)));
    }
}

/// The option that a message names (openxla/xla, xla/pjrt/pjrt_executable.cc, `CompileOptions::ApplyOption`).
fn refused(options: &BTreeMap<String, String>, message: &str) -> Option<RefusedOption> {
    let reason = one_line(message, MOST_OF_REASON);
    let after = |words: &str| message.split_once(words).map(|(_, rest)| rest);
    if let Some(rest) = after("No such compile option: '") {
        let (name, _) = rest.split_once('\'')?;
        let (name, _) = options.get_key_value(name)?;
        return (name.len() <= MAX_TEXT_BYTES).then(|| RefusedOption { name: name.clone(), value: None, reason });
    }
    let named = match message.strip_prefix(NOT_ACCEPTED) {
        Some(flag) => flag.split_once('='),
        None => after("While setting option ")?.split_once(','),
    };
    let (name, _) = named?;
    let (name, value) = options.get_key_value(name)?;
    let is_short = name.len() <= MAX_TEXT_BYTES && value.len() <= MAX_TEXT_BYTES;
    is_short.then(|| RefusedOption { name: name.clone(), value: Some(value.clone()), reason })
}

fn read(path: &Path) -> Vec<PluginRefusals> {
    let own = || {
        let file = outside_file::open_own(path, MAX_FILE_BYTES).ok()?;
        let is_own = file.metadata().is_ok_and(|metadata| metadata.uid() == rustix::process::geteuid().as_raw());
        serde_json::from_slice(&outside_file::read(file, MAX_FILE_BYTES).ok().filter(|_| is_own)?).ok()
    };
    own().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn compile(message: &str) -> Failure {
        Failure::new(FailureKind::Compile, message)
    }

    #[test]
    fn what_a_plugin_refused_is_known_to_the_next_run_and_to_no_other_plugin() {
        let folder = tempfile::tempdir().unwrap();
        let plugin = Digest::of(b"plugin");
        let mut refusals = Refusals::open(folder.path(), plugin);
        let (none, other) = (set(&[("a", "1"), ("gone", "True")]), set(&[("a", "1")]));
        assert_eq!(refusals.find(&none), None);
        // messages of xla-cpu-pjrt 0.0.1
        refusals.take(&none, &compile("No such compile option: 'gone'"));
        refusals.take(&set(&[("b", "x")]), &compile("While setting option b, 'x' is not a valid bool value."));
        let again = Refusals::open(folder.path(), plugin);
        for refusals in [&refusals, &again] {
            assert_eq!(refusals.find(&none).unwrap().message, "No such compile option: 'gone'");
            assert_eq!(refusals.find(&set(&[("gone", "7")])).unwrap().kind, FailureKind::Compile, "whatever its value");
            assert_eq!(refusals.find(&other), None);
            assert!(refusals.find(&set(&[("b", "x")])).is_some());
            assert_eq!(refusals.find(&set(&[("b", "True")])), None, "another value may have the type");
        }
        assert_eq!(Refusals::open(folder.path(), Digest::of(b"other")).find(&none), None);
    }

    #[test]
    fn only_what_was_set_and_refused_by_name_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let plugin = Digest::of(b"plugin");
        let mut refusals = Refusals::open(folder.path(), plugin);
        let options = set(&[("a", "1")]);
        for failure in [
            compile("No such compile option: 'b'"),
            compile("No such compile option: 'a"),
            compile("a: RESOURCE_EXHAUSTED"),
            Failure::new(FailureKind::Crash, "No such compile option: 'a'"),
        ] {
            refusals.take(&options, &failure);
            assert_eq!(refusals.find(&options), None, "{failure}");
        }
        assert!(!folder.path().join(FILE).exists());
    }

    #[test]
    fn a_damaged_file_costs_a_question() {
        let folder = tempfile::tempdir().unwrap();
        let (plugin, options) = (Digest::of(b"plugin"), set(&[("a", "1")]));
        let kept = folder.path().join(FILE);
        let ask = || {
            let mut refusals = Refusals::open(folder.path(), plugin);
            let found = refusals.find(&options);
            refusals.take(&options, &compile("No such compile option: 'a'"));
            found.is_some()
        };
        assert!(!ask() && ask());
        let sound = std::fs::read(&kept).unwrap();
        for length in 0..sound.len() {
            std::fs::write(&kept, &sound[..length]).unwrap();
            assert!(!ask());
        }
        std::fs::remove_file(&kept).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &kept).unwrap();
        assert!(!ask());
    }
}
