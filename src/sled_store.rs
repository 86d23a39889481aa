//! The persistent tier: a sled database whose folder is trusted only byte for byte.

mod folder;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use crate::cache::{CacheKey, ConfigStore, Entry, KeyRef, StoreError, Tier, text_of};
use crate::clock::check_clock;
use crate::digest::SetDigest;
use crate::io_hint::io_hint;

use folder::{FOLDER, NotedState, check_state, digest_of_folder, set_aside, wait_until_released, write_state};

pub use folder::SledState;

const TREE: &str = "entries-v1";

/// How long sled may take to open its folder, besides a second a mebibyte. On pages that name each other in a circle,
/// it never ends.
const OPENING: Duration = Duration::from_secs(20);
/// The thread that opens it.
pub const SLED_OPENER: &str = "open-sled";

fn database_error(action: &'static str, path: &Path, source: sled::Error) -> StoreError {
    let next = match &source {
        sled::Error::Io(error) if !io_hint(error).is_empty() => io_hint(error),
        _ => "; `autotune-lowered cache rebuild` makes it again from the sample log",
    };
    StoreError::database(action, path, source, next)
}

/// The state in which the folder was found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SledCondition {
    /// It did not exist.
    New,
    /// Its bytes are those that the last close left.
    Clean,
    /// The last process did not close it; its content is dropped and rebuilt from the sample log.
    Unclean,
    /// It is damaged or not ours; it was renamed, and an empty one replaces it.
    SetAside {
        /// What is wrong.
        reason: String,
        /// Where it is now.
        moved_to: PathBuf,
    },
}

/// The sled database of a cache folder. The caller holds the folder's [lock](crate::cache::FolderLock).
#[derive(Debug)]
pub struct SledStore {
    root: PathBuf,
    // `None` once closed
    open: Option<(sled::Db, sled::Tree)>,
    content: Mutex<SetDigest>,
    log_bytes: Arc<AtomicU64>,
    noted_log_bytes: Option<u64>,
}

impl SledStore {
    /// Opens the database of a cache folder; one that cannot be trusted is replaced by an empty one, and the condition
    /// says so. With `keep_unclean`, one that was not closed is set aside instead of dropped, in case the sample log
    /// cannot restore its entries.
    ///
    /// # Errors
    /// If it cannot be read or written; damage is not an error.
    pub fn open(root: &Path, keep_unclean: bool) -> Result<(Self, SledCondition), StoreError> {
        let folder = root.join(FOLDER);
        // sled names a temporary folder by the time, whether or not it uses one, and panics if that is before 1970
        check_clock().and_then(|()| check_threads()).map_err(StoreError::io("open the sled cache", &folder))?;
        let mut noted_log_bytes = None;
        let condition = match fs::symlink_metadata(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => SledCondition::New,
            Err(error) => return Err(StoreError::io("look at", &folder)(error)),
            Ok(_) => match check_state(root, &folder) {
                NotedState::Clean(log_bytes) => {
                    noted_log_bytes = log_bytes;
                    SledCondition::Clean
                }
                NotedState::Unclean if keep_unclean => {
                    let moved_to = set_aside(root, &folder)?;
                    SledCondition::SetAside { reason: "it was not closed".to_owned(), moved_to }
                }
                NotedState::Unclean => {
                    fs::remove_dir_all(&folder).map_err(StoreError::io("remove", &folder))?;
                    SledCondition::Unclean
                }
                NotedState::Wrong(reason) => {
                    let moved_to = set_aside(root, &folder)?;
                    SledCondition::SetAside { reason, moved_to }
                }
            },
        };
        let reason = match Self::open_trusted(root) {
            Ok(mut store) => {
                store.noted_log_bytes = noted_log_bytes;
                return Ok((store, condition));
            }
            // sled rejects its own folder, or returns what was never stored: the log still has everything
            Err(error) if condition == SledCondition::Clean && error.is_of_content() => error.reason(),
            Err(error) => return Err(error),
        };
        let moved_to = set_aside(root, &folder)?;
        Ok((Self::open_trusted(root)?, SledCondition::SetAside { reason, moved_to }))
    }

