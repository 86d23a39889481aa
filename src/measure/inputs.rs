//! Makes inputs from a program's parameters and the user's options.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::captured::Captured;
use super::error::MeasureError;
use super::input_options::{ArgumentFill, InputOptions, default_fill};
use super::preflight::Preflight;
use super::program::{MeasuredProgram, write_file};
use crate::array::{ArraySpec, Fill, MAX_ARRAY_BYTES, argument_seed, generate};
use crate::counted::listed;
use crate::digest::{Digest, FieldHasher};
use crate::outside_file;
use crate::printable::printable;
use crate::timer::InputArray;

/// The source of an input's values.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum InputSource {
    /// A recipe, the same bytes on every machine.
    Fill(Fill),
    /// One of the user's files.
    File(PathBuf),
}

impl InputSource {
    /// The recipe, if it is one.
    pub(crate) fn fill(&self) -> Option<&Fill> {
        match self {
            Self::Fill(fill) => Some(fill),
            Self::File(_) => None,
        }
    }
}

/// A generated input.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MadeInput {
    /// Its path in the tree of arguments; empty if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Whether every run gets a new copy, because the program may overwrite it.
    pub donated: bool,
    /// Element type and dimensions.
    pub spec: ArraySpec,
    /// Its values.
    #[serde(flatten)]
    pub made: InputSource,
}

/// The inputs of a program, written where a worker reads them.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// The arrays, in the program's order.
    pub arrays: Vec<InputArray>,
    /// The source of each.
    pub made: Vec<MadeInput>,
    /// Digest of the contents: types, shapes and every byte.
    pub digest: Digest,
    /// The space needed and available before they were made.
    pub preflight: Preflight,
}

/// Makes the inputs of a program with the compiled parameters `specs`. Each argument has the values that the user
/// requested, the content of the user's file, or default values. Files are written to `scratch`, which must not contain
/// any of their names.
///
/// # Errors
/// If one of the user's files cannot be read or has another size, a type cannot hold the values, a name is not an
/// argument's, the inputs do not fit, or `scratch` cannot be written.
pub fn make_inputs(
    program: &MeasuredProgram,
    specs: &[ArraySpec],
    options: &InputOptions,
    scratch: &Path,
) -> Result<Inputs, MeasureError> {
    check_names(program, specs, options)?;
    let captured = options.folder.as_deref().map(Captured::open).transpose()?.flatten();
    let preflight = preflight(program, specs, options, captured.is_some(), scratch);
    preflight.check(scratch)?;
    tracing::info!("{preflight}");
    let mut hasher = FieldHasher::new("inputs-v1");
    let mut inputs = Inputs { arrays: Vec::new(), made: Vec::new(), digest: hasher.finish(), preflight };
    for (index, spec) in specs.iter().enumerate() {
        let name = format!("argument-{index}");
        let (place, mut donated) = program.argument(index, specs.len());
        let write = |bytes: &[u8]| {
            let path = scratch.join(format!("{name}.bin"));
            write_file(&path, bytes).map(|()| (path, Digest::of(bytes)))
        };
        let wanted = options.fills.iter().rfind(|fill| fill.names(index, place));
        let (path, made, digest) = match (&captured, &options.folder) {
            (Some(captured), _) if wanted.is_none() => {
                let argument = captured.find(index, specs.len(), place)?;
                // if the program overwrites some argument without saying which, the capture decides
                donated &= argument.donated || program.tells_arguments(specs.len());
                let (file, bytes) = captured.read(argument, spec)?;
                let (path, digest) = write(&bytes)?;
                (path, InputSource::File(file), digest)
            }
            (None, Some(folder))
                if wanted.is_none()
                    && let Some((path, digest)) = of_user(folder, index, spec)? =>
            {
                (path.clone(), InputSource::File(path), digest)
            }
            _ => {
                let fill = match wanted {
                    Some(wanted) => wanted
                        .values
                        .fill(spec)
                        .map_err(|reason| MeasureError::Values { argument: wanted.argument.clone(), reason })?,
                    None => default_fill(spec, program.index_range(index, specs.len())),
                };
                let bytes = generate(spec, &fill, seed(&name, index, options.seed))
                    .map_err(|source| MeasureError::Fill { index, source })?;
                let (path, digest) = write(&bytes)?;
                (path, InputSource::Fill(fill), digest)
            }
        };
        hasher.field(spec.to_string().as_bytes()).field(digest.as_bytes());
        let name = if place.is_empty() { name } else { place.to_owned() };
        inputs.arrays.push(InputArray { name, spec: spec.clone(), path, donated });
        inputs.made.push(MadeInput { path: place.to_owned(), donated, spec: spec.clone(), made });
    }
    inputs.digest = hasher.finish();
    inputs.preflight = inputs.preflight.with_donated(&inputs.arrays);
    Ok(inputs)
}

