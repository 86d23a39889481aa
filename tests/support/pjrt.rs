//! The PJRT timer as tests start it.

use std::path::Path;

use autotune_lowered::timer::pjrt::PjrtOptions;

/// The first device of a plugin; executables are kept in `executables` of a folder.
pub fn options(plugin: &Path, folder: &Path) -> PjrtOptions {
    PjrtOptions::new(env!("CARGO_BIN_EXE_autotune-lowered"), plugin, folder.join("executables"))
}
