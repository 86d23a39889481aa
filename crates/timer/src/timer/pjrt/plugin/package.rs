//! Which Python package installed a plugin: its version is the one that a recording must have.

use std::path::Path;

use crate::outside_file;
use crate::timer::active_python::sorted_entries;

/// Largest list of a package's files that is read.
const MAX_RECORD_BYTES: u64 = 1 << 24;

/// The plugin's package and its version, `jax_cuda12_pjrt 0.10.2`, if a package's list of files has it.
pub(crate) fn package_of(plugin: &Path) -> Option<String> {
    plugin.ancestors().skip(1).take(4).find_map(|site_packages| {
        // lists have no backslashes on Linux, and quote only names with commas
        let line = format!("{},", plugin.strip_prefix(site_packages).ok()?.display());
        sorted_entries(site_packages).into_iter().find_map(|entry| {
            let name = entry.file_name()?.to_str()?.strip_suffix(".dist-info")?.replacen('-', " ", 1);
            let record = outside_file::text(&entry.join("RECORD"), MAX_RECORD_BYTES).ok()?;
            record.lines().any(|listed| listed.starts_with(&line)).then_some(name)
        })
    })
}
