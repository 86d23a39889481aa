//! The HLO of a capture's programs: from `/host:metadata`, from files, or from an XLA dump folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::Bytes;

use crate::hlo::{HloModule, ModuleForm, ScanError, dumped_id, module_form, modules_after_passes, read_plain};
use crate::io_hint::io_hint;
use crate::outside_file;
use crate::profile::{Plane, StatValue, XSpace, module_name};

use super::event_facts::{EventFacts, FactsByOperation};

/// Maximum size of one file, and of all files of one folder.
const MAX_BYTES: u64 = 4 << 30;

/// Modules from files, each an `HloModuleProto`, an `HloProto` or HLO text.
#[derive(Debug, Default)]
pub struct HloFiles {
    files: Vec<HloFile>,
    notes: Vec<String>,
}

/// A module's bytes, and their place in messages.
#[derive(Debug, Clone)]
struct HloFile {
    place: String,
    bytes: Bytes,
    /// Of HLO text, the id that its file's name has.
    id_of_text: Option<i64>,
}

impl HloFile {
    fn of_proto(place: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self { place: place.into(), bytes: bytes.into(), id_of_text: None }
    }

    /// Name and id of the module, without its instructions.
    fn identity(&self) -> Option<(String, i64)> {
        match self.id_of_text {
            Some(id) => HloModule::name_in_text(&self.bytes).map(|name| (name, id)),
            None => HloModule::identity(&self.bytes).map(|(name, id)| (name.into_owned(), id)),
        }
    }

    fn read(&self) -> Result<HloModule, ScanError> {
        match self.id_of_text {
            Some(id) => HloModule::of_text(&self.bytes, id, &self.place),
            None => HloModule::of_bytes(&self.bytes, &self.place),
        }
    }
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
    /// It holds no module, or is none, as a device runs it.
    #[error("`{place}`: {what} StableHLO, and devices run HLO; write that with `XLA_FLAGS=--xla_dump_to=FOLDER`")]
    Stablehlo {
        /// The file or folder.
        place: String,
        /// `is`, or `holds only`.
        what: &'static str,
    },
    /// It is not a module.
    #[error(transparent)]
    Scan(#[from] ScanError),
}

impl HloFiles {
    /// Reads files, compressed with gzip or zstd or not, and folders of dumps in any form. A named file must be HLO;
    /// one found in a folder that cannot be read becomes a note.
    ///
    /// # Errors
    ///
    /// A path that cannot be read, a file that is not HLO, and a folder without any.
    pub fn open(paths: &[PathBuf]) -> Result<Self, HloFileError> {
        let mut files = Self::default();
        for path in paths {
            if path.is_dir() {
                files.folder(path)?;
            } else {
                let file = read(path, MAX_BYTES)?;
                file.read()?;
                files.files.push(file);
            }
        }
        Ok(files)
    }

    /// Adds a proto in memory; `place` names it in messages.
    pub fn add(&mut self, place: &str, bytes: Vec<u8>) {
        self.files.push(HloFile::of_proto(place, bytes));
    }

    /// Reads the modules of a dump folder, of each the last stage.
    fn folder(&mut self, folder: &Path) -> Result<(), HloFileError> {
        let paths = modules_after_passes(folder)?;
        if paths.is_empty() {
            return Err(HloFileError::Stablehlo { place: folder.display().to_string(), what: "holds only" });
        }
        let mut left = MAX_BYTES;
        for path in paths {
            match read(&path, left) {
                Ok(file) => {
                    left = left.saturating_sub(file.bytes.len() as u64);
                    self.files.push(file);
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

fn read(path: &Path, most: u64) -> Result<HloFile, HloFileError> {
    let place = path.display().to_string();
    let unreadable = |source| HloFileError::Unreadable { place: place.clone(), source };
    let bytes = outside_file::input(path, most).map_err(unreadable)?;
    let bytes = read_plain(bytes, most, &place)?;
    let id_of_text = match module_form(&bytes, &place)? {
        ModuleForm::HloProto => None,
        ModuleForm::HloText => Some(dumped_id(path).unwrap_or_default()),
        _ => return Err(HloFileError::Stablehlo { place, what: "is" }),
    };
    Ok(HloFile { place, bytes: bytes.into(), id_of_text })
}

/// A module's file; its instructions are read on demand.
#[derive(Debug)]
struct Proto {
    file: HloFile,
    module: OnceLock<Result<HloModule, ScanError>>,
}

impl Proto {
    fn new(file: HloFile) -> Self {
        Self { file, module: OnceLock::new() }
    }

    fn module(&self) -> Option<&HloModule> {
        self.module.get_or_init(|| self.file.read()).as_ref().ok()
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
        for file in &files.files {
            // among several modules with one name the first is used
            let Some((name, id)) = file.identity() else { continue };
            let number = programs.protos.len();
            programs.protos.push(Proto::new(file.clone()));
            programs.file_by_id.entry((name.clone(), id)).or_insert(number);
            programs.file_by_name.entry(name).or_insert((number, 0)).1 += 1;
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
            self.protos.push(Proto::new(HloFile::of_proto(format!("HLO proto of {name}({id})"), bytes)));
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
