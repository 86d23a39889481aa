//! `device`: the fingerprint of each device that a plugin shows.

use std::io::Write;

use clap::Args;

use crate::counted::counted;
use crate::device::DeviceFingerprint;
use crate::report::Plugins;
use crate::timer::Limits;
use crate::timer::pjrt::{PjrtOptions, discover, probe};

use super::exit;
use super::fault::Fault;
use super::options::{FormatArg, PluginArgs};
use super::timers::{first_plugin, options};

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
    let options = options(&args.plugin, Limits::default())?;
    let mut shown = Vec::new();
    let mut failures = Vec::new();
    for plugin in plugins {
        match probe(&PjrtOptions { plugin: plugin.path.clone(), ..options.clone() }) {
            Ok(probed) => shown.push((plugin, probed)),
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

/// The fingerprint of the chosen device.
pub(super) fn chosen(args: &PluginArgs) -> Result<DeviceFingerprint, Fault> {
    let plugin = first_plugin(args.plugin.as_deref())?.path;
    let devices = probe(&PjrtOptions { plugin, ..options(args, Limits::default())? }).map_err(Fault::device)?.devices;
    let count = devices.len();
    let device = devices.into_iter().nth(args.device);
    device.ok_or_else(|| {
        Fault::device(format!("the plugin shows {}, none is number {}", counted(count, "device"), args.device))
    })
}
