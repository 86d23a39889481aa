//! The digest of a plugin's file. A vendor's plugin has half a gigabyte, so the digest is stored with what changes when
//! the file does: device and inode, size, and the time of the last change of either, which no program can set.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::discover::MAX_PLUGIN_BYTES;
use crate::atomic_write::write_atomic;
use crate::digest::Digest;
use crate::failure::{Failure, FailureKind};
use crate::outside_file;

/// The file of stored digests, beside the executables.
const FILE: &str = "plugins.json";
const MAX_FILE_BYTES: u64 = 1 << 16;
/// Maximum number of plugins that are remembered.
const MOST: usize = 32;
/// A file that has just changed may change again within the clock's resolution.
const SETTLED: Duration = Duration::from_secs(2);

/// A file's state when it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    ctime: (i64, i64),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct KnownDigest {
    #[serde(flatten)]
    stamp: FileStamp,
    digest: Digest,
}

/// SHA-256 of the plugin's file; `folder` stores digests from run to run.
pub(crate) fn digest_of_plugin(plugin: &Path, folder: Option<&Path>) -> Result<Digest, Failure> {
    digest(plugin, folder).map_err(|error| {
        Failure::new(FailureKind::Device, format!("{}: the plugin cannot be read: {error}", plugin.display()))
    })
}

/// The plugin's digest, computed while its first worker starts, and what that start gives.
pub(crate) fn digest_while<T>(
    plugin: &Path,
    folder: Option<&Path>,
    start: impl FnOnce() -> Result<T, Failure>,
) -> Result<(Digest, T), Failure> {
    std::thread::scope(|scope| {
        let digest = std::thread::Builder::new().spawn_scoped(scope, || digest_of_plugin(plugin, folder));
        let started = start();
        let digest = match digest.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(digest)) => digest,
            // no thread could be started
            _ => digest_of_plugin(plugin, folder),
        };
        // an unreadable file is the better reason
        Ok((digest?, started?))
    })
}

fn digest(plugin: &Path, folder: Option<&Path>) -> io::Result<Digest> {
    let file = outside_file::open(plugin, MAX_PLUGIN_BYTES)?;
    let metadata = file.metadata()?;
    let stamp = FileStamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        ctime: (metadata.ctime(), metadata.ctime_nsec()),
    };
    let kept = folder.map(|folder| folder.join(FILE));
    let mut known = kept.as_deref().and_then(read).unwrap_or_default();
    if let Some(known) = known.iter().find(|known| known.stamp == stamp) {
        return Ok(known.digest);
    }
    let digest = Digest::of_reader(file)?;
    let changed = u64::try_from(metadata.ctime()).map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
    let is_settled = changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|since| since > SETTLED));
    if let Some(path) = kept.filter(|_| is_settled) {
        known.insert(0, KnownDigest { stamp, digest });
        known.truncate(MOST);
        // it is read again the next time
        let _ = serde_json::to_vec(&known).map(|text| write_atomic(&path, |file| file.write_all(&text)));
    }
    Ok(digest)
}

/// The stored digests, if this user wrote them.
fn read(path: &Path) -> Option<Vec<KnownDigest>> {
    let file = outside_file::open_own(path, MAX_FILE_BYTES).ok()?;
    let is_own = file.metadata().is_ok_and(|metadata| metadata.uid() == rustix::process::geteuid().as_raw());
    serde_json::from_slice(&outside_file::read(file, MAX_FILE_BYTES).ok().filter(|_| is_own)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_digest_is_kept_until_the_file_changes_and_damage_costs_a_reading() {
        let folder = tempfile::tempdir().unwrap();
        let plugin = folder.path().join("plugin.so");
        let kept = folder.path().join(FILE);
        fs::write(&plugin, b"one").unwrap();
        let of = || digest_of_plugin(&plugin, Some(folder.path())).unwrap();
        // changed a moment ago: not stored
        assert_eq!((of(), kept.exists()), (Digest::of(b"one"), false));
        // as if it had been read long ago, with a digest that reveals where it comes from
        let metadata = fs::metadata(&plugin).unwrap();
        let stamp = FileStamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: 3,
            ctime: (metadata.ctime(), metadata.ctime_nsec()),
        };
        let known = vec![KnownDigest { stamp, digest: Digest::of(b"kept") }];
        fs::write(&kept, serde_json::to_vec(&known).unwrap()).unwrap();
        assert_eq!(of(), Digest::of(b"kept"));
        assert_eq!(digest_of_plugin(&plugin, None).unwrap(), Digest::of(b"one"));
        fs::write(&plugin, b"two").unwrap();
        assert_eq!(of(), Digest::of(b"two"));
        for damaged in [&b"[{"[..], b"", b"[1]"] {
            fs::write(&kept, damaged).unwrap();
            assert_eq!(of(), Digest::of(b"two"));
        }
        fs::remove_file(&kept).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &kept).unwrap();
        assert_eq!(of(), Digest::of(b"two"));
        assert!(digest_of_plugin(&folder.path().join("none.so"), None).is_err());
    }
}
