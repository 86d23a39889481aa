//! `profile timings`: seconds by name, as ejkernel's profiler counts them.

use std::collections::BTreeMap;
use std::io::Write;

use clap::Args;
use regex::bytes::Regex;

use crate::analysis::{Capture, HloFiles};
use crate::profile::{
    Dropped, FunctionSamples, Plane, ProfileError, ProfileErrorKind, Profiler, Semantics, Timings, missing_functions,
};
use crate::report::{DeviceSeconds, TimedProfile, TimingsDocument};
use crate::stats::median;

use super::input::{CaptureArgs, is_nsys, read_any};
use crate::cli::exit;
use crate::cli::fault::Fault;
use crate::cli::options::FormatArg;

#[derive(Debug, Args)]
pub(crate) struct TimingsArgs {
    #[command(flatten)]
    pub captures: CaptureArgs,
    /// Part of a plane's name, whatever the case [default: `/device:` where there is one, else `/host:CPU`]
    #[arg(long, value_name = "NAME")]
    pub plane: Option<String>,
    /// Only names that start so; empty for all
    #[arg(long, value_name = "TEXT", default_value = "jit_")]
    pub prefix: String,
    /// Only time of operations whose names match; with --seed-semantics, of events inside whose names match
    #[arg(long, value_name = "REGEX")]
    pub regex: Option<String>,
    /// Leave out what is shorter
    #[arg(long, value_name = "NS", default_value_t = 1000.0, value_parser = duration_ns)]
    pub min_duration_ns: f64,
    /// Most samples of a plane, or `none` [default: none; with --seed-semantics 10000 events]
    #[arg(long, value_name = "N", value_parser = cap)]
    pub max_events: Option<Cap>,
    /// What ejkernel's profiler would say, faults included; never fit to decide by
    #[arg(long)]
    pub seed_semantics: bool,
    #[command(flatten)]
    pub format: FormatArg,
}

/// At most so many, or no bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cap(pub Option<usize>);

fn cap(text: &str) -> Result<Cap, String> {
    match text {
        "none" => Ok(Cap(None)),
        _ => text.parse().map(|most| Cap(Some(most))).map_err(|_| "expected a whole number or `none`".to_owned()),
    }
}

/// A duration: finite and not below zero.
fn duration_ns(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("expected nanoseconds, zero or more".to_owned()),
    }
}

fn profiler(args: &TimingsArgs) -> Result<Profiler, Fault> {
    let mut profiler = Profiler::new(if args.seed_semantics { Semantics::Seed } else { Semantics::PerExecution });
    profiler.prefix_filter.clone_from(&args.prefix);
    profiler.min_duration_ns = args.min_duration_ns;
    if let Some(cap) = args.max_events {
        profiler.max_events_per_profile = cap.0;
    }
    let regex = args.regex.as_deref().map(Regex::new).transpose();
    profiler.event_filter_regex = regex.map_err(|error| Fault::new(exit::USAGE, format!("--regex: {error}")))?;
    Ok(profiler)
}

/// The planes of a capture whose names hold `plane`; without it those of the devices, or else of the host.
fn wanted_planes<'c>(capture: &'c Capture, plane: Option<&str>, semantics: Semantics) -> Result<Vec<Plane<'c>>, Fault> {
    let space = capture.timeline();
    let has_device = space.planes().any(|plane| plane.name().starts_with("/device:"));
    let wanted = plane.unwrap_or(if has_device { "/device:" } else { "/host:CPU" });
    let mut planes = Profiler::find_device_planes(space, wanted);
    if planes.is_empty() {
        let present: Vec<_> = space.planes().map(|plane| format!("`{}`", plane.name())).collect();
        let kind = ProfileErrorKind::NoPlane { wanted: wanted.to_owned(), present: present.join(", ") };
        return Err(Fault::input(ProfileError::new(capture.path().display().to_string(), kind)));
    }
    // the seed reads the first plane that matches and no other
    if semantics == Semantics::Seed {
        planes.truncate(1);
    }
    Ok(planes)
}

fn not_of_the_seed(capture: &Capture) -> Fault {
    let what = "is a capture of nsys-jax, which ejkernel's profiler does not read; leave `--seed-semantics` out";
    Fault::new(exit::USAGE, format!("`{}`: {what}", capture.path().display()))
}

/// Prints seconds by name; no sample at all is exit code 3.
pub(super) fn timings(args: &TimingsArgs, out: &mut dyn Write) -> Result<u8, Fault> {
    let profiler = profiler(args)?;
    let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let (mut functions, mut all) = (FunctionSamples::default(), Vec::new());
    let (mut dropped, mut findings) = (Dropped::default(), Vec::new());
    let (mut profiles, mut devices) = (Vec::new(), Vec::new());
    // one XSpace at a time is held; the processes of a program that nsys-jax captured are read together
    let at_once = if args.captures.files.iter().any(|file| is_nsys(file)) { args.captures.files.len() } else { 1 };
    for files in args.captures.files.chunks(at_once) {
        for capture in read_any(files, &HloFiles::default())? {
            let time = match (&profiler.event_filter_regex, profiler.semantics) {
                (Some(regex), Semantics::PerExecution) => capture.executions_of_operations(regex),
                _ => capture.executions(),
            };
            let planes = wanted_planes(&capture, args.plane.as_deref(), profiler.semantics)?;
            let mut of_profile = Timings::default();
            for plane in &planes {
                let found = capture.timings(&profiler, *plane, &time).ok_or_else(|| not_of_the_seed(&capture))?;
                dropped.add(found.dropped);
                devices.extend(found.by_device.into_iter().map(|((name, device), seconds)| {
                    let (host, plane) = (capture.host().to_owned(), plane.name().into_owned());
                    DeviceSeconds { name, host, plane, device, seconds }
                }));
                for (name, seconds) in found.samples {
                    samples.entry(name.clone()).or_default().extend(&seconds);
                    of_profile.samples.entry(name).or_default().extend(seconds);
                }
            }
            functions.add(&of_profile);
            all.push(of_profile);
            findings.extend(time.findings);
            let planes = planes.iter().map(|plane| plane.name().into_owned()).collect();
            let (path, host) = (capture.path().display().to_string(), capture.host().to_owned());
            profiles.push(TimedProfile { path, host, planes });
        }
    }
    findings.extend(missing_functions(&all));
    // the seed keeps the last profile's number of a name
    let one = |samples: &Vec<f64>| match profiler.semantics {
        Semantics::Seed => samples.last().copied(),
        Semantics::PerExecution => median(samples),
    };
    let document = TimingsDocument {
        schema: 1,
        semantics: profiler.semantics,
        timings: samples.iter().filter_map(|(name, list)| Some((name.clone(), one(list)?))).collect(),
        sample_counts: samples.iter().map(|(name, list)| (name.clone(), list.len())).collect(),
        functions: functions.functions(),
        dropped,
        profiles,
        devices,
        findings,
    };
    let is_empty = document.timings.is_empty();
    args.format.write(out, document)?;
    Ok(if is_empty { exit::NOTHING_MATCHED } else { exit::FINE })
}
