//! A user's options for a program's inputs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::captured::MANIFEST;
use super::error::MeasureError;
use crate::array::{ArraySpec, DType, Fill, MAX_ARRAY_BYTES};
use crate::digest::{Digest, FieldHasher};
use crate::outside_file;
use crate::setters;

/// Maximum length of a fill's text.
const MAX_FILL_CHARS: usize = 4096;

/// How the inputs of a program are made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InputOptions {
    /// Values of single arguments; if several apply to one argument, the last counts.
    pub fills: Vec<ArgumentFill>,
    /// Folder of input files; an argument without one is filled.
    pub folder: Option<PathBuf>,
    /// The seed of the random values: the same seed gives the same bytes on every machine.
    pub seed: u64,
}

setters!(InputOptions { fills: Vec<ArgumentFill>, folder: Option<PathBuf>, seed: u64 });

impl InputOptions {
    /// Digest of everything that determines a program's inputs, except the program; no input is made.
    ///
    /// # Errors
    /// If one of the user's files cannot be read.
    pub fn digest(&self) -> Result<Digest, MeasureError> {
        let mut hasher = FieldHasher::new("how inputs are made, 1");
        hasher.field(&self.seed.to_le_bytes()).field(format!("{:?}", self.fills).as_bytes());
        if let Some(folder) = &self.folder {
            for (name, digest) in files_of(folder)? {
                hasher.field(name.as_bytes()).field(digest.as_bytes());
            }
        }
        Ok(hasher.finish())
    }
}

/// The files of a folder that determine the inputs, each with its digest: a capture's manifest, which contains the
/// digests of the others, or else one file for each argument.
fn files_of(folder: &Path) -> Result<BTreeMap<String, Digest>, MeasureError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| MeasureError::Unreadable { path, source }
    };
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable(folder))? {
        let name = entry.map_err(unreadable(folder))?.file_name().to_string_lossy().into_owned();
        let is_of_argument = name.strip_suffix(".bin").is_some_and(|index| index.parse::<usize>().is_ok());
        if is_of_argument || name == MANIFEST {
            let path = folder.join(&name);
            let file = outside_file::open(&path, MAX_ARRAY_BYTES).map_err(unreadable(&path))?;
            found.insert(name, Digest::of_reader(file).map_err(unreadable(&path))?);
        }
    }
    Ok(match found.remove_entry(MANIFEST) {
        Some(manifest) => BTreeMap::from([manifest]),
        None => found,
    })
}

/// The values of an argument, or of all arguments below a path in the tree.
#[derive(Debug, Clone, PartialEq)]
pub struct ArgumentFill {
    /// The argument: its number from 0, its path such as `params/w`, or the beginning of a path, such as `params`.
    pub argument: String,
    /// Its values.
    pub values: FillValues,
}

/// Kinds of values in the syntax of `--fill`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum FillValues {
    /// Normal values, mean zero: `normal`, or `normal:0.02` with a standard deviation.
    Normal {
        /// Standard deviation.
        scale: f64,
    },
    /// Uniform values from `low` to below `high`: `uniform:0,1e-4`. Also for integers.
    Uniform {
        /// Lower end, included.
        low: f64,
        /// Upper end, excluded.
        high: f64,
    },
    /// One value everywhere: `zeros`, `ones`, `constant:0.5`.
    Constant {
        /// The value.
        value: f64,
    },
}

impl FillValues {
    /// The recipe for an array; the error says what the type cannot hold.
    pub(super) fn fill(self, spec: &ArraySpec) -> Result<Fill, String> {
        let has_fractions = spec.dtype.has_fractions();
        match self {
            Self::Normal { .. } if !has_fractions => {
                Err(format!("{} holds no fractions; `uniform:0,9` fits it", spec.dtype))
            }
            // the end of an integer range is excluded, as that of others
            Self::Uniform { low, high } if !has_fractions => {
                let whole = |value: f64| (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i64);
                match (whole(low), whole(high)) {
                    (Some(low), Some(high)) if low < high => Ok(Fill::IntegerRange { low, high: high - 1 }),
                    _ => Err(format!("`{low},{high}` is not a range of whole numbers, which {} needs", spec.dtype)),
                }
            }
            Self::Normal { scale } => Ok(Fill::Normal { scale }),
            Self::Uniform { low, high } => Ok(Fill::Uniform { low, high }),
            Self::Constant { value } => Ok(Fill::Constant { value }),
        }
    }
}

impl FromStr for FillValues {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            let shown: String = text.chars().take(60).collect();
            format!(
                "`{shown}`: expected `normal`, `normal:SCALE`, `uniform:LOW,HIGH`, `zeros`, `ones` or `constant:VALUE`"
            )
        };
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(wrong);
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        match (kind.trim(), rest) {
            ("normal", None) => Ok(Self::Normal { scale: 1.0 }),
            ("normal", Some(scale)) => {
                let scale = number(scale)?;
                if scale < 0.0 { Err(wrong()) } else { Ok(Self::Normal { scale }) }
            }
            ("uniform", Some(range)) => {
                let (low, high) = range.split_once(',').ok_or_else(wrong)?;
                let (low, high) = (number(low)?, number(high)?);
                if low < high { Ok(Self::Uniform { low, high }) } else { Err(wrong()) }
            }
            ("zeros", None) => Ok(Self::Constant { value: 0.0 }),
            ("ones", None) => Ok(Self::Constant { value: 1.0 }),
            ("constant", Some(value)) => Ok(Self::Constant { value: number(value)? }),
            _ => Err(wrong()),
        }
    }
}

