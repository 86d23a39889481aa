//! `device`: the fingerprint of each device that a plugin shows.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::counted::counted;
use crate::device::DeviceFingerprint;
use crate::remedy::scratch_remedy;
use crate::report::Plugins;
use crate::scratch::Scratch;
use crate::timer::Limits;
use crate::timer::pjrt::{FoundPlugin, PjrtOptions, discover, probe};

use super::exit;
use super::fault::Fault;
use super::options::{FormatArg, PluginArgs};

#[derive(Debug, Args)]
pub(super) struct DeviceArgs {
    #[command(flatten)]
    pub plugin: PluginArgs,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Prints the fingerprints of every plugin's devices, or of the one that is named.
pub(super) fn run(args: &DeviceArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let plugins = discover(args.plugin.plugin.as_deref(), None).map_err(Fault::device)?;
    let mut shown = Vec::new();
    let mut failures = Vec::new();
    for plugin in plugins {
        match probe(&options(&args.plugin, &plugin, Limits::default())?) {
            Ok(devices) => shown.push((plugin, devices)),
            Err(failure) => failures.push(failure),
        }
    }
    // where no plugin works the first one's reason is the error; beside working ones it is only said
    let said_later = usize::from(shown.is_empty());
    for failure in failures.iter().skip(said_later) {
        tracing::warn!("{failure}");
    }
    if let (true, Some(failure)) = (shown.is_empty(), failures.first()) {
        return Err(Fault::device(failure));
    }
    args.format.write(out, Plugins(shown))?;
    Ok(exit::FINE)
}

/// The plugin that is preferred.
pub(super) fn first_plugin(args: &PluginArgs) -> Result<FoundPlugin, Fault> {
    let found = discover(args.plugin.as_deref(), None).map_err(Fault::device)?;
    if let [first, second, ..] = found.as_slice() {
        tracing::info!("using the plugin `{}`; `--plugin {}` would use another", first.name, second.path.display());
    }
    found.into_iter().next().ok_or_else(|| {
        Fault::device("no PJRT plugin was found; name one with `--plugin PATH`; `--timer jax` needs none")
    })
}

/// The fingerprint of the chosen device.
pub(super) fn chosen(args: &PluginArgs) -> Result<DeviceFingerprint, Fault> {
    let plugin = first_plugin(args)?;
    let devices = probe(&options(args, &plugin, Limits::default())?).map_err(Fault::device)?;
    let count = devices.len();
    let device = devices.into_iter().nth(args.device);
    device.ok_or_else(|| {
        Fault::device(format!("the plugin shows {}, none is number {}", counted(count, "device"), args.device))
    })
}

/// How workers for a plugin are started.
pub(super) fn options(args: &PluginArgs, plugin: &FoundPlugin, limits: Limits) -> Result<PjrtOptions, Fault> {
    Ok(PjrtOptions {
        exe: this_program()?,
        plugin: plugin.path.clone(),
        device: args.device,
        client_options: args.client_options.clone(),
        executables: std::env::temp_dir(),
        compile_jobs: None,
        xla_flags: None,
        metric: None,
        limits,
    })
}

/// A folder for what this run needs only while it runs.
pub(super) fn scratch() -> Result<Scratch, Fault> {
    Scratch::new()
        .map_err(|error| Fault::device(format!("cannot make a scratch folder: {error}{}", scratch_remedy(&error))))
}

/// This program's own file: workers are started from it.
pub(super) fn this_program() -> Result<PathBuf, Fault> {
    std::env::current_exe().map_err(|error| Fault::device(format!("cannot find this program's own file: {error}")))
}
