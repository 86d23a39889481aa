//! The file: found or named, read once, and its values with their lines.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::io_hint::io_hint;
use crate::outside_file;
use crate::printable::printable;

use super::{Setting, SettingKind};

/// The name under which a file is found.
pub const FILE_NAME: &str = "autotune.toml";

/// Maximum size of the file: about a thousand times what all keys need.
const MAX_FILE_BYTES: u64 = 1 << 18;

/// Why a settings file cannot be used, in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// It cannot be opened or read, is not a regular file, or others may write the user's own.
    #[error("cannot read the configuration `{}`: {source}{}; `--config FILE` names another one, `--no-config` uses \
             none", .path.display(), io_hint(.source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line of it is wrong, or sets what the file may not.
    #[error("{}:{line}: {message}", printable(&.path.display().to_string()))]
    At {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong there; safe for a terminal.
        message: String,
    },
}

/// The nearest `autotune.toml` in a folder and those above it.
pub fn find(from: &Path) -> Option<PathBuf> {
    // anything of this name, also a broken link, which is reported and not skipped
    from.ancestors().map(|folder| folder.join(FILE_NAME)).find(|path| path.symlink_metadata().is_ok())
}

/// A value of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileValue {
    /// Its key.
    pub setting: &'static Setting,
    /// As an argument of the flag, with paths made absolute; several for an array.
    pub words: Vec<OsString>,
    /// Its line, counted from 1.
    pub line: usize,
    /// As it is written.
    written: Vec<String>,
}

/// A file's values. The file is read once, so that a concurrent change has no effect.
#[derive(Debug)]
pub struct SettingsFile {
    path: PathBuf,
    values: Vec<FileValue>,
}

impl SettingsFile {
    /// Reads a file that the user named; links are followed.
    ///
    /// # Errors
    /// If it cannot be read, is not a regular file or too large, or something in it is wrong.
    pub fn named(path: &Path) -> Result<Self, SettingsError> {
        let read = || Ok((std::path::absolute(path)?, outside_file::text(path, MAX_FILE_BYTES)?));
        let (path, text) = readable(path, read())?;
        Self::parse(path, &text)
    }

    /// Reads the user's own file, if there is one; links are followed.
    ///
    /// # Errors
    /// As [`named`](Self::named), and if another user owns it or may write it.
    pub fn own(path: &Path) -> Result<Option<Self>, SettingsError> {
        if path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let read = || {
            let file = outside_file::open(path, MAX_FILE_BYTES)?;
            let metadata = file.metadata()?;
            let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
            if !is_trusted(owner) {
                return Err(io::Error::other(format!("it belongs to another user (number {owner}); make it yours")));
            }
            if mode & 0o022 != 0 {
                let why = format!("its mode is {mode:04o}, and others may write it; make it 0644");
                return Err(io::Error::other(why));
            }
            outside_file::read_text(file, MAX_FILE_BYTES)
        };
        let text = readable(path, read())?;
        Self::parse(path.to_owned(), &text).map(Some)
    }

    /// Reads a file that was found; `None` for that of another user. Links in its folder's path are resolved, so that
    /// it has one path however it was reached. `in_force` is the number that a key has without the file.
    ///
    /// # Errors
    /// As [`named`](Self::named), if it is a link, and if it sets what such a file may not.
    pub fn found(path: &Path, in_force: &dyn Fn(&Setting) -> Option<f64>) -> Result<Option<Self>, SettingsError> {
        let read = || {
            let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let path = folder.canonicalize()?.join(name);
            let file = outside_file::open_own(&path, MAX_FILE_BYTES)?;
            let owner = file.metadata()?.uid();
            Ok((path, outside_file::read_text(file, MAX_FILE_BYTES)?, owner))
        };
        let (path, text, owner) = readable(path, read())?;
        if !is_trusted(owner) {
            return Ok(None);
        }
        let file = Self::parse(path, &text)?;
        for value in &file.values {
            for word in &value.written {
                value.setting.allow_found(word, file.folder(), in_force(value.setting)).map_err(|what| {
                    let path = printable(&file.path.display().to_string());
                    let next = format!("read it, then use `--config {path}` or the flag, or `--no-config`");
                    file.wrong(value, &format!("a file that was merely found may {what}: {next}"))
                })?;
            }
        }
        Ok(Some(file))
    }

