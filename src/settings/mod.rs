//! Settings of a project: the file `autotune.toml`, and whether it may run code.
//!
//! The file is TOML. Each key is named after the flag of the command line whose value it sets; [`SETTINGS`] lists them. A relative path
//! is relative to the file's folder. The file is one that the user named, or the nearest `autotune.toml` in the working folder
//! and those above it. A file that was merely found cannot set anything that runs code or decides trust until its user
//! has accepted it: [`Trusted`] keeps the digest of the accepted content. `docs/configuration.md` is the user's page.

mod error;
mod file;
mod setting;
mod trusted;

pub use error::SettingsError;
pub use file::{FILE_NAME, FileValue, Found, SettingsFile, find};
pub use setting::{Danger, Kind, SETTINGS, Setting};
pub use trusted::Trusted;
