//! Device fingerprints: what a client reports about its devices, and what the system reports about the machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::absent::Topology;
use super::plugin::{Client, DeviceDescription, PjrtError};
use crate::device::{DeviceFingerprint, DeviceIdentity, Environment, xla_autotuning};
use crate::outside_file;

/// The fingerprint of every device of a client. The caller adds the plugin's digest.
pub(super) fn fingerprints(client: &Client, plugin: &Path) -> Result<Vec<DeviceFingerprint>, PjrtError> {
    let platform = client.platform_name()?.to_lowercase();
    let driver = driver_version(&platform);
    let environment =
        environment(&platform, client.platform_version()?, plugin, client.plugin.version()).driver(driver);
    (0..client.device_count()).map(|index| Ok(fingerprint(&platform, client.describe(index)?, &environment))).collect()
}

/// The same for every device of a topology. They need not be present: no driver is known.
pub(super) fn fingerprints_of_target(topology: &Topology, plugin: &Path) -> Result<Vec<DeviceFingerprint>, PjrtError> {
    let platform = topology.platform_name()?.to_lowercase();
    let environment = environment(&platform, topology.platform_version()?, plugin, topology.plugin.version());
    let devices = topology.devices()?.into_iter();
    Ok(devices.map(|description| fingerprint(&platform, description, &environment)).collect())
}

fn environment(platform: &str, version: String, plugin: &Path, api: &str) -> Environment {
    let xla_flags = xla_flags(platform);
    Environment::default()
        .platform_version(as_jax_has_it(platform, version))
        .plugin(plugin.file_name().map(|name| name.to_string_lossy().into_owned()))
        .plugin_api(Some(api.to_owned()))
        .xla_autotuning(xla_autotuning(platform, &xla_flags))
        .xla_flags(xla_flags)
}

fn fingerprint(platform: &str, description: DeviceDescription, environment: &Environment) -> DeviceFingerprint {
    let identity = DeviceIdentity {
        platform: platform.to_owned(),
        hardware: hardware(platform, &description),
        device_kind: description.kind,
    };
    DeviceFingerprint { identity, environment: environment.clone() }
}

/// JAX adds a line before the version of a client that it reaches through the C API, and so do we; its CPU client is
/// built in and has none. Kernel libraries key their caches by JAX's spelling.
fn as_jax_has_it(platform: &str, version: String) -> String {
    if platform == "cpu" { version } else { format!("PJRT C API\n{version}") }
}

fn hardware(platform: &str, description: &DeviceDescription) -> BTreeMap<String, String> {
    let mut hardware = BTreeMap::new();
    if platform == "cpu" {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        hardware.insert("cpu_model".to_owned(), cpu_model());
        hardware.insert("cores".to_owned(), cores.to_string());
        return hardware;
    }
    // XLA's GPU plugins: xla/pjrt/gpu/se_gpu_pjrt_client.cc names these attributes
    for (ours, theirs) in [("compute_capability", "compute_capability"), ("sm_count", "core_count")] {
        if let Some((_, value)) = description.attributes.iter().find(|(name, _)| name == theirs) {
            hardware.insert(ours.to_owned(), value.clone());
        }
    }
    // the driver appends the slice to the device's name: `NVIDIA H100 80GB HBM3 MIG 1g.10gb`
    if let Some((_, slice)) = description.kind.split_once(" MIG ") {
        hardware.insert("mig".to_owned(), slice.to_owned());
    }
    hardware
}

fn cpu_model() -> String {
    cpu_model_in(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

fn cpu_model_in(info: &str) -> String {
    // virtual machines often shorten the name to `AMD EPYC`: family and model still distinguish the generations
    let numbers = cpuinfo_field(info, &["cpu family"]).zip(cpuinfo_field(info, &["model"]));
    cpuinfo_field(info, &["model name", "Model", "cpu model", "uarch"])
        .map(|name| match numbers {
            Some((family, model)) => format!("{name} (family {family} model {model})"),
            None => name,
        })
        .or_else(|| {
            // 64-bit Arm has no model name: implementer and part identify it
            let part = cpuinfo_field(info, &["CPU part"])?;
            Some(format!("arm {} {part}", cpuinfo_field(info, &["CPU implementer"])?))
        })
        .unwrap_or_else(|| format!("unknown {}", std::env::consts::ARCH))
}

pub(super) fn cpuinfo_field(info: &str, names: &[&str]) -> Option<String> {
    names.iter().find_map(|wanted| {
        info.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == *wanted).then(|| value.split_whitespace().collect::<Vec<_>>().join(" "))
        })
    })
}

