//! The persistent tier: a sled database whose folder is trusted only byte for byte.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use crate::atomic_write::write_atomic;
use crate::cache::{CacheKey, ConfigStore, Entry, KeyRef, StoreError, Tier, text_of};
use crate::clock::check_clock;
use crate::digest::{Digest, FieldHasher, SetDigest};
use crate::io_hint::io_hint;
use crate::outside_file;

const FOLDER: &str = "sled-v1";
const STATE_FILE: &str = "sled-v1.state";
const SET_ASIDE: &str = "sled-v1.set-aside-";
const TREE: &str = "entries-v1";
/// Maximum number of files examined in a sled folder; sled itself creates fewer than ten.
const MAX_FILES: usize = 10_000;
/// How often, and at what interval, the lock of a just closed database is tried.
const RELEASE_TRIES: u32 = 1000;
const RELEASE_WAIT: Duration = Duration::from_millis(2);

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

enum NotedState {
    /// With the recorded length of the log.
    Clean(Option<u64>),
    Unclean,
    Wrong(String),
}

/// The state in which a database was left, judging by its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SledState {
    /// It does not exist.
    Missing,
    /// Its bytes are those that the last close left.
    Closed,
    /// A process has it open, or ended without closing it.
    Open,
    /// What is wrong with it.
    Wrong(String),
}

impl SledState {
    /// Examines the database of a cache folder without changing it.
    pub fn of_folder(root: &Path) -> Self {
        let folder = root.join(FOLDER);
        if fs::symlink_metadata(&folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Self::Missing;
        }
        match check_state(root, &folder) {
            NotedState::Clean(_) => Self::Closed,
            NotedState::Unclean => Self::Open,
            NotedState::Wrong(what) => Self::Wrong(what),
        }
    }

    /// The names of the database's folder and of its state file.
    pub const NAMES: [&str; 2] = [FOLDER, STATE_FILE];

    /// Prefix of the names of databases that were set aside.
    pub const SET_ASIDE: &str = SET_ASIDE;
}

/// More than a state file can hold.
const MAX_STATE_BYTES: u64 = 100;

fn check_state(root: &Path, folder: &Path) -> NotedState {
    if folder.is_symlink() {
        return NotedState::Wrong("it is a link".to_owned());
    }
    let path = root.join(STATE_FILE);
    let read = outside_file::open_own(&path, MAX_STATE_BYTES);
    let state = match read.and_then(|file| outside_file::read_text(file, MAX_STATE_BYTES)) {
        Ok(state) => state,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return NotedState::Wrong("not a folder of this program".to_owned());
        }
        Err(error) => return NotedState::Wrong(format!("`{}`: {error}", path.display())),
    };
    if state == "open\n" {
        return NotedState::Unclean;
    }
    let noted = || -> Option<(Digest, Option<u64>)> {
        let rest = state.strip_prefix("clean ")?.strip_suffix('\n')?;
        match rest.split_once(' ') {
            Some((digest, bytes)) => Some((digest.parse().ok()?, Some(bytes.parse().ok()?))),
            None => Some((rest.parse().ok()?, None)),
        }
    };
    let Some((digest, log_bytes)) = noted() else {
        return NotedState::Wrong(format!("`{}` is damaged", path.display()));
    };
    match digest_of_folder(folder, log_bytes) {
        Ok(found) if digest == found => NotedState::Clean(log_bytes),
        Ok(_) => NotedState::Wrong("its bytes are not those that were written".to_owned()),
        Err(error) => NotedState::Wrong(error.to_string()),
    }
}

fn write_state(root: &Path, state: &str) -> Result<(), StoreError> {
    let path = root.join(STATE_FILE);
    write_atomic(&path, |file| file.write_all(state.as_bytes())).map_err(StoreError::io("write", &path))
}

/// sled's own threads may hold the database a moment longer than the last handle. Until they release it, its bytes are
/// not final and it cannot be opened again. If they never do, the next open detects it.
fn wait_until_released(folder: &Path) {
    let Ok(database) = outside_file::open_own(&folder.join("db"), u64::MAX) else { return };
    for _ in 0..RELEASE_TRIES {
        match flock(&database, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(RELEASE_WAIT),
            _ => {
                // otherwise a child that another thread is starting would keep it
                let _ = flock(&database, FlockOperation::Unlock);
                return;
            }
        }
    }
}