/// The space that the inputs need; a dense file of the user's is not copied.
fn preflight(
    program: &MeasuredProgram,
    specs: &[ArraySpec],
    options: &InputOptions,
    is_captured: bool,
    scratch: &Path,
) -> Preflight {
    let is_written = |index: usize| {
        let path = program.argument(index, specs.len()).0;
        let is_there = |folder: &PathBuf| !is_captured && folder.join(format!("{index}.bin")).exists();
        options.fills.iter().any(|fill| fill.names(index, path)) || !options.folder.as_ref().is_some_and(is_there)
    };
    Preflight::of(specs.iter().enumerate().map(|(index, spec)| (spec, is_written(index))), scratch)
}

fn check_names(program: &MeasuredProgram, specs: &[ArraySpec], options: &InputOptions) -> Result<(), MeasureError> {
    let path = |index| program.argument(index, specs.len()).0;
    let names_none = |fill: &&ArgumentFill| !(0..specs.len()).any(|index| fill.names(index, path(index)));
    match options.fills.iter().find(names_none) {
        Some(fill) => Err(MeasureError::UnknownArgument {
            argument: fill.argument.clone(),
            arguments: printable(&names(program, specs)),
        }),
        None => Ok(()),
    }
}

/// Maximum number of arguments in a message.
fn names(program: &MeasuredProgram, specs: &[ArraySpec]) -> String {
    let name = |(index, spec): (usize, &ArraySpec)| match program.argument(index, specs.len()).0 {
        "" => format!("`{index}` ({spec})"),
        path => format!("`{path}` ({spec})"),
    };
    if specs.is_empty() { "none".to_owned() } else { listed(specs.iter().enumerate().map(name)) }
}

/// With seed 0, an argument has the same values as any argument of this name elsewhere.
fn seed(name: &str, index: usize, seed: u64) -> u64 {
    match seed {
        0 => argument_seed(name, index as u64),
        seed => argument_seed(&format!("{name}, seed {seed}"), index as u64),
    }
}

