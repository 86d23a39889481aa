//! The lowest tier: best configs shipped as files, one per device kind and operation.
//!
//! A seed file is JSON:
//!
//! ```text
//! {"schema":1, "op_id":"flash_attention@v2",
//!  "device":{"platform":"cuda","device_kind":"NVIDIA H200","hardware":{…}},
//!  "entries":[{"call_key":"fecadd86b926e7e8","direction":"forward","config":{…},"provenance":{…}},…]}
//! ```
//!
//! `provenance` is optional. Files are in any depth below the folder and end in `.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::error::StoreError;
use super::key::{CacheKey, KeyRef, by_key};
use super::store::{ConfigStore, Tier};
use crate::call::{Call, Direction};
use crate::device::DeviceIdentity;
use crate::digest::Digest;
use crate::outside_file;
use crate::whole_file::write_whole;

const SCHEMA: u32 = 1;
const MAX_FILE_BYTES: u64 = 64 << 20;
const MAX_DEPTH: usize = 4;

/// Entries read once from shipped files; never written.
#[derive(Debug, Default)]
pub struct SeedStore {
    entries: BTreeMap<CacheKey, Arc<Entry>>,
}

/// A seed file that was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeedProblem {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

#[derive(Serialize, Deserialize)]
struct SeedFile {
    schema: u32,
    op_id: String,
    device: DeviceIdentity,
    entries: Vec<SeedEntry>,
}

#[derive(Serialize, Deserialize)]
struct SeedEntry {
    call_key: String,
    direction: Direction,
    #[serde(flatten)]
    entry: Entry,
}

/// The seed files of the `cache/` folder of this repository, as they were when the program was built.
const SHIPPED: &[(&str, &str)] = &[
    (
        "cpu-b7cb8a2d2884237c/blocked_matmul_v1.json",
        include_str!("../../cache/cpu-b7cb8a2d2884237c/blocked_matmul_v1.json"),
    ),
    (
        "cpu-b7cb8a2d2884237c/chunked_cross_entropy_v1.json",
        include_str!("../../cache/cpu-b7cb8a2d2884237c/chunked_cross_entropy_v1.json"),
    ),
    (
        "cpu-b7cb8a2d2884237c/flash_attention_v2.json",
        include_str!("../../cache/cpu-b7cb8a2d2884237c/flash_attention_v2.json"),
    ),
];

/// Writes entries as seed files below a folder, `<device>/<operation>.json`, in the keys' order; existing entries of
/// other calls are kept. If two operations would share a file name, the name includes the operation's digest. Returns
/// the files.
///
/// # Errors
/// If a file cannot be read or written, or holds something else.
pub fn write_seeds(folder: &Path, entries: &[(CacheKey, Arc<Entry>)]) -> Result<Vec<PathBuf>, StoreError> {
    let mut files: BTreeMap<PathBuf, SeedFile> = BTreeMap::new();
    for (key, entry) in entries {
        let device = format!("{}-{}", slug(&key.device.device_kind), key.device.to_digest().to_short());
        let mut path = folder.join(&device).join(format!("{}.json", slug(&key.call.op_id)));
        let is_anothers = |op_id: &str| op_id != key.call.op_id;
        if files.get(&path).is_some_and(|file| is_anothers(&file.op_id))
            || read_op_id(&path).is_some_and(|op| is_anothers(&op))
        {
            let digest = Digest::of(key.call.op_id.as_bytes()).to_short();
            path = folder.join(device).join(format!("{}-{digest}.json", slug(&key.call.op_id)));
        }
        let file = files.entry(path).or_insert_with(|| SeedFile {
            schema: SCHEMA,
            op_id: key.call.op_id.clone(),
            device: key.device.clone(),
            entries: Vec::new(),
        });
        let (call_key, direction) = (key.call.call_key.clone(), key.direction);
        // only decisions in force are shipped, not superseded ones
        let entry = Entry { superseded: Vec::new(), ..Entry::clone(entry) };
        file.entries.push(SeedEntry { call_key, direction, entry });
    }
    for (path, file) in &mut files {
        keep_others(path, file)?;
        write_file(path, file).map_err(StoreError::io("write", path))?;
    }
    Ok(files.into_keys().collect())
}

/// The operation of an existing seed file.
fn read_op_id(path: &Path) -> Option<String> {
    serde_json::from_str::<SeedFile>(&read_text(path).ok()?).ok().map(|file| file.op_id)
}

/// The text of a seed file.
fn read_text(path: &Path) -> io::Result<String> {
    outside_file::text(path, MAX_FILE_BYTES)
}

/// Keeps the entries of an existing file, except for the calls that are written again.
fn keep_others(path: &Path, file: &mut SeedFile) -> Result<(), StoreError> {
    let text = match read_text(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        other => other.map_err(StoreError::io("read", path))?,
    };
    if !text.is_empty() {
        let damaged = |what: String| StoreError::damaged(path, what);
        let old: SeedFile = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if (old.schema, &old.op_id, &old.device) != (SCHEMA, &file.op_id, &file.device) {
            return Err(damaged("it is of another operation, device or schema".to_owned()));
        }
        let call = |entry: &SeedEntry| (entry.call_key.clone(), entry.direction);
        let new: BTreeSet<_> = file.entries.iter().map(call).collect();
        file.entries.extend(old.entries.into_iter().filter(|entry| !new.contains(&call(entry))));
        file.entries.sort_by_key(call);
    }
    Ok(())
}

