//! The sub-folders of a dump folder that hold modules or profiles: a scan names them, and does not read them.

use std::path::{Path, PathBuf};

use super::file_form::form_of;
use super::found::Diagnosis;
use crate::counted::{counted, listed};
use crate::outside_file;

/// How deep sub-folders are searched: `LOGDIR/plugins/profile/RUN` and one more.
const MAX_DEPTH: usize = 4;

/// Files and folders examined together.
const MAX_FILES: usize = 4096;

/// What a folder's sub-folders hold.
#[derive(Debug, Default)]
pub(super) struct SubFolders {
    /// The paths of those with modules, from the folder.
    pub(super) with_modules: Vec<String>,
    /// The paths of those with profiles.
    with_profiles: Vec<String>,
    /// Whether some were not examined, because there are too many files.
    is_partial: bool,
}

impl SubFolders {
    /// Examines the sub-folders, without following links; one that cannot be read counts as empty.
    pub(super) fn of(folder: &Path) -> Self {
        let mut found = Self::default();
        let mut examined = 0;
        let mut work = vec![(folder.to_owned(), 0)];
        while let Some((current, depth)) = work.pop() {
            let (folders, mut files) = entries(&current);
            if depth < MAX_DEPTH {
                work.extend(folders.into_iter().rev().map(|inner| (inner, depth + 1)));
            }
            let name = || current.strip_prefix(folder).unwrap_or(&current).display().to_string();
            if files.iter().any(|file| file.to_string_lossy().contains(".xplane.pb")) {
                found.with_profiles.push(if depth == 0 { ".".to_owned() } else { name() });
            }
            if depth == 0 {
                continue;
            }
            // a folder counts as a file, so that empty ones are bounded too
            let room = MAX_FILES.saturating_sub(examined + 1);
            found.is_partial |= files.len() > room || room == 0;
            files.truncate(room);
            examined += 1 + files.len();
            if files.iter().any(|file| is_module(file)) {
                found.with_modules.push(name());
            }
            if room == 0 {
                break;
            }
        }
        found
    }

    /// That modules in sub-folders are not read.
    pub(super) fn diagnosis(&self) -> Option<Diagnosis> {
        let held = self.modules()?;
        Some(Diagnosis { code: "sub-folders".to_owned(), message: format!("{held}, which are not read; scan each") })
    }

    fn modules(&self) -> Option<String> {
        let more = if self.is_partial { ", and perhaps more" } else { "" };
        let count = counted(self.with_modules.len(), "sub-folder");
        let hold = if self.with_modules.len() == 1 { "holds" } else { "hold" };
        (!self.with_modules.is_empty())
            .then(|| format!("{count}{more} {hold} modules: {}", in_backticks(&self.with_modules)))
    }
}

/// What to do with a folder that holds no module itself.
pub(super) fn advice(folder: &Path) -> String {
    let within = SubFolders::of(folder);
    if let Some(held) = within.modules() {
        return format!("{held}; give one of them");
    }
    if !within.with_profiles.is_empty() {
        let names = in_backticks(&within.with_profiles);
        return format!("it holds profiles, in {names}; `autotune-lowered profile summary` reads them");
    }
    "point XLA at it with `XLA_FLAGS=--xla_dump_to=FOLDER --xla_dump_hlo_as_text`".to_owned()
}

fn is_module(path: &Path) -> bool {
    outside_file::open(path, u64::MAX).is_ok_and(|file| matches!(form_of(file), Ok(Some(_))))
}

fn in_backticks(names: &[String]) -> String {
    listed(names.iter().map(|name| format!("`{name}`")))
}

/// The folders and files of a folder, by name.
fn entries(folder: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_FILES + 1);
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => folders.push(entry.path()),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    folders.sort();
    files.sort();
    (folders, files)
}
