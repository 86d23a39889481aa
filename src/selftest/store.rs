//! The figures of a cache folder: one small file of JSON.

use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::figures::Figures;
use crate::atomic_write::write_atomic;
use crate::cache::{FolderLock, StoreError};
use crate::decision::{ProcessSpread, Resolution};
use crate::device::DeviceFingerprint;
use crate::digest::Digest;
use crate::measured_by::{CacheState, MeasuredBy, Source};
use crate::outside_file;
use crate::printable::printable;
use crate::timer::Timer;

/// Name of the file inside a cache folder.
pub const SELFTEST_FILE: &str = "selftest-v1.json";

/// Version of the file.
const SCHEMA: u32 = 1;
/// Largest file that is read.
const MAX_BYTES: u64 = 4 << 20;
/// Maximum number of settings kept; the one measured longest ago is removed.
const MAX_SETTINGS: usize = 64;
/// Maximum number of programs of one setting, likewise.
const MAX_POINTS: usize = 32;

/// The key of figures: those of another device, software, timer, metric or state of the caches do not apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FigureKey {
    /// The device and the software around it.
    pub device: DeviceFingerprint,
    /// The timer, its clock and metric, and the caches.
    #[serde(flatten)]
    pub measured_by: MeasuredBy,
}

impl FigureKey {
    /// That of a timer.
    pub fn of(timer: &dyn Timer, cache_state: &CacheState) -> Self {
        Self { device: timer.info().device.clone(), measured_by: timer.info().measured_by(cache_state).as_condition() }
    }
}

/// The figures of one program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its name; for people only.
    pub program: String,
    /// Digest of its bytes.
    pub digest: Digest,
    /// When it was measured, seconds since 1970.
    pub measured_at: u64,
    /// Program and version that measured it.
    pub tool: String,
    /// The figures.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Point {
    /// Figures measured now.
    pub fn new(program: impl Into<String>, digest: Digest, figures: Figures) -> Self {
        let measured_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let tool = concat!("autotune-lowered ", env!("CARGO_PKG_VERSION")).to_owned();
        Self { program: program.into(), digest, measured_at, tool, figures }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OfSetting {
    #[serde(flatten)]
    setting: FigureKey,
    points: Vec<Point>,
}

impl OfSetting {
    fn measured_at(&self) -> u64 {
        self.points.iter().map(|point| point.measured_at).max().unwrap_or(0)
    }
}

#[derive(Serialize, Deserialize)]
struct FiguresFile {
    schema: u32,
    entries: Vec<OfSetting>,
}

/// All figures of a cache folder.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredFigures {
    entries: Vec<OfSetting>,
}

/// The known noise floor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KnownNoise {
    /// The noise floor, by the duration of programs.
    pub resolution: Resolution,
    /// The spread between processes, if it was measured, or else what is known of such devices.
    pub spread: Option<ProcessSpread>,
    /// Why there is nothing, if the figures cannot be used.
    pub damage: Option<String>,
    /// Whether there are only figures of other settings.
    pub is_of_others: bool,
}

impl StoredFigures {
    /// Reads a folder's figures. Unusable ones count as absent, and the note says why.
    pub fn read(folder: &Path) -> (Self, Option<String>) {
        let path = folder.join(SELFTEST_FILE);
        match read(&path) {
            Ok(entries) => (Self { entries }, None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Self::default(), None),
            Err(error) => {
                let why = printable(&error.to_string());
                let note = format!("`{}` is ignored: {why}; `selftest` writes it again", path.display());
                (Self::default(), Some(note))
            }
        }
    }

    /// Whether there are no figures at all.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The programs of a setting.
    pub fn points(&self, setting: &FigureKey) -> &[Point] {
        self.entries.iter().find(|entry| entry.setting == *setting).map_or(&[], |entry| &entry.points)
    }

    /// The noise floor that they give together.
    pub fn resolution(&self, setting: &FigureKey) -> Resolution {
        let points = self.points(setting).iter();
        Resolution::new(points.map(|point| (point.figures.median_ns, point.figures.resolution)))
    }

