//! Errors of a store.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

use crate::io_hint::io_hint;
use crate::printable::printable;

/// A store cannot be opened, read or written: one line that names it, says why, and what to do.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    line: String,
    /// What to do next, where the line does not say it.
    next: &'static str,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What kind of trouble it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Another process has the folder open.
    Locked,
    /// A file or folder cannot be read or written; the [source](StoreError::io_error) is the system's error.
    Io,
    /// The database fails.
    Database,
    /// A value is not what was written.
    Damaged,
    /// A snapshot is not what was written.
    Snapshot,
    /// A snapshot of a later program.
    NewerSnapshot,
    /// The store is read-only.
    ReadOnly,
    /// An entry sets what no entry may.
    Refused,
}

impl StoreError {
    /// What kind of trouble it is.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// The system's error, if that is the reason.
    pub fn io_error(&self) -> Option<&io::Error> {
        self.source.as_deref()?.downcast_ref()
    }

    /// Whether there is no such file.
    pub fn is_not_found(&self) -> bool {
        self.io_error().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether a database is damaged, which can be rebuilt.
    pub fn is_of_content(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Database | StoreErrorKind::Damaged)
    }

    /// What is wrong, and where, without what to do.
    pub fn without_advice(&self) -> &str {
        &self.line
    }

    /// Only the reason, without the place and what to do.
    pub fn reason(&self) -> String {
        self.source.as_ref().map_or_else(|| self.line.clone(), ToString::to_string)
    }

    /// Wraps a system error.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| {
            let line = format!("cannot {action} `{}`: {source}{}", path.display(), io_hint(&source));
            Self { kind: StoreErrorKind::Io, line, next: "", source: Some(Box::new(source)) }
        }
    }

    /// A folder that another process has open, as its lock file names it.
    pub(super) fn locked(folder: &Path, holder: &str) -> Self {
        let folder = folder.display();
        let line = format!(
            "the cache `{folder}` is in use by {holder}; wait for it to end or choose another folder with `--cache`"
        );
        Self { kind: StoreErrorKind::Locked, line, next: "", source: None }
    }

    /// Wraps an error of a database, and says what to do next.
    pub fn database(
        action: &'static str,
        path: &Path,
        source: impl Error + Send + Sync + 'static,
        next: &'static str,
    ) -> Self {
        let line = format!("cannot {action} the sled cache `{}`: {source}{next}", path.display());
        Self { kind: StoreErrorKind::Database, line, next: "", source: Some(Box::new(source)) }
    }

    /// A damaged value: which, and how.
    pub fn damaged(path: &Path, what: impl fmt::Display) -> Self {
        let (path, what) = (path.display(), what.to_string());
        let line = format!(
            "an entry of `{path}` is damaged: {what}; `autotune-lowered cache rebuild` makes it again from the sample \
             log"
        );
        Self { kind: StoreErrorKind::Damaged, line, next: "", source: Some(what.into()) }
    }

    /// An entry that sets what no entry may: of which call, and why.
    pub(super) fn refused(op_id: &str, call_key: &str, why: &str) -> Self {
        let (op_id, call_key) = (printable(op_id), printable(call_key));
        let line = format!(
            "the entry of `{op_id}:{call_key}` {why}: ask who made it; `autotune-lowered cache rm` removes it from a \
             folder of yours"
        );
        Self { kind: StoreErrorKind::Refused, line, next: "", source: None }
    }

    /// A damaged snapshot: what, and where.
    pub(super) fn snapshot(path: &Path, what: impl fmt::Display) -> Self {
        let (path, what) = (path.display(), what.to_string());
        let line = format!("the snapshot `{path}` cannot be used: {what}");
        let next = "; publish it again with `autotune-lowered cache snapshot`";
        Self { kind: StoreErrorKind::Snapshot, line, next, source: Some(what.into()) }
    }

    /// A file that is not a snapshot, or no longer one.
    pub(super) fn no_snapshot(path: &Path) -> Self {
        let what = "it is not a snapshot";
        let line = format!("`{}` cannot be used: {what}", path.display());
        let next = "; check the path, or publish it again with `autotune-lowered cache snapshot`";
        Self { kind: StoreErrorKind::Snapshot, line, next, source: Some(what.into()) }
    }

    /// A snapshot of a later program: which part of it is unknown here.
    pub(super) fn newer_snapshot(path: &Path, what: impl fmt::Display) -> Self {
        let what = format!("has {what}, which this program does not read");
        let line = format!("the snapshot `{}` {what}; use a newer autotune-lowered", path.display());
        Self { kind: StoreErrorKind::NewerSnapshot, line, next: "", source: Some(format!("it {what}").into()) }
    }

    /// A tier that cannot be written.
    pub(super) fn read_only(tier: impl fmt::Display) -> Self {
        Self { kind: StoreErrorKind::ReadOnly, line: format!("the {tier} tier is read-only"), next: "", source: None }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.line, self.next)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
