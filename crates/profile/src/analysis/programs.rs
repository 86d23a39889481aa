//! The HLO of a capture's programs: from `/host:metadata`, from files, or from an XLA dump folder.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::Bytes;

use crate::hlo::{HloModule, ModuleForm, ScanError, read_plain, read_program};
use crate::io_hint::io_hint;
use crate::outside_file;
use crate::profile::{Plane, StatValue, XSpace, module_name};

use super::event_facts::{EventFacts, FactsByOperation};

/// Maximum size of one file, and of all files of one folder.
const MAX_BYTES: u64 = 4 << 30;
/// Maximum number of files examined in a folder.
const MAX_FILES: usize = 100_000;
/// XLA's name of the stage whose instructions a device runs.
const LAST_STAGE: &str = "after_optimizations";

/// Modules from files, each an `HloModuleProto` or an `HloProto`.
#[derive(Debug, Default)]
pub struct HloFiles {
    files: Vec<(String, Bytes)>,
    notes: Vec<String>,
}

/// A file of modules that cannot be used: which, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HloFileError {
    /// It cannot be read.
    #[error("`{place}`: cannot be read: {source}{next}", next = io_hint(source))]
    Unreadable {
        /// The file or folder.
        place: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// A folder without a module.
    #[error("`{place}`: holds no `*.hlo.pb`; write them with `XLA_FLAGS=--xla_dump_to=FOLDER --xla_dump_hlo_as_proto`")]
    NoModule {
        /// The folder.
        place: String,
    },
    /// It is a module, but as text or StableHLO.
    #[error(
        "`{place}`: is not an HLO proto but a module of another form; write one with `XLA_FLAGS=--xla_dump_to=FOLDER \
         --xla_dump_hlo_as_proto`"
    )]
    OtherForm {
        /// The file.
        place: String,
    },
    /// It is not a module.
    #[error(transparent)]
    Scan(#[from] ScanError),
}

impl HloFiles {
    /// Reads files, compressed with gzip or zstd or not, and folders. A named file must be a module; one found in a
    /// folder that is not becomes a note.
    ///
    /// # Errors
    ///
    /// A path that cannot be read, and a file that is not a module.
    pub fn open(paths: &[PathBuf]) -> Result<Self, HloFileError> {
        let mut files = Self::default();
        for path in paths {
            if path.is_dir() {
                files.folder(path)?;
            } else {
                let place = path.display().to_string();
                let bytes = read(path, MAX_BYTES)?;
                if read_program(&bytes, &place)?.form != ModuleForm::HloProto {
                    return Err(HloFileError::OtherForm { place });
                }
                let bytes = Bytes::from(bytes);
                HloModule::of_bytes(&bytes, &place)?;
                files.files.push((place, bytes));
            }
        }
        Ok(files)
    }

    /// Adds a module in memory; `place` names it in messages.
    pub fn add(&mut self, place: &str, bytes: Vec<u8>) {
        self.files.push((place.to_owned(), bytes.into()));
    }

    /// Reads the modules of a dump folder; if a module has several stages, the last one.
    fn folder(&mut self, folder: &Path) -> Result<(), HloFileError> {
        let place = folder.display().to_string();
        let unreadable = |source| HloFileError::Unreadable { place: place.clone(), source };
        let mut chosen: BTreeMap<String, (bool, PathBuf)> = BTreeMap::new();
        for entry in fs::read_dir(folder).map_err(unreadable)?.take(MAX_FILES) {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let stem = name.trim_end_matches(".gz").trim_end_matches(".zst");
            if !stem.ends_with(".hlo.pb") || !path.is_file() {
                continue;
            }
            let is_last = stem.contains(LAST_STAGE);
            // `module_0001.jit_f.sm_9.0_gpu_after_optimizations.hlo.pb`: number and name are the module's
            let module = stem.split('.').take(2).collect::<Vec<_>>().join(".");
            let known = chosen.entry(module).or_insert((is_last, path.clone()));
            if (is_last, &path) > (known.0, &known.1) {
                *known = (is_last, path);
            }
        }
        if chosen.is_empty() {
            return Err(HloFileError::NoModule { place });
        }
        let mut left = MAX_BYTES;
        for (_, path) in chosen.into_values() {
            match read(&path, left) {
                Ok(bytes) => {
                    left = left.saturating_sub(bytes.len() as u64);
                    self.files.push((path.display().to_string(), bytes.into()));
                }
                Err(error) => self.notes.push(error.to_string()),
            }
        }
        Ok(())
    }

    /// Files of a folder that could not be read, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>, HloFileError> {
    let place = path.display().to_string();
    let unreadable = |source| HloFileError::Unreadable { place: place.clone(), source };
    let bytes = outside_file::input(path, most).map_err(unreadable)?;
    let bytes = read_plain(bytes, most, &place)?;
    Ok(bytes)
}

