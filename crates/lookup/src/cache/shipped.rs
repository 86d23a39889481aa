//! The lowest tier: best configs that are shipped as files, one per device kind and operation.
//!
//! A file holds [entries as JSON](super::json), one per line in a `.jsonl` file; files are in any depth below the
//! folder.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::entry::Entry;
use super::error::StoreError;
use super::json::{JsonForm, read_entries, write_entries};
use super::key::{CacheKey, KeyRef, by_key};
use super::option_policy::refuse;
use super::store::{ConfigStore, Tier};
use crate::atomic_write::write_atomic;
use crate::outside_file;

const MAX_FILE_BYTES: u64 = 64 << 20;
const MAX_DEPTH: usize = 4;

/// Entries read once from shipped files; never written.
#[derive(Debug, Default)]
pub struct ShippedConfigs {
    entries: BTreeMap<CacheKey, Arc<Entry>>,
}

/// A file of shipped configs that was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkippedFile {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// The files of the `cache/` folder of this repository, as they were when the program was built.
const SHIPPED: &[(&str, &str)] = &[
    (
        "cpu-b7cb8a2d2884237c/blocked_matmul_v1.jsonl",
        include_str!("../../cache/cpu-b7cb8a2d2884237c/blocked_matmul_v1.jsonl"),
    ),
    (
        "cpu-b7cb8a2d2884237c/chunked_cross_entropy_v1.jsonl",
        include_str!("../../cache/cpu-b7cb8a2d2884237c/chunked_cross_entropy_v1.jsonl"),
    ),
    (
        "cpu-b7cb8a2d2884237c/flash_attention_v2.jsonl",
        include_str!("../../cache/cpu-b7cb8a2d2884237c/flash_attention_v2.jsonl"),
    ),
];

/// Writes entries below a folder, `<device>/<operation>.jsonl`, in the keys' order; existing entries of other calls are
/// kept. Operations whose names differ in neither letters nor digits share a file. Returns the files.
///
/// # Errors
/// If a file cannot be read or written, or holds something else; and if an entry sets what no entry may.
pub fn write_shipped(folder: &Path, entries: &[(CacheKey, Arc<Entry>)]) -> Result<Vec<PathBuf>, StoreError> {
    let mut files: BTreeMap<PathBuf, ShippedConfigs> = BTreeMap::new();
    for (key, entry) in entries {
        refuse(key.parts(), &entry.config)?;
        let device = format!("{}-{}", slug(&key.device.device_kind), key.device.to_digest().to_short());
        let path = folder.join(device).join(format!("{}.jsonl", slug(&key.call.op_id)));
        let file = match files.entry(path) {
            Occupied(file) => file.into_mut(),
            Vacant(place) => {
                let known = ShippedConfigs::of_file(place.key())?;
                place.insert(known)
            }
        };
        // only decisions in force are shipped, not superseded ones
        let entry = Entry { superseded: Vec::new(), ..Entry::clone(entry) };
        file.entries.insert(key.clone(), Arc::new(entry));
    }
    for (path, file) in &files {
        let entries = file.entries()?;
        write_atomic(path, |out| write_entries(JsonForm::Lines, &entries, out))
            .map_err(StoreError::io("write", path))?;
    }
    Ok(files.into_keys().collect())
}

