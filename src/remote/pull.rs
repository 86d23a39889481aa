//! Loading: the snapshot in force, from the local copy if that is current.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::bucket::ObjectVersion;
use super::manifest::{MANIFEST, MAX_MANIFEST_BYTES, MAX_SNAPSHOT_BYTES};
use super::{CacheManifest, Remote, RemoteError, Trust};
use crate::atomic_write::{folder_of, remove_unfinished, unfinished_file};
use crate::cache::Snapshot;
use crate::mapped_file::Mapping;
use crate::signature::{MAX_SIGNATURE_BYTES, PublicKeys, SignatureError, Signatures, signature_path};

/// The loaded snapshot.
#[derive(Debug)]
pub struct Pulled {
    /// The snapshot, from this machine's copy.
    pub snapshot: Snapshot,
    /// Its manifest; `None` if the store is unreachable.
    pub manifest: Option<CacheManifest>,
    /// Whether it was fetched; otherwise it was already here.
    pub fetched: bool,
    /// The key that signed it, if keys were given.
    pub signed_by: Option<String>,
    /// If the store is unreachable: why the copy is used, and when it was last known to be current.
    pub stale: Option<(String, Duration)>,
}

impl Pulled {
    /// One line for the user if the copy is used instead of the store.
    pub fn note(&self) -> Option<String> {
        let (reason, age) = self.stale.as_ref()?;
        Some(format!("{reason}; the copy of {} ago is used", in_words(*age)))
    }
}

impl Remote {
    /// Loads the snapshot in force into the file `copy`, unless it is that one already.
    ///
    /// If the store cannot be reached and `copy` exists, the copy is used and [`Pulled::stale`] says so. A store that
    /// denies access, has nothing, or returns something untrusted is an error, regardless of the copy. So is one with
    /// an older generation than was loaded into `copy` before.
    ///
    /// # Errors
    /// Those, and if `copy` cannot be written.
    pub fn pull(&self, copy: &Path, trust: Trust<'_>) -> Result<Pulled, RemoteError> {
        self.refuse_plain(trust.keys)?;
        let away = match self.pull_now(copy, trust) {
            Ok(Some((pulled, _))) => return Ok(pulled),
            Ok(None) => return Err(RemoteError::Nothing { url: self.address.to_string() }),
            Err(error) if error.is_away() => error,
            Err(error) => return Err(error),
        };
        let Ok(modified) = fs::metadata(copy).and_then(|metadata| metadata.modified()) else { return Err(away) };
        // if the clock was set back, the age is zero
        let age = SystemTime::now().duration_since(modified).unwrap_or_default();
        let Ok(snapshot) = Snapshot::open(copy, Mapping::Never) else { return Err(away) };
        self.refuse_other(snapshot.digest(), trust)?;
        let name = copy.display().to_string();
        let signed_by = trust
            .keys
            .map(|keys| {
                snapshot.verify()?;
                Ok::<_, RemoteError>(Signatures::read_beside(copy)?.check(snapshot.digest(), keys, &name)?)
            })
            .transpose()?;
        Ok(Pulled { snapshot, manifest: None, fetched: false, signed_by, stale: Some((away.to_string(), age)) })
    }

    /// Plain HTTP over a network is accepted if signatures are checked.
    pub(super) fn refuse_plain(&self, keys: Option<&PublicKeys>) -> Result<(), RemoteError> {
        match keys {
            None if self.address.is_plain() => Err(RemoteError::Plain { url: self.address.to_string() }),
            _ => Ok(()),
        }
    }

    /// The manifest in force; `None` if nothing was published.
    pub(super) fn pull_now(
        &self,
        copy: &Path,
        trust: Trust<'_>,
    ) -> Result<Option<(Pulled, ObjectVersion)>, RemoteError> {
        let keys = trust.keys;
        let mut missing = None;
        loop {
            let Some((manifest, version)) = self.manifest()? else { return Ok(None) };
            self.refuse_other(manifest.digest, trust)?;
            self.refuse_rollback(&manifest, copy, trust)?;
            let name = manifest.snapshot_name();
            if missing.as_ref() == Some(&manifest.digest) {
                let what = "the manifest names it, but it is missing".to_owned();
                return Err(RemoteError::Damaged { url: self.address.to_string(), name, what });
            }
            let known = Snapshot::open(copy, Mapping::Never).ok().filter(|known| {
                // a signature covers the bytes, so all of them are checked
                known.digest() == manifest.digest && (keys.is_none() || known.verify().is_ok())
            });
            if let Some(snapshot) = known {
                let signed_by = self.signature_for(&manifest, copy, keys, false)?;
                // its age counts from its last comparison with the store
                let _ = File::options().append(true).open(copy).and_then(|file| file.set_modified(SystemTime::now()));
                let pulled = Pulled { snapshot, manifest: Some(manifest), fetched: false, signed_by, stale: None };
                return Ok(Some((pulled, version)));
            }
            match self.fetch(&manifest, copy, keys)? {
                Some(pulled) => return Ok(Some((pulled, version))),
                // since the manifest was read, another one may have been published and this one removed
                None => missing = Some(manifest.digest),
            }
        }
    }