/// Renames a folder out of the way. The one set aside last is kept for inspection; earlier ones are removed.
fn set_aside(root: &Path, folder: &Path) -> Result<PathBuf, StoreError> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    for attempt in 0..1000 {
        let target = root.join(format!("{SET_ASIDE}{seconds}-{attempt}"));
        if fs::symlink_metadata(&target).is_err() {
            fs::rename(folder, &target).map_err(StoreError::io("set aside", folder))?;
            for item in fs::read_dir(root).into_iter().flatten().flatten() {
                let is_older = is_set_aside(&item.file_name()) && item.path() != target;
                // one that remains only costs its bytes; a link is not followed
                if is_older && item.file_type().is_ok_and(|kind| kind.is_dir()) && is_of_sled(&item.path()) {
                    let _ = fs::remove_dir_all(item.path());
                }
            }
            return Ok(target);
        }
    }
    Err(StoreError::io("set aside", folder)(io::ErrorKind::AlreadyExists.into()))
}

/// Whether a folder holds only what sled creates: a folder that was set aside may contain a user's files.
fn is_of_sled(folder: &Path) -> bool {
    let is_own = |name: &OsStr| {
        matches!(name.as_encoded_bytes(), b"blobs" | b"conf" | b"db") || name.as_encoded_bytes().starts_with(b"snap.")
    };
    let items = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    items.is_ok_and(|items| items.iter().all(|item| is_own(&item.file_name())))
}

/// Whether a name is one that [`set_aside`] creates, and not another with the same prefix.
fn is_set_aside(name: &OsStr) -> bool {
    let numbers = name.to_str().and_then(|name| name.strip_prefix(SET_ASIDE)?.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(seconds, attempt)| is_number(seconds) && is_number(attempt))
}

