//! Serialized executables, kept from run to run, because a compilation takes a hundred times as long as loading.
//!
//! A folder `executables-v1` of files, each named by its key's digest. Format of a file:
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `ATLEXE1\n` |
//! | 4 | length of the header, little endian |
//! | 32 | SHA-256 of the header |
//! | header | JSON: `{"key": {…}, "payload_digest": SHA-256, "payload_bytes": n, "signature": …, "note": {…}}` |
//! | payload | the plugin's bytes, to the file's end; empty if the compiler refused the program |
//!
//! Every field of the key is in the header and is compared: a file with another key counts as missing. A file is written under
//! a temporary name and renamed. Anything malformed, even one flipped byte, also counts as missing, and the program is compiled
//! again. A file may be replaced between finding and loading it; therefore the worker receives the payload's digest and
//! verifies what it has read. Nothing is synced, because everything here can be recomputed: a file truncated by a power failure
//! does not match its digests. A folder, link, pipe or device in a file's place is no file either; the file that is written next
//! replaces it, and a folder that is not empty is moved to `X.exe.aside`.
//!
//! Executables that other users load are signed, and so are refusals. Beside each file lie signatures of the SHA-256 of its
//! header (`X.exe.sig`, in the format of [`crate::signature`]). The header contains the key, a refusal's reason and the payload's
//! digest, so the signature covers the whole file.
//!
//! [`bound_executables`] limits the folder's size.

mod believed;
mod bounds;
mod items;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::CWD;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use self::bounds::{FOLDER, open_folder};
use self::items::{Item, items};
use self::users::User;
use crate::config::Config;
use crate::digest::{Digest, FieldHasher};
use crate::outside_file;
use crate::printable::printable;
use crate::signature::{Signatures, Signer, Statement};
use crate::timer::protocol::{CostAnalysis, ExecutableRef, KernelUse, MemoryStats, Signature};

pub(super) use believed::believed;
pub use bounds::{BoundExecutables, ExecutableBounds, bound_executables, executables_folder, keeps_executables};

const MAGIC: &[u8; 8] = b"ATLEXE1\n";
const MAX_HEADER_BYTES: u32 = 1 << 20;
/// Largest serialized executable that is read.
pub(super) const MAX_EXECUTABLE_BYTES: u64 = 4 << 30;
/// A use is recorded at most this often, as the file's time of modification.
const NOTED_EVERY: Duration = Duration::from_secs(3600);

/// What an executable depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ExecutableKey {
    pub(super) program: Digest,
    pub(super) format: String,
    /// In the plugin's format.
    pub(super) compile_options: Vec<u8>,
    pub(super) plugin: Digest,
    /// Identity of the device on which it was compiled.
    pub(super) device: String,
    pub(super) device_index: usize,
    pub(super) cpu_features: String,
    pub(super) xla_flags: Vec<String>,
    /// The target, if it was compiled without a device, as the plugin receives it: a topology's name, or the text of a target's
    /// config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    /// Names and digests of what the plugin compiles with but does not include, such as `ptxas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) toolchain: Option<String>,
    /// Compiler options of this program alone, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) overrides: BTreeMap<String, String>,
    /// Digest of the compile options that the program has where it is used, if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) base_options: Option<Digest>,
    /// Number of the copy, if the same program is compiled more than once.
    #[serde(default, skip_serializing_if = "is_first")]
    pub(super) copy: u32,
}

// serde passes a reference
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_first(copy: &u32) -> bool {
    *copy == 0
}