    /// Sets the present database aside and opens an empty one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn replace(self, reason: &str) -> Result<(Self, SledCondition), StoreError> {
        let root = self.root.clone();
        drop(self);
        let moved_to = set_aside(&root, &root.join(FOLDER))?;
        let (store, _) = Self::open(&root, true)?;
        Ok((store, SledCondition::SetAside { reason: reason.to_owned(), moved_to }))
    }

    /// Opens a folder whose bytes are those of the last close, within a limit of time. If that is exceeded, sled's loop
    /// goes on in its thread until the process ends.
    fn open_trusted(root: &Path) -> Result<Self, StoreError> {
        let bytes = fs::metadata(root.join(FOLDER).join("db")).map_or(0, |database| database.len());
        Self::open_within(root, OPENING + Duration::from_secs(bytes >> 20))
    }

    fn open_within(root: &Path, limit: Duration) -> Result<Self, StoreError> {
        let error = |source| StoreError::io("open", &root.join(FOLDER))(source);
        let (answer, opened) = mpsc::channel();
        let own_root = root.to_owned();
        let open = move || answer.send(Self::open_here(&own_root)).unwrap_or_default();
        std::thread::Builder::new().name(SLED_OPENER.to_owned()).spawn(open).map_err(error)?;
        opened.recv_timeout(limit).unwrap_or_else(|_| {
            let what = "sled does not come to an end with it; run again, and it is made anew from the sample log";
            Err(error(io::Error::new(io::ErrorKind::TimedOut, what)))
        })
    }

    fn open_here(root: &Path) -> Result<Self, StoreError> {
        let folder = root.join(FOLDER);
        write_state(root, "open\n")?;
        let sled_error = |source| database_error("open", &folder, source);
        guarded(&folder, || {
            // every write is flushed explicitly: a background flusher would only wake an idle process
            let db = sled::Config::new().path(&folder).flush_every_ms(None).open().map_err(sled_error)?;
            let tree = db.open_tree(TREE).map_err(sled_error)?;
            let mut content = SetDigest::default();
            for pair in &tree {
                let (key, value) = pair.map_err(sled_error)?;
                content.insert(&key, decode(&folder, &key, &value)?);
            }
            Ok(Self {
                root: root.to_owned(),
                open: Some((db, tree)),
                content: Mutex::new(content),
                log_bytes: Arc::default(),
                noted_log_bytes: None,
            })
        })
    }

    /// The length of the sample log when the database was closed, if recorded.
    pub fn noted_log_bytes(&self) -> Option<u64> {
        self.noted_log_bytes
    }

    /// Where to put the length of the sample log, which is recorded when the database is closed; zero records none.
    pub fn log_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.log_bytes)
    }

    /// Count and digest of the entries, to compare with those that the sample log states.
    pub fn content(&self) -> SetDigest {
        *self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores pairs of [`CacheKey::to_text`] and [`Entry::to_text`] and flushes once.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put_texts<'a>(&self, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), StoreError> {
        let (db, tree) = self.parts()?;
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        guarded(&self.folder(), || {
            for (key, value) in pairs {
                let old = tree.insert(key, encode(key.as_bytes(), value.as_bytes())).map_err(self.error("write to"))?;
                if let Some(old) = old {
                    content.remove(key.as_bytes(), old.get(4..).unwrap_or_default());
                }
                content.insert(key.as_bytes(), value.as_bytes());
            }
            db.flush().map_err(self.error("flush")).map(drop)
        })
    }

    /// Every pair of [`CacheKey::to_text`] and [`Entry::to_text`].
    ///
    /// # Errors
    /// If it cannot be read, or a value is damaged.
    pub fn texts(&self) -> Result<Vec<(String, String)>, StoreError> {
        let (_, tree) = self.parts()?;
        let mut pairs = Vec::new();
        for pair in tree {
            let (key, value) = pair.map_err(self.error("read"))?;
            let value = decode(&self.folder(), &key, &value)?;
            pairs.push((String::from_utf8_lossy(&key).into_owned(), String::from_utf8_lossy(value).into_owned()));
        }
        Ok(pairs)
    }

    /// Flushes, closes, and records the digest of the closed folder.
    fn close_in_place(&mut self) -> Result<(), StoreError> {
        let Some((db, tree)) = self.open.take() else {
            return Ok(());
        };
        db.flush().map_err(self.error("flush"))?;
        drop((db, tree));
        let folder = self.folder();
        wait_until_released(&folder);
        let log_bytes = Some(self.log_bytes.load(Ordering::Acquire)).filter(|bytes| *bytes > 0);
        let digest = digest_of_folder(&folder, log_bytes).map_err(StoreError::io("read", &folder))?;
        let log_bytes = log_bytes.map_or_else(String::new, |bytes| format!(" {bytes}"));
        write_state(&self.root, &format!("clean {digest}{log_bytes}\n"))
    }

    fn folder(&self) -> PathBuf {
        self.root.join(FOLDER)
    }

    fn parts(&self) -> Result<(&sled::Db, &sled::Tree), StoreError> {
        match &self.open {
            Some((db, tree)) => Ok((db, tree)),
            None => Err(StoreError::damaged(&self.folder(), "it is closed")),
        }
    }

    fn error(&self, action: &'static str) -> impl FnOnce(sled::Error) -> StoreError {
        let path = self.folder();
        move |source| database_error(action, &path, source)
    }

    fn entry(&self, key: &[u8], value: &[u8]) -> Result<Arc<Entry>, StoreError> {
        let json = decode(&self.folder(), key, value)?;
        serde_json::from_slice(json).map(Arc::new).map_err(|error| {
            StoreError::damaged(&self.folder(), format!("`{}`: {error}", String::from_utf8_lossy(key)))
        })
    }

    fn collect(&self, pairs: sled::Iter) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        let mut found = Vec::new();
        for pair in pairs {
            let (key, value) = pair.map_err(self.error("read"))?;
            let entry = self.entry(&key, &value)?;
            let text = String::from_utf8_lossy(&key);
            let key = CacheKey::from_text(&text)
                .ok_or_else(|| StoreError::damaged(&self.folder(), format!("`{text}` is not a key")))?;
            found.push((key, entry));
        }
        Ok(found)
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        if let Err(error) = self.close_in_place() {
            tracing::warn!("{error}");
        }
    }
}

