//! What a measured result belongs to: the device (identity) and the software around it (environment).
//!
//! A result may replace another only if their identities match; a result from another environment on the
//! same device still applies but is flagged `stale-environment`.
//!
//! ```
//! use autotune_lowered_lookup::device::{DeviceIdentity, DeviceMatch, MatchMode};
//!
//! let device = |cores: &str| DeviceIdentity {
//!     platform: "cpu".to_owned(),
//!     device_kind: "cpu".to_owned(),
//!     hardware: [("cores".to_owned(), cores.to_owned())].into(),
//! };
//! let (ours, theirs) = (device("2"), device("8"));
//! assert_eq!(theirs.to_string(), "cpu:cpu (cores=8)");
//! assert_ne!(ours.to_digest(), theirs.to_digest());
//! assert!(matches!(MatchMode::Exact.compare(&ours, &theirs), DeviceMatch::Miss(_)));
//! assert!(matches!(MatchMode::Kind.compare(&ours, &theirs), DeviceMatch::Flagged(_)));
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::{Digest, FieldHasher};
use crate::measured_by::LaunchMode;
use crate::setters;

/// The hardware that a result belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// PJRT platform name in lower case: `cpu`, `cuda`, `rocm`, `tpu`.
    pub platform: String,
    /// PJRT device kind: `cpu`, `NVIDIA H200`, `TPU v5e`.
    pub device_kind: String,
    /// The portable hardware part. CPU: `cpu_model`, `cores`. GPU: `compute_capability`, `sm_count`, `mig`.
    /// It distinguishes CPU models, since PJRT calls them all `cpu`.
    #[serde(default)]
    pub hardware: BTreeMap<String, String>,
}

impl DeviceIdentity {
    /// A digest of every part: the device's key in the registry and the caches.
    pub fn to_digest(&self) -> Digest {
        let mut hasher = FieldHasher::new("device-identity");
        hasher.field(self.platform.as_bytes()).field(self.device_kind.as_bytes());
        for (name, value) in &self.hardware {
            hasher.field(name.as_bytes()).field(value.as_bytes());
        }
        hasher.finish()
    }
}

impl fmt::Display for DeviceIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.platform, self.device_kind)?;
        if !self.hardware.is_empty() {
            let parts: Vec<String> = self.hardware.iter().map(|(name, value)| format!("{name}={value}")).collect();
            write!(f, " ({})", parts.join(", "))?;
        }
        Ok(())
    }
}

/// The software that a result was measured under.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Environment {
    /// PJRT platform version, unchanged: `cpu`, or `PJRT C API\ncuda 12090`.
    #[serde(default)]
    pub platform_version: String,
    /// Kernel driver version, if the platform has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// File name of the PJRT plugin, without its folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// SHA-256 of the plugin's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin_digest: Option<Digest>,
    /// PJRT C API version of the plugin, `major.minor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin_api: Option<String>,
    /// `XLA_FLAGS` in force, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xla_flags: Vec<String>,
    /// What those flags mean for XLA's own autotuning at compile time, on GPU platforms: see [`xla_autotuning`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xla_autotuning: Option<String>,
}

setters!(Environment {
    platform_version: String,
    driver: Option<String>,
    plugin: Option<String>,
    plugin_digest: Option<Digest>,
    plugin_api: Option<String>,
    xla_flags: Vec<String>,
    xla_autotuning: Option<String>,
});

impl Environment {
    /// Its compiler: `jaxlib 0.10.2`, or a plugin's file name with the beginning of its digest. `None` if the plugin is
    /// unknown.
    pub fn compiler(&self) -> Option<String> {
        let plugin = self.plugin.as_ref()?;
        Some(self.plugin_digest.map_or_else(|| plugin.clone(), |digest| format!("{plugin} {}", digest.to_short())))
    }

