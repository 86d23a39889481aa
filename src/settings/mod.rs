//! Settings: the files that set flags, and what each of them may set.
//!
//! A file is TOML. Each key is named after the flag of the command line whose value it sets; [`SETTINGS`] lists them. A
//! relative path is relative to the file's folder. Files that the user named, and the user's own, may set every key. A
//! file that was merely found, in the working folder or above it, may have come with somebody else's code: it may set
//! what [`IfFound`] allows for each key, and anything else is an error. `docs/configuration.md` is the user's page.

mod file;
mod key;

pub use file::{FILE_NAME, FileValue, SettingsError, SettingsFile, find};
pub use key::{IfFound, SETTINGS, Setting, SettingKind};