/// The user's file for an argument, with the digest of its bytes; its size is checked.
fn of_user(folder: &Path, index: usize, spec: &ArraySpec) -> Result<Option<(PathBuf, Digest)>, MeasureError> {
    let path = folder.join(format!("{index}.bin"));
    let unreadable = |source| MeasureError::Unreadable { path: path.clone(), source };
    let file = match outside_file::open(&path, MAX_ARRAY_BYTES) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let bytes = file.metadata().map_err(unreadable)?.len();
    if spec.host_bytes() != Some(bytes) {
        let spec = spec.to_string();
        return Err(MeasureError::InputSize { path, index, spec, bytes });
    }
    let digest = Digest::of_reader(file).map_err(unreadable)?;
    let path = std::path::absolute(&path).map_err(unreadable)?;
    Ok(Some((path, digest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::DType;

    fn program() -> MeasuredProgram {
        MeasuredProgram::of_text("module @m {}")
    }

    fn specs(specs: &[&str]) -> Vec<ArraySpec> {
        specs.iter().map(|spec| spec.parse().unwrap()).collect()
    }

    #[test]
    fn every_type_has_a_recipe_that_fills_it() {
        let scratch = tempfile::tempdir().unwrap();
        let specs: Vec<ArraySpec> = DType::ALL.iter().map(|&dtype| ArraySpec::new(dtype, [3])).collect();
        let inputs = make_inputs(&program(), &specs, &InputOptions::default(), scratch.path()).unwrap();
        assert_eq!((inputs.arrays.len(), inputs.made.len()), (DType::ALL.len(), DType::ALL.len()));
        for array in &inputs.arrays {
            let bytes = std::fs::metadata(&array.path).unwrap().len();
            assert_eq!(bytes, array.spec.host_bytes().unwrap(), "{}", array.spec);
        }
        let fill = |dtype| &inputs.made[DType::ALL.iter().position(|one| *one == dtype).unwrap()].made;
        assert_eq!(*fill(DType::S32), InputSource::Fill(Fill::Constant { value: 0.0 }));
        assert_eq!(*fill(DType::Bf16), InputSource::Fill(Fill::Normal { scale: 1.0 }));
    }

    #[test]
    fn a_file_of_the_users_goes_before_the_recipe() {
        let (scratch, given) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let specs = specs(&["f32[2]", "s32[2]"]);
        std::fs::write(given.path().join("1.bin"), [7; 8]).unwrap();
        let options = InputOptions::default().folder(Some(given.path().to_owned()));
        let inputs = make_inputs(&program(), &specs, &options, scratch.path()).unwrap();
        assert_eq!(inputs.made[0].made, InputSource::Fill(Fill::Normal { scale: 1.0 }));
        let path = given.path().join("1.bin");
        assert_eq!((&inputs.made[1].made, &inputs.arrays[1].path), (&InputSource::File(path.clone()), &path));
        std::fs::write(&path, [7; 9]).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let error = make_inputs(&program(), &specs, &options, scratch.path()).unwrap_err();
        assert!(error.is_of_input() && error.to_string().contains("9 bytes are not argument 1, s32[2]"), "{error}");
        let scratch = tempfile::tempdir().unwrap();
        let options = InputOptions::default().folder(Some(given.path().join("none")));
        let error = make_inputs(&program(), &specs, &options, scratch.path()).unwrap_err();
        assert!(error.is_of_input() && error.to_string().contains("cannot be read"), "{error}");
    }

    #[test]
    fn a_step_is_filled_by_the_names_of_its_arguments() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/inputs/step.mlir");
        let program = MeasuredProgram::open(&path).unwrap();
        let (w, b) = ("f32[4,8]", "f32[4]");
        let specs = specs(&[b, w, b, w, b, w, "s32[]", "s32[5]", "s32[]", "f32[100,8]"]);
        let fills = ["opt/nu=uniform:0,1e-4", "batch/ids=uniform:0,100", "9=ones"].map(|fill| fill.parse().unwrap());
        let options = InputOptions::default().fills(fills.to_vec());
        let scratch = tempfile::tempdir().unwrap();
        let inputs = make_inputs(&program, &specs, &options, scratch.path()).unwrap();
        let small = InputSource::Fill(Fill::Uniform { low: 0.0, high: 1e-4 });
        let of = |made: InputSource| -> Vec<&str> {
            inputs.made.iter().filter(|input| input.made == made).map(|one| one.path.as_str()).collect()
        };
        assert_eq!(of(small), ["opt/nu/b", "opt/nu/w"]);
        assert_eq!(of(InputSource::Fill(Fill::IntegerRange { low: 0, high: 99 })), ["batch/ids"]);
        assert_eq!(of(InputSource::Fill(Fill::Constant { value: 1.0 })), ["table"]);
        let donated: Vec<bool> = inputs.arrays.iter().map(|input| input.donated).collect();
        assert_eq!(donated, [true, true, true, true, true, true, true, false, false, false]);
        let unknown = InputOptions::default().fills(vec!["opt/v=zeros".parse().unwrap()]);
        let error = make_inputs(&program, &specs, &unknown, scratch.path()).unwrap_err().to_string();
        assert!(
            error.contains("no argument has the name `opt/v`") && error.contains("`opt/nu/w` (f32[4,8])"),
            "{error}"
        );
    }

    #[test]
    fn the_digest_is_of_what_they_hold() {
        let made = |specs: &[ArraySpec], options: &InputOptions| {
            let scratch = tempfile::tempdir().unwrap();
            make_inputs(&program(), specs, options, scratch.path())
        };
        let (specs, given) = (specs(&["f32[2]", "s32[2]"]), tempfile::tempdir().unwrap());
        let options = InputOptions::default();
        let plain = made(&specs, &options).unwrap().digest;
        assert_eq!(made(&specs, &options).unwrap().digest, plain);
        assert_ne!(made(&specs, &options.clone().seed(1)).unwrap().digest, plain);
        // a recipe's values, from a file
        std::fs::write(given.path().join("1.bin"), [0; 8]).unwrap();
        let of_file = options.clone().folder(Some(given.path().to_owned()));
        assert_eq!(made(&specs, &of_file).unwrap().digest, plain);
        let ones = options.clone().fills(vec!["1=ones".parse().unwrap()]);
        assert_ne!(made(&specs, &ones).unwrap().digest, plain);
        assert_eq!(made(&specs, &ones).unwrap().made[1].made, InputSource::Fill(Fill::Constant { value: 1.0 }));
        let wrong = options.clone().fills(vec!["1=normal".parse().unwrap()]);
        assert!(made(&specs, &wrong).unwrap_err().to_string().contains("`1`: s32 holds no fractions"));
        let unknown = options.fills(vec!["2=ones".parse().unwrap()]);
        let error = made(&specs, &unknown).unwrap_err();
        assert!(error.is_of_input() && error.to_string().contains("`0` (f32[2]), `1` (s32[2])"), "{error}");
    }
}