    /// Whether both have the same compiler: by name and digest, or the same file under another name, or the same build
    /// of libtpu, whose version states its change number.
    pub fn has_same_compiler(&self, other: &Self) -> bool {
        let build = |of: &Self| {
            let words = of.platform_version.split_whitespace();
            words.filter(|word| word.starts_with("cl/")).map(str::to_owned).collect::<Vec<_>>()
        };
        self.plugin.is_some()
            && ((&self.plugin, self.plugin_digest) == (&other.plugin, other.plugin_digest)
                || self.plugin_digest.is_some_and(|digest| other.plugin_digest == Some(digest))
                || (!build(self).is_empty() && build(self) == build(other)))
    }

    /// What differs from another environment, one phrase each; empty when they are equal.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        // look-ups call this for every hit, so nothing is allocated if all is equal
        let mut compare = |what: &str, ours: &str, theirs: &str| {
            if ours != theirs {
                found.push(format!("{what} `{theirs}` there, `{ours}` here"));
            }
        };
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        compare("platform version", &self.platform_version, &other.platform_version);
        if self.driver != other.driver {
            compare("driver", &text(&self.driver), &text(&other.driver));
        }
        if self.plugin_digest != other.plugin_digest {
            let short = |value: Option<Digest>| value.map_or_else(|| "none".to_owned(), |digest| digest.to_short());
            compare("plugin digest", &short(self.plugin_digest), &short(other.plugin_digest));
        }
        // the entry on XLA's autotuning follows from the flags
        if self.xla_flags != other.xla_flags {
            compare("XLA flags", &self.xla_flags.join(" "), &other.xla_flags.join(" "));
        }
        found
    }
}

/// Whether XLA compiles for this platform by measuring kernels on the device.
fn autotunes(platform: &str) -> bool {
    matches!(platform, "cuda" | "rocm" | "gpu")
}

/// The value of a flag, without its name: the last one counts. A flag alone is `true`.
fn flag<'a>(flags: &'a [String], name: &str) -> Option<&'a str> {
    flags.iter().rev().find_map(|flag| {
        let rest = flag.trim_start_matches('-').strip_prefix(name)?;
        if rest.is_empty() { Some("true") } else { rest.strip_prefix('=') }
    })
}

/// The flag that says for which operations XLA uses command buffers; empty for none.
const COMMAND_BUFFERS: &str = "xla_gpu_enable_command_buffer";

/// How kernels are launched on a GPU under these `XLA_FLAGS`; `None` on platforms without a choice.
pub fn gpu_launch(platform: &str, flags: &[String]) -> Option<LaunchMode> {
    let is_eager = flag(flags, COMMAND_BUFFERS).is_some_and(str::is_empty);
    autotunes(platform).then_some(if is_eager { LaunchMode::Eager } else { LaunchMode::Replay })
}

/// What makes XLA replay all it can: a program of one kernel, too (the default is five), and under a profiler, while
/// which some versions launch one by one.
const REPLAY: [(&str, &str); 2] =
    [("xla_gpu_graph_min_graph_size", "1"), ("xla_enable_command_buffers_during_profiling", "true")];

/// The operations for which XLA uses command buffers by default, as far as all versions know them.
const BUFFERED: &str = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN";

