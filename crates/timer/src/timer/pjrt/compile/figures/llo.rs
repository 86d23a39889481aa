//! libtpu's dump of its low-level IR (LLO): the bundles that it scheduled for a kernel, and the kernel's vector memory.
//!
//! libtpu writes a file for each kernel and pass into the folder of `--xla_jf_dump_to`. Neither the flag nor the files
//! are documented. This module reads what public tools read in dumps of v5e and v6e: the names
//! `TIME-KERNEL-NUMBER-PASS.txt`, `total scheduled bundles: N` in the pass `schedule-analysis_final_bundles`, and
//! `#allocation1 [shape = '…', space=vmem, size = 0x3000` in a pass that lists allocations. Anything else counts as
//! unknown.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use crate::hlo::TpuKernel;
use crate::outside_file;
use crate::timer::protocol::KernelSchedule;

const SCHEDULE: &str = "schedule-analysis_final_bundles";
/// Passes that list allocations, the one with the final ones first.
const ALLOCATIONS: [&str; 3] = ["post-ra", "pre-finalize-registers-and-allocations", "original"];

/// Maximum number of files that are listed: a program has about eighty for each kernel.
const MAX_FILES: usize = 1 << 18;
/// Largest file that is read: a schedule's file contains the kernel's whole configuration.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// A size that is not determined yet.
const UNDECIDED: u64 = u64::MAX;

/// The flags that make libtpu write into a folder.
pub(crate) fn dump_flags(folder: &Path) -> String {
    format!("--xla_jf_dump_to={} --xla_jf_dump_llo_text=true", folder.display())
}

/// Removes an earlier program's files.
pub(crate) fn clear(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
    let _ = fs::create_dir_all(folder);
}

/// The schedule of a program's kernels in the dump; `None` if it describes none.
pub(crate) fn schedule(folder: &Path, kernels: &[TpuKernel]) -> Option<KernelSchedule> {
    let passes = passes(folder);
    let found = |kernel: &TpuKernel| passes.get(&kernel.name);
    let bundles = kernels.iter().map(|kernel| {
        let scheduled = scheduled_bundles(found(kernel)?.get(SCHEDULE)?)?;
        Some(scheduled as f64 * kernel.grid_steps? as f64)
    });
    // a sum that lacks a kernel could not be compared
    let bundles = bundles.sum::<Option<f64>>().filter(|bundles| *bundles > 0.0);
    let vmem_bytes = kernels.iter().filter_map(|kernel| vmem_bytes(found(kernel)?)).max();
    (bundles.is_some() || vmem_bytes.is_some()).then_some(KernelSchedule { bundles, vmem_bytes })
}

/// The files of each kernel by pass; of several compilations, those of the last.
fn passes(folder: &Path) -> BTreeMap<String, BTreeMap<String, PathBuf>> {
    let mut times: BTreeMap<String, u64> = BTreeMap::new();
    let mut found: BTreeMap<String, BTreeMap<String, PathBuf>> = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).take(MAX_FILES) {
        let name = entry.file_name();
        let Some((time, kernel, pass)) = name.to_str().and_then(parts_of) else { continue };
        let last = times.entry(kernel.to_owned()).or_insert(time);
        if time < *last {
            continue;
        }
        let of_kernel = found.entry(kernel.to_owned()).or_default();
        if time > *last {
            *last = time;
            of_kernel.clear();
        }
        of_kernel.insert(pass.to_owned(), entry.path());
    }
    found
}

/// Time, kernel and pass: `1772746582910387391-matmul.1-78-schedule-analysis_final_bundles.txt`. Kernel names may
/// contain dashes and digits, so the last number between dashes is the pass's.
fn parts_of(name: &str) -> Option<(u64, &str, &str)> {
    static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^(\d{10,20})-(.+)-\d{2,3}-(.+)\.txt$").ok());
    let (_, [time, kernel, pass]) = NAME.as_ref()?.captures(name)?.extract();
    Some((time.parse().ok()?, kernel, pass))
}

fn scheduled_bundles(path: &Path) -> Option<u64> {
    static TOTAL: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?m)^\s*total scheduled bundles:\s+(\d+)\s*$").ok());
    let text = outside_file::text(path, MAX_FILE_BYTES).ok()?;
    TOTAL.as_ref()?.captures(&text)?.get(1)?.as_str().parse().ok()
}

/// Bytes of a kernel's allocations in vector memory, each counted once, from the last pass that lists them.
fn vmem_bytes(passes: &BTreeMap<String, PathBuf>) -> Option<u64> {
    ALLOCATIONS.iter().find_map(|wanted| {
        let listing = passes.iter().filter(|(pass, _)| pass.ends_with(wanted) && !pass.contains("schedule-analysis"));
        listing.map(|(_, path)| path).find_map(|path| allocated(&outside_file::text(path, MAX_FILE_BYTES).ok()?))
    })
}

