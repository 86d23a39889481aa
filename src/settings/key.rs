//! The keys of the file.

use std::ffi::OsString;
use std::path::{Component, Path};

use crate::remote::CachePlace;
use crate::target::Target;
use crate::timer::{TimerName, UnknownTimer};

/// The form of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingKind {
    /// A string or a number, which its flag takes as it is written.
    Text,
    /// `true` or `false`.
    Flag,
    /// The path of a file or folder.
    Path,
    /// A path, or a URL.
    PathOrUrl,
    /// A timer, which may name a path.
    Timer,
    /// One target or an array of them, which may name files.
    Targets,
}

/// What a file that was merely found may set a key to. It may have come with somebody else's code, so a key that is not
/// on this list is refused. `docs/configuration.md` has the reason for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfFound {
    /// Nothing: it runs code, names files, or decides whose results count.
    Refused,
    /// Any value that its flag takes.
    Any,
    /// One of these values.
    OneOf(&'static [&'static str]),
    /// Any value but one that names a file.
    NoFile,
    /// A path that stays in the file's folder.
    Inside,
    /// At least the value that would be in force without the file.
    NotLower,
    /// At most that value.
    NotHigher,
}

/// A key of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name: that of the flag, without dashes in front.
    pub key: &'static str,
    /// The form of its value.
    pub kind: SettingKind,
    /// What a file that was merely found may set it to.
    pub if_found: IfFound,
}

const fn setting(key: &'static str, kind: SettingKind, if_found: IfFound) -> Setting {
    Setting { key, kind, if_found }
}

/// Every key, in the order in which they are listed. Flags whose meaning differs between commands, such as `--rounds`,
/// are left out.
pub const SETTINGS: &[Setting] = &[
    setting("registry", SettingKind::Path, IfFound::Inside),
    setting("match", SettingKind::Text, IfFound::OneOf(&["exact"])),
    setting("by-name", SettingKind::Text, IfFound::OneOf(&["few"])),
    setting("label-regex", SettingKind::Text, IfFound::Any),
    setting("candidates", SettingKind::Path, IfFound::Inside),
    setting("target", SettingKind::Targets, IfFound::NoFile),
    setting("cache", SettingKind::PathOrUrl, IfFound::Refused),
    setting("shipped", SettingKind::Path, IfFound::Refused),
    setting("pin", SettingKind::Text, IfFound::Refused),
    setting("verify-key", SettingKind::Path, IfFound::Refused),
    setting("sign-key", SettingKind::Path, IfFound::Refused),
    setting("sign-command", SettingKind::Text, IfFound::Refused),
    setting("timer", SettingKind::Timer, IfFound::OneOf(&["auto", "pjrt", "jax"])),
    setting("plugin", SettingKind::Path, IfFound::Refused),
    setting("metric", SettingKind::Text, IfFound::Any),
    setting("cache-state", SettingKind::Text, IfFound::Any),
    setting("launch", SettingKind::Text, IfFound::Any),
    setting("timeout", SettingKind::Text, IfFound::Any),
    setting("memory-limit", SettingKind::Text, IfFound::Refused),
    setting("compile-jobs", SettingKind::Text, IfFound::Refused),
    setting("search", SettingKind::Text, IfFound::Any),
    setting("search-evaluations", SettingKind::Text, IfFound::Any),
    setting("search-seconds", SettingKind::Text, IfFound::Any),
    setting("thorough", SettingKind::Flag, IfFound::Any),
    setting("min-improvement", SettingKind::Text, IfFound::NotLower),
    setting("max-speed-up", SettingKind::Text, IfFound::NotHigher),
    setting("false-positive-rate", SettingKind::Text, IfFound::NotHigher),
];

impl Setting {
    /// The setting with this key.
    pub fn named(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// The key that was probably meant by an unknown one.
    pub(super) fn nearest(key: &str) -> Option<&'static str> {
        let likeness = |setting: &Setting| strsim::jaro_winkler(&key.to_lowercase().replace('_', "-"), setting.key);
        let best = SETTINGS.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
        (likeness(best) > 0.85).then_some(best.key)
    }

