//! Work of devices that belongs to no program: its events name no module, or ran outside every module execution.

use serde::Serialize;

use crate::counted::counted;
use crate::profile::DeviceTime;

use super::capture::Capture;
use super::collectives::CollectiveKind;
use super::host_work::runtime_work;
use super::runtime::ns;

/// How kernels of a GPU get the names of their operations.
pub(super) const NAMES_HINT: &str = "XLA gives the kernels of a command buffer no names of their own; run with \
                                     `XLA_FLAGS=--xla_gpu_enable_command_buffer=` to get them";

/// Kernels of one name that belong to no program, on one device. Copies and fills of the runtime are transfers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KernelShare {
    /// The host, by the file's name.
    pub host: String,
    /// The plane.
    pub plane: String,
    /// The kernel's name.
    pub name: String,
    /// Whether it moves data between devices, by its name.
    pub communication: bool,
    /// Events.
    pub count: u64,
    /// Sum of their durations.
    pub time_ns: f64,
    /// As a share of the device's time: that of its programs' operations and of all events outside them.
    pub share: f64,
}

impl KernelShare {
    /// The device as tables name it.
    pub fn device(&self) -> String {
        format!("{} {}", self.host, self.plane).trim_start().to_owned()
    }
}

/// The kernels of a capture outside its programs, with the devices' times of operations, in nanoseconds, by plane.
pub(super) fn kernels(
    capture: &Capture,
    time: &DeviceTime,
    of_programs: &dyn Fn(usize) -> f64,
) -> (Vec<KernelShare>, Vec<String>) {
    let (mut kernels, mut notes) = (Vec::new(), Vec::new());
    let outside = &time.outside;
    for of_plane in outside.chunk_by(|one, next| one.plane == next.plane) {
        let Some(number) = of_plane.first().map(|one| one.plane) else { continue };
        let plane = capture.timeline().planes().nth(number).map(|plane| plane.name().into_owned()).unwrap_or_default();
        let all_ns = of_programs(number) + of_plane.iter().map(|one| ns(one.time.total_ps)).sum::<f64>();
        let first = kernels.len();
        for one in of_plane.iter().filter(|one| runtime_work(time.name(one.name)).is_none()) {
            let (name, time_ns) = (time.name(one.name).to_owned(), ns(one.time.total_ps));
            kernels.push(KernelShare {
                host: capture.host().to_owned(),
                plane: plane.clone(),
                communication: CollectiveKind::of_kernel(&name).is_some(),
                name,
                count: one.time.count,
                time_ns,
                share: if all_ns > 0.0 { time_ns / all_ns } else { 0.0 },
            });
        }
        let count: u64 = kernels.iter().skip(first).map(|kernel| kernel.count).sum();
        if count > 0 && plane.starts_with("/device:GPU") {
            let events = counted(count, "kernel event");
            notes.push(format!("{events} of `{plane}` name no module, so they are in no program: {NAMES_HINT}"));
        }
    }
    (kernels, notes)
}