impl ExecutableKey {
    fn to_digest(&self) -> Digest {
        // the label stays the same as long as old keys keep their meaning
        let mut hasher = FieldHasher::new("pjrt-executable-v1");
        hasher
            .field(self.program.as_bytes())
            .field(self.format.as_bytes())
            .field(&self.compile_options)
            .field(self.plugin.as_bytes())
            .field(self.device.as_bytes())
            .field(&(self.device_index as u64).to_le_bytes())
            .field(self.cpu_features.as_bytes());
        for flag in &self.xla_flags {
            hasher.field(flag.as_bytes());
        }
        // non-default fields follow the flags, behind a name that no flag can have
        for (name, value) in [("\0target", &self.target), ("\0toolchain", &self.toolchain)] {
            if let Some(value) = value {
                hasher.field(name.as_bytes()).field(value.as_bytes());
            }
        }
        for (name, value) in &self.overrides {
            hasher.field(b"\0override").field(name.as_bytes()).field(value.as_bytes());
        }
        if let Some(base) = &self.base_options {
            hasher.field(b"\0base options").field(base.as_bytes());
        }
        if self.copy > 0 {
            hasher.field(b"\0copy").field(&self.copy.to_le_bytes());
        }
        hasher.finish()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Header {
    key: ExecutableKey,
    payload_digest: Digest,
    payload_bytes: u64,
    signature: Option<Signature>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<Note>,
}

/// The cost and the outcome of compiling a program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Note {
    /// Nanoseconds.
    pub(super) compile_ns: u64,
    /// Processor time, nanoseconds; zero if it is not known.
    #[serde(default)]
    pub(super) cpu_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<MemoryStats>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) kernels: Vec<KernelUse>,
    /// Why they are unknown, for a GPU's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kernels_unknown: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<CostAnalysis>,
    /// Why the compiler refused the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
    /// The target's program, if it was compiled for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<CompiledFor>,
}

/// Identifies a compiled program by what stays the same when the program or the compiler changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CompiledFor {
    /// As the user named it.
    pub target: String,
    /// `op@vN:key` and the direction, or the module's file.
    pub operation: String,
    /// The config; empty for a module.
    pub config: Config,
}

/// A file of the store, known by its header, which is intact; its payload was not read.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) path: PathBuf,
    pub(super) key: ExecutableKey,
    pub(super) note: Option<Note>,
    pub(super) payload_bytes: u64,
    /// Time of its last write or use, to the hour.
    pub(super) used: SystemTime,
    /// The digest that signatures of the file cover.
    pub(super) digest: Digest,
}

impl Listed {
    /// Seconds of its compilation, if known, and its bytes.
    pub(super) fn cost(&self) -> Option<(f64, u64)> {
        Some((self.note.as_ref()?.compile_ns as f64 / 1e9, self.payload_bytes))
    }
}

/// The files of a store.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) listed: Vec<Listed>,
    /// What cannot be used, and why.
    pub(super) damaged: Vec<(PathBuf, String)>,
}

/// The recorded result of compiling a program.
#[derive(Debug)]
pub(super) struct Noted {
    pub(super) note: Note,
    pub(super) payload_bytes: u64,
    pub(super) path: PathBuf,
    /// The digest that signatures of the file cover.
    pub(super) digest: Digest,
}

/// An executable found in the store.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StoredExecutable {
    pub(super) executable: ExecutableRef,
    pub(super) signature: Option<Signature>,
}

/// The folder, open as long as this value lives.
#[derive(Debug, Clone)]
pub(super) struct ExecutableStore {
    folder: PathBuf,
    _user: Option<Arc<User>>,
    signer: Option<Arc<Signer>>,
    /// Files that were said to be damaged.
    said: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl ExecutableStore {
    /// Opens the store in a folder; creates both if needed.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let folder = executables_folder(folder)?;
        // the store is useful even without the note
        let user = User::note(&folder).ok().map(Arc::new);
        Ok(Self { folder, _user: user, signer: None, said: Arc::default() })
    }

    /// Signs the files that it keeps from now on.
    pub(super) fn signed_by(self, signer: Option<Arc<Signer>>) -> Self {
        Self { signer, ..self }
    }

