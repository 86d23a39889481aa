//! Folders of inputs captured from a running step: `manifest.json` and one `.npy` file for each argument.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::error::MeasureError;
use crate::array::{ArraySpec, MAX_ARRAY_BYTES, MAX_NPY_HEADER_BYTES, NpyHeader};
use crate::digest::Digest;
use crate::outside_file::{self, OutsideFolder};
use crate::printable::printable;

/// The file that marks a capture, and the format that it names.
pub(super) const MANIFEST: &str = "manifest.json";
const FORMAT: &str = "autotune-lowered-inputs-v1";
/// Largest manifest that is read: a few hundred thousand arguments.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// A folder of captured inputs.
pub(super) struct Captured {
    path: PathBuf,
    folder: OutsideFolder,
    arguments: Vec<CapturedArgument>,
    /// Indices by path; if two have the same path, the first.
    by_path: BTreeMap<String, usize>,
}

/// One argument in the manifest.
#[derive(Debug, Deserialize)]
pub(super) struct CapturedArgument {
    /// Its path in the tree of arguments, such as `params/w`.
    pub(super) path: String,
    spec: ArraySpec,
    /// Whether the step may overwrite it.
    pub(super) donated: bool,
    file: PathBuf,
    sha256: Digest,
}

#[derive(Deserialize)]
struct CaptureManifest {
    format: String,
    arguments: Vec<CapturedArgument>,
}