/// Digest of names and contents of all files below a folder, in the names' order, and of the recorded length; links are
/// an error.
fn digest_of_folder(folder: &Path, log_bytes: Option<u64>) -> io::Result<Digest> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for item in fs::read_dir(&next)? {
            let item = item?;
            let kind = item.file_type()?;
            if kind.is_dir() {
                folders.push(item.path());
            } else if kind.is_file() {
                files.push(item.path());
            } else {
                return Err(io::Error::other(format!("`{}` is neither file nor folder", item.path().display())));
            }
            if files.len() + folders.len() > MAX_FILES {
                return Err(io::Error::other(format!("more than {MAX_FILES} files")));
            }
        }
    }
    files.sort_unstable();
    let mut hasher = FieldHasher::new("sled-folder");
    for path in files {
        let name = path.strip_prefix(folder).unwrap_or(&path);
        hasher.field(name.as_os_str().as_encoded_bytes());
        hasher.field(Digest::of_reader(outside_file::open_own(&path, u64::MAX)?)?.as_bytes());
    }
    if let Some(bytes) = log_bytes {
        hasher.field(&bytes.to_le_bytes());
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(root: &Path) -> (SledStore, SledCondition) {
        SledStore::open(root, false).unwrap()
    }

    /// `tests/data/cache/README.md` says how it was made.
    #[test]
    fn pages_in_a_circle_end_with_an_error_and_are_gone_at_the_next_open() {
        // in a process of its own: sled goes on in its thread
        const OWN: &str = "AUTOTUNE_LOWERED_TEST_CIRCLE";
        if std::env::var_os(OWN).is_none() {
            let mut process = std::process::Command::new(std::env::current_exe().unwrap());
            let name = "sled_store::tests::pages_in_a_circle_end_with_an_error_and_are_gone_at_the_next_open";
            let output = process.args(["--exact", name]).env(OWN, "1").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cache/endless-sled");
        let folder = root.path().join(FOLDER);
        fs::create_dir_all(folder.join("blobs")).unwrap();
        for name in ["conf", "db"] {
            fs::copy(data.join(name), folder.join(name)).unwrap();
        }
        write_state(root.path(), &format!("clean {}\n", digest_of_folder(&folder, None).unwrap())).unwrap();
        assert!(matches!(check_state(root.path(), &folder), NotedState::Clean(None)));
        // however long the limit is, it is exceeded
        let error = SledStore::open_within(root.path(), Duration::from_secs(1)).unwrap_err().to_string();
        assert!(error.contains("sled does not come to an end with it; run again"), "{error}");
        let (store, condition) = open(root.path());
        assert_eq!((condition, store.texts().unwrap().len()), (SledCondition::Unclean, 0));
    }

    #[test]
    fn a_clean_close_is_a_clean_open_every_time() {
        let root = tempfile::tempdir().unwrap();
        let (store, condition) = open(root.path());
        assert_eq!(condition, SledCondition::New);
        drop(store);
        for round in 0..20 {
            let (store, condition) = open(root.path());
            assert_eq!(condition, SledCondition::Clean, "round {round}");
            assert_eq!(store.content().count, round);
            store.put_texts([(format!("k{round}").as_str(), "v")]).unwrap();
            let content = store.content();
            drop(store);
            let (store, _) = open(root.path());
            assert_eq!(store.content(), content);
        }
    }

    #[test]
    fn an_unclean_close_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let (store, _) = open(root.path());
        store.put_texts([("k", "v")]).unwrap();
        drop(store);
        write_state(root.path(), "open\n").unwrap();
        let (store, condition) = open(root.path());
        assert_eq!(condition, SledCondition::Unclean);
        assert_eq!(store.content(), SetDigest::default());
    }

    #[test]
    fn a_foreign_folder_is_set_aside_whole() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(FOLDER)).unwrap();
        fs::write(root.path().join(FOLDER).join("db"), "somebody's work").unwrap();
        let (_store, condition) = open(root.path());
        let SledCondition::SetAside { moved_to, .. } = condition else { panic!("{condition:?}") };
        assert_eq!(fs::read_to_string(moved_to.join("db")).unwrap(), "somebody's work");
    }

    #[test]
    fn of_those_set_aside_the_last_one_is_kept() {
        let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // a user's files, a link, and names that are not ours
        let foreign = root.path().join(format!("{SET_ASIDE}1700000000-0"));
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("db"), "x").unwrap();
        fs::write(foreign.join("thesis.tex"), "somebody's work").unwrap();
        fs::write(elsewhere.path().join("db"), "x").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), root.path().join(format!("{SET_ASIDE}1700000000-1"))).unwrap();
        fs::create_dir(root.path().join(format!("{SET_ASIDE}mine"))).unwrap();
        let others = names(root.path());
        let mut last = None;
        for value in ["a", "b", "c"] {
            let (store, _) = open(root.path());
            store.put_texts([("k", value)]).unwrap();
            drop(store);
            let (store, _) = open(root.path());
            assert_eq!(store.texts().unwrap(), [("k".to_owned(), value.to_owned())]);
            let (_store, condition) = store.replace("it is tried").unwrap();
            let SledCondition::SetAside { moved_to, .. } = condition else { panic!("{condition:?}") };
            last = Some(moved_to);
        }
        let mut expected = others;
        expected.extend([FOLDER.into(), STATE_FILE.into()]);
        expected.push(last.unwrap().file_name().unwrap().to_owned());
        expected.sort();
        assert_eq!(names(root.path()), expected);
        assert!(elsewhere.path().join("db").is_file() && foreign.join("thesis.tex").is_file());
    }

    fn names(folder: &Path) -> Vec<std::ffi::OsString> {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|item| item.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_wrong_value_in_a_folder_that_was_closed_is_set_aside() {
        let root = tempfile::tempdir().unwrap();
        let (store, _) = open(root.path());
        store.parts().unwrap().1.insert("k", "value without a checksum").unwrap();
        drop(store);
        let (store, condition) = open(root.path());
        assert!(matches!(condition, SledCondition::SetAside { .. }), "{condition:?}");
        assert_eq!(store.content(), SetDigest::default());
    }

    #[test]
    fn content_that_sled_panics_on_is_set_aside() {
        let root = tempfile::tempdir().unwrap();
        let (store, _) = open(root.path());
        store.put_texts([("k", "v")]).unwrap();
        drop(store);
        // sled's own snapshot: its content, which ends within a number here, the content's length and checksum
        let folder = root.path().join(FOLDER);
        let content = [0, 0, 0, 0, 0, 0, 0, 0, 250_u8];
        let bytes = [&content[..], &9_u64.to_le_bytes(), &crc32fast::hash(&content).to_le_bytes()].concat();
        fs::write(folder.join("snap.0000000000000001"), bytes).unwrap();
        let digest = digest_of_folder(&folder, None).unwrap();
        write_state(root.path(), &format!("clean {digest}\n")).unwrap();
        let (store, condition) = open(root.path());
        let SledCondition::SetAside { reason, .. } = condition else { panic!("{condition:?}") };
        assert!(reason.contains("sled panicked"), "{reason}");
        store.put_texts([("k", "v")]).unwrap();
    }

    #[test]
    fn a_value_under_another_key_is_damage() {
        let bytes = encode(b"k1", b"value");
        assert_eq!(decode(Path::new("x"), b"k1", &bytes).unwrap(), b"value");
        assert!(decode(Path::new("x"), b"k2", &bytes).is_err());
        assert!(decode(Path::new("x"), b"k1", &bytes[..3]).is_err());
    }
}