/// Lower case, anything but letters and digits as `_`: a name for files on every system.
fn slug(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

impl ShippedConfigs {
    /// Those that are shipped with the program.
    pub fn built_in() -> Self {
        let mut store = Self::default();
        for (name, text) in SHIPPED {
            if let Err(reason) = store.add(JsonForm::Lines, text) {
                // a test reads every shipped file; this covers a build from a broken tree
                tracing::warn!("shipped file `{name}`: {reason}");
            }
        }
        store
    }

    /// Reads every `.jsonl` and `.json` file below a folder; files that cannot be read are skipped and reported.
    pub fn read_folder(folder: &Path) -> (Self, Vec<SkippedFile>) {
        let (mut store, mut problems) = (Self::default(), Vec::new());
        let mut folders = vec![(folder.to_owned(), 0)];
        while let Some((next, depth)) = folders.pop() {
            let mut problem = |reason: String| problems.push(SkippedFile { path: next.clone(), reason });
            let items = match fs::read_dir(&next) {
                Ok(items) => items,
                Err(error) => {
                    problem(error.to_string());
                    continue;
                }
            };
            for path in items.flatten().map(|item| item.path()) {
                if path.is_dir() && depth < MAX_DEPTH {
                    folders.push((path, depth + 1));
                } else if path.extension().is_some_and(|extension| extension == "jsonl" || extension == "json")
                    && let Err(reason) = store.add_file(&path)
                {
                    problems.push(SkippedFile { path, reason });
                }
            }
        }
        (store, problems)
    }

    fn add_file(&mut self, path: &Path) -> Result<(), String> {
        let text = outside_file::text(path, MAX_FILE_BYTES).map_err(|error| error.to_string())?;
        self.add(JsonForm::of(path), &text)
    }

    /// The entries of a file; none if there is no file.
    fn of_file(path: &Path) -> Result<Self, StoreError> {
        let mut store = Self::default();
        match outside_file::text(path, MAX_FILE_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(StoreError::io("read", path)(error)),
            Ok(text) => store.add(JsonForm::Lines, &text).map_err(|what| StoreError::damaged(path, what))?,
        }
        Ok(store)
    }

    /// Adds the entries of one file's text.
    ///
    /// # Errors
    /// If it holds something else: the reason; then none is added.
    pub fn add(&mut self, form: JsonForm, text: &str) -> Result<(), String> {
        self.entries.extend(read_entries(form, text)?);
        Ok(())
    }
}

impl ConfigStore for ShippedConfigs {
    fn tier(&self) -> Tier {
        Tier::Shipped
    }

    fn get(&self, key: KeyRef<'_>) -> Result<Option<Arc<Entry>>, StoreError> {
        Ok(by_key(&self.entries, key).cloned())
    }

    fn of_call(&self, op_id: &str, call_key: &str) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        let pairs = self.entries.iter().filter(|(key, _)| key.is_of_call(op_id, call_key));
        Ok(pairs.map(|(key, entry)| (key.clone(), Arc::clone(entry))).collect())
    }

    fn entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        Ok(self.entries.iter().map(|(key, entry)| (key.clone(), Arc::clone(entry))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Call, Direction};
    use crate::device::DeviceIdentity;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let device =
            DeviceIdentity { platform: "cuda".into(), device_kind: "NVIDIA H200".into(), hardware: BTreeMap::new() };
        let pair = |op: &str, key: &str, block: u32| {
            let config = serde_json::from_str(&format!(r#"{{"block":{block}}}"#)).unwrap();
            let key = CacheKey { call: Call::new(op, key), direction: Direction::ForwardVjp, device: device.clone() };
            (key, Arc::new(Entry::new(config)))
        };
        // three have the same letters and digits
        let entries =
            [pair("A.b@v1", "k1", 4), pair("a.b@v1", "k1", 1), pair("a@b@v1", "k2", 2), pair("b@v1", "k1", 3)];
        let files = write_shipped(folder.path(), &entries).unwrap();
        assert_eq!(files.len(), 2);
        let (store, problems) = ShippedConfigs::read_folder(folder.path());
        assert_eq!((store.entries().unwrap().as_slice(), problems.len()), (&entries[..], 0));
        // another machine of the same kind adds a call and tunes one again
        write_shipped(folder.path(), &[pair("b@v1", "k2", 9), pair("b@v1", "k1", 5), pair("A.b@v1", "k1", 6)]).unwrap();
        let (store, problems) = ShippedConfigs::read_folder(folder.path());
        assert_eq!(problems, []);
        let block = |op: &str, key: &str| store.get(pair(op, key, 0).0.parts()).unwrap().unwrap().config.to_brief();
        assert_eq!(store.entries().unwrap().len(), entries.len() + 1);
        assert_eq!((block("b@v1", "k1"), block("b@v1", "k2")), ("block=5".into(), "block=9".into()));
        assert_eq!((block("A.b@v1", "k1"), block("a.b@v1", "k1")), ("block=6".into(), "block=1".into()));
    }

    #[test]
    fn every_file_of_the_shipped_folder_is_built_in() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cache");
        let (on_disk, problems) = ShippedConfigs::read_folder(&root);
        assert_eq!(problems, []);
        let entries = on_disk.entries().unwrap();
        assert_eq!(ShippedConfigs::built_in().entries().unwrap(), entries);
        // and is as `cache shipped` writes it
        let again = tempfile::tempdir().unwrap();
        for path in write_shipped(again.path(), &entries).unwrap() {
            let shipped = root.join(path.strip_prefix(again.path()).unwrap());
            assert_eq!(fs::read_to_string(&path).unwrap(), fs::read_to_string(shipped).unwrap());
        }
    }

    #[test]
    fn a_folder_is_read_and_what_cannot_be_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let sub = folder.path().join("nvidia_h200");
        fs::create_dir(&sub).unwrap();
        let line = r#"{"device":"cuda:NVIDIA H200","op_id":"flash_attention@v2","call_key":"fecadd86b926e7e8",
            "config":{"block_q":128}}"#;
        fs::write(sub.join("flash_attention.jsonl"), line.replace('\n', "")).unwrap();
        fs::write(sub.join("newer.json"), "{\"schema\":2,\"entries\":[]}").unwrap();
        fs::write(sub.join("torn.jsonl"), &line[..40]).unwrap();
        let (store, problems) = ShippedConfigs::read_folder(folder.path());
        let found = store.of_call("flash_attention@v2", "fecadd86b926e7e8").unwrap();
        assert_eq!(found[0].1.config.as_str(), r#"{"block_q":128}"#);
        assert_eq!(problems.len(), 2);
        assert!(store.put(&found[0].0, &found[0].1).is_err());
    }
}
