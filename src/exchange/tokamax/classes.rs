//! Tokamax's names of operations and devices.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;

use super::format::MAX_FILE_BYTES;
use crate::exchange::ExchangeError;
use crate::exchange::file::io_error;
use crate::outside_file;

/// The operations of one version of Tokamax, or of several: which class each database is named after.
#[derive(Debug, Default, Deserialize)]
pub struct TokamaxOperations {
    /// The newest version of Tokamax in it.
    pub(super) tokamax: String,
    classes: BTreeMap<String, String>,
}

static SHIPPED: LazyLock<TokamaxOperations> =
    LazyLock::new(|| serde_json::from_str(include_str!("tokamax.json")).unwrap_or_default());

impl TokamaxOperations {
    /// Reads what `python -m autotune_lowered.tokamax_operations` printed of an installed Tokamax.
    ///
    /// # Errors
    /// If the file cannot be read or is something else.
    pub fn read(path: &Path) -> Result<Self, ExchangeError> {
        let wrong = |what: String| ExchangeError::NotOperations { path: path.to_owned(), what };
        let text = outside_file::bytes(path, MAX_FILE_BYTES).map_err(io_error("read", path))?;
        let read: Self = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        let misfit = |(stem, class): &(&String, &String)| file_stem_of(class).as_ref() != Some(stem);
        match read.classes.iter().find(misfit) {
            Some((stem, class)) => Err(wrong(format!("no database of the class {class:?} is called {stem:?}"))),
            None => Ok(read),
        }
    }

    /// Those that this program knows.
    pub(super) fn shipped() -> &'static Self {
        &SHIPPED
    }

    /// The class path of the operation that a database file is named after.
    pub(super) fn class_of(&self, file_stem: &str) -> Option<&str> {
        self.classes.get(file_stem).map(String::as_str)
    }
}

/// Whether a text can be the name of an operation's database: a class in snake case.
pub(super) fn is_file_stem(text: &str) -> bool {
    !text.contains('.') && file_stem_of(text).as_deref() == Some(text)
}

/// Whether an operation is known by the path of its class, which Tokamax imports, or by its database's name alone.
pub(super) fn is_class_path(op_id: &str) -> bool {
    op_id.contains('.')
}

/// The name of a class path's database file, without extension; `None` if the class is not a plain name.
pub(super) fn file_stem_of(class_path: &str) -> Option<String> {
    let class = class_path.rsplit('.').next()?;
    let is_plain = class.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if class.is_empty() || !is_plain {
        return None;
    }
    let mut stem = String::with_capacity(class.len() + 8);
    for (index, letter) in class.chars().enumerate() {
        if letter.is_ascii_uppercase() && index > 0 {
            stem.push('_');
        }
        stem.push(letter.to_ascii_lowercase());
    }
    Some(stem)
}

/// The name of a device kind's folder; `None` if it cannot be one.
pub(super) fn folder_of(device_kind: &str) -> Option<String> {
    let folder = device_kind.to_lowercase().replace(' ', "_");
    let is_plain = !folder.is_empty() && !folder.starts_with('.') && !folder.contains(['/', '\\', '\0']);
    is_plain.then_some(folder)
}

/// The platform of a device kind, as far as its name shows.
pub(super) fn platform_of(device_kind: &str) -> &'static str {
    let kind = device_kind.to_lowercase();
    match () {
        () if kind.starts_with("nvidia") => "cuda",
        () if kind.starts_with("tpu") => "tpu",
        () if kind.starts_with("amd") || kind.starts_with("gfx") || kind.contains("instinct") => "rocm",
        () if kind.starts_with("cpu") => "cpu",
        () => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_found_by_its_own_file_name() {
        let shipped = TokamaxOperations::shipped();
        assert!(shipped.classes.len() > 100 && !shipped.tokamax.is_empty());
        for (stem, class) in &shipped.classes {
            assert_eq!(file_stem_of(class).as_deref(), Some(stem.as_str()));
            assert!(is_file_stem(stem) && is_class_path(class), "{class}");
        }
        assert!(!is_file_stem("") && !is_file_stem("RaggedDot") && !is_file_stem("ragged dot"));
        assert_eq!(file_stem_of("a.b/../C"), None);
        assert_eq!(file_stem_of("a."), None);
        assert_eq!(folder_of("NVIDIA H100 80GB HBM3").as_deref(), Some("nvidia_h100_80gb_hbm3"));
        assert_eq!(folder_of("../x"), None);
    }
}