    /// The manifest and its version.
    pub(super) fn manifest(&self) -> Result<Option<(CacheManifest, ObjectVersion)>, RemoteError> {
        let Some((bytes, version)) = self.read_small(MANIFEST, MAX_MANIFEST_BYTES)? else { return Ok(None) };
        Ok(Some((CacheManifest::from_bytes(&bytes, &self.address.to_string())?, version)))
    }

    /// What is there to be replaced: the version of a damaged manifest too, which no longer says anything.
    pub(super) fn manifest_to_replace(&self) -> Result<(Option<CacheManifest>, Option<ObjectVersion>), RemoteError> {
        let Some((bytes, version)) = self.read_small(MANIFEST, MAX_MANIFEST_BYTES)? else { return Ok((None, None)) };
        match CacheManifest::from_bytes(&bytes, &self.address.to_string()) {
            Ok(manifest) => Ok((Some(manifest), Some(version))),
            Err(RemoteError::Damaged { url, name, what }) => {
                tracing::warn!("`{name}` of `{url}` is replaced, and its generation is lost: {what}");
                Ok((None, Some(version)))
            }
            Err(error) => Err(error),
        }
    }

    fn fetch(
        &self,
        manifest: &CacheManifest,
        copy: &Path,
        keys: Option<&PublicKeys>,
    ) -> Result<Option<Pulled>, RemoteError> {
        let name = manifest.snapshot_name();
        let folder = folder_of(copy);
        let io = |error| RemoteError::io("write the copy", copy)(error);
        fs::create_dir_all(folder).map_err(io)?;
        remove_unfinished(folder);
        // the umask applies, because others should be able to read a snapshot
        let mut temporary = unfinished_file(folder, 0o666).map_err(io)?;
        let mut out = Counted { inner: io::BufWriter::new(temporary.as_file_mut()), bytes: 0, failure: None };
        let limit = manifest.size.min(MAX_SNAPSHOT_BYTES);
        let got = self.bucket.get(&name, limit, &mut out);
        let failure = out.failure.take().or_else(|| out.inner.flush().err());
        let bytes = out.bytes;
        drop(out);
        // a full disk here is not the store's fault
        if let Some(failure) = failure {
            return Err(io(failure));
        }
        if got.map_err(self.trouble(&name))?.is_none() {
            return Ok(None);
        }
        let url = self.address.to_string();
        let damaged = |what: String| RemoteError::Damaged { url: url.clone(), name: name.clone(), what };
        if bytes != manifest.size {
            return Err(damaged(format!("it has {bytes} bytes, the manifest says {}", manifest.size)));
        }
        temporary.as_file().sync_all().map_err(io)?;
        {
            let fetched = Snapshot::open(temporary.path(), Mapping::Never);
            let checked = fetched.and_then(|snapshot| snapshot.verify().map(|()| snapshot.digest()));
            match checked {
                Ok(digest) if digest == manifest.digest => {}
                Ok(digest) => return Err(damaged(format!("its digest is {digest}"))),
                // without the temporary file's name, which means nothing to the user
                Err(error) => return Err(damaged(error.reason())),
            }
        }
        let signed_by = self.signature_for(manifest, copy, keys, true)?;
        temporary.persist(copy).map_err(|error| io(error.error))?;
        let snapshot = Snapshot::open(copy, Mapping::Never)?;
        Ok(Some(Pulled { snapshot, manifest: Some(manifest.clone()), fetched: true, signed_by, stale: None }))
    }

    /// Checks the signature if keys are given, and stores it beside the copy for later checks.
    fn signature_for(
        &self,
        manifest: &CacheManifest,
        copy: &Path,
        keys: Option<&PublicKeys>,
        is_new: bool,
    ) -> Result<Option<String>, RemoteError> {
        if keys.is_none() && !is_new {
            return Ok(None);
        }
        let name = format!("{}.sig", manifest.snapshot_name());
        let file = format!("{} of {}", manifest.snapshot_name(), self.address);
        let found = match self.read_small(&name, MAX_SIGNATURE_BYTES) {
            Err(RemoteError::Damaged { .. }) => Err(SignatureError::NotASignature { file: file.clone() }),
            Ok(None) => Err(SignatureError::Missing { file: file.clone() }),
            Ok(Some((bytes, _))) => Signatures::from_bytes(&bytes, &file),
            Err(error) => return Err(error),
        };
        let statement = manifest.to_statement();
        let (signatures, signed_by) = match keys {
            Some(keys) => {
                let signatures = found?;
                let signed_by = signatures.check_statement(&statement, keys, &file)?;
                (signatures, Some(signed_by))
            }
            // stored for later checks
            None => (found.unwrap_or_default(), None),
        };
        // those of other generations would wrongly show that they were loaded
        let signatures = signatures.of_statement(&statement);
        if !signatures.is_empty() {
            signatures.write_beside(copy)?;
            return Ok(signed_by);
        }
        // the existing one belongs to the previous copy
        let beside = signature_path(copy);
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(RemoteError::io("remove the old signature", &beside)(error))
            }
            _ => Ok(signed_by),
        }
    }
}

/// Counts the bytes, and distinguishes the error of a failed write from those of the store.
struct Counted<W> {
    inner: W,
    bytes: u64,
    failure: Option<io::Error>,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.inner.write_all(bytes) {
            Ok(()) => {
                self.bytes += bytes.len() as u64;
                Ok(bytes.len())
            }
            Err(error) => {
                let kind = error.kind();
                self.failure = Some(error);
                Err(kind.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn in_words(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