    fn parse(path: PathBuf, text: &str) -> Result<Self, SettingsError> {
        let mut file = Self { path, values: Vec::new() };
        let line = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        let table = DeTable::parse(text).map_err(|error| {
            // some messages of the parser have several lines
            let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            file.at(line(error.span().unwrap_or(0..0).start), &message)
        })?;
        let mut entries: Vec<_> = table.get_ref().iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let value = file.value(key.get_ref(), value, line(key.span().start))?;
            file.values.push(value);
        }
        Ok(file)
    }

    fn value(&self, key: &str, value: &Spanned<DeValue<'_>>, line: usize) -> Result<FileValue, SettingsError> {
        let wrong = |message: String| self.at(line, &message);
        let setting = Setting::named(key).ok_or_else(|| wrong(unknown(key)))?;
        let written: Result<Vec<_>, _> = match (setting.kind, value.get_ref()) {
            (SettingKind::Targets, DeValue::Array(items)) => {
                items.iter().map(|item| written(setting, item.get_ref())).collect()
            }
            (_, value) => written(setting, value).map(|word| vec![word]),
        };
        let written = written.map_err(wrong)?;
        let words: Result<_, _> = written.iter().map(|word| setting.resolved(word, self.folder())).collect();
        Ok(FileValue { setting, words: words.map_err(wrong)?, written, line })
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Its values, in the order of the file.
    pub fn values(&self) -> &[FileValue] {
        &self.values
    }

    /// Where a value is: the file and the line.
    pub fn place(&self, value: &FileValue) -> String {
        format!("{}:{}", self.path.display(), value.line)
    }

    /// An error at a value of this file.
    pub fn wrong(&self, value: &FileValue, message: &str) -> SettingsError {
        self.at(value.line, message)
    }

    fn at(&self, line: usize, message: &str) -> SettingsError {
        SettingsError::At { path: self.path.clone(), line, message: printable(message) }
    }
}

/// Whether a file of this user can be believed. Root could change this program as well.
fn is_trusted(owner: u32) -> bool {
    owner == rustix::process::geteuid().as_raw() || owner == 0
}

fn readable<T>(path: &Path, read: io::Result<T>) -> Result<T, SettingsError> {
    read.map_err(|source| SettingsError::Unreadable { path: path.to_owned(), source })
}

fn unknown(key: &str) -> String {
    // it may be as long as the file
    let shown: String = key.chars().take(60).collect();
    let next = Setting::nearest(key).map_or_else(
        || "docs/configuration.md lists the keys".to_owned(),
        |nearest| format!("did you mean `{nearest}`?"),
    );
    format!("unknown key `{shown}`; {next}")
}