/// The instruction sets that compiled code may use, because an executable of another machine must not be loaded here.
pub(super) fn cpu_features() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpuinfo_field(&info, &["flags", "Features", "isa"]).unwrap_or_default()
}

fn driver_version(platform: &str) -> Option<String> {
    if platform == "cpu" {
        return None;
    }
    let text = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    nvidia_driver(&text)
}

/// The version in `NVRM version: NVIDIA UNIX … Kernel Module  570.86.15  Release Build …`.
fn nvidia_driver(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version"))?;
    line.split_whitespace()
        .find(|word| word.split('.').count() >= 2 && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
        .map(str::to_owned)
}

/// Largest flags file that is read.
const MAX_FLAGS_BYTES: u64 = 1 << 20;

/// The flags in force, on a TPU also libtpu's own. As in `xla/parse_flags_from_env.cc`, a value that does not begin
/// with a dash names a file of flags.
fn xla_flags(platform: &str) -> Vec<String> {
    let text = std::env::var("XLA_FLAGS").unwrap_or_default();
    let is_file = !text.trim_start().is_empty() && !text.trim_start().starts_with('-');
    let read = is_file.then(|| outside_file::text(Path::new(&text), MAX_FLAGS_BYTES).ok()).flatten();
    let of_libtpu = (platform == "tpu").then(|| std::env::var("LIBTPU_INIT_ARGS").unwrap_or_default());
    by_name(&format!("{} {}", read.unwrap_or(text), of_libtpu.unwrap_or_default()))
}

/// Sorted by name. A flag's last value counts, so the order of its values is kept.
fn by_name(text: &str) -> Vec<String> {
    let mut flags: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    flags.sort_by(|one, other| one.split('=').next().cmp(&other.split('=').next()));
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let info = "processor\t: 0\nmodel name\t: AMD  EPYC 9B45\nflags\t\t: fpu avx2\n";
        assert_eq!(cpuinfo_field(info, &["model name"]).unwrap(), "AMD EPYC 9B45");
        assert_eq!(cpuinfo_field(info, &["Features", "flags"]).unwrap(), "fpu avx2");
        assert_eq!(cpuinfo_field(info, &["CPU part"]), None);
        assert_eq!(cpu_model_in(info), "AMD EPYC 9B45");
        let shortened = "cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n";
        assert_eq!(cpu_model_in(shortened), "AMD EPYC (family 26 model 2)");
        assert_eq!(cpu_model_in("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"), "arm 0x41 0xd0c");
        let driver = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs)\n\
                      GCC version:  gcc 12.2\n";
        assert_eq!(nvidia_driver(driver).unwrap(), "570.86.15");
    }

    #[test]
    fn flags_are_sorted_and_the_last_of_one_name_stays_the_last() {
        let flags = by_name(" --xla_b=1 --xla_a_level=4\n--xla_a=true --xla_a_level=0 ");
        assert_eq!(flags, ["--xla_a=true", "--xla_a_level=4", "--xla_a_level=0", "--xla_b=1"]);
    }

    #[test]
    fn platform_versions_are_jaxs() {
        assert_eq!(as_jax_has_it("cpu", "cpu".into()), "cpu");
        assert_eq!(as_jax_has_it("cuda", "cuda 12090".into()), "PJRT C API\ncuda 12090");
    }

    #[test]
    fn a_gpu_is_identified_by_its_attributes() {
        let description = DeviceDescription {
            id: 0,
            kind: "NVIDIA H100 80GB HBM3 MIG 1g.10gb".into(),
            attributes: vec![
                ("compute_capability".into(), "9.0".into()),
                ("core_count".into(), "16".into()),
                ("coords".into(), "0".into()),
            ],
        };
        let attributes: Vec<_> = hardware("cuda", &description).into_iter().collect();
        let expected = [("compute_capability", "9.0"), ("mig", "1g.10gb"), ("sm_count", "16")];
        assert_eq!(attributes, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
