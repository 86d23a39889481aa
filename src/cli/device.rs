//! `device`: the fingerprint of this machine's device, and of others that plugins show; or a device's attainable peaks.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::counted::counted;
use crate::device::DeviceFingerprint;
use crate::measure::measure_peaks;
use crate::measured_by::CacheState;
use crate::report::{DevicesOf, PeaksOfDevice, ShownDevices, write_json};
use crate::timer::WorkerLimits;
use crate::timer::pjrt::{FoundPlugin, PjrtOptions, ProbedPlugin, discover, probe};

use super::executables::Executables;
use super::exit;
use super::fault::Fault;
use super::named_timer::{NamedTimer, refuse_replay, settle};
use super::options::{FormatArg, HereArgs, LimitArgs};
use super::output_file::OutputFile;
use super::timers::{TimerArgs, options, scratch, start_named, start_timer};

/// Seconds after which a built-in program counts as hung.
const TIMEOUT: u64 = 120;

#[derive(Debug, Args)]
pub(super) struct DeviceArgs {
    #[command(flatten)]
    pub here: HereArgs,
    /// Measure attainable FLOP/s per element type and bytes/s with built-in programs; gives a roofline for devices
    /// without published peaks, such as CPUs (docs/roofline.md)
    #[arg(long)]
    pub measure_peaks: bool,
    /// With --measure-peaks: also write the peaks to a file that `--peaks` takes; an existing file is replaced
    #[arg(short, long, value_name = "FILE", requires = "measure_peaks")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArg,
}

impl From<&HereArgs> for TimerArgs {
    fn from(HereArgs { timer, plugin }: &HereArgs) -> Self {
        let limits = LimitArgs { timeout: Some(TIMEOUT), memory_limit: None, compile_jobs: None };
        let (timer, plugin, cache_state) = (timer.clone(), plugin.clone(), CacheState::Warm);
        Self { timer, metric: None, needs_profiles: false, cache_state, launch: None, plugin, limits }
    }
}

/// Prints the fingerprints of the timer's device, or of every plugin's; or the attainable peaks of one.
pub(super) fn run(args: &DeviceArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    if args.measure_peaks { peaks(args, out) } else { fingerprints(args, out) }
}

fn peaks(args: &DeviceArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    refuse_replay(&args.here.timer, ": only a device has peaks to measure")?;
    let file = args.output.as_deref().map(|path| OutputFile::at(path, "peaks")).transpose()?;
    let scratch = scratch()?;
    let mut timer = start_timer(&TimerArgs::from(&args.here), &Executables::kept(scratch.path()))?;
    let measured = measure_peaks(&mut *timer, scratch.path()).map_err(Fault::device)?;
    if let Some(file) = file {
        file.write(|out| write_json(out, &measured.peaks.to_file()))?;
    }
    let (device, timer) = (&timer.info().device.identity, timer.info().name.as_str());
    args.format.write(out, PeaksOfDevice { device, timer, measured: &measured })?;
    Ok(exit::FINE)
}

fn fingerprints(args: &DeviceArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let shown = match settled(&args.here)? {
        NamedTimer::Plugin(first) => with_others(first, &args.here)?,
        other => {
            let origin = match &other {
                NamedTimer::Jax(python) => python.display().to_string(),
                _ => "--timer".to_owned(),
            };
            let (timer, device) = started(other, &args.here)?;
            let probed = ProbedPlugin { devices: vec![device], ..ProbedPlugin::default() };
            vec![DevicesOf { name: timer.clone(), timer, plugin: None, origin, probed }]
        }
    };
    args.format.write(out, ShownDevices(shown))?;
    Ok(exit::FINE)
}

/// The devices of the plugin that tunes, and then those of the others.
fn with_others(first: FoundPlugin, here: &HereArgs) -> Result<Vec<DevicesOf>, Fault> {
    let mut others = discover(here.plugin.plugin.as_deref(), None).map_err(Fault::device)?;
    others.retain(|plugin| plugin.path != first.path);
    let options = options(&here.plugin, WorkerLimits::default())?;
    let mut shown = Vec::new();
    let mut failures = Vec::new();
    for FoundPlugin { name, path, origin } in std::iter::once(first).chain(others) {
        match probe(&PjrtOptions { plugin: path.clone(), ..options.clone() }) {
            Ok(probed) => {
                shown.push(DevicesOf { timer: "pjrt".to_owned(), plugin: Some(path), name, origin, probed });
            }
            Err(failure) => failures.push(failure),
        }
    }
    // if no plugin works, the first one's reason is the error; otherwise it is only a message
    let said_later = usize::from(shown.is_empty());
    for failure in failures.iter().skip(said_later) {
        tracing::warn!("{failure}");
    }
    match failures.first() {
        Some(failure) if shown.is_empty() => Err(Fault::device(failure)),
        _ => Ok(shown),
    }
}

/// The fingerprint of the device that the same arguments tune for.
pub(super) fn chosen(here: &HereArgs) -> Result<DeviceFingerprint, Fault> {
    let FoundPlugin { path: plugin, .. } = match settled(here)? {
        NamedTimer::Plugin(plugin) => plugin,
        other => return Ok(started(other, here)?.1),
    };
    let args = &here.plugin;
    // quicker than to start its timer
    let devices =
        probe(&PjrtOptions { plugin, ..options(args, WorkerLimits::default())? }).map_err(Fault::device)?.devices;
    let count = devices.len();
    let device = devices.into_iter().nth(args.device);
    device.ok_or_else(|| {
        Fault::device(format!("the plugin shows {}, none is number {}", counted(count, "device"), args.device))
    })
}

fn settled(here: &HereArgs) -> Result<NamedTimer, Fault> {
    let (named, which) = settle(&here.timer, &here.plugin, false)?;
    // a look-up's stderr holds what is wrong with its result
    if let Some(which) = which {
        tracing::info!("{which}");
    }
    Ok(named)
}

/// The name and the device of a timer.
fn started(named: NamedTimer, here: &HereArgs) -> Result<(String, DeviceFingerprint), Fault> {
    let scratch = scratch()?;
    let timer = start_named(named, &TimerArgs::from(here), &Executables::kept(scratch.path()))?;
    Ok((timer.info().name.clone(), timer.info().device.clone()))
}
