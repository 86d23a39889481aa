//! The file: found or named, read once, and its values with their places.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::digest::Digest;
use crate::outside_file;

use super::{IfFound, Kind, Setting, SettingsError};

/// The name under which a file is found.
pub const FILE_NAME: &str = "autotune.toml";

/// Maximum size of the file: about a thousand times what all keys need.
const MAX_FILE_BYTES: u64 = 1 << 18;

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
    /// As it is written.
    written: Vec<String>,
    /// Its line, counted from 1.
    pub line: usize,
    span: Range<usize>,
}

/// How a file came to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The user named it.
    Named,
    /// It is the user's own, in the platform's folder for configurations.
    Own,
    /// It was in the working folder, or above it.
    Found,
}

/// A file's values. The file is read once, so that a concurrent change has no effect.
#[derive(Debug)]
pub struct SettingsFile {
    path: PathBuf,
    origin: Origin,
    digest: Digest,
    text: String,
    values: Vec<FileValue>,
}

/// The result of a search for the file.
#[derive(Debug)]
pub enum Found {
    /// A file of this user, or of root. Its values are on the list of those that such a file may set.
    Usable(SettingsFile),
    /// The file of another user, which is not read.
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
    },
}

impl SettingsFile {
    /// Reads a file that the user named; links are followed.
    ///
    /// # Errors
    /// If it cannot be read, is not a regular file or too large, or something in it is wrong.
    pub fn named(path: &Path) -> Result<Self, SettingsError> {
        let read = || -> io::Result<_> { Ok((std::path::absolute(path)?, outside_file::text(path, MAX_FILE_BYTES)?)) };
        let (path, text) = read().map_err(|source| SettingsError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(path, text, Origin::Named)
    }

    /// Reads the user's own file, if there is one; links are followed.
    ///
    /// # Errors
    /// As [`named`](Self::named), and if another user owns it or may write it.
    pub fn own(path: &Path) -> Result<Option<Self>, SettingsError> {
        if path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let read = || -> io::Result<_> {
            let file = outside_file::open(path, MAX_FILE_BYTES)?;
            let metadata = file.metadata()?;
            Ok((outside_file::read_text(file, MAX_FILE_BYTES)?, metadata.uid(), metadata.mode() & 0o7777))
        };
        let (text, owner, mode) =
            read().map_err(|source| SettingsError::Unreadable { path: path.to_owned(), source })?;
        let why = match (owner == this_user() || owner == 0, mode & 0o022) {
            (false, _) => format!("it belongs to another user (number {owner}); make it yours"),
            (true, 0) => return Self::parse(path.to_owned(), text, Origin::Own).map(Some),
            (true, _) => format!("its mode is {mode:04o}, and others may write it; make it 0644"),
        };
        Err(SettingsError::NotOwn { path: path.to_owned(), why })
    }

    /// Reads a file that was found. Links in its folder's path are resolved, so that it has one path however it was
    /// reached.
    ///
    /// # Errors
    /// As [`named`](Self::named), if it is a link, and if it sets what such a file may not.
    pub fn found(path: &Path) -> Result<Found, SettingsError> {
        let (path, text, owner) = read_own(path)?;
        // root could change this program as well
        if owner != this_user() && owner != 0 {
            return Ok(Found::Foreign { path, owner });
        }
        let file = Self::parse(path, text, Origin::Found)?;
        let folder = file.folder();
        let refused = file.values.iter().find_map(|value| {
            let why = value.written.iter().find_map(|word| value.setting.allow_found(word, folder).err())?;
            Some(file.refuse(value, why))
        });
        refused.map_or(Ok(Found::Usable(file)), Err)
    }

    fn parse(path: PathBuf, text: String, origin: Origin) -> Result<Self, SettingsError> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let values = values(&path, &text, folder)?;
        Ok(Self { digest: Digest::of(text.as_bytes()), path, origin, text, values })
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// How it came to be used.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether a found file loosens a rule: `in_force` is the number that holds without it.
    ///
    /// # Errors
    /// If it does.
    pub fn keep_rule(&self, value: &FileValue, in_force: f64) -> Result<(), SettingsError> {
        let number = value.written.first().and_then(|word| word.parse::<f64>().ok());
        let (is_kept, limit) = match (self.origin, value.setting.if_found) {
            (Origin::Found, IfFound::NotLower) => (number.is_some_and(|number| number >= in_force), "at least"),
            (Origin::Found, IfFound::NotHigher) => (number.is_some_and(|number| number <= in_force), "at most"),
            _ => (true, ""),
        };
        match is_kept {
            true => Ok(()),
            false => Err(self.refuse(value, format!("only set to {limit} {in_force}"))),
        }
    }

    fn refuse(&self, value: &FileValue, why: String) -> SettingsError {
        SettingsError::NotForFound { path: self.path.clone(), line: value.line, key: value.setting.key, why }
    }

    /// Where it is, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// SHA-256 of its bytes.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Its values, in the order of the file.
    pub fn values(&self) -> &[FileValue] {
        &self.values
    }

    /// An error at a value of this file.
    pub fn wrong(&self, value: &FileValue, message: &str) -> SettingsError {
        SettingsError::at(&self.path, &self.text, value.span.clone(), message)
    }
}

/// The user whose rights this process has.
fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A file that is not a link, with its path and its owner.
fn read_own(path: &Path) -> Result<(PathBuf, String, u32), SettingsError> {
    let read = || -> io::Result<_> {
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let path = folder.canonicalize()?.join(name);
        let file = outside_file::open_own(&path, MAX_FILE_BYTES)?;
        let owner = file.metadata()?.uid();
        Ok((path, outside_file::read_text(file, MAX_FILE_BYTES)?, owner))
    };
    read().map_err(|source| SettingsError::Unreadable { path: path.to_owned(), source })
}

fn values(path: &Path, text: &str, folder: &Path) -> Result<Vec<FileValue>, SettingsError> {
    let wrong = |span: Range<usize>, message: &str| SettingsError::at(path, text, span, message);
    let table = DeTable::parse(text).map_err(|error| {
        // some messages of the parser have several lines
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        wrong(error.span().unwrap_or(0..0), &message)
    })?;
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut values = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let name: &str = key.get_ref();
        let Some(setting) = Setting::named(name) else {
            let next = Setting::nearest(name).map_or_else(
                || "docs/configuration.md lists the keys".to_owned(),
                |nearest| format!("did you mean `{nearest}`?"),
            );
            return Err(wrong(key.span(), &format!("unknown key `{}`; {next}", shortened(name))));
        };
        let written = words(setting, value).map_err(|(span, message)| wrong(span, &message))?;
        let words = written.iter().map(|word| setting.resolved(word, folder)).collect::<Result<_, _>>();
        let words = words.map_err(|message| wrong(value.span(), &message))?;
        let line = text.get(..key.span().start).unwrap_or_default().matches('\n').count() + 1;
        values.push(FileValue { setting, words, written, line, span: value.span() });
    }
    Ok(values)
}