/// A value as its flag takes it, if it has the form that its key requires.
fn written(setting: &Setting, value: &DeValue<'_>) -> Result<String, String> {
    let key = setting.key;
    match (setting.kind, value) {
        (SettingKind::Flag, DeValue::Boolean(flag)) => Ok(flag.to_string()),
        (SettingKind::Flag, _) => Err(format!("`{key}` takes `true` or `false`")),
        (SettingKind::Text, DeValue::Integer(number)) => Ok(number.to_string()),
        (SettingKind::Text, DeValue::Float(number)) => Ok(number.to_string()),
        (_, DeValue::String(text)) if text.is_empty() => Err(format!("`{key}` is empty: leave the key out")),
        (_, DeValue::String(text)) if text.contains(char::is_control) => {
            Err(format!("`{key}` holds a control character"))
        }
        (_, DeValue::String(text)) => Ok(text.clone().into_owned()),
        _ => Err(format!("`{key}` does not take a value of the type {}", value.type_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<SettingsFile, SettingsError> {
        SettingsFile::parse(PathBuf::from("/p/autotune.toml"), text)
    }

    #[test]
    fn values_become_arguments_with_their_lines() {
        let text = "# ours\nregistry = \"r\"\nmin-improvement = 0.05\n\ntarget = [\"cuda:h100_sxm\", \"tpu:v5e\"]\n\
                    thorough = true\ntimeout = 1_000\n";
        let file = parsed(text).unwrap();
        let values: Vec<_> = file
            .values()
            .iter()
            .map(|value| (value.setting.key, value.line, value.words.join(" ".as_ref()).into_string().unwrap()))
            .collect();
        let expected = [
            ("registry", 2, "/p/r"),
            ("min-improvement", 3, "0.05"),
            ("target", 5, "cuda:h100_sxm tpu:v5e"),
            ("thorough", 6, "true"),
            ("timeout", 7, "1000"),
        ];
        assert_eq!(values, expected.map(|(key, line, words)| (key, line, words.to_owned())));
    }

    #[test]
    fn errors_name_their_line() {
        for (text, line, message) in [
            ("registry = \"r\"\ntimers = \"auto\"\n", 2, "unknown key `timers`; did you mean `timer`?"),
            ("[policy]\nrounds = 1\n", 1, "unknown key `policy`"),
            ("timer.command = \"x\"\n", 1, "`timer` does not take a value of the type table"),
            ("thorough = 1\n", 1, "`thorough` takes `true` or `false`"),
            ("timeout = true\n", 1, "`timeout` does not take a value of the type boolean"),
            ("timer = [\"auto\"]\n", 1, "type array"),
            ("\ntarget = [\"tpu:v5e\", 1]\n", 2, "type integer"),
            ("timer = \"\"\n", 1, "is empty"),
            ("registry = \"~/r\"\n", 1, "`registry`: `~` is not expanded"),
            ("timer = \"command:a\\u0000b\"\n", 1, "holds a control character"),
            ("timer = \"a\"\ntimer = \"b\"\n", 2, "duplicate key"),
            ("timer = \n", 1, ""),
            ("timer = \"a\0b\"\n", 1, ""),
            ("\"\\u001b[2J\" = 1\n", 1, "unknown key `\\u{1b}[2J`"),
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("/p/autotune.toml:{line}: ")), "{text:?}: {error}");
            assert!(error.contains(message) && error.lines().count() == 1, "{text:?}: {error}");
        }
    }

    /// No file makes it panic, hang, or say more than one short line.
    #[test]
    fn hostile_files_are_refused_or_read() {
        let sound = "registry = \"r\"\ntarget = [\"tpu:v5e\"]\ntimeout = 5 # é\nthorough = true\n";
        let deep = |open: &str, close: &str| format!("timer = {}{}", open.repeat(60_000), close.repeat(60_000));
        let mut texts = vec![
            deep("[", "]"),
            deep("{a=", "}"),
            deep("[", ""),
            "a.".repeat(60_000) + "b = 1",
            "[".repeat(60_000),
            "x".repeat(200_000),
            format!("{} = 1", "é".repeat(100_000)),
            format!("timer = \"{}\"", "\\u0000".repeat(20_000)),
            "\u{feff}timer = \"auto\"".to_owned(),
            "timeout = 99999999999999999999999999999999999999999999999".to_owned(),
            "min-improvement = nan\nmax-speed-up = -inf".to_owned(),
            "timer = \"\\ud800\"".to_owned(),
            "timer = '''".to_owned(),
            "\r\r\n = \n".to_owned(),
        ];
        // every truncated text, and every byte of it changed
        for at in (0..sound.len()).filter(|at| sound.is_char_boundary(*at)) {
            texts.push(sound[..at].to_owned());
            for other in ["\0", "\"", "[", "=", "\n", "\\", "\u{202e}", "é"] {
                let next = (at + 1..=sound.len()).find(|next| sound.is_char_boundary(*next)).unwrap();
                texts.push([&sound[..at], other, &sound[next..]].concat());
            }
        }
        assert!(texts.len() > 500);
        for text in texts {
            if let Err(error) = parsed(&text) {
                let message = error.to_string();
                let start: String = text.chars().take(40).collect();
                assert!(message.len() < 1000 && printable(&message) == message, "{start:?}: {message}");
            }
        }
    }
}
