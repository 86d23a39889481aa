//! Devices that may be absent, and their descriptions for the compiler.
//!
//! ```
//! use autotune_lowered_lookup::target::Target;
//!
//! let target = Target::named("cuda:h100_sxm")?;
//! assert_eq!((target.platform.as_str(), target.name.as_str()), ("cuda", "cuda:h100_sxm"));
//! assert!(target.memory_bytes.is_some_and(|bytes| bytes > 60 << 30));
//! assert!(Target::named("cuda:abacus").is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::counted::counted;
use crate::outside_file;

/// Every file of `candidates/targets`, by its name: a GpuTargetConfigProto as text, with its sources.
pub(crate) const CUDA: &[(&str, &str)] = &[
    ("a10", include_str!("../candidates/targets/a10.txtpb")),
    ("a100_sxm_40", include_str!("../candidates/targets/a100_sxm_40.txtpb")),
    ("a100_sxm_80", include_str!("../candidates/targets/a100_sxm_80.txtpb")),
    ("b200", include_str!("../candidates/targets/b200.txtpb")),
    ("h100_sxm", include_str!("../candidates/targets/h100_sxm.txtpb")),
    ("h200", include_str!("../candidates/targets/h200.txtpb")),
    ("l4", include_str!("../candidates/targets/l4.txtpb")),
    ("l40s", include_str!("../candidates/targets/l40s.txtpb")),
    ("rtx_4090", include_str!("../candidates/targets/rtx_4090.txtpb")),
];

/// Chips, each with its smallest topology in libtpu.
const TPU: &[(&str, &str)] = &[
    ("v2", "2x2"),
    ("v3", "2x2"),
    ("v4", "2x2x1"),
    ("v5e", "2x2"),
    ("v5p", "2x2x1"),
    ("v6e", "2x2"),
    ("tpu7x", "2x2x1"),
];

/// Maximum number of GPUs of a target: a plugin creates a description of each.
pub const MAX_DEVICES: u64 = 4096;

/// Largest target file that is read.
const MAX_TARGET_BYTES: u64 = 1 << 20;

/// A device to compile for, as named by `--target`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// As it was named: `cuda:h100_sxm`, `tpu:v5e`.
    pub name: String,
    /// Platform of the plugin that compiles for it: `cuda`, `tpu`.
    pub platform: String,
    /// Name of the topology; empty if the plugin knows topologies by options alone.
    pub topology: String,
    /// `name=value` for the topology.
    pub options: Vec<String>,
    /// Memory of each device, if the target reports it.
    pub memory_bytes: Option<u64>,
}

