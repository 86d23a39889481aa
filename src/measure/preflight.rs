//! Checks that a program's inputs and outputs fit before any of them is made.

use std::fmt;
use std::path::Path;

use super::error::MeasureError;
use crate::array::ArraySpec;
use crate::timer::InputArray;
use crate::timer::protocol::DeviceMemory;

/// The space that a program's inputs need, and the space available, in bytes. Limits that the machine does not report
/// are not checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preflight {
    /// Input files to be written.
    pub disk_bytes: u64,
    /// Free space in the scratch folder.
    pub disk_free: Option<u64>,
    /// Peak memory on the host: one whole array, here while it is made and in the worker while it is read; or all
    /// outputs of the baseline and one of a candidate.
    pub host_bytes: u64,
    /// Host memory available to programs.
    pub host_free: Option<u64>,
    /// All arguments on the device, with the outputs if known. Temporaries are excluded, because only the compiled
    /// program reveals them.
    pub device_bytes: u64,
    /// Donated arguments: the device holds a second copy for runs to destroy, if it fits.
    pub donated_bytes: u64,
    /// Free memory on the device.
    pub device_free: Option<u64>,
    /// All outputs, if the program reports them.
    pub output_bytes: Option<u64>,
}

impl Preflight {
    /// Takes a program's parameters, each with whether its file must be written, and the folder of the files.
    pub fn of<'a>(arguments: impl IntoIterator<Item = (&'a ArraySpec, bool)>, scratch: &Path) -> Self {
        let mut found = Self { disk_free: disk_free(scratch), host_free: host_free(), ..Self::default() };
        for (spec, is_written) in arguments {
            let bytes = spec.host_bytes().unwrap_or(u64::MAX);
            found.device_bytes = found.device_bytes.saturating_add(bytes);
            found.disk_bytes = found.disk_bytes.saturating_add(if is_written { bytes } else { 0 });
            found.host_bytes = found.host_bytes.max(bytes);
        }
        found
    }

    /// Adds the program's outputs: a candidate's are compared with the baseline's. The outputs of two programs at a
    /// time are files, unless they take more than `files_up_to` bytes together.
    #[must_use]
    pub fn with_outputs(mut self, outputs: &[ArraySpec], files_up_to: u64) -> Self {
        let sizes = || outputs.iter().map(|spec| spec.host_bytes().unwrap_or(u64::MAX));
        let bytes = sizes().fold(0, u64::saturating_add);
        if bytes <= files_up_to {
            self.disk_bytes = self.disk_bytes.saturating_add(bytes.saturating_mul(2));
        }
        self.host_bytes = self.host_bytes.max(bytes.saturating_add(sizes().max().unwrap_or_default()));
        self.device_bytes = self.device_bytes.saturating_add(bytes);
        self.output_bytes = Some(bytes);
        self
    }

    /// Adds the device copies of the donated inputs.
    #[must_use]
    pub fn with_donated(self, inputs: &[InputArray]) -> Self {
        let donated =
            inputs.iter().filter(|input| input.donated).map(|input| input.spec.host_bytes().unwrap_or(u64::MAX));
        Self { donated_bytes: donated.fold(0, u64::saturating_add), ..self }
    }

    /// The same for this many devices, each with this memory if known.
    #[must_use]
    pub fn on_device(self, memory: Option<DeviceMemory>, devices: u64) -> Self {
        Self { device_free: memory.map(|memory| memory.free_bytes().saturating_mul(devices)), ..self }
    }

    /// Adds a second copy of the inputs with fractions, one at a time, for runs on other values.
    #[must_use]
    pub fn with_other_inputs(mut self, arguments: &[ArraySpec]) -> Self {
        let others = arguments.iter().filter(|spec| spec.dtype.has_fractions());
        let bytes = others.map(|spec| spec.host_bytes().unwrap_or(u64::MAX)).fold(0, u64::saturating_add);
        self.disk_bytes = self.disk_bytes.saturating_add(bytes);
        self
    }

    /// Adds a run of the program in `f64`, at another time. Files of its inputs and outputs are needed in addition to
    /// those of the program; on the device its arrays replace the program's.
    #[must_use]
    pub fn with_reference(mut self, arguments: &[ArraySpec], outputs: &[ArraySpec]) -> Self {
        let own = |spec: &ArraySpec| spec.host_bytes().unwrap_or(u64::MAX);
        let wide = |spec: &ArraySpec| own(&spec.in_f64());
        let sum = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(0, u64::saturating_add);
        let files = sum(&mut arguments.iter().filter(|spec| spec.in_f64() != **spec).map(wide));
        let of_outputs = sum(&mut outputs.iter().map(wide));
        self.disk_bytes = self.disk_bytes.saturating_add(files).saturating_add(of_outputs);
        // an output as it is, and in `f64` beside the reference's
        let at_once = arguments.iter().map(|spec| own(spec).saturating_add(wide(spec)));
        let compared = outputs.iter().map(|spec| own(spec).saturating_add(wide(spec).saturating_mul(2)));
        self.host_bytes = at_once.chain(compared).fold(self.host_bytes, u64::max);
        let on_device = sum(&mut arguments.iter().map(wide)).saturating_add(of_outputs);
        self.device_bytes = self.device_bytes.max(on_device);
        self
    }

    /// Whether it fits.
    ///
    /// # Errors
    /// What does not fit, with the space needed and available.
    pub fn check(&self, scratch: &Path) -> Result<(), MeasureError> {
        let lacks = |needed: u64, free: Option<u64>| free.is_some_and(|free| needed > free);
        let no_room = |message| Err(MeasureError::NoRoom { message });
        if lacks(self.disk_bytes, self.disk_free) {
            let (needed, free) = (Size(self.disk_bytes), Size(self.disk_free.unwrap_or_default()));
            let folder = scratch.display();
            let what = if self.output_bytes.is_some() { "inputs and outputs" } else { "inputs" };
            return no_room(format!(
                "the {what} take {needed} of disk and `{folder}` has {free} left; set TMPDIR to a folder with more"
            ));
        }
        if lacks(self.host_bytes, self.host_free) {
            let (needed, free) = (Size(self.host_bytes), Size(self.host_free.unwrap_or_default()));
            let what = if self.output_bytes.is_some() { "inputs and outputs need" } else { "largest input takes" };
            return no_room(format!("the {what} {needed} of memory at a time and the host has {free} left"));
        }
        if lacks(self.device_bytes, self.device_free) {
            let (needed, free) = (Size(self.device_bytes), Size(self.device_free.unwrap_or_default()));
            let what = if self.output_bytes.is_some() { "inputs and outputs" } else { "inputs" };
            return no_room(format!(
                "the {what} take {needed} of device memory and the device has {free} left; end what else runs on it, \
                 or use a larger one"
            ));
        }
        Ok(())
    }
}