impl FromStr for ArgumentFill {
    type Err = String;

    /// Reads `ARGUMENT=VALUES`; an argument's path may contain `=`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.chars().nth(MAX_FILL_CHARS).is_some() {
            return Err(format!("more than {MAX_FILL_CHARS} characters"));
        }
        let (argument, values) = text.rsplit_once('=').ok_or("expected ARGUMENT=VALUES, such as `params/w=zeros`")?;
        let argument = argument.trim().trim_matches('/');
        if argument.is_empty() {
            return Err("expected an argument before `=`: its path or its number".to_owned());
        }
        Ok(Self { argument: argument.to_owned(), values: values.parse()? })
    }
}

impl fmt::Display for ArgumentFill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.argument)
    }
}

impl ArgumentFill {
    /// Whether it applies to an argument: by number, by path, or by the beginning of the path.
    pub(super) fn names(&self, index: usize, path: &str) -> bool {
        let below = |path: &str| path.strip_prefix(&self.argument).is_some_and(|rest| rest.starts_with('/'));
        self.argument == path || self.argument == index.to_string() || (!path.is_empty() && below(path))
    }
}

/// An argument's default values: normal for types with fractions; any valid index for integers that are known to be
/// indices into so many values; zeros for other integers and booleans, which may be lengths or conditions.
pub(super) fn default_fill(spec: &ArraySpec, index_range: Option<u64>) -> Fill {
    match spec.dtype {
        DType::S32 | DType::S64 | DType::U32 | DType::U64 if index_range.is_some_and(|count| count > 1) => {
            let high = index_range.map_or(0, |count| i64::try_from(count - 1).unwrap_or(0).min(i64::from(i32::MAX)));
            Fill::IntegerRange { low: 0, high }
        }
        dtype if !dtype.has_fractions() => Fill::Constant { value: 0.0 },
        // it is unsigned
        DType::F8E8M0Fnu => Fill::Uniform { low: 0.5, high: 2.0 },
        _ => Fill::Normal { scale: 1.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_are_read_as_they_are_spelled() {
        for (text, argument, values) in [
            ("params/w=normal", "params/w", FillValues::Normal { scale: 1.0 }),
            ("0=normal:0.02", "0", FillValues::Normal { scale: 0.02 }),
            ("/opt/nu/=uniform:0,1e-4", "opt/nu", FillValues::Uniform { low: 0.0, high: 1e-4 }),
            ("a=b=zeros", "a=b", FillValues::Constant { value: 0.0 }),
            ("x=ones", "x", FillValues::Constant { value: 1.0 }),
            ("x=constant:-2", "x", FillValues::Constant { value: -2.0 }),
        ] {
            assert_eq!(text.parse(), Ok(ArgumentFill { argument: argument.to_owned(), values }), "{text}");
        }
        for text in ["x", "=zeros", "x=", "x=zero", "x=uniform:1", "x=uniform:2,1", "x=normal:-1", "x=constant:nan"] {
            assert!(text.parse::<ArgumentFill>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_digest_follows_from_all_that_the_values_follow_from() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let plain = InputOptions::default();
        let of = |options: &InputOptions| options.digest().unwrap();
        let with = plain.clone().folder(Some(folder.path().to_owned()));
        let mut seen =
            vec![of(&plain), of(&plain.clone().seed(1)), of(&plain.clone().fills(vec!["0=ones".parse().unwrap()]))];
        write("0.bin", "a");
        seen.push(of(&with));
        write("0.bin", "b");
        seen.push(of(&with));
        write("1.bin", "b");
        seen.push(of(&with));
        let before = of(&with);
        write("notes.txt", "not read");
        assert_eq!(of(&with), before);
        // the manifest contains the digests of the others
        write("manifest.json", "{}");
        seen.push(of(&with));
        write("0.bin", "c");
        assert_eq!(Some(&of(&with)), seen.last());
        let distinct: std::collections::BTreeSet<String> = seen.iter().map(ToString::to_string).collect();
        assert_eq!(distinct.len(), seen.len());
        let none = plain.folder(Some(folder.path().join("none")));
        assert!(none.digest().unwrap_err().to_string().contains("none`: cannot be read"));
    }

    #[test]
    fn a_type_gets_what_it_holds() {
        let fill = |values: FillValues, spec: &str| values.fill(&spec.parse().unwrap());
        let whole = FillValues::Uniform { low: 0.0, high: 8.0 };
        assert_eq!(fill(whole, "s32[4]"), Ok(Fill::IntegerRange { low: 0, high: 7 }));
        assert_eq!(fill(whole, "bf16[4]"), Ok(Fill::Uniform { low: 0.0, high: 8.0 }));
        assert!(fill(FillValues::Uniform { low: 0.0, high: 0.5 }, "s32[4]").unwrap_err().contains("whole numbers"));
        assert!(fill(FillValues::Normal { scale: 1.0 }, "pred[]").unwrap_err().contains("no fractions"));
    }

    #[test]
    fn an_argument_is_named_by_number_path_or_place_in_the_tree() {
        let named = |argument: &str, index, path| {
            ArgumentFill { argument: argument.to_owned(), values: FillValues::Constant { value: 0.0 } }
                .names(index, path)
        };
        assert!(named("params", 3, "params/w") && named("params/w", 3, "params/w") && named("3", 3, "params/w"));
        assert!(!named("par", 3, "params/w") && !named("params/w/x", 3, "params/w") && !named("2", 3, ""));
    }
}