    /// Lists a folder's store from the headers alone, sorted by name. Nothing is written, not even that the store is in use.
    pub(super) fn list(folder: &Path) -> io::Result<Listing> {
        list(&folder.join(FOLDER)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => why_none(folder).unwrap_or_else(|error| error),
            _ => error,
        })
    }

    /// The folder of its files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The usable files of this store.
    pub(super) fn listed(&self) -> io::Result<Vec<Listed>> {
        list(&self.folder).map(|listing| listing.listed)
    }

    fn path(&self, key: &ExecutableKey) -> PathBuf {
        path_in(&self.folder, key)
    }

    /// The executable of a key, with its checksum verified; `None` if there is no intact one that only this user can have
    /// written. It is native code, and runs with this user's rights.
    pub(super) fn find(&self, key: &ExecutableKey) -> Option<StoredExecutable> {
        let path = self.path(key);
        let (Head { header, metadata, .. }, offset) = self.intact(&path, key)?;
        if let Some(why) = written_by_others(&metadata) {
            self.say_once(&path, &why);
            return None;
        }
        if header.note.is_some_and(|note| note.refused.is_some()) {
            return None;
        }
        let executable = ExecutableRef { path, offset, digest: Some(header.payload_digest) };
        Some(StoredExecutable { executable, signature: header.signature })
    }

    /// The recorded result of compiling a program, if any.
    pub(super) fn noted(&self, key: &ExecutableKey) -> Option<Noted> {
        self.noted_at(self.path(key), key)
    }

    /// The same in another folder's store, where only the use is written.
    pub(super) fn noted_in(&self, folder: &Path, key: &ExecutableKey) -> Option<Noted> {
        self.noted_at(path_in(&folder.join(FOLDER), key), key)
    }

    fn noted_at(&self, path: PathBuf, key: &ExecutableKey) -> Option<Noted> {
        let (Head { header, digest, .. }, _) = self.intact(&path, key)?;
        Some(Noted { note: header.note?, payload_bytes: header.payload_bytes, path, digest })
    }

    /// Says why a file is not used, if it was not said before.
    fn say_once(&self, path: &Path, why: &str) {
        if self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned()) {
            let path = printable(&path.display().to_string());
            tracing::warn!("`{path}` is not used, and its program is compiled again: {why}");
        }
    }

    /// The file of a key, if it is there and intact. Anything else in its place is said once.
    fn intact(&self, path: &Path, key: &ExecutableKey) -> Option<(Head, u64)> {
        let error = match read_whole(path, key) {
            Ok(found) => return Some(found),
            Err(error) => error,
        };
        if error.kind() != io::ErrorKind::NotFound {
            self.say_once(path, &why_damaged(&error));
        }
        None
    }

    /// Copies the entry of a key from another folder's store, with its signatures, so that it keeps its origin.
    pub(super) fn take_over(&self, folder: &Path, key: &ExecutableKey) -> io::Result<()> {
        let (from, to) = (path_in(&folder.join(FOLDER), key), self.path(key));
        let (Head { file: mut theirs, metadata, .. }, _) = read_whole(&from, key)?;
        theirs.rewind()?;
        let mut own = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.folder)?;
        io::copy(&mut theirs.take(metadata.len()), &mut own)?;
        put(own, &to)?;
        if let Ok(signatures) = Signatures::read_beside(&from)
            && let Err(error) = signatures.write_beside(&to)
        {
            tracing::warn!("{}: its signature was not copied: {error}", to.display());
        }
        Ok(())
    }

    /// Records that the compiler refused a program.
    pub(super) fn refuse(&self, key: &ExecutableKey, note: Note) -> io::Result<()> {
        self.write(key, &mut io::empty(), 0, Digest::of(&[]), None, note).map(drop)
    }

    /// The executable of a listed file, if the file is unchanged and its checksums match.
    pub(super) fn take_listed(listed: &Listed) -> Option<StoredExecutable> {
        let (head, offset) = read_whole(&listed.path, &listed.key).ok()?;
        let is_same = head.digest == listed.digest;
        let executable = ExecutableRef { path: listed.path.clone(), offset, digest: Some(head.header.payload_digest) };
        is_same.then_some(StoredExecutable { executable, signature: head.header.signature })
    }

    /// Stores what a compile worker wrote.
    pub(super) fn keep(
        &self,
        key: &ExecutableKey,
        mut payload: File,
        signature: Option<Signature>,
        note: Note,
    ) -> io::Result<StoredExecutable> {
        let payload_bytes = payload.metadata()?.len();
        let payload_digest = Digest::of_reader(Read::by_ref(&mut payload).take(payload_bytes))?;
        payload.rewind()?;
        self.write(key, &mut payload, payload_bytes, payload_digest, signature, note)
    }

    fn write(
        &self,
        key: &ExecutableKey,
        payload: &mut dyn Read,
        payload_bytes: u64,
        payload_digest: Digest,
        signature: Option<Signature>,
        note: Note,
    ) -> io::Result<StoredExecutable> {
        let (key_of_file, note) = (key.clone(), Some(note));
        let header = Header { key: key_of_file, payload_digest, payload_bytes, signature: signature.clone(), note };
        let header = serde_json::to_vec(&header)?;
        let length = u32::try_from(header.len()).ok().filter(|&length| length <= MAX_HEADER_BYTES);
        let length = length.ok_or_else(|| io::Error::other("a signature too long to keep"))?;
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.folder)?;
        let digest = Digest::of(&header);
        file.write_all(MAGIC)?;
        file.write_all(&length.to_le_bytes())?;
        file.write_all(digest.as_bytes())?;
        file.write_all(&header)?;
        let offset = file.stream_position()?;
        io::copy(&mut payload.take(payload_bytes), &mut file)?;
        let path = self.path(key);
        put(file, &path)?;
        if let Some(signer) = &self.signer {
            let signed = signer.sign(Statement::of_file(signed_digest(digest)));
            // unsigned it is usable here, and other machines compile it again
            if let Err(error) = signed.and_then(|signature| Signatures::from(signature).write_beside(&path)) {
                tracing::warn!("{}: not signed: {error}", path.display());
            }
        }
        Ok(StoredExecutable { executable: ExecutableRef { path, offset, digest: Some(payload_digest) }, signature })
    }
}

