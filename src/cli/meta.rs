//! Completion scripts and the manual page.

use std::io::Write;

use clap::CommandFactory;

use super::args::Cli;
use super::exit;
use super::fault::Fault;

/// Prints a completion script.
pub(super) fn completions(shell: clap_complete::Shell, out: &mut dyn Write) -> Result<u8, Fault> {
    // the generator panics when its writer fails: it writes to memory
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "autotune-lowered", &mut script);
    out.write_all(&script)?;
    Ok(exit::FINE)
}

/// Prints the manual page.
pub(super) fn man(out: &mut dyn Write) -> Result<u8, Fault> {
    clap_mangen::Man::new(Cli::command()).render(out)?;
    Ok(exit::FINE)
}
