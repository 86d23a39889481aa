//! The keys of the file.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The form of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text,
    /// A number.
    Number,
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

/// Why a value needs its user's consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Danger {
    /// A command, a library or an executable is run.
    RunsCode,
    /// It decides whose results are trusted, or signs in the user's name.
    DecidesTrust,
}

impl Danger {
    /// The end of a sentence about the value.
    pub fn words(self) -> &'static str {
        match self {
            Self::RunsCode => "may run code",
            Self::DecidesTrust => "decides whose results are trusted",
        }
    }
}

/// A key of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name: that of the flag, without dashes in front.
    pub key: &'static str,
    /// The form of its value.
    pub kind: Kind,
    /// The environment variable that sets the same, and overrides the file.
    pub variable: Option<&'static str>,
}

const fn setting(key: &'static str, kind: Kind) -> Setting {
    Setting { key, kind, variable: None }
}

const fn with_variable(key: &'static str, kind: Kind, variable: &'static str) -> Setting {
    Setting { key, kind, variable: Some(variable) }
}

/// Every key, in the order in which they are listed. Flags whose meaning differs between commands, such as `--rounds`,
/// are left out.
pub const SETTINGS: &[Setting] = &[
    with_variable("registry", Kind::Path, "AUTOTUNE_LOWERED_REGISTRY"),
    setting("match", Kind::Text),
    setting("by-name", Kind::Text),
    setting("label-regex", Kind::Text),
    setting("candidates", Kind::Path),
    setting("target", Kind::Targets),
    with_variable("cache", Kind::PathOrUrl, "AUTOTUNE_LOWERED_CACHE"),
    with_variable("seeds", Kind::Path, "AUTOTUNE_LOWERED_SEEDS"),
    with_variable("pin", Kind::Text, "AUTOTUNE_LOWERED_PIN"),
    with_variable("verify-key", Kind::Path, "AUTOTUNE_LOWERED_VERIFY_KEY"),
    with_variable("sign-key", Kind::Path, "AUTOTUNE_LOWERED_SIGN_KEY"),
    with_variable("sign-command", Kind::Text, "AUTOTUNE_LOWERED_SIGN_COMMAND"),
    setting("timer", Kind::Timer),
    setting("plugin", Kind::Path),
    setting("metric", Kind::Text),
    setting("cache-state", Kind::Text),
    setting("launch", Kind::Text),
    setting("timeout", Kind::Number),
    setting("memory-limit", Kind::Number),
    setting("compile-jobs", Kind::Number),
    setting("search", Kind::Text),
    setting("search-evaluations", Kind::Number),
    setting("search-seconds", Kind::Number),
    setting("thorough", Kind::Flag),
    setting("min-improvement", Kind::Number),
    setting("max-speed-up", Kind::Number),
    setting("false-alarms", Kind::Number),
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

    /// Why a value of it needs consent. A cache folder holds executables, which commands that measure load (`measures`);
    /// a cache at a URL holds only entries.
    pub fn danger(&self, value: &OsStr, measures: bool) -> Option<Danger> {
        let text = value.to_string_lossy();
        match self.key {
            "timer" => ["command:", "jax:"].iter().any(|kind| text.starts_with(kind)).then_some(Danger::RunsCode),
            "cache" => (measures && !is_url(&text)).then_some(Danger::RunsCode),
            "plugin" | "sign-command" => Some(Danger::RunsCode),
            "pin" | "verify-key" | "sign-key" => Some(Danger::DecidesTrust),
            _ => None,
        }
    }

    /// A value of a file in this folder, with its path made absolute.
    pub(super) fn resolved(&self, text: &str, folder: &Path) -> OsString {
        let inside = |before: &str, path: &str| {
            let mut whole = OsString::from(before);
            whole.push(folder.join(path));
            whole
        };
        match (self.kind, text.split_once(':')) {
            (Kind::Path, _) => inside("", text),
            (Kind::PathOrUrl, _) if !is_url(text) => inside("", text),
            (Kind::Timer, Some(("replay", path))) => inside("replay:", path),
            // a bare name is looked up in PATH
            (Kind::Timer, Some(("jax", path))) if path.contains('/') => inside("jax:", path),
            (Kind::Targets, Some(("cuda", path))) if path.contains('/') || path.contains(".txtpb") => {
                inside("cuda:", path)
            }
            _ => text.into(),
        }
    }
}

fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| !scheme.is_empty() && !scheme.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_code_or_decides_trust_is_known() {
        let danger = |key: &str, value: &str| Setting::named(key).unwrap().danger(OsStr::new(value), true);
        for (key, value) in [
            ("timer", "command:true"),
            ("timer", "jax:/p/python"),
            ("plugin", "/p/plugin.so"),
            ("sign-command", "true"),
            ("cache", "/p/cache"),
        ] {
            assert_eq!(danger(key, value), Some(Danger::RunsCode), "{key} = {value}");
        }
        for key in ["pin", "verify-key", "sign-key"] {
            assert_eq!(danger(key, "x"), Some(Danger::DecidesTrust), "{key}");
        }
        for (key, value) in [
            ("timer", "auto"),
            ("timer", "jax"),
            ("timer", "replay:/p/samples.json"),
            ("cache", "s3://bucket/team"),
            ("registry", "/p"),
            ("min-improvement", "0.1"),
        ] {
            assert_eq!(danger(key, value), None, "{key} = {value}");
        }
        // commands that only read a cache folder load no executable from it
        assert_eq!(Setting::named("cache").unwrap().danger(OsStr::new("/p/cache"), false), None);
    }

    #[test]
    fn paths_are_relative_to_the_folder_of_the_file() {
        let resolved = |key: &str, text: &str| Setting::named(key).unwrap().resolved(text, Path::new("/p"));
        for (key, text, expected) in [
            ("registry", "registry", "/p/registry"),
            ("registry", "/q/registry", "/q/registry"),
            ("cache", "cache", "/p/cache"),
            ("cache", "s3://bucket/team", "s3://bucket/team"),
            ("timer", "replay:samples.json", "replay:/p/samples.json"),
            ("timer", "jax:venv/bin/python", "jax:/p/venv/bin/python"),
            ("timer", "jax:python3", "jax:python3"),
            ("timer", "command:python3 worker.py", "command:python3 worker.py"),
            ("target", "cuda:h100_sxm", "cuda:h100_sxm"),
            ("target", "cuda:our.txtpb", "cuda:/p/our.txtpb"),
            ("match", "kind", "kind"),
        ] {
            assert_eq!(resolved(key, text), expected, "{key} = {text}");
        }
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
