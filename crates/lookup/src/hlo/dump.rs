//! Scans an XLA dump folder as one module. The earliest stage of each module is read, because conversion and
//! optimisation only lose labels: StableHLO, then before optimisation, then any other.

use std::path::Path;

use super::diagnosis::{CALL_SITES_CUT, KERNELS_CUT, cut_sites, kernels_cut};
use super::dump_files::DumpFiles;
use super::error::ScanError;
use super::found::{Diagnosis, FoundLabel, ModuleForm, Scan};
use super::kernels::{self, found::FoundKernel};
use super::sub_folders::SubFolders;
use crate::counted::{counted, listed};

/// Scans the modules of a dump folder, each by `scan_file`, and merges their labels.
pub(crate) fn scan(folder: &Path, scan_file: impl Fn(&Path) -> Result<Scan, ScanError>) -> Result<Scan, ScanError> {
    let files = DumpFiles::of(folder).map_err(|kind| kind.at(&folder.display().to_string()))?;
    let chosen = files.earliest();
    let mut scans = Vec::new();
    let mut unreadable: Vec<String> = files.irregular.iter().map(|name| format!("`{name}`: is not a file")).collect();
    for path in &chosen {
        match scan_file(path) {
            Ok(scan) => scans.push((name(path), scan)),
            Err(error) => unreadable.push(format!("`{}`: {}", name(path), error.kind)),
        }
    }
    let (read, names) = (scans.len(), chosen.iter().map(|path| format!("`{}`", name(path))));
    let message = format!("read {read} of {} files, the earliest stage of each module: {}", files.count, listed(names));
    let mut diagnosis = vec![Diagnosis { code: "dump-folder".to_owned(), message }];
    if !unreadable.is_empty() {
        let message = format!("{} cannot be read: {}", counted(unreadable.len(), "module"), listed(unreadable));
        diagnosis.push(Diagnosis { code: "module-unreadable".to_owned(), message });
    }
    diagnosis.extend(SubFolders::of(folder).diagnosis());
    Ok(merge(scans, diagnosis))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The labels of several modules, each with its name, and what is said of them.
pub(super) fn merge(scans: Vec<(String, Scan)>, mut diagnosis: Vec<Diagnosis>) -> Scan {
    let (mut labels, mut kernels): (Vec<FoundLabel>, Vec<FoundKernel>) = (Vec::new(), Vec::new());
    let mut are_all_kernels = true;
    let partitioned = scans.first().and_then(|(_, scan)| scan.partitioned);
    let partitioned = partitioned.filter(|_| scans.iter().all(|(_, scan)| scan.partitioned == partitioned));
    let module = match scans.as_slice() {
        [(_, only)] => only.module.clone(),
        _ => None,
    };
    let count = scans.len();
    // by code, in the order of the files: the files that report it, and the first one's text
    let mut found: Vec<(Diagnosis, Vec<String>)> = Vec::new();
    for (name, scan) in scans {
        for label in scan.labels {
            match labels.iter_mut().find(|known| known.label == label.label && known.family == label.family) {
                Some(known) => {
                    known.occurrences += label.occurrences;
                    known.backward |= label.backward;
                    known.mapped |= label.mapped;
                    known.add_calls_of(label);
                }
                None => labels.push(label),
            }
        }
        are_all_kernels &= scan.diagnosis.iter().all(|one| one.code != KERNELS_CUT);
        are_all_kernels &= kernels::add(&mut kernels, scan.kernels);
        // that of all modules together follows
        for one in scan.diagnosis.into_iter().filter(|one| ![CALL_SITES_CUT, KERNELS_CUT].contains(&one.code.as_str()))
        {
            match found.iter_mut().find(|(known, _)| known.code == one.code) {
                Some((_, names)) => names.push(name.clone()),
                None => found.push((one, vec![name.clone()])),
            }
        }
    }
    let has_labels = !labels.is_empty();
    diagnosis.extend(found.into_iter().map(|(mut first, names)| {
        let is_without = first.is_of_no_label();
        let of = format!("{} of {}", names.len(), counted(count, "module"));
        let names = listed(names.iter().map(|name| format!("`{name}`")));
        if is_without && has_labels {
            // other modules have labels: this one may have nothing to label
            first.message = format!("{of} hold no label: {names}");
        } else if count > 1 {
            first.message = format!("of {of} ({names}), of the first: {}", first.message);
        }
        first
    }));
    labels.sort_by(|a, b| (&a.label, &a.family).cmp(&(&b.label, &b.family)));
    diagnosis.extend(cut_sites(&labels));
    diagnosis.extend((!are_all_kernels).then(kernels_cut));
    Scan { module, partitioned, kernels, diagnosis, ..Scan::new(ModuleForm::DumpFolder, labels) }
}
