//! Peak rates of devices: published figures of accelerators, or those of a file.
//!
//! ```
//! use autotune_lowered_lookup::array::DType;
//! use autotune_lowered_lookup::peaks::Peaks;
//!
//! let peaks = Peaks::named("cuda:h100_sxm")?;
//! let (bf16, f64) = (peaks.matrix_per_second(Some(DType::Bf16)), peaks.matrix_per_second(Some(DType::F64)));
//! assert!(bf16 > f64 && f64.is_some());
//! assert!(Peaks::named("cuda:abacus").is_err() && Peaks::of_kind("Abacus").is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::array::DType;
use crate::outside_file;
use crate::printable::printable;
use crate::setters;

/// `candidates/peaks/peaks.json`.
const BUILT_IN: &str = include_str!("../candidates/peaks/peaks.json");

/// Version of the file.
const SCHEMA: u32 = 1;
/// Largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// The peak rates of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Peaks {
    /// As `--peaks` names it: `cuda:h100_sxm`, `rocm:mi300x`, `tpu:v5e`.
    pub name: String,
    /// PJRT's device kinds of such devices, and the figures that identify one in captures that do not name it.
    pub kinds: Vec<String>,
    /// Bytes read and written in a second, of the device's main memory.
    pub bytes_per_second: f64,
    /// Operations in a second of the units that multiply matrices, by element type.
    pub matrix: BTreeMap<DType, f64>,
    /// Operations in a second of all other units; empty if nothing is published.
    pub vector: BTreeMap<DType, f64>,
    /// The sources of the figures.
    pub sources: Vec<String>,
}

setters!(Peaks {
    kinds: Vec<String>,
    matrix: BTreeMap<DType, f64>,
    vector: BTreeMap<DType, f64>,
    sources: Vec<String>,
});

impl Peaks {
    /// Peaks of which only the memory's is known.
    pub fn new(name: impl Into<String>, bytes_per_second: f64) -> Self {
        Self {
            name: name.into(),
            kinds: Vec::new(),
            bytes_per_second,
            matrix: BTreeMap::new(),
            vector: BTreeMap::new(),
            sources: Vec::new(),
        }
    }
}

/// A file of peaks.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    schema: u32,
    devices: Vec<Peaks>,
}

/// Peaks that do not exist, or that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeaksError {
    /// Nothing has this name.
    #[error("no peaks of `{name}` are known: name one of {}, or a file as `FILE.json`", names.join(", "))]
    Unknown {
        /// The requested name.
        name: String,
        /// The existing names.
        names: Vec<String>,
    },
    /// The file cannot be used.
    #[error("`{}`: the peaks cannot be read: {source}; `candidates/peaks/peaks.json` shows the format", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Peaks {
    /// The built-in ones.
    pub fn built_in() -> Vec<Self> {
        // a test reads it
        parse(BUILT_IN.as_bytes()).unwrap_or_default()
    }

    /// Those of a built-in name, or the first ones of a file.
    ///
    /// # Errors
    /// If the name is unknown, or the file cannot be read.
    pub fn named(name: &str) -> Result<Self, PeaksError> {
        if name.contains('/') || name.ends_with(".json") {
            let path = Path::new(name);
            let unreadable = |source| PeaksError::Unreadable { path: path.to_owned(), source };
            let devices = outside_file::input(path, MAX_BYTES).and_then(|bytes| parse(&bytes)).map_err(unreadable)?;
            let none = || io::Error::new(io::ErrorKind::InvalidData, "it has no device");
            return devices.into_iter().next().ok_or_else(|| unreadable(none()));
        }
        let built_in = Self::built_in();
        let names = built_in.iter().map(|peaks| peaks.name.clone()).collect();
        let found = built_in.into_iter().find(|peaks| peaks.name == name);
        found.ok_or_else(|| PeaksError::Unknown { name: name.to_owned(), names })
    }

    /// As the only device of a file for [`named`](Self::named).
    pub fn to_file(&self) -> impl Serialize + use<> {
        Document { schema: SCHEMA, devices: vec![self.clone()] }
    }

    /// Those of a device of this PJRT kind.
    pub fn of_kind(kind: &str) -> Option<Self> {
        Self::built_in().into_iter().find(|peaks| peaks.kinds.iter().any(|one| one == kind))
    }

    /// Operations in a second of matrices of a type. A type without a figure takes the largest, which is a valid bound.
    pub fn matrix_per_second(&self, dtype: Option<DType>) -> Option<f64> {
        of_type(&self.matrix, dtype)
    }

    /// The same for the other units.
    pub fn vector_per_second(&self, dtype: Option<DType>) -> Option<f64> {
        of_type(&self.vector, dtype)
    }
}

