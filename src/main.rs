//! The `autotune-lowered` program: a thin wrapper around the library's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    autotune_lowered::cli::main()
}
