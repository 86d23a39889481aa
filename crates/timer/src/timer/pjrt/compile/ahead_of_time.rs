//! Refusals and executables for the present device that were compiled without it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::store::{
    CompileNote, ExecutableKey, ExecutableStore, ListedExecutable, StoreListing, StoredExecutable, believed,
};
use crate::counted::counted;
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::printable::printable;
use crate::signature::PublicKeys;

/// Stores created by `compile`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompiledOptions {
    /// Their folders; an entry in an earlier one takes precedence.
    pub stores: Vec<PathBuf>,
    /// Keys whose owners are trusted, because executables are native code.
    pub trusted: Vec<PublicKeys>,
}

impl CompiledOptions {
    /// The stores in these folders, signed by one of these keys.
    pub fn new(stores: impl IntoIterator<Item = impl Into<PathBuf>>, trusted: Vec<PublicKeys>) -> Self {
        Self { stores: stores.into_iter().map(Into::into).collect(), trusted }
    }

    /// Checks that each folder is a store.
    ///
    /// # Errors
    /// One line that names the first folder that is not a store, and why.
    pub fn check(&self) -> Result<(), String> {
        self.stores.iter().try_for_each(|store| list(store).map(drop))
    }
}

fn list(store: &Path) -> Result<StoreListing, String> {
    ExecutableStore::list(store).map_err(|error| {
        let store = store.display();
        format!("`{store}`: not a store of compiled programs: {error}; name a folder that `compile -o` wrote")
    })
}

/// The entries of stores that were compiled for one device, by the present compiler.
pub(crate) struct CompiledStore {
    of_program: BTreeMap<Digest, ListedExecutable>,
}

/// The outcome of a program.
pub(crate) enum CompiledBefore {
    Executable(StoredExecutable),
    /// The compiler's message.
    Refused(String),
}

impl CompiledStore {
    /// Reads stores. `key` is that of any program for the present device. Also returns notes on what was ignored, one
    /// line each.
    ///
    /// # Errors
    /// If one of them is not a store.
    pub(crate) fn open(options: &CompiledOptions, key: &ExecutableKey) -> Result<(Self, Vec<String>), Failure> {
        let (mut listed, mut damaged) = (Vec::new(), Vec::new());
        for store in &options.stores {
            let found = list(store).map_err(|message| Failure::new(FailureKind::Device, message))?;
            listed.extend(found.listed);
            damaged.extend(found.damaged);
        }
        let store = options.stores.iter().map(|store| format!("`{}`", store.display())).collect::<Vec<_>>().join(", ");
        let (here, elsewhere): (Vec<_>, Vec<_>) = listed.into_iter().partition(|listed| is_for(&listed.key, key));
        let mut notes: Vec<String> = damaged_note(&damaged).into_iter().collect();
        if here.is_empty() {
            let others: BTreeSet<String> = elsewhere.iter().map(|listed| why_not(&listed.key, key)).collect();
            let others = if others.is_empty() { "nothing".to_owned() } else { Vec::from_iter(others).join(", ") };
            let have = if options.stores.len() == 1 { "has" } else { "have" };
            notes.push(format!("{store} {have} {others}: everything is compiled here, for {}", key.device));
        }
        // assemblers generate code of different speed, so one race uses the programs of a single one
        let mut of_assembler: BTreeMap<Option<String>, BTreeMap<Digest, ListedExecutable>> = BTreeMap::new();
        let (all, mut untrusted, mut reasons) = (here.len(), 0, BTreeSet::new());
        for listed in here {
            match believed(&listed.path, listed.digest, &options.trusted) {
                Ok(()) => {
                    let of_program = of_assembler.entry(listed.key.toolchain.clone()).or_default();
                    of_program.entry(listed.key.program).or_insert(listed);
                }
                Err(reason) => {
                    untrusted += 1;
                    reasons.insert(reason);
                }
            }
        }
        if untrusted > 0 {
            let (all, reasons) = (counted(all, "program"), Vec::from_iter(reasons).join(", "));
            notes.push(format!(
                "{untrusted} of {all} of {store} are compiled again here, because executables are native code, and \
                 refusals take configs out of the race ({reasons}): name the key of whoever compiled them with \
                 `--verify-key`"
            ));
        }
        let programs: BTreeSet<Digest> = of_assembler.values().flat_map(BTreeMap::keys).copied().collect();
        let of_program = of_assembler.into_values().max_by_key(BTreeMap::len).unwrap_or_default();
        let others = programs.len() - of_program.len();
        if others > 0 {
            notes.push(format!(
                "{others} of {} of {store} are compiled again here, because other tools of CUDA compiled them than \
                 the rest",
                counted(programs.len(), "program")
            ));
        }
        Ok((Self { of_program }, notes))
    }

    /// The compiler's note on a program.
    pub(crate) fn note(&self, program: Digest) -> Option<&CompileNote> {
        self.of_program.get(&program)?.note.as_ref()
    }

    /// The outcome of a key's program.
    pub(crate) fn find(&self, key: &ExecutableKey) -> Option<CompiledBefore> {
        let listed = self.of_program.get(&key.program).filter(|listed| listed.key.format == key.format)?;
        match listed.note.as_ref().and_then(|note| note.refused.clone()) {
            Some(reason) => Some(CompiledBefore::Refused(reason)),
            None => ExecutableStore::take_listed(listed).map(CompiledBefore::Executable),
        }
    }
}

/// Says that files of stores cannot be used: how many, and the first with the reason.
fn damaged_note(damaged: &[(PathBuf, String)]) -> Option<String> {
    let (path, why) = damaged.first()?;
    let path = printable(&path.display().to_string());
    let others = match damaged.len() {
        1 => String::new(),
        more => format!(", and {} alike", counted(more - 1, "other")),
    };
    Some(format!("`{path}` is not used, and its program is compiled here{others}: {why}"))
}

/// Whether an entry with the key `stored` equals what would be compiled with `here`, whatever the program. The target
/// is not compared, because its device is.
fn is_for(stored: &ExecutableKey, here: &ExecutableKey) -> bool {
    stored.target.is_some()
        && flags(stored).eq(flags(here))
        && (&stored.device, stored.plugin, &stored.compile_options, &stored.overrides, stored.base_options)
            == (&here.device, here.plugin, &here.compile_options, &here.overrides, here.base_options)
}

/// Flags that change the code; the location of CUDA's folder depends on the machine.
fn flags(key: &ExecutableKey) -> impl Iterator<Item = &String> {
    key.xla_flags.iter().filter(|flag| !flag.starts_with("--xla_gpu_cuda_data_dir="))
}

fn why_not(stored: &ExecutableKey, here: &ExecutableKey) -> String {
    if stored.target.is_none() {
        return "programs that were compiled on a device".to_owned();
    }
    let compiler = if stored.plugin == here.plugin { "" } else { " by another plugin" };
    let other_flags = if flags(stored).eq(flags(here)) { "" } else { " with other XLA_FLAGS" };
    let is_same = (&stored.overrides, stored.base_options) == (&here.overrides, here.base_options);
    let other_options = if is_same { "" } else { " with compiler options" };
    format!("programs for {}{compiler}{other_flags}{other_options}", stored.device)
}

#[cfg(test)]
mod tests;
