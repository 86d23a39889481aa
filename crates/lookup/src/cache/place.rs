//! What the name of a cache means. Whoever takes such a name reads it here.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::snapshot::SNAPSHOT_FILE;
use crate::printable::printable;

/// Why a name gives no snapshot to open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// A URL, without user, password and query.
    #[error("`{0}` is a URL: `autotune-lowered cache pull URL FILE` loads it; open that file")]
    Url(String),
    /// A snapshot that does not exist.
    #[error(
        "cannot open the snapshot `{}`: there is no such file; check the path; `autotune-lowered cache snapshot FILE` \
         writes one", printable(&.0.display().to_string())
    )]
    Missing(PathBuf),
}

/// Whether a name of a cache is meant as a URL, and not as a path.
pub fn is_url(name: &str) -> bool {
    let scheme = name.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    })
}

/// A URL without user, password, query and fragment.
pub fn shown_url(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    let shown = match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            format!("{scheme}://{host}{path}")
        }
        None => url.to_owned(),
    };
    printable(&shown)
}

/// The snapshot that a program opens for a name: the one that is published in a folder, which need not be there yet, or
/// a file. A name of nothing is that of a file if it has an ending.
///
/// # Errors
/// If the name is a URL, or that of a file that does not exist.
pub fn snapshot_of(name: &Path) -> Result<PathBuf, PlaceError> {
    if let Some(url) = name.to_str().filter(|text| is_url(text)) {
        return Err(PlaceError::Url(shown_url(url)));
    }
    match fs::metadata(name) {
        Ok(metadata) if !metadata.is_dir() => Ok(name.to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound && name.extension().is_some() => {
            Err(PlaceError::Missing(name.to_owned()))
        }
        _ => Ok(name.join(SNAPSHOT_FILE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_url_a_file_or_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("v1.2")).unwrap();
        fs::write(at("file"), "").unwrap();
        for (name, snapshot) in [("none", "none/best-v1.snapshot"), ("v1.2", "v1.2/best-v1.snapshot"), ("file", "file")]
        {
            assert_eq!(snapshot_of(&at(name)), Ok(at(snapshot)), "{name}");
        }
        assert_eq!(snapshot_of(&at("none.snapshot")), Err(PlaceError::Missing(at("none.snapshot"))));
        let url = |name: &str| snapshot_of(Path::new(name)).unwrap_err().to_string();
        assert!(url("s3://user:secret@bucket/a?token=x").starts_with("`s3://bucket/a` is a URL"));
        for path in ["1://c", "://c", "a b://c", "./s3://c"] {
            assert!(snapshot_of(Path::new(path)).is_ok(), "{path}");
        }
    }
}