fn of_type(figures: &BTreeMap<DType, f64>, dtype: Option<DType>) -> Option<f64> {
    let own = dtype.and_then(|dtype| figures.get(&dtype)).copied();
    own.or_else(|| figures.values().copied().max_by(f64::total_cmp))
}

fn parse(bytes: &[u8]) -> io::Result<Vec<Peaks>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, printable(&what));
    let document: Document = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
    if document.schema != SCHEMA {
        return Err(wrong(format!("it is of schema {}, this version knows {SCHEMA}", document.schema)));
    }
    for peaks in &document.devices {
        let figures = peaks.matrix.values().chain(peaks.vector.values()).chain([&peaks.bytes_per_second]);
        if let Some(figure) = figures.copied().find(|figure| !(figure.is_finite() && *figure > 0.0)) {
            return Err(wrong(format!("`{}` has {figure} in a second", peaks.name)));
        }
    }
    Ok(document.devices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{CUDA, Target};

    /// Every target has peaks, and a GPU's memory is as fast as the compiler is told. Devices by AMD are no targets
    /// yet.
    #[test]
    fn every_target_has_peaks() {
        for peaks in Peaks::built_in() {
            assert!(peaks.name.starts_with("rocm:") || Target::named(&peaks.name).is_ok(), "{}", peaks.name);
            assert!(!peaks.matrix.is_empty() && !peaks.kinds.is_empty());
            assert!(peaks.sources.iter().any(|source| source.contains("https://")), "{}", peaks.name);
        }
        for (name, config) in CUDA {
            let peaks = Peaks::named(&format!("cuda:{name}")).unwrap();
            let line = |field: &str| {
                let found = config.lines().find_map(|line| line.trim().strip_prefix(field));
                found.unwrap_or_else(|| panic!("{name}: {field}")).trim().trim_matches('"').to_owned()
            };
            assert_eq!(line("memory_bandwidth:").parse::<f64>().unwrap(), peaks.bytes_per_second, "{name}");
            assert_eq!([line("device_description_str:")], *peaks.kinds, "{name}");
            // an FMA a core and clock, at the clock that the compiler is told: the data sheets' boost clock is no
            // higher
            let [cores, fpus, clock] =
                ["core_count:", "fpus_per_core:", "clock_rate_ghz:"].map(|field| line(field).parse::<f64>().unwrap());
            let vector = 2.0 * cores * fpus * clock * 1e9;
            let stated = peaks.vector_per_second(Some(DType::F32)).unwrap();
            assert!((0.8..1.02).contains(&(stated / vector)), "{name}: {stated} of {vector}");
        }
        for chip in ["v2", "v3", "v4", "v5e", "v5p", "v6e", "tpu7x"] {
            assert!(Peaks::named(&format!("tpu:{chip}")).is_ok(), "{chip}");
        }
        assert_eq!(Peaks::of_kind("TPU v5 lite").unwrap().name, "tpu:v5e");
        for (kind, cores, matrix_rate, megahertz) in [
            ("AMD Instinct MI300X", 304.0, 2048.0, 2100.0),
            ("AMD Instinct MI325X", 304.0, 2048.0, 2100.0),
            ("AMD Instinct MI355X", 256.0, 4096.0, 2400.0),
        ] {
            // operations a clock and core, by the white papers of CDNA 3 and 4
            let peaks = Peaks::of_kind(kind).unwrap();
            let bf16 = peaks.matrix_per_second(Some(DType::Bf16)).unwrap();
            assert!((bf16 / (cores * matrix_rate * megahertz * 1e6) - 1.0).abs() < 1e-3, "{kind}");
        }
    }

    #[test]
    fn files_are_read_and_bad_ones_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.json");
        let name = path.display().to_string();
        let own = |figure: &str| {
            format!(
                "{{\"schema\": 1, \"devices\": [{{\"name\": \"own\", \"kinds\": [], \"bytes_per_second\": {figure}, \
                 \"matrix\": {{\"f32\": 5e9}}, \"vector\": {{}}, \"sources\": [\"me\"]}}]}}"
            )
        };
        std::fs::write(&path, own("1e9")).unwrap();
        let peaks = Peaks::named(&name).unwrap();
        assert_eq!((peaks.matrix_per_second(Some(DType::Bf16)), peaks.vector_per_second(None)), (Some(5e9), None));
        for bad in [
            own("0"),
            own("-1"),
            own("1e999"),
            own("1e9").replace("f32", "f33"),
            "{}".into(),
            own("1").replace(": 1,", ": 2,"),
        ] {
            std::fs::write(&path, &bad).unwrap();
            let error = Peaks::named(&name).unwrap_err().to_string();
            assert!(error.contains("cannot be read") && !error.contains('\n'), "{bad}: {error}");
        }
        assert!(Peaks::named("cuda:h99").unwrap_err().to_string().contains("cuda:h100_sxm"));
    }
}