    /// The noise floor by a folder's figures, if there is a folder, for a timer's device and environment.
    pub fn known(folder: Option<&Path>, timer: &dyn Timer, cache_state: &CacheState) -> KnownNoise {
        let info = timer.info();
        let has_own_clock =
            info.source == Source::DeviceProfile && !info.device.identity.platform.eq_ignore_ascii_case("cpu");
        let usual = has_own_clock.then_some(ProcessSpread::DEVICE_CLOCK);
        let (stored, damage) = folder.map(Self::read).unwrap_or_default();
        let resolution = stored.resolution(&FigureKey::of(timer, cache_state));
        let is_of_others = resolution.points().is_empty() && !stored.is_empty();
        let of_points = stored.points(&FigureKey::of(timer, cache_state)).iter();
        let spread = ProcessSpread::pooled(of_points.filter_map(|point| point.figures.between_processes));
        KnownNoise { resolution, spread: spread.or(usual), damage, is_of_others }
    }

    /// Adds figures; they replace those of the same program under the same setting.
    pub fn add(&mut self, setting: &FigureKey, new: Vec<Point>) {
        let place = self.entries.iter().position(|entry| entry.setting == *setting);
        let mut points = place.map(|place| self.entries.swap_remove(place).points).unwrap_or_default();
        points.retain(|old| new.iter().all(|point| point.digest != old.digest));
        points.extend(new);
        // stable: within a second, those added last are kept
        points.sort_by_key(|point| point.measured_at);
        points.drain(..points.len().saturating_sub(MAX_POINTS));
        self.entries.sort_by_key(OfSetting::measured_at);
        self.entries.drain(..(self.entries.len() + 1).saturating_sub(MAX_SETTINGS));
        self.entries.push(OfSetting { setting: setting.clone(), points });
    }

    /// Writes the figures of the locked folder atomically.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, lock: &FolderLock) -> Result<(), StoreError> {
        let folder = lock.folder();
        let path = folder.join(SELFTEST_FILE);
        let document = FiguresFile { schema: SCHEMA, entries: self.entries.clone() };
        write(&path, &document).map_err(StoreError::io("write the figures of selftest to", &path))
    }
}

fn read(path: &Path) -> io::Result<Vec<OfSetting>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let bytes = outside_file::read(outside_file::open_own(path, MAX_BYTES)?, MAX_BYTES)?;
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
    }
    let damaged = |error: serde_json::Error| wrong(format!("it is damaged: {error}"));
    let Version { schema } = serde_json::from_slice(&bytes).map_err(damaged)?;
    if schema != SCHEMA {
        return Err(wrong(format!("it is of schema {schema}, this version knows {SCHEMA}")));
    }
    let FiguresFile { entries, .. } = serde_json::from_slice(&bytes).map_err(damaged)?;
    for point in entries.iter().flat_map(|entry| &entry.points) {
        let Figures { median_ns, resolution, .. } = point.figures;
        if Resolution::new([(median_ns, resolution)]).points().is_empty() {
            return Err(wrong(format!("it is damaged: a resolution of {resolution} at {median_ns} ns")));
        }
    }
    Ok(entries)
}

fn write(path: &Path, document: &FiguresFile) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(document)?;
    text.push(b'\n');
    write_atomic(path, |file| file.write_all(&text))
}

#[cfg(test)]
mod tests {
    use super::super::FalseWins;
    use super::*;
    use crate::device::{DeviceIdentity, Environment};
    use crate::measured_by::{Metric, Source};

    fn setting(timer: &str) -> FigureKey {
        let identity =
            DeviceIdentity { platform: "cpu".into(), device_kind: "cpu".into(), hardware: Default::default() };
        FigureKey {
            device: DeviceFingerprint { identity, environment: Environment::default() },
            measured_by: MeasuredBy::new(timer, Source::HostWall),
        }
    }