/// Compiler options for this launch mode, for a program that brings its own: `XLA_FLAGS` say nothing about it.
pub fn launch_options(launch: &LaunchMode) -> BTreeMap<String, String> {
    let options: &[(&str, &str)] = match launch {
        LaunchMode::Eager => &[(COMMAND_BUFFERS, "")],
        _ => &[(COMMAND_BUFFERS, BUFFERED), REPLAY[0], REPLAY[1]],
    };
    options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// `XLA_FLAGS` for this launch mode; `None` if they name a file of flags. What the user set for replaying stays.
pub fn flags_with_launch(flags: &str, launch: &LaunchMode) -> Option<String> {
    if !flags.trim_start().is_empty() && !flags.trim_start().starts_with('-') {
        return None;
    }
    let is_empty_choice = |flag: &&str| flag.trim_start_matches('-').strip_prefix(COMMAND_BUFFERS) == Some("=");
    let mut kept: Vec<String> =
        flags.split_whitespace().filter(|flag| !is_empty_choice(flag)).map(str::to_owned).collect();
    match launch {
        // the last one counts
        LaunchMode::Eager => kept.push(format!("--{COMMAND_BUFFERS}=")),
        _ => {
            let missing: Vec<_> = REPLAY.into_iter().filter(|(name, _)| flag(&kept, name).is_none()).collect();
            kept.extend(missing.into_iter().map(|(name, value)| format!("--{name}={value}")));
        }
    }
    Some(kept.join(" "))
}

fn is_on(value: Option<&str>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
}

/// XLA's own autotuning under these `XLA_FLAGS`, which measures kernels on the device while a program is compiled:
/// `level 4 (XLA's default)`, `level 0` where it is off, `level 4 (XLA's default), cached in DIR`. `None` on platforms
/// without one.
///
/// Names, levels and defaults are those of `xla/debug_options_flags.cc` in openxla/xla.
pub fn xla_autotuning(platform: &str, flags: &[String]) -> Option<String> {
    if !autotunes(platform) {
        return None;
    }
    let mut text = match flag(flags, "xla_gpu_autotune_level") {
        Some(level) => format!("level {level}"),
        None => "level 4 (XLA's default)".to_owned(),
    };
    let named = |name: &str| flag(flags, name).filter(|value| !value.is_empty());
    if let Some(file) = named("xla_gpu_load_autotune_results_from") {
        text.push_str(&format!(", results from {file}"));
    }
    if is_on(flag(flags, "xla_gpu_require_complete_aot_autotune_results")) {
        text.push_str(", no others");
    }
    // the second one is the name in newer versions
    for name in ["xla_gpu_per_fusion_autotune_cache_dir", "xla_gpu_experimental_autotuner_cache_dir"] {
        if let Some(folder) = named(name) {
            text.push_str(&format!(", cached in {folder}"));
            if let Some(mode) = named("xla_gpu_experimental_autotune_cache_mode") {
                text.push_str(&format!(" (mode {})", mode.to_ascii_lowercase()));
            }
        }
    }
    Some(text)
}

/// Whether XLA may measure kernels on the device while it compiles. A cache does not exclude that: missing entries are
/// measured.
pub fn xla_measures(platform: &str, flags: &[String]) -> bool {
    let off = flag(flags, "xla_gpu_autotune_level").is_some_and(|level| level.parse() == Ok(0));
    autotunes(platform) && !off && !is_on(flag(flags, "xla_gpu_require_complete_aot_autotune_results"))
}

/// A device as a plugin shows it: its identity and its software.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceFingerprint {
    /// The hardware.
    pub identity: DeviceIdentity,
    /// The software.
    #[serde(default)]
    pub environment: Environment,
}

impl DeviceFingerprint {
    /// ejkernel's spelling of a device, `device_kind|platform_version`, for exchange with its caches only.
    ///
    /// It is `cpu|cpu` for every CPU, so it is never used as a key.
    pub fn to_portable(&self) -> String {
        format!("{}|{}", self.identity.device_kind, self.environment.platform_version)
    }
}

/// Which devices' results may be used for this one: `--match`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MatchMode {
    /// Platform, device kind and hardware part are equal.
    #[default]
    Exact,
    /// Platform and device kind are equal; another hardware part is flagged.
    Kind,
    /// Any device; another one is flagged.
    Any,
}

/// How a stored device relates to the present one, under a [`MatchMode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceMatch {
    /// The very same identity.
    Same,
    /// Accepted by the mode although something differs; the text says what.
    Flagged(String),
    /// Not accepted; the text says what differs and which mode would accept it.
    Miss(String),
}