/// An unknown target name, or a target's file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Nothing has this name.
    #[error(
        "`{name}` is not a target: name one of {}, or a GpuTargetConfigProto as `cuda:FILE.txtpb`; several GPUs are \
         `cuda:h100_sxm:8`",
        names().join(", ")
    )]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The file cannot be read.
    #[error("{}: the target cannot be read: {source}; give a GpuTargetConfigProto as text", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Target {
    /// The target of a name.
    ///
    /// # Errors
    /// If the name is unknown, or the file cannot be read.
    pub fn named(name: &str) -> Result<Self, TargetError> {
        let unknown = || TargetError::Unknown { name: name.to_owned() };
        match name.split_once(':') {
            Some(("cuda", device)) => {
                let (device, count) = counted_device(device).ok_or_else(unknown)?;
                let built_in = CUDA.iter().find(|(name, _)| *name == device).map(|(_, text)| (*text).to_owned());
                let config = match built_in {
                    Some(config) => config,
                    None if is_file(device) => read(Path::new(device))?,
                    None => return Err(unknown()),
                };
                Ok(Self::cuda(name, &config, count))
            }
            Some(("tpu", chip)) => {
                // as libtpu spells topologies: `v5e:2x4`
                let (chip, shape) = chip.split_once(':').map_or((chip, None), |(chip, shape)| (chip, Some(shape)));
                let (_, smallest) = TPU.iter().find(|(name, _)| *name == chip).ok_or_else(unknown)?;
                let shape = shape.unwrap_or(smallest);
                devices_of(shape).ok_or_else(unknown)?;
                let (name, topology) = (name.to_owned(), format!("{chip}:{shape}"));
                Ok(Self { name, platform: "tpu".to_owned(), topology, options: Vec::new(), memory_bytes: None })
            }
            _ => Err(unknown()),
        }
    }

    /// A name as a file in this folder gives it, if it names a file of its own: that one's path is relative to the
    /// folder.
    pub fn in_folder(name: &str, folder: &Path) -> Option<OsString> {
        let device = name.strip_prefix("cuda:")?;
        let (file, _) = counted_device(device)?;
        let shape = device.strip_prefix(file)?;
        let is_built_in = CUDA.iter().any(|(name, _)| *name == file);
        let mut whole = OsString::from("cuda:");
        whole.push(folder.join(file));
        whole.push(shape);
        (is_file(file) && !is_built_in).then_some(whole)
    }

    fn cuda(name: &str, config: &str, count: u64) -> Self {
        // one partition, one host, so many devices
        let options = vec![format!("target_config={config}"), format!("topology=1x1x{count}")];
        let (platform, topology) = ("cuda".to_owned(), String::new());
        Self { name: name.to_owned(), platform, topology, options, memory_bytes: memory_of(config) }
    }

    /// The built-in target whose device this file names, if it gives other figures for it: what is compiled for the one
    /// is found for the other.
    pub fn other_figures_of(&self) -> Option<&'static str> {
        let config = self.options.iter().find_map(|option| option.strip_prefix("target_config="))?;
        let figures = |config| {
            let lines = str::lines(config).map(|line| line.split('#').next().unwrap_or_default().trim());
            lines.filter(|line| !line.is_empty()).collect::<Vec<_>>()
        };
        let own = figures(config);
        let identity = ["device_description_str:", "core_count:", "cuda_compute_capability"];
        let names_it = |text| {
            let lines = figures(text);
            let mut lines = lines.iter().filter(|line| identity.iter().any(|field| line.starts_with(field)));
            lines.all(|line| own.contains(line))
        };
        CUDA.iter().find(|(_, text)| names_it(text) && figures(text) != own).map(|(name, _)| *name)
    }

    /// The digest that programs compiled for it depend on.
    pub fn description(&self) -> String {
        let parts: Vec<&str> =
            std::iter::once(&*self.topology).chain(self.options.iter().map(String::as_str)).collect();
        parts.join("\n").trim().to_owned()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// How many devices a topology such as `2x4` has; `None` if it is not one.
fn devices_of(shape: &str) -> Option<u64> {
    let side = |side: &str| side.parse::<u16>().ok().filter(|&side| side > 0).map(u64::from);
    shape.split('x').try_fold(1_u64, |devices, text| devices.checked_mul(side(text)?))
}

/// A GPU's name, or its file, and their number: `h100_sxm:8`, `h100_sxm:2x4`. `None` if there are too many.
fn counted_device(device: &str) -> Option<(&str, u64)> {
    match device.rsplit_once(':').and_then(|(one, shape)| Some((one, devices_of(shape)?))) {
        Some((one, devices)) => (devices <= MAX_DEVICES).then_some((one, devices)),
        None => Some((device, 1)),
    }
}

/// Whether a GPU is named by a file, and not by its name.
fn is_file(device: &str) -> bool {
    device.contains('/') || device.ends_with(".txtpb")
}

/// Memory of a GPU, as its GpuTargetConfigProto tells it.
fn memory_of(config: &str) -> Option<u64> {
    let lines = config.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.filter_map(|line| line.trim().strip_prefix("device_memory_size:")?.trim().parse().ok()).next()
}

/// The names of all built-in targets.
fn names() -> Vec<String> {
    let cuda = CUDA.iter().map(|(name, _)| format!("cuda:{name}"));
    cuda.chain(TPU.iter().map(|(name, _)| format!("tpu:{name}"))).collect()
}

fn read(path: &Path) -> Result<String, TargetError> {
    let unreadable = |source| TargetError::Unreadable { path: path.to_owned(), source };
    let text = outside_file::text(path, MAX_TARGET_BYTES).map_err(unreadable)?;
    match text.contains('\0') || text.trim().is_empty() {
        true => {
            let nothing = format!("no text in {}", counted(text.len(), "byte"));
            Err(unreadable(io::Error::new(io::ErrorKind::InvalidData, nothing)))
        }
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_what_their_plugins_take() {
        let h100 = Target::named("cuda:h100_sxm").unwrap();
        assert_eq!((h100.platform.as_str(), h100.topology.as_str()), ("cuda", ""));
        assert!(h100.options[0].starts_with("target_config=#") && h100.options[0].contains("core_count: 132"));
        assert_eq!(h100.options[1], "topology=1x1x1");
        assert_eq!(h100.memory_bytes, Some(84_942_979_072));
        for (name, shape) in
            [("cuda:h100_sxm:8", "1x1x8"), ("cuda:h100_sxm:2x4", "1x1x8"), ("cuda:h100_sxm:1", "1x1x1")]
        {
            let several = Target::named(name).unwrap();
            assert_eq!(
                (several.options[0].as_str(), several.options[1].as_str()),
                (&*h100.options[0], &*format!("topology={shape}"))
            );
        }
        assert_eq!(h100.other_figures_of(), None);
        let (_, text) = CUDA.iter().find(|(name, _)| *name == "h100_sxm").unwrap();
        let of_text = |text: &str| Target::cuda("cuda:own.txtpb", text, 1).other_figures_of();
        assert_eq!(of_text(&format!("# own\n{text}")), None);
        assert_eq!(
            of_text(&text.replace("shared_memory_per_block_optin: ", "shared_memory_per_block_optin: 1")),
            Some("h100_sxm")
        );
        assert_eq!(of_text(&text.replace("core_count: 132", "core_count: 114")), None);
        assert_eq!(of_text(&text.replace("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe")), None);
        let v5e = Target::named("tpu:v5e").unwrap();
        assert_eq!((v5e.topology.as_str(), v5e.options.len()), ("v5e:2x2", 0));
        assert_eq!(Target::named("tpu:v6e:4x4").unwrap().topology, "v6e:4x4");
        assert_ne!(h100.description(), Target::named("cuda:h200").unwrap().description());
    }

    #[test]
    fn every_target_of_the_folder_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../candidates/targets");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = files.map(|name| name.trim_end_matches(".txtpb").to_owned()).collect();
        files.sort();
        assert_eq!(CUDA.iter().map(|(name, _)| *name).collect::<Vec<_>>(), files);
    }

    #[test]
    fn what_is_no_target_is_refused_with_those_that_are() {
        for name in [
            "",
            "cuda",
            "cuda:",
            "cuda:h99",
            "cuda:l4:",
            "cuda:l4:0",
            "cuda:l4:x",
            "cuda:l4:2:2",
            "cuda:l4:4097",
            "tpu:",
            "tpu:v5e:",
            "tpu:v5e:0x2",
            "tpu:v5e:2x-2",
            "cpu:x",
            "h100_sxm",
        ] {
            let error = Target::named(name).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{name}` is not a target")) && error.contains("cuda:l40s"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [("empty", &b" \n"[..]), ("binary", b"a\0b"), ("latin", b"\xe9")] {
            let path = folder.path().join(format!("{name}.txtpb"));
            std::fs::write(&path, bytes).unwrap();
            let error = Target::named(&format!("cuda:{}", path.display())).unwrap_err().to_string();
            assert!(error.contains("the target cannot be read"), "{error}");
        }
        let path = folder.path().join("own.txtpb");
        std::fs::write(&path, "platform_name: \"CUDA\"\n").unwrap();
        let own = Target::named(&format!("cuda:{}", path.display())).unwrap();
        assert_eq!(own.options[0], "target_config=platform_name: \"CUDA\"\n");
        assert!(Target::named("cuda:/dev/zero").is_err());
    }
}