/// A module's bytes; its instructions are read on demand.
#[derive(Debug)]
struct Proto {
    place: String,
    bytes: Bytes,
    module: OnceLock<Result<HloModule, ScanError>>,
}

impl Proto {
    fn new(place: String, bytes: Bytes) -> Self {
        Self { place, bytes, module: OnceLock::new() }
    }

    fn module(&self) -> Option<&HloModule> {
        self.module.get_or_init(|| HloModule::of_bytes(&self.bytes, &self.place)).as_ref().ok()
    }
}

/// The programs of one capture.
#[derive(Debug, Default)]
pub struct Programs<'a> {
    /// The capture.
    space: Option<&'a XSpace>,
    protos: Vec<Proto>,
    /// Of the capture itself.
    by_id: HashMap<i64, usize>,
    by_name: HashMap<String, usize>,
    /// Of files: by name and id, and by name.
    file_by_id: HashMap<(String, i64), usize>,
    /// The first one, and how many there are.
    file_by_name: HashMap<String, (usize, usize)>,
    facts: OnceLock<FactsByOperation>,
}

impl<'a> Programs<'a> {
    /// The programs in a capture, and those from files for the ones that it lacks.
    pub fn new(space: &'a XSpace, files: &HloFiles) -> Self {
        let mut programs = Self { space: Some(space), ..Self::of_files(files) };
        for plane in space.planes().filter(|plane| plane.name() == "/host:metadata") {
            programs.add_plane(plane);
        }
        programs
    }

    /// Those of files alone.
    pub fn of_files(files: &HloFiles) -> Self {
        let mut programs = Self::default();
        for (place, bytes) in &files.files {
            // among several modules with one name the first is used
            let Some((name, id)) = HloModule::identity(bytes) else { continue };
            let number = programs.protos.len();
            programs.protos.push(Proto::new(place.clone(), bytes.clone()));
            programs.file_by_id.entry((name.clone().into_owned(), id)).or_insert(number);
            programs.file_by_name.entry(name.into_owned()).or_insert((number, 0)).1 += 1;
        }
        programs
    }

    fn add_plane(&mut self, plane: Plane<'_>) {
        for metadata in plane.all_event_metadata() {
            let (name, in_name) = module_name(metadata.name());
            let (mut id, mut bytes) = (in_name.unwrap_or(metadata.id()), None);
            for stat in metadata.stats() {
                match (plane.stat_name(stat.metadata_id), stat.value) {
                    (Some(b"program_id"), value) => id = value.as_integer().unwrap_or(id),
                    (Some(b"Hlo Proto" | b"hlo_proto"), StatValue::Bytes(proto)) => bytes = Some(proto),
                    _ => {}
                }
            }
            let Some(bytes) = self.space.zip(bytes).map(|(space, bytes)| space.shared(bytes)) else { continue };
            let name = String::from_utf8_lossy(name).into_owned();
            let number = self.protos.len();
            self.protos.push(Proto::new(format!("HLO proto of {name}({id})"), bytes));
            self.by_id.entry(id).or_insert(number);
            self.by_name.entry(name).or_insert(number);
        }
    }

    /// The program of an execution: by its id, else by its name where no id is known.
    pub fn find(&self, module: &str, program_id: Option<i64>) -> Option<&HloModule> {
        let of_capture = match program_id {
            Some(id) => self.by_id.get(&id),
            None => self.by_name.get(module),
        };
        let of_files = || {
            let exact = program_id.and_then(|id| self.file_by_id.get(&(module.to_owned(), id)));
            exact.or_else(|| self.file_by_name.get(module).map(|(number, _)| number))
        };
        // a file replaces a damaged proto of the capture
        let read = |number: &usize| self.protos.get(*number)?.module();
        of_capture.and_then(read).or_else(|| of_files().and_then(read))
    }

    /// What the capture's events say about an operation; read when it is first needed.
    pub(super) fn event_facts(&self, program_id: Option<i64>, operation: &str) -> Option<&EventFacts> {
        let facts = self.facts.get_or_init(|| self.space.map(FactsByOperation::of).unwrap_or_default());
        facts.find(program_id, operation)
    }

    /// How many files have an execution's name, if several do and only the name was compared.
    pub fn guessed_among(&self, module: &str, program_id: Option<i64>) -> Option<usize> {
        let id = program_id?;
        let is_known = self.by_id.contains_key(&id) || self.file_by_id.contains_key(&(module.to_owned(), id));
        let (_, files) = self.file_by_name.get(module).filter(|_| !is_known)?;
        (*files > 1).then_some(*files)
    }

    /// The requested protos that cannot be read, one line each.
    pub fn problems(&self) -> Vec<String> {
        let failed = self.protos.iter().filter_map(|proto| proto.module.get()?.as_ref().err());
        failed.map(ToString::to_string).collect()
    }
}