impl MatchMode {
    /// Whether results of `theirs` may be used on `ours`.
    pub fn compare(self, ours: &DeviceIdentity, theirs: &DeviceIdentity) -> DeviceMatch {
        if ours == theirs {
            return DeviceMatch::Same;
        }
        let same_kind = ours.platform == theirs.platform && ours.device_kind == theirs.device_kind;
        match (self, same_kind) {
            (Self::Any, false) => DeviceMatch::Flagged(format!("other device: {theirs}")),
            (Self::Any | Self::Kind, true) => DeviceMatch::Flagged(format!("other hardware: {theirs}")),
            (Self::Exact, true) => {
                DeviceMatch::Miss(format!("other hardware: {theirs}; `--match kind` would accept it"))
            }
            (_, false) => DeviceMatch::Miss(format!("other device: {theirs}; only `--match any` would accept it")),
        }
    }
}

impl fmt::Display for MatchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::Kind => "kind",
            Self::Any => "any",
        })
    }
}

impl FromStr for MatchMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "exact" => Ok(Self::Exact),
            "kind" => Ok(Self::Kind),
            "any" => Ok(Self::Any),
            other => Err(format!("`{other}` is not one of `exact`, `kind`, `any`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(model: &str) -> DeviceIdentity {
        DeviceIdentity {
            platform: "cpu".into(),
            device_kind: "cpu".into(),
            hardware: BTreeMap::from([("cpu_model".into(), model.into()), ("cores".into(), "2".into())]),
        }
    }

    #[test]
    fn one_cpu_model_does_not_pass_for_another() {
        let (ours, theirs) = (cpu("A"), cpu("B"));
        assert_ne!(ours.to_digest(), theirs.to_digest());
        assert!(matches!(MatchMode::Exact.compare(&ours, &theirs), DeviceMatch::Miss(_)));
        assert!(matches!(MatchMode::Kind.compare(&ours, &theirs), DeviceMatch::Flagged(_)));
        assert_eq!(MatchMode::Exact.compare(&ours, &ours.clone()), DeviceMatch::Same);
        let gpu =
            DeviceIdentity { platform: "cuda".into(), device_kind: "NVIDIA H200".into(), hardware: BTreeMap::new() };
        assert!(matches!(MatchMode::Kind.compare(&ours, &gpu), DeviceMatch::Miss(_)));
        assert!(matches!(MatchMode::Any.compare(&ours, &gpu), DeviceMatch::Flagged(_)));
    }

    #[test]
    fn a_compiler_is_identified_by_its_name_its_file_or_its_build() {
        let of = |plugin: &str, digest: Option<&[u8]>, version: &str| {
            let environment = Environment::default().platform_version(version.into()).plugin(Some(plugin.into()));
            environment.plugin_digest(digest.map(Digest::of))
        };
        let jaxlib = of("jaxlib 0.10.2", None, "cpu");
        assert!(jaxlib.has_same_compiler(&jaxlib) && !jaxlib.has_same_compiler(&of("jaxlib 0.10.1", None, "cpu")));
        let plugin = of("xla_cpu_pjrt.so", Some(b"a"), "cpu");
        assert!(plugin.has_same_compiler(&of("renamed.so", Some(b"a"), "cpu")));
        assert!(!plugin.has_same_compiler(&of("xla_cpu_pjrt.so", Some(b"b"), "cpu")));
        assert!(!plugin.has_same_compiler(&jaxlib) && !jaxlib.has_same_compiler(&plugin));
        let libtpu = of("libtpu.so", Some(b"a"), "TFRT TPU v5 lite\nBuilt on Apr 2 2025 (1) cl/742866297");
        assert!(libtpu.has_same_compiler(&of("jaxlib 0.10.2", None, "PJRT C API\nTFRT cl/742866297")));
        assert!(!libtpu.has_same_compiler(&of("jaxlib 0.10.2", None, "PJRT C API\nTFRT cl/742866298")));
        assert!(!Environment::default().has_same_compiler(&Environment::default()), "nobody knows");
    }

    #[test]
    fn flags_say_how_xla_autotunes() {
        let autotuning = |flags: &str| {
            let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
            assert_eq!(xla_autotuning("cpu", &flags), None);
            assert!(!xla_measures("cpu", &flags));
            (xla_autotuning("cuda", &flags).unwrap(), xla_measures("cuda", &flags))
        };
        for (flags, text, measures) in [
            ("", "level 4 (XLA's default)", true),
            ("--xla_gpu_autotune_levels=0 --xla_gpu_autotune_level_of=0", "level 4 (XLA's default)", true),
            ("--xla_gpu_autotune_level=0", "level 0", false),
            ("--xla_gpu_autotune_level=0 --xla_gpu_autotune_level=2", "level 2", true),
            (
                "--xla_gpu_per_fusion_autotune_cache_dir=/c --xla_gpu_experimental_autotune_cache_mode=READ",
                "level 4 (XLA's default), cached in /c (mode read)",
                true,
            ),
            ("--xla_gpu_experimental_autotuner_cache_dir=/c", "level 4 (XLA's default), cached in /c", true),
            ("--xla_gpu_per_fusion_autotune_cache_dir=", "level 4 (XLA's default)", true),
            (
                "--xla_gpu_load_autotune_results_from=/r.txt --xla_gpu_require_complete_aot_autotune_results",
                "level 4 (XLA's default), results from /r.txt, no others",
                false,
            ),
            ("--xla_gpu_require_complete_aot_autotune_results=false", "level 4 (XLA's default)", true),
        ] {
            assert_eq!(autotuning(flags), (text.to_owned(), measures), "{flags}");
        }
    }

    #[test]
    fn portable_is_ejkernels_spelling() {
        let fingerprint = DeviceFingerprint {
            identity: cpu("A"),
            environment: Environment { platform_version: "cpu".into(), ..Environment::default() },
        };
        assert_eq!(fingerprint.to_portable(), "cpu|cpu");
    }

    #[test]
    fn launches_follow_from_the_flags() {
        let flags = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (text, launch) in [
            ("", LaunchMode::Replay),
            ("--xla_gpu_enable_command_buffer=FUSION,CUBLAS", LaunchMode::Replay),
            ("--xla_gpu_enable_command_buffer=", LaunchMode::Eager),
            ("--xla_gpu_enable_command_buffer= --xla_gpu_enable_command_buffer=FUSION", LaunchMode::Replay),
        ] {
            assert_eq!(gpu_launch("cuda", &flags(text)), Some(launch), "{text}");
            assert_eq!(gpu_launch("cpu", &flags(text)), None);
        }
        let (least, profiled) = ("--xla_gpu_graph_min_graph_size", "--xla_enable_command_buffers_during_profiling");
        for (own, launch, expected) in [
            ("", LaunchMode::Replay, Some(format!("{least}=1 {profiled}=true"))),
            ("", LaunchMode::Eager, Some("--xla_gpu_enable_command_buffer=".to_owned())),
            (
                "--xla_a  --xla_gpu_enable_command_buffer=",
                LaunchMode::Replay,
                Some(format!("--xla_a {least}=1 {profiled}=true")),
            ),
            // the user's own choices stay
            (
                "--xla_gpu_enable_command_buffer=FUSION --xla_gpu_graph_min_graph_size=3",
                LaunchMode::Replay,
                Some(format!("--xla_gpu_enable_command_buffer=FUSION {least}=3 {profiled}=true")),
            ),
            ("flags.txt", LaunchMode::Eager, None),
        ] {
            assert_eq!(flags_with_launch(own, &launch), expected, "{own}");
        }
        let both = flags_with_launch("--xla_gpu_enable_command_buffer=FUSION", &LaunchMode::Eager).unwrap();
        assert_eq!(gpu_launch("cuda", &flags(&both)), Some(LaunchMode::Eager));
    }
}