fn write_file(path: &Path, file: &SeedFile) -> std::io::Result<()> {
    let mut text = serde_json::to_vec_pretty(file)?;
    text.push(b'\n');
    write_whole(path, |out| out.write_all(&text))
}

/// Lower case, anything but letters and digits as `_`: a name for files on every system.
fn slug(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

impl SeedStore {
    /// The files that are shipped with the program.
    pub fn shipped() -> Self {
        let mut store = Self::default();
        for (name, text) in SHIPPED {
            if let Err(reason) = store.add_text(text) {
                // a test reads every shipped file; this covers a build from a broken tree
                tracing::warn!("shipped seed file `{name}`: {reason}");
            }
        }
        store
    }

    /// Reads every seed file below a folder; files that cannot be read are skipped and reported.
    pub fn read_folder(folder: &Path) -> (Self, Vec<SeedProblem>) {
        let (mut store, mut problems) = (Self::default(), Vec::new());
        let mut folders = vec![(folder.to_owned(), 0)];
        while let Some((next, depth)) = folders.pop() {
            let mut problem = |reason: String| problems.push(SeedProblem { path: next.clone(), reason });
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
                } else if path.extension().is_some_and(|extension| extension == "json")
                    && let Err(reason) = store.read_file(&path)
                {
                    problems.push(SeedProblem { path, reason });
                }
            }
        }
        (store, problems)
    }

    fn read_file(&mut self, path: &Path) -> Result<(), String> {
        self.add_text(&read_text(path).map_err(|error| error.to_string())?)
    }

    /// Adds the entries of one seed file's text.
    ///
    /// # Errors
    /// If it is not a seed file, or one of a later program: the reason.
    pub fn add_text(&mut self, text: &str) -> Result<(), String> {
        let file: SeedFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if file.schema != SCHEMA {
            return Err(format!("schema {} is not {SCHEMA}", file.schema));
        }
        for SeedEntry { call_key, direction, entry } in file.entries {
            let key = CacheKey { call: Call::new(&file.op_id, call_key), direction, device: file.device.clone() };
            self.entries.insert(key, Arc::new(entry));
        }
        Ok(())
    }
}

impl ConfigStore for SeedStore {
    fn tier(&self) -> Tier {
        Tier::Seed
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
        // the second and the third have the same letters and digits
        let entries =
            [pair("A.b@v1", "k1", 4), pair("a.b@v1", "k1", 1), pair("a@b@v1", "k2", 2), pair("b@v1", "k1", 3)];
        let files = write_seeds(folder.path(), &entries).unwrap();
        assert_eq!(files.len(), 4);
        let (store, problems) = SeedStore::read_folder(folder.path());
        assert_eq!((store.entries().unwrap().as_slice(), problems.len()), (&entries[..], 0));
        // another machine of the same kind adds a call and tunes one again
        write_seeds(folder.path(), &[pair("b@v1", "k2", 9), pair("b@v1", "k1", 5), pair("A.b@v1", "k1", 6)]).unwrap();
        let (store, problems) = SeedStore::read_folder(folder.path());
        assert_eq!(problems, []);
        let block = |op: &str, key: &str| store.get(pair(op, key, 0).0.parts()).unwrap().unwrap().config.to_brief();
        assert_eq!(store.entries().unwrap().len(), entries.len() + 1);
        assert_eq!((block("b@v1", "k1"), block("b@v1", "k2")), ("block=5".into(), "block=9".into()));
        assert_eq!((block("A.b@v1", "k1"), block("a.b@v1", "k1")), ("block=6".into(), "block=1".into()));
    }

    #[test]
    fn every_file_of_the_shipped_folder_is_built_in() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cache");
        let (on_disk, problems) = SeedStore::read_folder(&root);
        assert_eq!(problems, []);
        assert_eq!(SeedStore::shipped().entries().unwrap(), on_disk.entries().unwrap());
    }

    #[test]
    fn reads_what_the_module_documents_and_reports_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let sub = folder.path().join("nvidia_h200");
        fs::create_dir(&sub).unwrap();
        let text = r#"{"schema":1,"op_id":"flash_attention@v2","device":{"platform":"cuda","device_kind":"NVIDIA H200"},
            "entries":[{"call_key":"fecadd86b926e7e8","direction":"forward","config":{"block_q":128}}]}"#;
        fs::write(sub.join("flash_attention.json"), text).unwrap();
        fs::write(sub.join("newer.json"), text.replace("\"schema\":1", "\"schema\":2")).unwrap();
        fs::write(sub.join("torn.json"), &text[..40]).unwrap();
        let (store, problems) = SeedStore::read_folder(folder.path());
        let found = store.of_call("flash_attention@v2", "fecadd86b926e7e8").unwrap();
        assert_eq!(found[0].1.config.as_str(), r#"{"block_q":128}"#);
        assert_eq!(problems.len(), 2);
        assert!(store.put(&found[0].0, &found[0].1).is_err());
    }
}
