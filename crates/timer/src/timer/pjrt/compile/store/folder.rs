//! The folder of kept executables: found, kept, listed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustix::fs::CWD;

use super::bounds::{FOLDER, executables_folder, open_folder};
use super::entry::{CompileNote, EntryHeader, KeptOutcome, ListedExecutable, StoreListing, StoredExecutable};
use super::file::{
    OpenEntry, put, read_head, read_whole, signed_digest, temporary, why_damaged, written, written_by_others,
};
use super::items::{StoreItem, items};
use super::key::ExecutableKey;
use super::users::StoreUser;
use crate::digest::Digest;
use crate::printable::printable;
use crate::signature::{Signatures, Signer, Statement};
use crate::timer::protocol::{ExecutableRef, ProgramSignature};

/// The folder, open as long as this value lives.
#[derive(Debug, Clone)]
pub(crate) struct ExecutableStore {
    folder: PathBuf,
    _user: Option<Arc<StoreUser>>,
    signer: Option<Arc<Signer>>,
    /// Files that were said not to be used, or not to be kept.
    said: Arc<Mutex<BTreeSet<(PathBuf, Trouble)>>>,
}

/// What is said of a file once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    NotUsed,
    NotKept,
}

impl ExecutableStore {
    /// Opens the store in a folder; creates both if needed.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let folder = executables_folder(folder)?;
        // the store is useful even without the note
        let user = StoreUser::note(&folder).ok().map(Arc::new);
        Ok(Self { folder, _user: user, signer: None, said: Arc::default() })
    }

    /// Signs the files that it keeps from now on.
    pub(crate) fn signed_by(self, signer: Option<Arc<Signer>>) -> Self {
        Self { signer, ..self }
    }

    /// Lists a folder's store from the headers alone, sorted by name. Nothing is written, not even that the store is in
    /// use.
    pub(crate) fn list(folder: &Path) -> io::Result<StoreListing> {
        list(&folder.join(FOLDER)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => why_none(folder).unwrap_or_else(|error| error),
            _ => error,
        })
    }

    /// The folder of its files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The usable files of this store.
    pub(crate) fn listed(&self) -> io::Result<Vec<ListedExecutable>> {
        list(&self.folder).map(|listing| listing.listed)
    }

    fn path(&self, key: &ExecutableKey) -> PathBuf {
        path_in(&self.folder, key)
    }

    /// The executable of a key, with its checksum verified; `None` if there is no intact one that only this user can
    /// have written. It is native code, and runs with this user's rights.
    pub(crate) fn find(&self, key: &ExecutableKey) -> Option<StoredExecutable> {
        let path = self.path(key);
        let (OpenEntry { header, metadata, .. }, offset) = self.intact(&path, key)?;
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
    pub(crate) fn noted(&self, key: &ExecutableKey) -> Option<KeptOutcome> {
        self.noted_at(self.path(key), key)
    }

    /// The same in another folder's store, where only the use is written.
    pub(crate) fn noted_in(&self, folder: &Path, key: &ExecutableKey) -> Option<KeptOutcome> {
        self.noted_at(path_in(&folder.join(FOLDER), key), key)
    }

    fn noted_at(&self, path: PathBuf, key: &ExecutableKey) -> Option<KeptOutcome> {
        let (OpenEntry { header, digest, .. }, _) = self.intact(&path, key)?;
        Some(KeptOutcome { note: header.note?, payload_bytes: header.payload_bytes, path, digest })
    }

    /// Says why a file is not used, if it was not said before.
    fn say_once(&self, path: &Path, why: &str) {
        if self.is_new(path, Trouble::NotUsed) {
            let path = printable(&path.display().to_string());
            tracing::warn!("`{path}` is not used, and its program is compiled again: {why}");
        }
    }

    /// Says why something was not kept, if it was not said before: each fresh process compiles the program again.
    pub(crate) fn say_not_kept(&self, key: &ExecutableKey, what: &str, error: &io::Error) {
        if self.is_new(&self.path(key), Trouble::NotKept) {
            tracing::warn!("{what} was not kept: {error}");
        }
    }

    fn is_new(&self, path: &Path, trouble: Trouble) -> bool {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).insert((path.to_owned(), trouble))
    }

    /// The file of a key, if it is there and intact. Anything else in its place is said once.
    fn intact(&self, path: &Path, key: &ExecutableKey) -> Option<(OpenEntry, u64)> {
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
    pub(crate) fn take_over(&self, folder: &Path, key: &ExecutableKey) -> io::Result<()> {
        let (from, to) = (path_in(&folder.join(FOLDER), key), self.path(key));
        let (OpenEntry { file: mut theirs, metadata, .. }, _) = read_whole(&from, key)?;
        theirs.rewind()?;
        let mut own = temporary(&self.folder)?;
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
    pub(crate) fn refuse(&self, key: &ExecutableKey, note: CompileNote) -> io::Result<()> {
        let (payload_digest, payload_bytes) = (Digest::of(&[]), 0);
        let header = EntryHeader { key: key.clone(), payload_digest, payload_bytes, signature: None, note: Some(note) };
        self.write(header, &mut io::empty()).map(drop)
    }

    /// The executable of a listed file, if the file is unchanged and its checksums match.
    pub(crate) fn take_listed(listed: &ListedExecutable) -> Option<StoredExecutable> {
        let (head, offset) = read_whole(&listed.path, &listed.key).ok()?;
        let is_same = head.digest == listed.digest;
        let executable = ExecutableRef { path: listed.path.clone(), offset, digest: Some(head.header.payload_digest) };
        is_same.then_some(StoredExecutable { executable, signature: head.header.signature })
    }

    /// Stores what a compile worker wrote.
    pub(crate) fn keep(
        &self,
        key: &ExecutableKey,
        mut payload: File,
        signature: Option<ProgramSignature>,
        note: CompileNote,
    ) -> io::Result<StoredExecutable> {
        let payload_bytes = payload.metadata()?.len();
        let payload_digest = Digest::of_reader(Read::by_ref(&mut payload).take(payload_bytes))?;
        payload.rewind()?;
        let header = EntryHeader { key: key.clone(), payload_digest, payload_bytes, signature, note: Some(note) };
        self.write(header, &mut payload)
    }

    fn write(&self, header: EntryHeader, payload: &mut dyn Read) -> io::Result<StoredExecutable> {
        let path = self.path(&header.key);
        let (file, digest, offset) = written(&self.folder, &header, payload)?;
        put(file, &path)?;
        if let Some(signer) = &self.signer {
            let signed = signer.sign(Statement::of_file(signed_digest(digest)));
            // unsigned it is usable here, and other machines compile it again
            if let Err(error) = signed.and_then(|signature| Signatures::from(signature).write_beside(&path)) {
                tracing::warn!("{}: not signed: {error}", path.display());
            }
        }
        let executable = ExecutableRef { path, offset, digest: Some(header.payload_digest) };
        Ok(StoredExecutable { executable, signature: header.signature })
    }
}

fn path_in(folder: &Path, key: &ExecutableKey) -> PathBuf {
    folder.join(format!("{}.exe", key.to_digest()))
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

fn list(folder: &Path) -> io::Result<StoreListing> {
    let mut items = items(&open_folder(CWD, folder)?.ok_or(io::ErrorKind::NotFound)?)?;
    items.retain(StoreItem::is_named_executable);
    items.sort_by(|one, other| one.name.cmp(&other.name));
    let paths = items.iter().map(|item| folder.join(item.name.to_string_lossy().as_ref()));
    let mut found = StoreListing::default();
    for path in paths {
        match read_head(&path) {
            Ok(OpenEntry { header: EntryHeader { key, note, payload_bytes, .. }, digest, metadata, .. }) => {
                let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.listed.push(ListedExecutable { path, key, note, payload_bytes, used, digest });
            }
            // it was removed in the meantime
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => found.damaged.push((path, why_damaged(&error))),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Write;

    use super::super::file::NOTED_EVERY;
    use super::super::key::tests::key;
    use super::*;
    use crate::timer::protocol::KernelUse;

    fn open() -> (tempfile::TempDir, ExecutableStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = ExecutableStore::open(folder.path()).unwrap();
        (folder, store)
    }

    fn keep(store: &ExecutableStore, signature: Option<ProgramSignature>, note: CompileNote) -> StoredExecutable {
        let mut payload = tempfile::tempfile().unwrap();
        payload.write_all(b"machine code").unwrap();
        payload.rewind().unwrap();
        store.keep(&key(), payload, signature, note).unwrap()
    }

    fn open_with_one() -> (tempfile::TempDir, ExecutableStore, StoredExecutable) {
        let (folder, store) = open();
        let kept = keep(&store, None, CompileNote::default());
        (folder, store, kept)
    }

    #[test]
    fn native_code_that_others_may_have_written_is_not_used() {
        use std::os::unix::fs::{PermissionsExt, chown};

        let (_folder, store, kept) = open_with_one();
        let kept = kept.executable.path;
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
        let (_folder, store) = open();
        let signature = Some(ProgramSignature::new(vec!["f32[2]".parse().unwrap()]));
        keep(&store, signature.clone(), CompileNote::default());
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
        let (_folder, store) = open();
        let note =
            CompileNote { compile_ns: 7, refused: Some("too much shared memory".into()), ..CompileNote::default() };
        store.refuse(&key(), note.clone()).unwrap();
        assert_eq!(store.find(&key()), None);
        let noted = |store: &ExecutableStore| store.noted(&key()).map(|noted| (noted.note, noted.payload_bytes));
        assert_eq!(noted(&store), Some((note, 0)));
        // a later successful compilation, for example on a device, replaces it
        let note = CompileNote { kernels: vec![KernelUse::new("add", 384, 12, 0, 0)], ..CompileNote::default() };
        keep(&store, None, note.clone());
        assert!(store.find(&key()).is_some());
        assert_eq!(noted(&store), Some((note, 12)));
    }

    #[test]
    fn the_store_reads_no_link_and_waits_for_no_pipe() {
        let (folder, store, kept) = open_with_one();
        let path = kept.executable.path;
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
        let (_folder, store, kept) = open_with_one();
        let path = kept.executable.path;
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
        let (_folder, store, kept) = open_with_one();
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