impl Captured {
    /// Reads a folder's manifest; `None` if there is none.
    ///
    /// # Errors
    /// If the folder or the manifest cannot be read, or the manifest has another format.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, MeasureError> {
        let unreadable = |path: PathBuf| move |source| MeasureError::Unreadable { path, source };
        let folder = OutsideFolder::open(path).map_err(unreadable(path.to_owned()))?;
        let place = path.join(MANIFEST);
        let text = match folder.open_file(Path::new(MANIFEST), MAX_MANIFEST_BYTES) {
            Ok(file) => outside_file::read_text(file, MAX_MANIFEST_BYTES).map_err(unreadable(place.clone()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(place)(error)),
        };
        let wrong = |reason: String| MeasureError::Captured { path: place.clone(), reason: printable(&reason) };
        let manifest: CaptureManifest = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(wrong(format!("has the format `{}`, expected `{FORMAT}`", manifest.format)));
        }
        let arguments = manifest.arguments;
        let paths = arguments.iter().enumerate().rev().map(|(index, argument)| (argument.path.clone(), index));
        let by_path = paths.collect();
        Ok(Some(Self { path: path.to_owned(), folder, arguments, by_path }))
    }

    /// The capture of an argument: by its path if the program names it, otherwise by its number if there are as many
    /// captures as arguments.
    ///
    /// # Errors
    /// If it was not captured.
    pub(super) fn find(&self, index: usize, count: usize, place: &str) -> Result<&CapturedArgument, MeasureError> {
        let missing = |reason| MeasureError::Captured { path: self.path.join(MANIFEST), reason };
        if place.is_empty() {
            let found = self.arguments.get(index).filter(|_| self.arguments.len() == count);
            return found.ok_or_else(|| {
                let captured = self.arguments.len();
                missing(format!(
                    "has {captured} arguments, the program takes {count} and does not name them: use text with \
                     locations"
                ))
            });
        }
        let found = self.by_path.get(place).and_then(|&index| self.arguments.get(index));
        found.ok_or_else(|| missing(format!("has no argument `{}`, which the program takes", printable(place))))
    }

    /// The dense little-endian elements of a captured argument, and their position in the file.
    ///
    /// # Errors
    /// If the file cannot be read, is a link, is outside the folder, has another digest, or holds another array.
    pub(super) fn read(
        &self,
        argument: &CapturedArgument,
        spec: &ArraySpec,
    ) -> Result<(PathBuf, Vec<u8>), MeasureError> {
        let path = self.path.join(&argument.file);
        let wrong = |reason: String| MeasureError::Captured { path: path.clone(), reason: printable(&reason) };
        if argument.spec != *spec {
            return Err(wrong(format!("is `{}` of {}, the program takes {spec}", argument.path, argument.spec)));
        }
        let expected = spec.host_bytes().filter(|&bytes| bytes <= MAX_ARRAY_BYTES);
        let expected = expected.ok_or_else(|| wrong(format!("{spec} is larger than {MAX_ARRAY_BYTES} bytes")))?;
        // twice, for what stands before the header
        let limit = expected.saturating_add(2 * MAX_NPY_HEADER_BYTES as u64);
        let file = self.folder.open_file(&argument.file, limit);
        let bytes = file.and_then(|file| outside_file::read(file, limit));
        let mut bytes = bytes.map_err(|source| MeasureError::Unreadable { path: path.clone(), source })?;
        if Digest::of(&bytes) != argument.sha256 {
            return Err(wrong("its digest differs from the manifest's: capture the step again".to_owned()));
        }
        let header = NpyHeader::read(&bytes).map_err(wrong)?;
        if header.dims != spec.dims || !header.holds(spec.dtype) {
            return Err(wrong(format!("holds {}, which is not {spec}", header.shown())));
        }
        let start = header.start;
        let found = (bytes.len() - start) as u64;
        if found != expected {
            return Err(wrong(format!("{found} bytes of elements are not an array {spec}")));
        }
        bytes.drain(..start);
        Ok((path, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{InputOptions, MeasuredProgram, make_inputs};
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A file as `numpy.save` writes it, version 1.0 of the format.
    fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
        header.push_str(&" ".repeat(118 - 1 - header.len()));
        header.push('\n');
        [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), elements].concat()
    }

    fn manifest(folder: &Path, rows: &[(&str, &str, &str, &[u8])]) {
        let rows = rows.iter().map(|(path, spec, file, bytes)| {
            let (donated, sha256) = (false, Digest::of(bytes));
            serde_json::json!({"path": path, "spec": spec, "donated": donated, "file": file, "sha256": sha256})
        });
        let manifest = serde_json::json!({"format": FORMAT, "arguments": rows.collect::<Vec<_>>()});
        fs::write(folder.join(MANIFEST), manifest.to_string()).unwrap();
    }

    fn made(folder: &Path, specs: &[&str]) -> Result<Vec<Vec<u8>>, String> {
        let specs: Vec<ArraySpec> = specs.iter().map(|spec| spec.parse().unwrap()).collect();
        let text = "module { func.func public @main(%a: tensor<2xbf16> loc(\"p['w']\"), %b: tensor<i32> loc(\"n\")) {";
        let given = tempfile::tempdir().unwrap();
        let path = given.path().join("p.mlir");
        fs::write(&path, format!("{text} return }} }}\n")).unwrap();
        let program = MeasuredProgram::open(&path).map_err(|error| error.to_string())?;
        let options = InputOptions::default().folder(Some(folder.to_owned()));
        let scratch = tempfile::tempdir().unwrap();
        let inputs = make_inputs(&program, &specs, &options, scratch.path()).map_err(|error| error.to_string())?;
        Ok(inputs.arrays.iter().map(|input| fs::read(&input.path).unwrap()).collect())
    }

    #[test]
    fn captured_inputs_are_found_by_path_and_believed_by_digest() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let (w, n) = (npy("<u2", "2,", &[1, 2, 3, 4]), npy("<i4", "", &[5, 0, 0, 0]));
        fs::write(at.join("0.npy"), &n).unwrap();
        fs::write(at.join("1.npy"), &w).unwrap();
        let (rows, specs) = ([("n", "s32[]", "0.npy", &n[..]), ("p/w", "bf16[2]", "1.npy", &w)], ["bf16[2]", "s32[]"]);
        manifest(at, &rows);
        assert_eq!(made(at, &specs), Ok(vec![vec![1, 2, 3, 4], vec![5, 0, 0, 0]]));
        let message_of = |specs: &[&str]| made(at, specs).unwrap_err();
        assert!(message_of(&["f16[2]", "s32[]"]).contains("is `p/w` of bf16[2], the program takes f16[2]"));
        manifest(at, &rows[..1]);
        assert!(message_of(&specs).contains("has no argument `p/w`"));
        // the content is not what was captured, or is elsewhere
        manifest(at, &rows);
        fs::write(at.join("1.npy"), &n).unwrap();
        assert!(message_of(&specs).contains("digest differs"));
        fs::remove_file(at.join("1.npy")).unwrap();
        symlink("0.npy", at.join("1.npy")).unwrap();
        assert!(message_of(&specs).contains("symbolic link"));
        manifest(at, &[rows[0], ("p/w", "bf16[2]", "../1.npy", &w)]);
        assert!(message_of(&specs).contains("outside"));
        for (bytes, why) in [
            (npy("<u2", "3,", &[1, 2, 3, 4]), "shape (3)"),
            (npy("<u4", "2,", &[1, 2, 3, 4]), "`<u4`"),
            (npy(">u2", "2,", &[1, 2, 3, 4]), "`>u2`"),
            (npy("<u2", "2,", &[1, 2, 3]), "3 bytes of elements"),
            (w[..40].to_vec(), "ends within its header"),
            (Vec::new(), "is not a file of `numpy.save`"),
        ] {
            fs::write(at.join("2.npy"), &bytes).unwrap();
            manifest(at, &[rows[0], ("p/w", "bf16[2]", "2.npy", &bytes)]);
            assert!(message_of(&specs).contains(why), "{why}: {}", message_of(&specs));
        }
        fs::write(at.join(MANIFEST), "{\"format\": \"v9\", \"arguments\": []}").unwrap();
        assert!(message_of(&specs).contains("expected `autotune-lowered-inputs-v1`"));
    }
}
