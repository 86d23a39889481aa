//! Seconds by name over several profiles, as ejkernel's profiler counts them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::profile::{
    Dropped, Finding, FunctionTime, Plane, ProfileError, ProfileErrorKind, Profiler, Semantics, Timings,
    function_times, missing_functions,
};
use crate::stats::median;

use super::capture::Capture;
use super::programs::HloFiles;
use super::read::CaptureError;

/// Seconds by name.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct ProfileTimings {
    /// Version of the schema.
    pub schema: u32,
    /// The semantics of the numbers.
    pub semantics: Semantics,
    /// Seconds by name: the median of the samples, or the last profile's as ejkernel has it.
    pub timings: BTreeMap<String, f64>,
    /// Samples by name.
    pub sample_counts: BTreeMap<String, usize>,
    /// Mean and deviation by function id.
    pub functions: BTreeMap<u64, FunctionTime>,
    /// Notes on what was left out.
    pub dropped: Dropped,
    /// The profiles that were read.
    pub profiles: Vec<TimedProfile>,
    /// Samples by device.
    pub devices: Vec<DeviceSeconds>,
    /// Warnings.
    pub findings: Vec<Finding>,
    /// Which runs of log folders were read.
    #[serde(skip)]
    pub run_notes: Vec<String>,
}

/// A profile that was read.
#[derive(Debug, Serialize)]
pub struct TimedProfile {
    /// Its path.
    pub path: String,
    /// Its host.
    pub host: String,
    /// The planes that were read.
    pub planes: Vec<String>,
}

/// The samples of a name on one device.
#[derive(Debug, Serialize)]
pub struct DeviceSeconds {
    /// The name.
    pub name: String,
    /// Its host.
    pub host: String,
    /// The plane.
    pub plane: String,
    /// The device, if the plane reports it.
    pub device: Option<i64>,
    /// Each sample.
    pub seconds: Vec<f64>,
}

impl ProfileTimings {
    /// Times the profiles at these paths, which [`Capture::read`] takes. One XSpace at a time is held; the processes of
    /// a program that nsys-jax captured are read together. `plane` is a part of a plane's name, in any case; without it
    /// the devices' planes are read, or else the host's.
    ///
    /// # Errors
    /// As [`Capture::read`], if a profile has no such plane, and if ejkernel's semantics are requested for a capture of
    /// nsys-jax.
    pub fn of(paths: &[PathBuf], profiler: &Profiler, plane: Option<&str>) -> Result<Self, CaptureError> {
        let mut found = Self {
            schema: 1,
            semantics: profiler.semantics,
            timings: BTreeMap::new(),
            sample_counts: BTreeMap::new(),
            functions: BTreeMap::new(),
            dropped: Dropped::default(),
            profiles: Vec::new(),
            devices: Vec::new(),
            findings: Vec::new(),
            run_notes: Vec::new(),
        };
        let mut all = Vec::new();
        let at_once = if paths.iter().any(|path| Capture::is_of_nsys(path)) { paths.len() } else { 1 };
        for paths in paths.chunks(at_once.max(1)) {
            for capture in Capture::read(paths, &HloFiles::default())? {
                found.run_notes.extend_from_slice(capture.run_notes());
                all.push(found.add(&capture, profiler, plane)?);
            }
        }
        let mut samples: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (name, seconds) in all.iter().flat_map(|timings| &timings.samples) {
            samples.entry(name).or_default().extend(seconds);
        }
        for (name, samples) in samples {
            // ejkernel keeps the last profile's number of a name
            let one = match profiler.semantics {
                Semantics::Ejkernel => samples.last().copied(),
                Semantics::PerExecution => median(&samples),
            };
            found.timings.extend(one.map(|seconds| (name.to_owned(), seconds)));
            found.sample_counts.insert(name.to_owned(), samples.len());
        }
        found.functions = function_times(&all);
        found.findings.extend(missing_functions(&all));
        Ok(found)
    }

    /// Adds a profile's notes; returns its samples.
    fn add(&mut self, capture: &Capture, profiler: &Profiler, plane: Option<&str>) -> Result<Timings, CaptureError> {
        let time = match (&profiler.event_filter_regex, profiler.semantics) {
            (Some(regex), Semantics::PerExecution) => capture.executions_of_operations(regex),
            _ => capture.executions(),
        };
        let planes = wanted_planes(capture, plane, profiler.semantics)?;
        let mut of_profile = Timings::default();
        for plane in &planes {
            let timings = capture.timings(profiler, *plane, &time);
            let timings = timings.ok_or_else(|| CaptureError::NotOfEjkernel(capture.path().to_owned()))?;
            self.dropped.add(timings.dropped);
            self.devices.extend(timings.by_device.into_iter().map(|((name, device), seconds)| {
                let (host, plane) = (capture.host().to_owned(), plane.name().into_owned());
                DeviceSeconds { name, host, plane, device, seconds }
            }));
            for (name, seconds) in timings.samples {
                of_profile.samples.entry(name).or_default().extend(seconds);
            }
        }
        self.findings.extend(time.findings);
        let planes = planes.iter().map(|plane| plane.name().into_owned()).collect();
        let (path, host) = (capture.path().display().to_string(), capture.host().to_owned());
        self.profiles.push(TimedProfile { path, host, planes });
        Ok(of_profile)
    }
}

/// The planes of a capture whose names hold `plane`; without it those of the devices, or else of the host.
fn wanted_planes<'c>(
    capture: &'c Capture,
    plane: Option<&str>,
    semantics: Semantics,
) -> Result<Vec<Plane<'c>>, ProfileError> {
    let space = capture.timeline();
    let has_device = space.planes().any(|plane| plane.name().starts_with("/device:"));
    let wanted = plane.unwrap_or(if has_device { "/device:" } else { "/host:CPU" });
    let mut planes = Profiler::find_device_planes(space, wanted);
    if planes.is_empty() {
        let present: Vec<_> = space.planes().map(|plane| format!("`{}`", plane.name())).collect();
        let kind = ProfileErrorKind::NoPlane { wanted: wanted.to_owned(), present: present.join(", ") };
        return Err(ProfileError::new(capture.path().display().to_string(), kind));
    }
    // ejkernel reads the first plane that matches and no other
    if semantics == Semantics::Ejkernel {
        planes.truncate(1);
    }
    Ok(planes)
}