impl ConfigStore for SledStore {
    fn tier(&self) -> Tier {
        Tier::Sled
    }

    fn get(&self, key: KeyRef<'_>) -> Result<Option<Arc<Entry>>, StoreError> {
        let (_, tree) = self.parts()?;
        let text = text_of(key);
        let value = tree.get(&text).map_err(self.error("read"))?;
        value.map(|value| self.entry(text.as_bytes(), &value)).transpose()
    }

    fn of_call(&self, op_id: &str, call_key: &str) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        let mut found = self.collect(self.parts()?.1.scan_prefix(CacheKey::prefix(op_id, call_key)))?;
        found.retain(|(key, _)| key.is_of_call(op_id, call_key));
        Ok(found)
    }

    fn entries(&self) -> Result<Vec<(CacheKey, Arc<Entry>)>, StoreError> {
        self.collect(self.parts()?.1.iter())
    }

    fn put(&self, key: &CacheKey, entry: &Arc<Entry>) -> Result<(), StoreError> {
        self.put_texts([(key.to_text().as_str(), entry.to_text().as_str())])
    }

    fn remove(&self, key: &CacheKey) -> Result<bool, StoreError> {
        Ok(self.remove_all(std::slice::from_ref(key))? > 0)
    }

    fn put_all(&self, entries: &[(CacheKey, Arc<Entry>)]) -> Result<(), StoreError> {
        let texts: Vec<_> = entries.iter().map(|(key, entry)| (key.to_text(), entry.to_text())).collect();
        self.put_texts(texts.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }

    fn remove_all(&self, keys: &[CacheKey]) -> Result<usize, StoreError> {
        let (db, tree) = self.parts()?;
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let mut removed = 0;
        for text in keys.iter().map(CacheKey::to_text) {
            if let Some(old) = tree.remove(&text).map_err(self.error("write to"))? {
                content.remove(text.as_bytes(), old.get(4..).unwrap_or_default());
                removed += 1;
            }
        }
        db.flush().map_err(self.error("flush"))?;
        Ok(removed)
    }
}

/// sled waits forever for the threads that it could not start.
fn check_threads() -> io::Result<()> {
    let started = std::thread::Builder::new().spawn(|| ());
    let refused =
        |error| io::Error::other(format!("a thread cannot be started: {error}; raise the limit of processes"));
    started.map(drop).map_err(refused)
}

/// sled panics on some content that somebody made and that has the right digest; such a panic ends here.
fn guarded<T>(folder: &Path, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let panicked = |_| Err(StoreError::damaged(folder, "sled panicked on its content"));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
}

/// CRC-32 of key and value, little endian, then the value.
fn encode(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = checksum(key, value).to_le_bytes().to_vec();
    bytes.extend_from_slice(value);
    bytes
}

fn decode<'a>(folder: &Path, key: &[u8], bytes: &'a [u8]) -> Result<&'a [u8], StoreError> {
    match bytes.split_first_chunk::<4>() {
        Some((sum, value)) if *sum == checksum(key, value).to_le_bytes() => Ok(value),
        _ => Err(StoreError::damaged(folder, format!("checksum of `{}`", String::from_utf8_lossy(key)))),
    }
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(value);
    hasher.finalize()
}
