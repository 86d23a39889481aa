//! The address of a remote cache.

use std::fmt;
use std::path::{Path, PathBuf};

use super::RemoteError;
use crate::cache::{is_url, shown_url};
use crate::digest::Digest;

/// A remote cache's URL. Printed, it has neither user nor password nor query.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub(super) place: StorePlace,
    shown: String,
    full: String,
}

/// Where a cache is, as `--cache` and the configuration name it. This is the only reading of such a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachePlace {
    /// A folder, or a snapshot file.
    Local(PathBuf),
    /// A shared cache.
    Shared(Address),
}

impl CachePlace {
    /// What a name means. Any name that is not of the form of a URL is a path.
    ///
    /// # Errors
    /// If it is a URL of an unknown kind.
    pub fn parse(name: &Path) -> Result<Self, RemoteError> {
        // a URL is text; a path need not be
        match name.to_str().filter(|text| is_url(text)) {
            Some(url) => Ok(Self::Shared(Address::parse(url)?)),
            None => Ok(Self::Local(name.to_owned())),
        }
    }
}

/// The store, and the path in it.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum StorePlace {
    Folder(PathBuf),
    Bucket { kind: BucketKind, bucket: String, prefix: String },
    Web { url: String, user: Option<(String, String)>, encrypted: bool },
}

/// The provider of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BucketKind {
    S3,
    Google,
    Azure,
}

impl BucketKind {
    #[cfg(not(feature = "remote"))]
    pub(super) fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }
}

const SCHEMES: &str = "`s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, `https://…`, `http://…` or \
                       `file:///FOLDER`";

impl Address {
    /// The address of a URL.
    ///
    /// # Errors
    /// If it is not a URL, or of an unknown kind.
    pub fn parse(text: &str) -> Result<Self, RemoteError> {
        let shown = shown_url(text);
        let wrong = |what: String| Err(RemoteError::Address { url: shown.clone(), what });
        let Some((scheme, rest)) = text.split_once("://").filter(|_| is_url(text)) else {
            return wrong(format!("write {SCHEMES}"));
        };
        if text.chars().any(|c| c.is_control() || c == '\\') {
            return wrong("it holds characters that no URL has".to_owned());
        }
        let place = match scheme {
            "file" => {
                let path = Path::new(rest);
                if !path.is_absolute() || rest.contains(['%', '?', '#']) {
                    return wrong(
                        "write `file://` and the folder's absolute path as it is, without `%`, `?` and `#`".to_owned(),
                    );
                }
                StorePlace::Folder(path.to_owned())
            }
            "http" | "https" => web(scheme, rest),
            "s3" | "gs" | "az" => {
                let kind = match scheme {
                    "s3" => BucketKind::S3,
                    "gs" => BucketKind::Google,
                    _ => BucketKind::Azure,
                };
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                let parts: Vec<&str> = prefix.split('/').filter(|part| !part.is_empty()).collect();
                let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
                if bucket.is_empty() || !bucket.chars().all(is_name) {
                    return wrong(format!(
                        "it names no bucket; credentials come from the environment; write {SCHEMES}"
                    ));
                }
                if parts.iter().any(|part| matches!(*part, "." | "..")) || prefix.contains(['%', '?', '#']) {
                    return wrong("its prefix must be without `.`, `..`, `%`, `?` and `#`".to_owned());
                }
                StorePlace::Bucket { kind, bucket: bucket.to_owned(), prefix: parts.join("/") }
            }
            _ => return wrong(format!("write {SCHEMES}")),
        };
        if matches!(&place, StorePlace::Web { url, .. } if url.ends_with("://")) {
            return wrong("it names no host".to_owned());
        }
        Ok(Self { place, shown, full: text.trim_end_matches('/').to_owned() })
    }

    /// The name of this machine's folder for it: a URL's distinguishing parts are included only as a digest.
    pub fn to_folder_name(&self) -> String {
        let slug: String =
            self.shown.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(60).collect();
        format!("{slug}-{}", Digest::of(self.full.as_bytes()).to_short())
    }

    /// Whether others on the network could change what is loaded: plain HTTP to another machine.
    pub fn is_plain(&self) -> bool {
        let StorePlace::Web { url, encrypted: false, .. } = &self.place else { return false };
        let host = url.split_once("://").map_or("", |(_, rest)| rest).split(['/', '?']).next().unwrap_or_default();
        let name = match host.strip_prefix('[') {
            Some(six) => six.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let is_loopback = name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        !is_loopback && name != "localhost"
    }

    /// Whether it can only be read.
    pub fn is_read_only(&self) -> bool {
        matches!(self.place, StorePlace::Web { .. })
    }
}

fn web(scheme: &str, rest: &str) -> StorePlace {
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let user = user.map(|user| {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        (name.to_owned(), password.to_owned())
    });
    let path = path.split('#').next().unwrap_or_default();
    StorePlace::Web { url: format!("{scheme}://{host}{path}"), user, encrypted: scheme == "https" }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_is_not_shown() {
        for url in ["https://ann:p4ss@host.example/a?sig=s3cret#x", "s3://AKIA:p4ss@bucket/a?token=s3cret"] {
            let (shown, error) = match Address::parse(url) {
                Ok(address) => (format!("{address} {address:?} {}", address.to_folder_name()), String::new()),
                Err(error) => (String::new(), format!("{error} {error:?}")),
            };
            for secret in ["ann", "p4ss", "s3cret", "AKIA"] {
                assert!(!shown.contains(secret) && !error.contains(secret), "{shown} {error}");
            }
        }
    }

    #[test]
    fn places_are_told_apart() {
        let place = |url: &str| Address::parse(url).map(|address| address.place);
        let bucket = |url| match place(url) {
            Ok(StorePlace::Bucket { kind, bucket, prefix }) => (kind, bucket, prefix),
            other => panic!("{url}: {:?}", other.err()),
        };
        assert_eq!(bucket("s3://b/a//c/"), (BucketKind::S3, "b".into(), "a/c".into()));
        assert_eq!(bucket("gs://b"), (BucketKind::Google, "b".into(), String::new()));
        assert!(matches!(place("file:///a b/c"), Ok(StorePlace::Folder(path)) if path == Path::new("/a b/c")));
        for url in ["file://host/a", "file://a", "ftp://x/y", "s3://", "s3://b/../c", "az://b/a?sig=1", "http://", "x"]
        {
            assert!(Address::parse(url).is_err(), "{url}");
        }
        // what is not of a URL's form is a path, and what is must be of a known kind
        for path in ["/a://b", "folder", "1://c", "://x", "a b://c", "s3:/b"] {
            assert_eq!(CachePlace::parse(Path::new(path)).unwrap(), CachePlace::Local(path.into()));
        }
        assert!(matches!(CachePlace::parse(Path::new("s3://b/x")), Ok(CachePlace::Shared(_))));
        assert!(CachePlace::parse(Path::new("zz://x")).is_err());
    }

    #[test]
    fn only_this_machine_may_be_asked_in_plain_text() {
        for (url, plain) in [
            ("http://127.0.0.1:80/x", false),
            ("http://localhost/x", false),
            ("http://[::1]:8080", false),
            ("http://127.0.0.1.example.org/x", true),
            ("http://localhost@example.org/", true),
            ("http://10.0.0.1/x", true),
            ("https://10.0.0.1/x", false),
        ] {
            assert_eq!(Address::parse(url).unwrap().is_plain(), plain, "{url}");
        }
    }
}
