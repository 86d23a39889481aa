//! Why a plugin shows no device, from what it writes to stderr: its error says `No visible GPU devices.` whatever the cause.

use std::fs;
use std::path::Path;

use super::plugin::one_line;
use crate::failure::{Failure, FailureKind};

/// What the runtime says of a driver that is missing or does not work (tsl and XLA, `cuda_platform.cc`, `cudart_stub.cc`).
const CAUSES: [&str; 2] = ["failed call to cuInit", "Could not find cuda drivers"];

/// What plugins say if there is no device of theirs: XLA for GPUs, libtpu.
const NO_DEVICE: [&str; 2] = ["No visible", "No jellyfish device found"];
/// What libtpu says where another process has the TPU; it continues to advise `sudo rm` of a file that is that process's lock.
const LOCKED: &str = "multi-process lockfile";
/// Where the system lists what is plugged in.
pub(in crate::timer) const PCI: &str = "/sys/bus/pci/devices";
/// The vendor of TPUs by its PCI number: Google.
const TPU_VENDOR: &str = "0x1ae0";

/// Whether a TPU is plugged in; `pci` is [`PCI`].
pub(in crate::timer) fn has_tpu(pci: &Path) -> bool {
    let devices = fs::read_dir(pci).into_iter().flatten().flatten();
    let vendor = |device: fs::DirEntry| fs::read_to_string(device.path().join("vendor")).unwrap_or_default();
    devices.map(vendor).any(|vendor| vendor.trim() == TPU_VENDOR)
}

/// A failure to open the device, with the plugin's file and the cause where stderr tells it.
pub(super) fn explained(failure: Failure, plugin: &Path, stderr: &str) -> Failure {
    if failure.message.contains(LOCKED) {
        let plugin = plugin.display();
        let message = format!("{plugin}: another process on this machine has the TPU; wait until it ends, or end it");
        return Failure::new(failure.kind, message);
    }
    if failure.kind != FailureKind::Device || !NO_DEVICE.iter().any(|words| failure.message.contains(words)) {
        return failure;
    }
    let cause = CAUSES.iter().find_map(|cause| stderr.lines().find(|line| line.contains(cause)));
    // a log line's head ends with the place in the source: `E1123 09:20:54 9581 cuda_platform.cc:57] …`
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
        // a real plugin's last words on a machine without a GPU
        let stderr = "I0000 00:00:1795425654.870221    9581 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.\n\
                      E1123 09:20:54.883813    9581 cuda_platform.cc:57] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)\n";
        let none = || Failure::new(FailureKind::Device, "No visible GPU devices.");
        let told = explained(none(), Path::new("/p/xla_cuda_plugin.so"), stderr).message;
        assert!(
            told.starts_with("/p/xla_cuda_plugin.so: No visible GPU devices (failed call to cuInit: INTERNAL"),
            "{told}"
        );
        assert!(told.contains("UNKNOWN ERROR (303)); run on a machine with its device"), "{told}");
        assert!(explained(none(), Path::new("p.so"), "").message.starts_with("p.so: No visible GPU devices; run"));
        let tpu = Failure::new(FailureKind::Device, "TPU initialization failed: No jellyfish device found.");
        let told = explained(tpu, Path::new("libtpu.so"), "").message;
        assert!(told.starts_with("libtpu.so: TPU initialization failed: No jellyfish device found; run"), "{told}");
        let locked = "The TPU is already in use by another process; multi-process lockfile. Run \"$ sudo rm /tmp/libtpu_lockfile\"";
        let told = explained(Failure::new(FailureKind::Device, locked), Path::new("libtpu.so"), "").message;
        assert!(told.contains("another process") && !told.contains("sudo"), "{told}");
        let other = Failure::new(FailureKind::Device, "out of memory");
        assert_eq!(explained(other.clone(), Path::new("p.so"), stderr), other);
    }
    #[test]
    fn a_tpu_is_known_by_its_vendor() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!has_tpu(&folder.path().join("none")));
        for (device, vendor) in [("0000:00:03.0", "0x1af4\n"), ("0000:00:04.0", "0x1ae0\n")] {
            assert!(!has_tpu(folder.path()));
            fs::create_dir(folder.path().join(device)).unwrap();
            fs::write(folder.path().join(device).join("vendor"), vendor).unwrap();
        }
        assert!(has_tpu(folder.path()));
    }
}
