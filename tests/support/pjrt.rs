//! The PJRT timer with the options of tests.

use std::path::Path;

use autotune_lowered::timer::pjrt::PjrtOptions;

/// The first device of a plugin; the folder's `executables` keeps executables.
pub fn options(plugin: &Path, folder: &Path) -> PjrtOptions {
    PjrtOptions::new(env!("CARGO_BIN_EXE_autotune-lowered"), plugin, folder.join("executables"))
}