/// Whether somebody else may have written a file.
fn written_by_others(metadata: &fs::Metadata) -> Option<String> {
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if owner != rustix::process::geteuid().as_raw() {
        Some(format!("it belongs to another user (number {owner})"))
    } else if mode & 0o022 != 0 {
        Some(format!("its mode is {mode:04o}, and others may write it"))
    } else {
        None
    }
}

fn path_in(folder: &Path, key: &ExecutableKey) -> PathBuf {
    folder.join(format!("{}.exe", key.to_digest()))
}

/// Puts a finished file in its place. A folder there is moved aside, because no file can replace it and it is not this program's.
fn put(file: NamedTempFile, path: &Path) -> io::Result<()> {
    let refused = match file.persist(path) {
        Ok(_) => return Ok(()),
        Err(refused) => refused,
    };
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return Err(refused.error);
    }
    let moved = fs::remove_dir(path).or_else(|_| fs::rename(path, path.with_extension("exe.aside")));
    moved.map_err(|error| {
        let message = format!("`{}` is a folder that cannot be moved aside: {error}; remove it", path.display());
        io::Error::new(error.kind(), message)
    })?;
    refused.file.persist(path).map(drop).map_err(|error| error.error)
}

/// Why a file is not what was written, in a few words.
fn why_damaged(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidData if error.get_ref().is_none() => {
            "its bytes are not those that were written".to_owned()
        }
        io::ErrorKind::UnexpectedEof => "its end is missing".to_owned(),
        _ => error.to_string(),
    }
}

/// Why a path is not a store.
fn why_none(path: &Path) -> io::Result<io::Error> {
    let kind = fs::metadata(path)?.file_type();
    let why = match () {
        () if kind.is_dir() => format!("the folder has no `{FOLDER}` in it"),
        () if kind.is_fifo() => "it is a named pipe, not a folder".to_owned(),
        () if kind.is_file() => "it is a file, not a folder".to_owned(),
        () => "it is not a folder".to_owned(),
    };
    Ok(io::Error::new(io::ErrorKind::NotADirectory, why))
}

fn list(folder: &Path) -> io::Result<Listing> {
    let mut items = items(&open_folder(CWD, folder)?.ok_or(io::ErrorKind::NotFound)?)?;
    items.retain(Item::is_named_executable);
    items.sort_by(|one, other| one.name.cmp(&other.name));
    let paths = items.iter().map(|item| folder.join(item.name.to_string_lossy().as_ref()));
    let mut found = Listing::default();
    for path in paths {
        match read_head(&path) {
            Ok(Head { header: Header { key, note, payload_bytes, .. }, digest, metadata, .. }) => {
                let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.listed.push(Listed { path, key, note, payload_bytes, used, digest });
            }
            // it was removed in the meantime
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => found.damaged.push((path, why_damaged(&error))),
        }
    }
    Ok(found)
}

/// The digest that is signed. It differs from the header's own digest, so that a signature of a snapshot cannot be used for a
/// file.
fn signed_digest(header: Digest) -> Digest {
    FieldHasher::new("pjrt-executable-file-v1").field(header.as_bytes()).finish()
}

/// A file's header with its digest.
struct Head {
    header: Header,
    /// As in [`Listed`].
    digest: Digest,
    file: File,
    /// Where the payload begins.
    offset: u64,
    metadata: fs::Metadata,
}

