//! Inputs made from nothing but what the program takes.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::MeasureError;
use super::program::write_file;
use crate::array::{ArraySpec, DType, Fill, argument_seed, generate};
use crate::timer::InputArray;

/// Where an input's values come from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Made {
    /// A recipe, the same bytes on every machine.
    Fill(Fill),
    /// A file of the user's.
    File(PathBuf),
}

/// One input as it was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MadeInput {
    /// Element type and dimensions.
    pub spec: ArraySpec,
    /// Its values.
    #[serde(flatten)]
    pub made: Made,
}

/// Normal values where the type has fractions; zeros for integers and booleans, which may be indices, lengths or conditions.
fn recipe(spec: &ArraySpec) -> Fill {
    match spec.dtype {
        dtype if !dtype.has_fractions() => Fill::Constant { value: 0.0 },
        // it has no sign
        DType::F8E8M0Fnu => Fill::Uniform { low: 0.5, high: 2.0 },
        _ => Fill::Normal { scale: 1.0 },
    }
}

/// Makes the inputs of a program: the file `<index>.bin` of `given` where there is one, else values from a recipe.
pub(super) fn make(
    specs: &[ArraySpec],
    given: Option<&Path>,
    donates: bool,
    scratch: &Path,
) -> Result<(Vec<InputArray>, Vec<MadeInput>), MeasureError> {
    let mut arrays = Vec::with_capacity(specs.len());
    let mut made = Vec::with_capacity(specs.len());
    for (index, spec) in specs.iter().enumerate() {
        let name = format!("argument-{index}");
        let file = given.map(|folder| of_user(folder, index, spec)).transpose()?.flatten();
        let (path, how) = match file {
            Some(path) => (path.clone(), Made::File(path)),
            None => {
                let fill = recipe(spec);
                let bytes = generate(spec, &fill, argument_seed(&name, index as u64))
                    .map_err(|source| MeasureError::Fill { index, source })?;
                let path = scratch.join(format!("{name}.bin"));
                write_file(&path, &bytes)?;
                (path, Made::Fill(fill))
            }
        };
        arrays.push(InputArray { name, spec: spec.clone(), path, donated: donates });
        made.push(MadeInput { spec: spec.clone(), made: how });
    }
    Ok((arrays, made))
}

/// The user's file for an argument, whole and of the right size.
fn of_user(folder: &Path, index: usize, spec: &ArraySpec) -> Result<Option<PathBuf>, MeasureError> {
    let path = folder.join(format!("{index}.bin"));
    let unreadable = |source| MeasureError::Unreadable { path: path.clone(), source };
    let metadata = match std::fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // a folder that is not there was meant to be
            let folder_is_there = std::fs::metadata(folder).map(|metadata| metadata.is_dir());
            return match folder_is_there {
                Ok(true) => Ok(None),
                Ok(false) => Err(MeasureError::Unreadable {
                    path: folder.to_owned(),
                    source: std::io::ErrorKind::NotADirectory.into(),
                }),
                Err(source) => Err(MeasureError::Unreadable { path: folder.to_owned(), source }),
            };
        }
        Err(error) => return Err(unreadable(error)),
    };
    if !metadata.is_file() {
        return Err(unreadable(std::io::Error::other("not a regular file")));
    }
    if spec.host_bytes() != Some(metadata.len()) {
        let (spec, bytes) = (spec.to_string(), metadata.len());
        return Err(MeasureError::InputSize { path, index, spec, bytes });
    }
    std::path::absolute(&path).map(Some).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_recipe_that_fills_it() {
        let scratch = tempfile::tempdir().unwrap();
        let specs: Vec<ArraySpec> = DType::ALL.iter().map(|&dtype| ArraySpec::new(dtype, [3])).collect();
        let (arrays, made) = make(&specs, None, true, scratch.path()).unwrap();
        assert_eq!((arrays.len(), made.len()), (DType::ALL.len(), DType::ALL.len()));
        for array in &arrays {
            assert!(array.donated);
            assert_eq!(
                std::fs::metadata(&array.path).unwrap().len(),
                array.spec.host_bytes().unwrap(),
                "{}",
                array.spec
            );
        }
        let fill = |dtype| &made[DType::ALL.iter().position(|one| *one == dtype).unwrap()].made;
        assert_eq!(*fill(DType::S32), Made::Fill(Fill::Constant { value: 0.0 }));
        assert_eq!(*fill(DType::Bf16), Made::Fill(Fill::Normal { scale: 1.0 }));
    }

    #[test]
    fn a_file_of_the_users_goes_before_the_recipe() {
        let (scratch, given) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let specs = ["f32[2]", "s32[2]"].map(|spec| spec.parse::<ArraySpec>().unwrap());
        std::fs::write(given.path().join("1.bin"), [7; 8]).unwrap();
        let (arrays, made) = make(&specs, Some(given.path()), false, scratch.path()).unwrap();
        assert_eq!(made[0].made, Made::Fill(Fill::Normal { scale: 1.0 }));
        assert_eq!(
            (&made[1].made, &arrays[1].path),
            (&Made::File(given.path().join("1.bin")), &given.path().join("1.bin"))
        );
        std::fs::write(given.path().join("1.bin"), [7; 9]).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let error = make(&specs, Some(given.path()), false, scratch.path()).unwrap_err();
        assert!(error.is_of_input() && error.to_string().contains("9 bytes are not argument 1, s32[2]"), "{error}");
        let scratch = tempfile::tempdir().unwrap();
        let error = make(&specs, Some(&given.path().join("none")), false, scratch.path()).unwrap_err();
        assert!(error.is_of_input() && error.to_string().contains("cannot be read"), "{error}");
    }
}
