//! Why a plugin shows no device, from what it writes to stderr: its error says `No visible GPU devices.` whatever the cause.

use std::path::Path;

use super::plugin::one_line;
use crate::failure::{Failure, FailureKind};

/// What the runtime says of a driver that is missing or does not work (tsl and XLA, `cuda_platform.cc`, `cudart_stub.cc`).
const CAUSES: [&str; 2] = ["failed call to cuInit", "Could not find cuda drivers"];

/// A failure to open the device, with the plugin's file and the cause where stderr tells it.
pub(super) fn explained(failure: Failure, plugin: &Path, stderr: &str) -> Failure {
    if failure.kind != FailureKind::Device || !failure.message.contains("No visible") {
        return failure;
    }
    let cause = CAUSES.iter().find_map(|cause| stderr.lines().find(|line| line.contains(cause)));
    // a log line's head ends with the place in the source: `E1123 09:20:54 9581 cuda_platform.cc:57] …`
    let cause = cause.map(|line| line.split_once("] ").map_or(line, |(_, words)| words));
    let cause = cause.map_or_else(String::new, |cause| format!(" ({})", one_line(cause)));
    let message = format!(
        "{}: {}{cause}; run where its device is, or compile for it here with `compile --target`",
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
        assert!(told.contains("UNKNOWN ERROR (303)); run where its device is"), "{told}");
        assert!(explained(none(), Path::new("p.so"), "").message.starts_with("p.so: No visible GPU devices; run"));
        let other = Failure::new(FailureKind::Device, "out of memory");
        assert_eq!(explained(other.clone(), Path::new("p.so"), stderr), other);
    }
}
