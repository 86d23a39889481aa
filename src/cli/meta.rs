//! Completion scripts and the manual page.

use std::io::Write;

use clap::CommandFactory;

use super::args::Cli;
use super::exit;
use super::fault::Fault;
use super::reference::reference;

/// Prints a completion script.
pub(super) fn completions(shell: clap_complete::Shell, out: &mut dyn Write) -> Result<u8, Fault> {
    // the generator panics when its writer fails: it writes to memory
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "autotune-lowered", &mut script);
    out.write_all(&script)?;
    Ok(exit::FINE)
}

/// Prints the manual page, with the options of the main job; or the reference of all commands.
pub(super) fn man(is_markdown: bool, out: &mut dyn Write) -> Result<u8, Fault> {
    let command = Cli::command();
    if is_markdown {
        out.write_all(reference(command).as_bytes())?;
        return Ok(exit::FINE);
    }
    let mut of_tune = Vec::new();
    if let Some(tune) = command.find_subcommand("tune") {
        clap_mangen::Man::new(tune.clone()).render_options_section(&mut of_tune)?;
    }
    clap_mangen::Man::new(command).render(out)?;
    out.write_all(String::from_utf8_lossy(&of_tune).replacen(".SH OPTIONS", ".SH \"OPTIONS OF TUNE\"", 1).as_bytes())?;
    Ok(exit::FINE)
}