    /// A value of a file in this folder, with its path made absolute. The types that commands use say what is a path.
    ///
    /// # Errors
    /// If it is no name of a timer, or of a cache, or its path begins with `~`.
    pub(super) fn resolved(&self, text: &str, folder: &Path) -> Result<OsString, String> {
        if matches!(self.kind, SettingKind::Path | SettingKind::PathOrUrl) && (text == "~" || text.starts_with("~/")) {
            return Err(format!("`{}`: `~` is not expanded; write the path of the folder out", self.key));
        }
        Ok(match self.kind {
            SettingKind::Path => folder.join(text).into(),
            SettingKind::PathOrUrl => match CachePlace::parse(Path::new(text)).map_err(|error| error.to_string())? {
                CachePlace::Local(path) => folder.join(path).into(),
                CachePlace::Shared(_) => text.into(),
            },
            SettingKind::Timer => {
                let name: TimerName = text.parse().map_err(|error: UnknownTimer| error.to_string())?;
                name.in_folder(folder).to_string().into()
            }
            SettingKind::Targets => Target::in_folder(text, folder).unwrap_or_else(|| text.into()),
            SettingKind::Text | SettingKind::Flag => text.into(),
        })
    }

    /// Whether a file in this folder that was merely found may set it to this value, as it is written there: the error
    /// says what it may do with the key instead, after “it may”. `in_force` is the number that it has without the file.
    ///
    /// # Errors
    /// If it may not.
    pub(super) fn allow_found(&self, text: &str, folder: &Path, in_force: Option<f64>) -> Result<(), String> {
        let number: Option<(f64, f64)> = text.parse().ok().zip(in_force);
        let (is_allowed, only) = match self.if_found {
            IfFound::Any => (true, None),
            IfFound::Refused => (false, None),
            IfFound::OneOf(values) => (values.contains(&text), Some(format!("`{}`", values.join("`, `")))),
            IfFound::NoFile => (Target::in_folder(text, folder).is_none(), Some("what is no file".to_owned())),
            IfFound::Inside => (is_inside(text, folder), Some("a folder below its own".to_owned())),
            IfFound::NotLower | IfFound::NotHigher => {
                let is_lower = self.if_found == IfFound::NotHigher;
                let is_kept =
                    number.is_some_and(|(value, limit)| if is_lower { value <= limit } else { value >= limit });
                let bound = if is_lower { "at most" } else { "at least" };
                (is_kept, in_force.map(|limit| format!("{bound} {limit}")))
            }
        };
        match (is_allowed, only) {
            (true, _) => Ok(()),
            (false, None) => Err(format!("not set `{}`", self.key)),
            (false, Some(only)) => Err(format!("only set `{}` to {only}", self.key)),
        }
    }
}