fn allocated(text: &str) -> Option<u64> {
    static ALLOCATION: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"#allocation(\d+)\s*\[shape = '[^']*',\s*space=vmem,\s*size = 0x([0-9a-fA-F]{1,16})[,\]]").ok()
    });
    let mut sizes: BTreeMap<&str, u64> = BTreeMap::new();
    for found in ALLOCATION.as_ref()?.captures_iter(text) {
        let (_, [id, size]) = found.extract();
        let size = u64::from_str_radix(size, 16).ok().filter(|size| *size != UNDECIDED)?;
        sizes.entry(id).or_insert(size);
    }
    let sum = sizes.into_values().try_fold(0_u64, u64::checked_add)?;
    (sum > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, steps: u64) -> TpuKernel {
        TpuKernel::new(name, Some(steps))
    }

    /// SYNTHETIC files in the form that public tools read.
    fn write(folder: &Path, name: &str, text: &str) {
        fs::write(folder.join(name), text).unwrap();
    }

    fn analysis(bundles: u64) -> String {
        format!(
            "Schedule analysis:\n    total scheduled bundles:    {bundles}\n    empty scheduled bundles:    14\n    \
             non empty scheduled bundles: 9\n\t 281.50 scheduled bundles (99.12%): <no hlo>\n"
        )
    }

    #[test]
    fn bundles_are_multiplied_by_the_grids_steps_and_unknown_without_one_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        write(at, "1772746582910387391-matmul.1-78-schedule-analysis_final_bundles.txt", &analysis(298));
        write(at, "1772746582910387391-matmul.1-71-schedule-analysis_packed-bundles-post-ra.txt", &analysis(77));
        write(at, "1772746582910387392-a-12-b.2-78-schedule-analysis_final_bundles.txt", &analysis(5));
        write(at, "1772746582910387392-<late-initialization>-78-schedule-analysis_final_bundles.txt", &analysis(9));
        write(at, "TLP-hlo.txt", "");
        let (matmul, other) = (kernel("matmul.1", 48), kernel("a-12-b.2", 2));
        let bundles = |kernels: &[TpuKernel]| schedule(at, kernels).and_then(|schedule| schedule.bundles);
        assert_eq!(bundles(std::slice::from_ref(&matmul)), Some(298.0 * 48.0));
        assert_eq!(bundles(&[matmul.clone(), other]), Some(298.0 * 48.0 + 10.0));
        assert_eq!(bundles(&[matmul.clone(), kernel("missing", 1)]), None);
        assert_eq!(bundles(&[TpuKernel::new("matmul.1", None)]), None);
        assert_eq!(bundles(&[]), None);
        // compiled again
        write(at, "1772746582910387399-matmul.1-78-schedule-analysis_final_bundles.txt", &analysis(300));
        assert_eq!(bundles(std::slice::from_ref(&matmul)), Some(300.0 * 48.0));
        write(at, "1772746582910387399-matmul.1-78-schedule-analysis_final_bundles.txt", "another form\n");
        assert_eq!(bundles(&[matmul]), None);
        clear(at);
        assert_eq!(fs::read_dir(at).unwrap().count(), 0);
    }

    #[test]
    fn vector_memory_is_that_of_the_pass_after_registers_were_allocated() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let line = |id: u32, space: &str, size: &str| {
            format!(
                "  #allocation{id} [shape = 'u8[{id}]{{0}}', space={space}, size = {size}, scoped, tag = 'scoped \
                 memory for k.1']\n"
            )
        };
        let early = line(0, "vmem", "0x100000") + &line(1, "vmem", "0xffffffffffffffff");
        write(at, "1772746582910387391-k.1-02-original.txt", &early);
        let vmem = || schedule(at, &[kernel("k.1", 1)]).and_then(|schedule| schedule.vmem_bytes);
        assert_eq!(vmem(), None, "one of its sizes is not decided");
        let late = [
            line(0, "vmem", "0x300000"),
            line(0, "vmem", "0x300000"),
            line(1, "smem", "0x80"),
            line(2, "vmem", "0x1000"),
        ];
        write(at, "1772746582910387391-k.1-60-post-ra.txt", &late.concat());
        assert_eq!(vmem(), Some(0x30_1000));
        // listings of bundles contain names of allocations, too
        write(at, "1772746582910387391-k.1-70-packed-bundles-post-ra.txt", "0x0: { dma #allocation0 }\n");
        assert_eq!(vmem(), Some(0x30_1000));
    }
}
