//! The thin binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == "worker") {
        return autotune_lowered::cli::worker::run(arguments.collect());
    }
    ExitCode::from(2)
}
