//! Tokamax's names of operations and devices.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

#[derive(Deserialize)]
struct Table {
    tokamax: String,
    classes: BTreeMap<String, String>,
}

static TABLE: LazyLock<Option<Table>> = LazyLock::new(|| serde_json::from_str(include_str!("tokamax.json")).ok());

/// The class path of the operation that a database file is named after.
pub(super) fn class_of(file_stem: &str) -> Option<&'static str> {
    TABLE.as_ref()?.classes.get(file_stem).map(String::as_str)
}

/// The version of Tokamax whose classes are known.
pub(super) fn version() -> &'static str {
    TABLE.as_ref().map_or("", |table| table.tokamax.as_str())
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
        let table = TABLE.as_ref().unwrap();
        assert!(table.classes.len() > 20);
        for (stem, class) in &table.classes {
            assert_eq!(file_stem_of(class).as_deref(), Some(stem.as_str()));
            assert_eq!(class_of(stem), Some(class.as_str()));
        }
        assert_eq!(file_stem_of("a.b/../C"), None);
        assert_eq!(file_stem_of("a."), None);
        assert_eq!(folder_of("NVIDIA H100 80GB HBM3").as_deref(), Some("nvidia_h100_80gb_hbm3"));
        assert_eq!(folder_of("../x"), None);
    }
}
