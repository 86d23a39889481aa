//! Why a plugin shows no device, from its stderr: its error is `No visible GPU devices.` whatever the cause.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::error::{PjrtError, one_line};
use crate::failure::{Failure, FailureKind};
use crate::outside_file;

/// The runtime's messages for a driver that is missing or does not work (tsl and XLA, `cuda_platform.cc`,
/// `cudart_stub.cc`).
const CAUSES: [&str; 2] = ["failed call to cuInit", "Could not find cuda drivers"];

/// Plugins' messages if they find no device: XLA for GPUs, libtpu.
const NO_DEVICE: [&str; 2] = ["No visible", "No jellyfish device found"];
/// libtpu's message if another process has the TPU. It goes on to advise `sudo rm` of a file that is that process's
/// lock.
const LOCKED: &str = "multi-process lockfile";
/// Maximum size of a system file that holds one number.
const MAX_NUMBER_BYTES: u64 = 1 << 12;
/// The system's list of PCI devices.
pub(crate) const PCI: &str = "/sys/bus/pci/devices";
/// The PCI vendor number of TPUs: Google, whose network cards and disks are also in virtual machines without a TPU.
const TPU_VENDOR: &str = "0x1ae0";
/// TPUs of that vendor, v2 and v3 to TPU7x, as `jax/_src/hardware_utils.py` of JAX 0.10.2 lists them.
const TPU_DEVICES: [&str; 7] = ["0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"];

/// Whether the machine has a TPU; `pci` is [`PCI`].
pub(crate) fn has_tpu(pci: &Path) -> bool {
    let devices = fs::read_dir(pci).into_iter().flatten().flatten();
    devices.map(|device| device.path()).any(|device| {
        let number = |name: &str| outside_file::text(&device.join(name), MAX_NUMBER_BYTES).unwrap_or_default();
        number("vendor").trim() == TPU_VENDOR && TPU_DEVICES.contains(&number("device").trim())
    })
}

/// Keeps libtpu from querying the cloud's metadata for a minute or two on a machine without a TPU.
pub(crate) fn without_metadata() -> Option<(OsString, Option<OsString>)> {
    (!has_tpu(Path::new(PCI))).then(|| ("TPU_SKIP_MDS_QUERY".into(), Some("1".into())))
}

/// A plugin's message, without advice that would take the TPU away from the process that has it.
pub(crate) fn harmless(message: &str) -> String {
    match message.contains(LOCKED) {
        true => "another process on this machine has the TPU; wait until it ends, or end it".to_owned(),
        false => message.to_owned(),
    }
}

/// A plugin's error as a failure of the device.
pub(crate) fn device_failure(error: &PjrtError) -> Failure {
    Failure::new(FailureKind::Device, one_line(&harmless(&error.message)))
}

/// A failure to open the device, with the plugin's file and the cause if stderr contains it.
pub(crate) fn explained(failure: Failure, plugin: &Path, stderr: &str) -> Failure {
    if failure.kind != FailureKind::Device || !NO_DEVICE.iter().any(|words| failure.message.contains(words)) {
        return failure;
    }
    let cause = CAUSES.iter().find_map(|cause| stderr.lines().find(|line| line.contains(cause)));
    // a log line's head ends with the source location: `E1123 09:20:54 9581 cuda_platform.cc:57] …`
    let cause = cause.map(|line| line.split_once("] ").map_or(line, |(_, words)| words));
    let cause = cause.map_or_else(String::new, |cause| format!(" ({})", one_line(cause)));
    let message = format!(
        "{}: {}{cause}; run on a machine with its device, or compile for it here with `compile --target`",
        plugin.display(),
        failure.message.trim_end_matches('.')
    );
    Failure::new(FailureKind::Device, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_the_drivers_and_other_failures_stay() {
        // a real plugin's last messages on a machine without a GPU
        let stderr = "I0000 00:00:1795425654.870221    9581 cudart_stub.cc:31] Could not find cuda drivers on your \
                      machine, GPU will not be used.\n\
                      E1123 09:20:54.883813    9581 cuda_platform.cc:57] failed call to cuInit: INTERNAL: CUDA error: \
                      Failed call to cuInit: UNKNOWN ERROR (303)\n";
        let none = || Failure::new(FailureKind::Device, "No visible GPU devices.");
        let message = explained(none(), Path::new("/p/xla_cuda_plugin.so"), stderr).message;
        assert!(
            message.starts_with("/p/xla_cuda_plugin.so: No visible GPU devices (failed call to cuInit: INTERNAL"),
            "{message}"
        );
        assert!(message.contains("UNKNOWN ERROR (303)); run on a machine with its device"), "{message}");
        assert!(explained(none(), Path::new("p.so"), "").message.starts_with("p.so: No visible GPU devices; run"));
        let tpu = Failure::new(FailureKind::Device, "TPU initialization failed: No jellyfish device found.");
        let message = explained(tpu, Path::new("libtpu.so"), "").message;
        assert!(
            message.starts_with("libtpu.so: TPU initialization failed: No jellyfish device found; run"),
            "{message}"
        );
        let locked = "The TPU is already in use by another process; multi-process lockfile. Run \"$ sudo rm \
                      /tmp/libtpu_lockfile\"";
        let message = device_failure(&PjrtError { code: 10, message: locked.to_owned() }).message;
        assert!(message.contains("another process") && !message.contains("sudo"), "{message}");
        let other = Failure::new(FailureKind::Device, "out of memory");
        assert_eq!(explained(other.clone(), Path::new("p.so"), stderr), other);
    }

    #[test]
    fn a_tpu_is_known_by_its_vendor_and_number() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!has_tpu(&folder.path().join("none")));
        // a virtio disk, Google's network card, a TPU v5e
        for (place, vendor, device) in
            [(3, "0x1af4\n", "0x1001\n"), (4, "0x1ae0\n", "0x0042\n"), (5, "0x1ae0\n", "0x0063\n")]
        {
            assert!(!has_tpu(folder.path()));
            let folder = folder.path().join(format!("0000:00:0{place}.0"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("vendor"), vendor).unwrap();
            fs::write(folder.join("device"), device).unwrap();
        }
        assert!(has_tpu(folder.path()));
    }
}