fn read_head(path: &Path) -> io::Result<Head> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let mut file = outside_file::open_own(path, MAX_EXECUTABLE_BYTES.saturating_add(u64::from(MAX_HEADER_BYTES) + 44))?;
    let metadata = file.metadata()?;
    let (mut magic, mut length, mut digest) = ([0_u8; 8], [0_u8; 4], [0_u8; 32]);
    file.read_exact(&mut magic)?;
    file.read_exact(&mut length)?;
    file.read_exact(&mut digest)?;
    let length = u32::from_le_bytes(length);
    if magic != *MAGIC || length > MAX_HEADER_BYTES {
        return Err(wrong());
    }
    let mut header = Vec::new();
    Read::by_ref(&mut file).take(u64::from(length)).read_to_end(&mut header)?;
    if Digest::of(&header).as_bytes() != &digest {
        return Err(wrong());
    }
    let offset = (magic.len() + size_of::<u32>() + digest.len()) as u64 + u64::from(length);
    let digest = signed_digest(Digest::from_bytes(digest));
    let header: Header = serde_json::from_slice(&header)?;
    if metadata.len() != offset.saturating_add(header.payload_bytes) {
        return Err(wrong());
    }
    Ok(Head { header, digest, file, offset, metadata })
}

/// The header of this key's file, verified with the whole file, and where its payload begins. Records the use.
fn read_whole(path: &Path, key: &ExecutableKey) -> io::Result<(Head, u64)> {
    let mut head = read_head(path)?;
    let Head { header, file, offset, metadata, .. } = &mut head;
    let offset = *offset;
    file.seek(SeekFrom::Start(offset))?;
    if header.key != *key || Digest::of_reader(Read::by_ref(file).take(header.payload_bytes))? != header.payload_digest
    {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let now = SystemTime::now();
    if metadata.modified().is_ok_and(|noted| now.duration_since(noted).is_ok_and(|since| since > NOTED_EVERY)) {
        // if the use cannot be recorded, a later run may have to compile again
        let _ = file.set_modified(now);
    }
    Ok((head, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ExecutableKey {
        ExecutableKey {
            program: Digest::of(b"program"),
            format: "mlir".into(),
            compile_options: vec![1, 2],
            plugin: Digest::of(b"plugin"),
            device: "cpu:cpu".into(),
            device_index: 0,
            cpu_features: "avx2 fma".into(),
            xla_flags: Vec::new(),
            target: None,
            toolchain: None,
            overrides: BTreeMap::new(),
            base_options: None,
            copy: 0,
        }
    }

    #[test]
    fn a_key_of_before_has_the_name_of_before() {
        // computed by hand, from the fields that existed first: length and bytes of each
        let key = ExecutableKey { xla_flags: vec!["--xla_a=1".into(), "--xla_b".into()], ..key() };
        assert_eq!(key.to_digest().to_string(), "410750283afb9aacb68c138058cff2e8cf31fc8b31174b4e3aff6af44028d727");
    }

    #[test]
    fn native_code_that_others_may_have_written_is_not_used() {
        use std::os::unix::fs::{PermissionsExt, chown};

        let folder = tempfile::tempdir().unwrap();
        let store = ExecutableStore::open(folder.path()).unwrap();
        let payload = folder.path().join("payload");
        fs::write(&payload, b"machine code").unwrap();
        let kept = store.keep(&key(), File::open(&payload).unwrap(), None, Note::default()).unwrap().executable.path;
        assert!(store.find(&key()).is_some());
        for (mode, is_found) in [(0o644, true), (0o400, true), (0o660, false), (0o602, false), (0o600, true)] {
            fs::set_permissions(&kept, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(store.find(&key()).is_some(), is_found, "{mode:o}");
        }
        // only root can give a file away
        if chown(&kept, Some(12_345), None).is_ok() {
            assert_eq!(store.find(&key()), None);
        }
    }

    #[test]
    fn every_part_of_the_key_counts() {
        let folder = tempfile::tempdir().unwrap();
        let store = ExecutableStore::open(folder.path()).unwrap();
        let payload = folder.path().join("payload");
        fs::write(&payload, b"machine code").unwrap();
        let signature = Some(Signature::new(vec!["f32[2]".parse().unwrap()]));
        store.keep(&key(), File::open(&payload).unwrap(), signature.clone(), Note::default()).unwrap();
        let kept = store.find(&key()).unwrap();
        assert_eq!(kept.signature, signature);
        let bytes = fs::read(&kept.executable.path).unwrap();
        assert_eq!(&bytes[usize::try_from(kept.executable.offset).unwrap()..], b"machine code");
        for other in [
            ExecutableKey { program: Digest::of(b"other"), ..key() },
            ExecutableKey { format: "hlo".into(), ..key() },
            ExecutableKey { compile_options: vec![1], ..key() },
            ExecutableKey { plugin: Digest::of(b"other"), ..key() },
            ExecutableKey { device: "cuda:H200".into(), ..key() },
            ExecutableKey { device_index: 1, ..key() },
            ExecutableKey { cpu_features: "avx2".into(), ..key() },
            ExecutableKey { xla_flags: vec!["--a".into()], ..key() },
            ExecutableKey { target: Some("v5e:2x2".into()), ..key() },
            ExecutableKey { toolchain: Some("v5e:2x2".into()), ..key() },
            ExecutableKey { overrides: BTreeMap::from([("xla_a".into(), "1".into())]), ..key() },
            ExecutableKey { base_options: Some(Digest::of(b"options")), ..key() },
            ExecutableKey { copy: 1, ..key() },
        ] {
            assert_eq!(store.find(&other), None, "{other:?}");
            // nor is it accepted under the other key's name
            fs::copy(&kept.executable.path, store.path(&other)).unwrap();
            assert_eq!(store.find(&other), None, "{other:?}");
            fs::remove_file(store.path(&other)).unwrap();
        }
        assert_eq!(store.find(&key()).unwrap(), kept);
    }

    #[test]
    fn a_refusal_is_no_executable_and_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let store = ExecutableStore::open(folder.path()).unwrap();
        let note = Note { compile_ns: 7, refused: Some("too much shared memory".into()), ..Note::default() };
        store.refuse(&key(), note.clone()).unwrap();
        assert_eq!(store.find(&key()), None);
        let noted = |store: &ExecutableStore| store.noted(&key()).map(|noted| (noted.note, noted.payload_bytes));
        assert_eq!(noted(&store), Some((note, 0)));
        // a later successful compilation, for example on a device, replaces it
        let payload = folder.path().join("payload");
        fs::write(&payload, b"machine code").unwrap();
        let note = Note { kernels: vec![KernelUse::new("add", 384, 12, 0, 0)], ..Note::default() };
        store.keep(&key(), File::open(&payload).unwrap(), None, note.clone()).unwrap();
        assert!(store.find(&key()).is_some());
        assert_eq!(noted(&store), Some((note, 12)));
    }

    #[test]
    fn the_store_reads_no_link_and_waits_for_no_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let store = ExecutableStore::open(folder.path()).unwrap();
        let payload = folder.path().join("payload");
        fs::write(&payload, b"machine code").unwrap();
        let path = store.keep(&key(), File::open(&payload).unwrap(), None, Note::default()).unwrap().executable.path;
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(store.find(&key()), None);
        fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        assert_eq!(store.find(&key()), None);
    }

    #[test]
    fn a_use_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let store = ExecutableStore::open(folder.path()).unwrap();
        let payload = folder.path().join("payload");
        fs::write(&payload, b"machine code").unwrap();
        let path = store.keep(&key(), File::open(&payload).unwrap(), None, Note::default()).unwrap().executable.path;
        let long_ago = SystemTime::now() - 2 * NOTED_EVERY;
        File::open(&path).unwrap().set_modified(long_ago).unwrap();
        let modified = || fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(store.find(&ExecutableKey { device_index: 1, ..key() }), None);
        assert_eq!(modified(), long_ago);
        store.find(&key()).unwrap();
        assert!(modified() > long_ago + NOTED_EVERY);
    }

    #[test]
    fn a_flipped_or_missing_byte_anywhere_is_no_executable() {
        let folder = tempfile::tempdir().unwrap();
        let store = ExecutableStore::open(folder.path()).unwrap();
        let payload = folder.path().join("payload");
        fs::write(&payload, b"machine code").unwrap();
        let kept = store.keep(&key(), File::open(&payload).unwrap(), None, Note::default()).unwrap();
        let sound = fs::read(&kept.executable.path).unwrap();
        for at in 0..sound.len() {
            let mut flipped = sound.clone();
            flipped[at] ^= 0x10;
            fs::write(&kept.executable.path, &flipped).unwrap();
            assert_eq!(store.find(&key()), None, "flipped at {at}");
            fs::write(&kept.executable.path, &sound[..at]).unwrap();
            assert_eq!(store.find(&key()), None, "cut at {at}");
        }
        fs::write(&kept.executable.path, [&sound[..], b"x"].concat()).unwrap();
        assert_eq!(store.find(&key()), None);
        fs::write(&kept.executable.path, &sound).unwrap();
        assert!(store.find(&key()).is_some());
    }
}