/// A name shortened for a message: it may be as long as the file.
fn shortened(name: &str) -> String {
    let mut shown: String = name.chars().take(60).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown
}

type InvalidValue = (Range<usize>, String);

/// A value as arguments, if it has the form that its key requires.
fn words(setting: &Setting, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, InvalidValue> {
    let expected = match setting.kind {
        Kind::Number => "a number",
        Kind::Flag => "`true` or `false`",
        Kind::Targets => "a string, or an array of strings",
        Kind::Text | Kind::Path | Kind::PathOrUrl | Kind::Timer => "a string",
    };
    let wrong = |value: &Spanned<DeValue<'_>>| {
        let found = value.get_ref().type_str();
        (value.span(), format!("`{}` takes {expected}, and this is of the type {found}", setting.key))
    };
    let word = |value: &Spanned<DeValue<'_>>| match (setting.kind, value.get_ref()) {
        // the command line accepts only decimal numbers, not `0x10`
        (Kind::Number, DeValue::Integer(number)) if number.to_string().parse::<f64>().is_ok() => Ok(number.to_string()),
        (Kind::Number, DeValue::Float(number)) => Ok(number.to_string()),
        (Kind::Flag, DeValue::Boolean(flag)) => Ok(flag.to_string()),
        (Kind::Number | Kind::Flag, _) => Err(wrong(value)),
        (_, DeValue::String(text)) if text.is_empty() => {
            Err((value.span(), format!("`{}` is empty: leave the key out", setting.key)))
        }
        (_, DeValue::String(text)) if text.contains(char::is_control) => {
            Err((value.span(), format!("`{}` holds a control character", setting.key)))
        }
        (Kind::Path | Kind::PathOrUrl, DeValue::String(text)) if *text == "~" || text.starts_with("~/") => {
            Err((value.span(), format!("`{}`: `~` is not expanded; write the path of the folder out", setting.key)))
        }
        (_, DeValue::String(text)) => Ok(text.clone().into_owned()),
        _ => Err(wrong(value)),
    };
    match (setting.kind, value.get_ref()) {
        (Kind::Targets, DeValue::Array(items)) => items.iter().map(word).collect(),
        _ => Ok(vec![word(value)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<SettingsFile, SettingsError> {
        SettingsFile::parse(PathBuf::from("/p/autotune.toml"), text.to_owned(), Origin::Named)
    }

    #[test]
    fn values_become_arguments_with_their_lines() {
        let text = "# ours\nregistry = \"r\"\nmin-improvement = 0.05\n\ntarget = [\"cuda:h100_sxm\", \"tpu:v5e\"]\nthorough = true\ntimeout = 1_000\n";
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
        // what `sha256sum` prints of no bytes
        let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(parsed("").unwrap().digest().to_string(), nothing);
    }

    #[test]
    fn errors_name_their_place() {
        for (text, place, message) in [
            ("registry = \"r\"\ntimers = \"auto\"\n", ":2:1: ", "unknown key `timers`; did you mean `timer`?"),
            ("[policy]\nrounds = 1\n", ":1:2: ", "unknown key `policy`"),
            ("timer.command = \"x\"\n", ":1:", "`timer` takes a string, and this is of the type table"),
            (
                "min-improvement = \"0.1\"\n",
                ":1:19: ",
                "`min-improvement` takes a number, and this is of the type string",
            ),
            ("timeout = 0x10\n", ":1:11: ", "`timeout` takes a number"),
            ("thorough = 1\n", ":1:12: ", "`thorough` takes `true` or `false`"),
            ("timer = [\"auto\"]\n", ":1:9: ", "type array"),
            ("target = [\"tpu:v5e\", 1]\n", ":1:22: ", "type integer"),
            ("timer = \"\"\n", ":1:9: ", "is empty"),
            ("registry = \"~/r\"\n", ":1:12: ", "`registry`: `~` is not expanded"),
            ("timer = \"command:a\\u0000b\"\n", ":1:9: ", "holds a control character"),
            ("timer = \"a\"\ntimer = \"b\"\n", ":2:1: ", "duplicate key"),
            ("timer = \n", ":1:", ""),
            ("timer = \"a\0b\"\n", ":1:", ""),
            ("\"\\u001b[2J\" = 1\n", ":1:1: ", "unknown key `\\u{1b}[2J`"),
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("/p/autotune.toml{place}")), "{text:?}: {error}");
            assert!(error.contains(message), "{text:?}: {error}");
            assert!(error.lines().count() == 4 && error.ends_with('^'), "{text:?}: {error}");
            assert!(!error.contains(['\u{1b}', '\0']), "{text:?}: {error}");
        }
    }

    /// No file makes it panic, hang, or say more than four short lines.
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
                assert!(message.lines().count() == 4 && message.len() < 2000, "{start:?}: {message}");
                assert!(message.lines().all(|line| crate::printable::printable(line) == line), "{start:?}: {message}");
            }
        }
    }
}
