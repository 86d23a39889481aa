//! The name of a timer, as `--timer` and the configuration give it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Which timer measures. This is the only reading of such a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimerName {
    /// The compiler that the user's JAX programs use.
    Auto,
    /// A PJRT plugin.
    Pjrt,
    /// JAX: that of the active environment, or of this Python.
    Jax(Option<PathBuf>),
    /// A worker of the user's own: a command for the shell.
    Command(String),
    /// Recorded samples or profiles.
    Replay(PathBuf),
}

/// A name that no timer has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`--timer {0}` is not one of `auto`, `pjrt`, `jax`, `jax:PYTHON`, `command:CMD`, `replay:FILE`, `replay:DIR`")]
pub struct UnknownTimer(String);

impl FromStr for TimerName {
    type Err = UnknownTimer;

    fn from_str(text: &str) -> Result<Self, UnknownTimer> {
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "pjrt" => Ok(Self::Pjrt),
            None if text == "jax" => Ok(Self::Jax(None)),
            Some(("jax", python)) => Ok(Self::Jax(Some(python.into()))),
            Some(("command", command)) => Ok(Self::Command(command.to_owned())),
            Some(("replay", path)) => Ok(Self::Replay(path.into())),
            _ => Err(UnknownTimer(text.to_owned())),
        }
    }
}

impl fmt::Display for TimerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Pjrt => f.write_str("pjrt"),
            Self::Jax(None) => f.write_str("jax"),
            Self::Jax(Some(python)) => write!(f, "jax:{}", python.display()),
            Self::Command(command) => write!(f, "command:{command}"),
            Self::Replay(path) => write!(f, "replay:{}", path.display()),
        }
    }
}

impl TimerName {
    /// The name as a file in this folder gives it: its paths are relative to the folder. A Python without `/` is looked
    /// up in PATH.
    #[must_use]
    pub fn in_folder(self, folder: &Path) -> Self {
        match self {
            Self::Jax(Some(python)) if python.components().count() > 1 => Self::Jax(Some(folder.join(python))),
            Self::Replay(path) => Self::Replay(folder.join(path)),
            other => other,
        }
    }

    /// Whether it runs no program.
    pub fn is_replay(&self) -> bool {
        matches!(self, Self::Replay(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_in_one_way_and_written_as_it_was() {
        for name in ["auto", "pjrt", "jax", "jax:/p/python", "command:exit 3", "command:", "replay:a:b.json"] {
            assert_eq!(name.parse::<TimerName>().unwrap().to_string(), name);
        }
        for wrong in ["", "sundial", "auto:", "pjrt:x", "Jax", "jax ", "1://c", "replays:x"] {
            assert!(wrong.parse::<TimerName>().unwrap_err().to_string().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn paths_are_relative_to_the_folder() {
        for (name, expected) in [
            ("replay:samples.json", "replay:/p/samples.json"),
            ("replay:/q/samples.json", "replay:/q/samples.json"),
            ("jax:venv/bin/python", "jax:/p/venv/bin/python"),
            ("jax:./python", "jax:/p/./python"),
            ("jax:python3", "jax:python3"),
            ("command:python3 worker.py", "command:python3 worker.py"),
            ("auto", "auto"),
        ] {
            let name: TimerName = name.parse().unwrap();
            assert_eq!(name.in_folder(Path::new("/p")).to_string(), expected);
        }
    }
}
