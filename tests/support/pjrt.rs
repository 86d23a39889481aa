//! The PJRT timer as tests start it.

use std::path::Path;

use autotune_lowered::timer::Limits;
use autotune_lowered::timer::pjrt::PjrtOptions;

/// The first device of a plugin; executables are kept in `executables` of a folder.
pub fn options(plugin: &Path, folder: &Path) -> PjrtOptions {
    PjrtOptions {
        exe: env!("CARGO_BIN_EXE_autotune-lowered").into(),
        plugin: plugin.to_owned(),
        device: 0,
        client_options: Vec::new(),
        xla_flags: None,
        metric: None,
        executables: folder.join("executables"),
        compile_jobs: None,
        limits: Limits::default(),
    }
}