impl fmt::Display for Preflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = |free: Option<u64>| free.map_or_else(String::new, |free| format!(" of {} left", Size(free)));
        let (disk, host) = (Size(self.disk_bytes), Size(self.host_bytes));
        let what = if self.output_bytes.is_some() { "inputs and outputs" } else { "inputs" };
        write!(f, "{what} take {disk}{} on disk, {host}{} ", left(self.disk_free), left(self.host_free))?;
        let on_device = Size(self.device_bytes.saturating_add(self.donated_bytes));
        write!(f, "of host memory at a time, {on_device}{} of device memory", left(self.device_free))?;
        f.write_str(if self.donated_bytes > 0 { " (donated inputs twice)" } else { "" })
    }
}

/// A size in readable units.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes < 1 << 10 => write!(f, "{bytes} bytes"),
            bytes if bytes < 1 << 20 => write!(f, "{:.1} KiB", bytes as f64 / 1024.0),
            bytes if bytes < 1 << 30 => write!(f, "{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
            bytes => write!(f, "{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        }
    }
}

fn disk_free(folder: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(folder).ok()?;
    system.f_bavail.checked_mul(system.f_frsize)
}

fn host_free() -> Option<u64> {
    available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// `MemAvailable` of Linux's `/proc/meminfo`, in kibibytes.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_reported_before_it_is_made() {
        let specs: Vec<ArraySpec> = ["f32[1024]", "bf16[512]"].map(|spec| spec.parse().unwrap()).to_vec();
        let scratch = tempfile::tempdir().unwrap();
        let mut found = Preflight::of([(&specs[0], true), (&specs[1], false)], scratch.path());
        assert_eq!((found.disk_bytes, found.host_bytes, found.device_bytes), (4096, 4096, 5120));
        assert!(found.disk_free > Some(0) && found.check(scratch.path()).is_ok());
        found.disk_free = Some(4095);
        let error = found.check(scratch.path()).unwrap_err();
        assert!(!error.is_of_input() && error.to_string().contains("take 4.0 KiB of disk"), "{error}");
        (found.disk_free, found.host_free) = (None, Some(1));
        let error = found.check(scratch.path()).unwrap_err().to_string();
        assert!(error.contains("takes 4.0 KiB of memory at a time and the host has 1 bytes left"), "{error}");
        assert_eq!(
            found.to_string(),
            "inputs take 4.0 KiB on disk, 4.0 KiB of 1 bytes left of host memory at a time, 5.0 KiB of device memory"
        );
        // donated inputs are held twice if that fits; it is not required
        let donated = [(&specs[0], true), (&specs[1], false)];
        let donated = donated.map(|(spec, donated)| InputArray::new("x", spec.clone(), "x").donated(donated));
        let on_device = found.clone().with_donated(&donated).on_device(Some(DeviceMemory::new(4096, 1024)), 2);
        found.host_free = None;
        let (fits, lacks) = (on_device.clone(), found.clone().on_device(Some(DeviceMemory::new(5119, 0)), 1));
        assert_eq!((fits.device_bytes, fits.donated_bytes, fits.device_free), (5120, 4096, Some(6144)));
        assert!(
            fits.to_string().ends_with("at a time, 9.0 KiB of 6.0 KiB left of device memory (donated inputs twice)"),
            "{fits}"
        );
        assert!(Preflight { host_free: None, ..fits }.check(scratch.path()).is_ok());
        let error = lacks.check(scratch.path()).unwrap_err().to_string();
        assert!(error.contains("take 5.0 KiB of device memory and the device has 5.0 KiB left"), "{error}");
        found.host_free = Some(1);
        let outputs = ["f32[256]", "pred[24]"].map(|spec| spec.parse().unwrap());
        let in_worker = found.clone().with_outputs(&outputs, 1047);
        assert_eq!((in_worker.disk_bytes, in_worker.host_bytes), (4096, 4096), "no file holds them");
        let large = [outputs.as_slice(), &["f32[2048]".parse().unwrap()]].concat();
        let found_large = found.clone().with_outputs(&large, 1048);
        assert_eq!((found_large.disk_bytes, found_large.host_bytes), (4096, 1048 + 2 * 8192));
        let error = found_large.check(scratch.path()).unwrap_err().to_string();
        assert!(error.contains("the inputs and outputs need 17.0 KiB of memory at a time"), "{error}");
        let mut found = found.with_outputs(&outputs, 1048);
        // 1 KiB and 24 bytes, of two programs on disk and of one on the device
        assert_eq!(
            (found.disk_bytes, found.device_bytes, found.output_bytes),
            (4096 + 2 * 1048, 5120 + 1048, Some(1048))
        );
        assert!(found.to_string().starts_with("inputs and outputs take 6.0 KiB on disk, "), "{found}");
        (found.disk_free, found.host_free) = (Some(4096 + 2 * 1048 - 1), None);
        let error = found.check(scratch.path()).unwrap_err().to_string();
        assert!(error.contains("the inputs and outputs take 6.0 KiB of disk"), "{error}");
        // a second copy of the inputs that can hold NaN: 4 KiB and 1 KiB, and none of the integers
        let integers = "s32[1000000]".parse().unwrap();
        let other = found.clone().with_other_inputs(&[specs[0].clone(), specs[1].clone(), integers]);
        assert_eq!(other.disk_bytes, found.disk_bytes + 4096 + 1024);
        // 8 KiB and 4 KiB of inputs in f64, 2 KiB of one output and 24 bytes of the other; on the device these replace
        // the rest
        let reference = found.clone().with_reference(&specs, &outputs);
        let (inputs, results) = (8192 + 4096, 2048 + 24);
        assert_eq!(reference.disk_bytes, found.disk_bytes + inputs + results);
        assert_eq!((reference.device_bytes, reference.host_bytes), (inputs + results, 4096 + 8192));
        let huge: ArraySpec = "f32[18446744073709551615,2]".parse().unwrap();
        assert!(Preflight::of([(&huge, true)], scratch.path()).check(scratch.path()).is_err());
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    2 kB\n"), Some(2048));
        assert_eq!(available("MemAvailable: many kB\n"), None);
    }
}