/// Whether a path leads to something in a folder, and not out of it again, by `..` or by a link. What does not exist is
/// in it if what does exist of the path is.
fn is_inside(text: &str, folder: &Path) -> bool {
    let parts = Path::new(text).components();
    let is_below = parts.into_iter().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let leads = folder.join(text);
    // a dangling link exists, and leads nowhere that is known
    let existing = leads.ancestors().find(|path| path.symlink_metadata().is_ok());
    let there = existing.and_then(|path| path.canonicalize().ok());
    is_below && there.zip(folder.canonicalize().ok()).is_some_and(|(there, folder)| there.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_found_file_may_set_is_on_a_list() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        std::fs::create_dir(at.join("records")).unwrap();
        std::os::unix::fs::symlink("/etc", at.join("out")).unwrap();
        std::os::unix::fs::symlink("/nowhere", at.join("dangling")).unwrap();
        std::os::unix::fs::symlink("records", at.join("in")).unwrap();
        let may = |key: &str, value: &str| Setting::named(key).unwrap().allow_found(value, at, Some(0.02));
        for (key, value) in [
            ("timer", "auto"),
            ("timer", "pjrt"),
            ("timer", "jax"),
            ("match", "exact"),
            ("by-name", "few"),
            ("registry", "records"),
            ("registry", "./records"),
            ("registry", "not/yet"),
            ("candidates", "in"),
            ("target", "cuda:h100_sxm:8"),
            ("target", "tpu:v5e"),
            ("metric", "busy"),
            ("min-improvement", "0.02"),
            ("max-speed-up", "0.02"),
        ] {
            assert_eq!(may(key, value), Ok(()), "{key} = {value}");
        }
        for (key, value) in [
            ("timer", "command:true"),
            ("timer", "jax:/p/python"),
            ("timer", "jax:"),
            ("timer", "replay:samples.json"),
            ("timer", "Auto"),
            ("match", "any"),
            ("match", "kind"),
            ("by-name", "all"),
            ("cache", "cache"),
            ("cache", "1://c"),
            ("cache", "file:///c"),
            ("cache", "s3://bucket/team"),
            ("shipped", "shipped"),
            ("pin", "00"),
            ("verify-key", "team.pub"),
            ("sign-key", "k"),
            ("sign-command", "true"),
            ("plugin", "plugin.so"),
            ("memory-limit", "16"),
            ("compile-jobs", "1"),
            ("registry", "/etc"),
            ("registry", ".."),
            ("registry", "records/../.."),
            ("registry", "out"),
            ("registry", "out/x"),
            ("registry", "dangling"),
            ("candidates", "/proc/self/cwd"),
            ("target", "cuda:our.txtpb"),
            ("target", "cuda:dir/h100:8"),
            ("target", "cuda:/dev/zero"),
            ("min-improvement", "0.01"),
            ("min-improvement", "nan"),
            ("min-improvement", "x"),
            ("max-speed-up", "0.03"),
            ("false-positive-rate", "inf"),
        ] {
            assert!(may(key, value).is_err(), "{key} = {value}");
        }
        assert!(
            Setting::named("min-improvement").unwrap().allow_found("1", at, None).is_err(),
            "no number is in force"
        );
        let any: Vec<&str> = SETTINGS.iter().filter(|one| one.if_found == IfFound::Any).map(|one| one.key).collect();
        let expected = ["label-regex", "metric", "cache-state", "launch", "timeout", "search", "search-evaluations"];
        assert_eq!(any, [&expected[..], &["search-seconds", "thorough"]].concat(), "no value of these does harm");
    }

    #[test]
    fn paths_are_relative_to_the_folder_of_the_file() {
        let resolved = |key: &str, text: &str| Setting::named(key).unwrap().resolved(text, Path::new("/p"));
        for (key, text, expected) in [
            ("registry", "registry", "/p/registry"),
            ("registry", "/q/registry", "/q/registry"),
            ("cache", "cache", "/p/cache"),
            ("cache", "1://c", "/p/1://c"),
            ("cache", "s3://bucket/team", "s3://bucket/team"),
            ("timer", "replay:samples.json", "replay:/p/samples.json"),
            ("timer", "jax:venv/bin/python", "jax:/p/venv/bin/python"),
            ("timer", "jax:python3", "jax:python3"),
            ("timer", "command:python3 worker.py", "command:python3 worker.py"),
            ("target", "cuda:h100_sxm", "cuda:h100_sxm"),
            ("target", "cuda:our.txtpb:2x4", "cuda:/p/our.txtpb:2x4"),
            ("match", "kind", "kind"),
        ] {
            assert_eq!(resolved(key, text).unwrap(), expected, "{key} = {text}");
        }
        assert!(resolved("timer", "sundial").unwrap_err().contains("`auto`"));
        assert!(resolved("cache", "zz://x").is_err() && resolved("cache", "~/c").is_err());
    }

    #[test]
    fn a_mistyped_key_has_a_neighbour() {
        for (written, meant) in
            [("targets", "target"), ("min_improvement", "min-improvement"), ("Registry", "registry")]
        {
            assert_eq!(Setting::nearest(written), Some(meant));
        }
        assert_eq!(Setting::nearest("zzz"), None);
    }
}