    fn point(program: &str, measured_at: u64, median_ns: f64, resolution: f64) -> Point {
        let false_wins = FalseWins { decisions: 6, at_zero: 1, at_default: 0, at_resolution: 0 };
        let figures = Figures {
            copies: 2,
            rounds: 20,
            rounds_set_aside: 0,
            median_ns,
            resolution,
            claimed: 0.001,
            between_rounds: 0.01,
            between_copies: 0.0,
            between_processes: None,
            false_wins,
        };
        Point {
            program: program.to_owned(),
            digest: Digest::of(program.as_bytes()),
            measured_at,
            tool: "tests".to_owned(),
            figures,
        }
    }

    #[test]
    fn what_was_written_is_read_and_belongs_to_its_setting_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (mut stored, note) = StoredFigures::read(folder.path());
        assert!(stored.is_empty() && note.is_none());
        stored.add(&setting("pjrt"), vec![point("a", 5, 1e3, 0.05), point("b", 5, 1e6, 0.01)]);
        stored.add(&setting("jax"), vec![point("a", 6, 2e3, 0.2)]);
        // measured again
        stored.add(&setting("pjrt"), vec![point("a", 7, 1e3, 0.03)]);
        let lock = FolderLock::acquire(folder.path()).unwrap();
        stored.write(&lock).unwrap();
        assert_eq!(StoredFigures::read(folder.path()), (stored.clone(), None));
        assert_eq!(stored.resolution(&setting("pjrt")), Resolution::new([(1e3, 0.03), (1e6, 0.01)]));
        let mut other = setting("pjrt");
        other.device.environment.xla_flags = vec!["--xla_cpu_enable_fast_math=true".into()];
        assert_eq!(stored.resolution(&other), Resolution::default());
        let by = |measured_by| FigureKey { measured_by, ..setting("pjrt") };
        let warm = setting("pjrt").measured_by;
        assert_eq!(stored.resolution(&by(warm.clone().cache_state(CacheState::Cold))), Resolution::default());
        assert_eq!(stored.resolution(&by(warm.metric(Metric::Span))), Resolution::default());
    }

    #[test]
    fn the_oldest_go_where_there_are_too_many() {
        let mut stored = StoredFigures::default();
        for n in 0..70 {
            stored.add(&setting(&n.to_string()), vec![point("a", 100 - n, 1e3, 0.05)]);
        }
        assert_eq!(stored.entries.len(), MAX_SETTINGS);
        assert!(stored.points(&setting("3")).len() == 1 && stored.points(&setting("64")).is_empty());
        assert_eq!(stored.points(&setting("69")).len(), 1, "what was just measured stays");
        stored.add(&setting("69"), (0..40).map(|n| point(&n.to_string(), n, 1e3, 0.05)).collect());
        let points = stored.points(&setting("69"));
        assert_eq!((points.len(), points[0].program.as_str()), (MAX_POINTS, "9"));
    }

    #[test]
    fn damage_is_absence_with_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(SELFTEST_FILE);
        let lock = FolderLock::acquire(folder.path()).unwrap();
        let mut stored = StoredFigures::default();
        stored.add(&setting("pjrt"), vec![point("a", 5, 1e3, 0.05)]);
        stored.write(&lock).unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        assert!(whole.contains("\"schema\": 1") && whole.contains("0.05"), "{whole}");
        let texts = [
            String::new(),
            whole[..whole.len() / 2].to_owned(),
            whole.replace("\"schema\": 1", "\"schema\": 2"),
            whole.replace("0.05", "1e999"),
            whole.replace("0.05", "-0.05"),
            whole.replace("1000.0", "0.0"),
            "[".repeat(10_000),
            format!("{}{whole}", " ".repeat(MAX_BYTES as usize)),
        ];
        for text in texts {
            std::fs::write(&path, &text).unwrap();
            let (read, note) = StoredFigures::read(folder.path());
            let note = note.unwrap_or_else(|| panic!("{text:.80}"));
            assert!(read.is_empty() && note.contains(SELFTEST_FILE) && !note.contains('\n'), "{note}");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(StoredFigures::read(folder.path()).1.unwrap().contains("it is a folder"));
        assert!(stored.write(&lock).unwrap_err().to_string().contains("write the figures"));
    }
}
