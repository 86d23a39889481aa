//! `device`: the fingerprint of each device that a plugin shows, or the attainable peaks of one.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::counted::counted;
use crate::device::DeviceFingerprint;
use crate::measure::measure_peaks;
use crate::measured_by::CacheState;
use crate::report::{PeaksOfDevice, Plugins, write_json};
use crate::timer::Limits;
use crate::timer::pjrt::{PjrtOptions, discover, probe};

use super::exit;
use super::fault::Fault;
use super::options::{FormatArg, LimitArgs, PluginArgs};
use super::output_file::OutputFile;
use super::timers::{Executables, TimerArgs, first_plugin, options, scratch, start_timer};

/// Seconds after which a built-in program counts as hung.
const TIMEOUT: u64 = 120;

#[derive(Debug, Args)]
pub(super) struct DeviceArgs {
    #[command(flatten)]
    pub plugin: PluginArgs,
    /// Measure attainable FLOP/s per element type and bytes/s with built-in programs; gives a roofline for devices
    /// without published peaks, such as CPUs (docs/roofline.md)
    #[arg(long)]
    pub measure_peaks: bool,
    /// With --measure-peaks: also write the peaks to a file that `--peaks` takes; an existing file is replaced
    #[arg(short, long, value_name = "FILE", requires = "measure_peaks")]
    pub output: Option<PathBuf>,
    /// With --measure-peaks: the timer of the programs: `pjrt`, `jax`, `jax:PYTHON`, `command:CMD` [default: pjrt]
    #[arg(long, value_name = "TIMER", requires = "measure_peaks")]
    pub timer: Option<String>,
    #[command(flatten)]
    pub format: FormatArg,
}

/// Prints the fingerprints of every plugin's devices, or of the one that is named; or its attainable peaks.
pub(super) fn run(args: &DeviceArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    if args.measure_peaks { peaks(args, out) } else { fingerprints(args, out) }
}

fn peaks(args: &DeviceArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let timer = args.timer.clone().unwrap_or_else(|| "pjrt".to_owned());
    if timer.starts_with("replay:") {
        let message = "`--timer replay:…` runs no program: only a device has peaks to measure";
        return Err(Fault::new(exit::USAGE, message));
    }
    let file = args.output.as_deref().map(|path| OutputFile::at(path, "peaks")).transpose()?;
    let scratch = scratch()?;
    let limits = LimitArgs { timeout: TIMEOUT, memory_limit: None, compile_jobs: None };
    let (plugin, cache_state) = (args.plugin.clone(), CacheState::Warm);
    let timer = TimerArgs { timer, metric: None, needs_profiles: false, cache_state, launch: None, plugin, limits };
    let mut timer = start_timer(&timer, Executables::kept(scratch.path()))?;
    let measured = measure_peaks(&mut *timer, scratch.path()).map_err(Fault::device)?;
    if let Some(file) = file {
        file.write(|out| write_json(out, &measured.peaks.to_file()))?;
    }
    let (device, timer) = (&timer.device().identity, timer.name());
    args.format.write(out, PeaksOfDevice { device, timer, measured: &measured })?;
    Ok(exit::FINE)
}

fn fingerprints(args: &DeviceArgs, out: &mut dyn Write) -> Result<u8, Fault> {
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
    // if no plugin works, the first one's reason is the error; otherwise it is only a message
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
