//! The options of a platform's compiler, and the resulting choices.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde_json::Value;

use super::super::error::SpaceError;
use super::super::locate::{PathStep, offset};
use super::file::{File, Head, OptionEntry};
use super::kind::{OptionClass, OptionKind, OptionScope};
use super::set::{OptionError, OptionSet, spelled};
use crate::outside_file;
use crate::printable::printable;

const SCHEMA: u64 = 1;
/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_ENTRIES: usize = 1024;
const MAX_VALUES: usize = 256;
const MAX_WITH: usize = 32;
const MAX_VERSIONS: usize = 64;
const MAX_LINE_BYTES: usize = 512;

/// An option, its possible values, and what is known about it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CompilerOption {
    /// Its name, without dashes.
    pub name: String,
    /// The values to try, none of them the default.
    pub values: Vec<Value>,
    /// What it may change.
    pub kind: OptionKind,
    /// Its scope.
    pub scope: OptionScope,
    /// What must be set with it.
    pub with: OptionSet,
    /// Those of the compilers that were asked which accept every value of it: `jaxlib 0.10.2`, or from one version to
    /// another, `jaxlib 0.9.2 to 0.10.2`.
    pub versions: Vec<String>,
    /// What it does, in one line.
    pub does: String,
    /// The source of this information.
    pub source: String,
}

/// One value of an option.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OptionChoice {
    /// The option's name.
    pub name: String,
    /// The value.
    pub value: Value,
    /// What it may change.
    pub kind: OptionKind,
    /// Its scope.
    pub scope: OptionScope,
    /// Everything that it sets: the option, and what must be set with it.
    pub set: OptionSet,
}

/// The options of a platform's compiler.
#[derive(Debug, Clone, PartialEq)]
pub struct OptionSpace {
    platform: String,
    asked: Vec<String>,
    options: Vec<CompilerOption>,
}

impl CompilerOption {
    /// Its values, each with what must be set with it.
    ///
    /// # Errors
    /// If `with` sets the option itself to another value.
    fn choices(&self) -> Result<Vec<OptionChoice>, OptionError> {
        let choice = |value: &Value| {
            let mut set = OptionSet::default();
            set.set(&self.name, value)?;
            let set = set.with(&self.with)?;
            let (name, value) = (self.name.clone(), value.clone());
            Ok(OptionChoice { name, value, kind: self.kind, scope: self.scope, set })
        };
        self.values.iter().map(choice).collect()
    }
}

impl OptionChoice {
    /// What it sets, as XLA reads overrides.
    pub fn overrides(&self) -> BTreeMap<String, String> {
        self.set.overrides()
    }
}

/// `name=value`, without what must be set with it.
impl fmt::Display for OptionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, printable(&spelled(&self.value)))
    }
}

impl OptionSpace {
    /// Reads a space from a file of at most 1 MiB.
    ///
    /// # Errors
    /// If the file cannot be read, and as of [`parse`](Self::parse).
    pub fn open(file: &Path) -> Result<Self, SpaceError> {
        let name = file.display().to_string();
        match outside_file::text(file, MAX_FILE_BYTES) {
            Ok(text) => Self::parse(&name, &text),
            Err(error) => Err(SpaceError::unreadable(name, &error)),
        }
    }

    /// Reads a space from its text; `file` is its name in errors.
    ///
    /// # Errors
    /// If the text is not JSON, not of this schema, or an option is invalid; with the place.
    pub fn parse(file: &str, text: &str) -> Result<Self, SpaceError> {
        let of_serde = |error: serde_json::Error| SpaceError::of_json(file, &error);
        let wrong = |path: &[PathStep<'_>], message: String| SpaceError::at(file, text, offset(text, path), &message);
        let head: Head = serde_json::from_str(text).map_err(of_serde)?;
        if head.schema != SCHEMA {
            let message = format!("schema {}, this version reads {SCHEMA}: use a newer autotune-lowered", head.schema);
            return Err(wrong(&[PathStep::Key("schema")], message));
        }
        let read: File = serde_json::from_str(text).map_err(of_serde)?;
        if read.platform.is_empty()
            || !read.platform.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        {
            let message = "a platform's name has lower-case letters and digits: `cpu`, `cuda`, `tpu`";
            return Err(wrong(&[PathStep::Key("platform")], message.to_owned()));
        }
        if read.options.len() > MAX_ENTRIES {
            let message = format!("{} options, at most {MAX_ENTRIES} are read", read.options.len());
            return Err(wrong(&[PathStep::Key("options")], message));
        }
        if read.asked.len() > MAX_VERSIONS || !read.asked.iter().all(|name| is_compiler(name)) {
            let message =
                format!("not a list of at most {MAX_VERSIONS} compilers with their versions: `jaxlib 0.10.2`");
            return Err(wrong(&[PathStep::Key("asked")], message));
        }
        let mut options = Vec::new();
        // what the choices before set, to find the same again
        let mut known: BTreeMap<BTreeMap<String, String>, String> = BTreeMap::new();
        for (index, entry) in read.options.into_iter().enumerate() {
            let at = |member: &str, message: String| {
                wrong(&[PathStep::Key("options"), PathStep::Index(index), PathStep::Key(member)], message)
            };
            let option = checked(entry).map_err(|(member, message)| at(member, message))?;
            for choice in option.choices().map_err(|error| at("with", error.to_string()))? {
                if let Some(twice) = known.insert(choice.overrides(), choice.to_string()) {
                    return Err(at("values", format!("`{choice}` sets what `{twice}` sets already")));
                }
            }
            options.push(option);
        }
        // a set has names alone, so what a name acts on must follow from it
        let of_process = |name: &str| {
            let mut process = options.iter().filter(|option| option.scope == OptionScope::Process);
            process.any(|option| option.name == name)
        };
        for (index, option) in options.iter().enumerate().filter(|(_, option)| option.scope == OptionScope::Compile) {
            let mut names = std::iter::once(option.name.as_str()).chain(option.with.iter().map(|(name, _)| name));
            if let Some(name) = names.find(|name| of_process(name)) {
                let message = format!("`{name}` acts on a process: what sets it has the scope `process`");
                return Err(wrong(
                    &[PathStep::Key("options"), PathStep::Index(index), PathStep::Key("scope")],
                    message,
                ));
            }
        }
        Ok(Self { platform: read.platform, asked: read.asked, options })
    }

    /// The platform of the plugins that take these options.
    pub fn platform(&self) -> &str {
        &self.platform
    }

    /// The compilers that were asked which options they accept, such as `jaxlib 0.10.2`; those of a package by rising
    /// version.
    pub fn asked(&self) -> &[String] {
        &self.asked
    }

    /// The options, in the file's order. A name may occur several times, with other values or other accompanying
    /// options.
    pub fn options(&self) -> &[CompilerOption] {
        &self.options
    }

    /// The smallest class that has every option of a set; `None` if one is not in the list, or in no class.
    pub fn class_of(&self, set: &OptionSet) -> Option<OptionClass> {
        let kind = |(name, value): (&str, &Value)| {
            let sets = |option: &&CompilerOption| option.name == name || option.with.get(name).is_some();
            let has_value = |option: &&CompilerOption| option.values.contains(value) || option.with.get(name).is_some();
            let of_value = self.options.iter().filter(sets).filter(has_value).map(|option| option.kind).max();
            of_value.or_else(|| self.options.iter().filter(sets).map(|option| option.kind).max())
        };
        let kinds = set.iter().map(kind).collect::<Option<Vec<OptionKind>>>()?;
        let classes = [OptionClass::Safe, OptionClass::Passes, OptionClass::FastMath];
        classes.into_iter().find(|class| kinds.iter().all(|kind| class.includes(*kind)))
    }

    /// The choices of a class, in the file's order.
    pub fn choices(&self, class: OptionClass) -> Vec<OptionChoice> {
        let of_class = self.options.iter().filter(|option| class.includes(option.kind));
        // none is left out: `parse` made each of them
        of_class.flat_map(|option| option.choices().unwrap_or_default()).collect()
    }
}

/// Whether a text is a package and its version: `jaxlib 0.10.2`.
fn is_compiler(text: &str) -> bool {
    let is_name = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') && !name.is_empty()
    };
    text.len() <= MAX_LINE_BYTES
        && text.split_once(' ').is_some_and(|(name, version)| is_name(name) && is_version(version))
}

fn is_version(text: &str) -> bool {
    text.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// An option of the file, or which member is wrong and why.
fn checked(entry: OptionEntry) -> Result<CompilerOption, (&'static str, String)> {
    let OptionEntry { name, values, kind, scope, with, versions, does, source } = entry;
    for (member, count, limit) in [
        ("values", values.len(), MAX_VALUES),
        ("with", with.len(), MAX_WITH),
        ("versions", versions.len(), MAX_VERSIONS),
    ] {
        if count > limit {
            return Err((member, format!("{count} {member}, at most {limit} are read")));
        }
    }
    if values.is_empty() {
        return Err(("values", "there is no value".to_owned()));
    }
    let lines = [("does", &does), ("source", &source)].into_iter();
    for (member, line) in lines.chain(versions.iter().map(|version| ("versions", version))) {
        if line.is_empty() || line.len() > MAX_LINE_BYTES || printable(line) != *line {
            return Err((member, format!("not one line of 1 to {MAX_LINE_BYTES} bytes")));
        }
    }
    for known in &versions {
        let (first, last) = known.split_once(" to ").unwrap_or((known, "0"));
        if !(is_compiler(first) && is_version(last)) {
            let message = format!("`{known}` is neither such as `jaxlib 0.10.2` nor such as `jaxlib 0.9.2 to 0.10.2`");
            return Err(("versions", message));
        }
    }
    let mut company = OptionSet::default();
    for (other, value) in &with {
        company.set(other, value).map_err(|error| ("with", error.to_string()))?;
    }
    let mut alone = OptionSet::default();
    for value in &values {
        let member = |error: &OptionError| if matches!(error, OptionError::Name { .. }) { "name" } else { "values" };
        alone.set(&name, value).map_err(|error| (member(&error), error.to_string()))?;
    }
    Ok(CompilerOption { name, values, kind, scope, with: company, versions, does, source })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(name: &str, values: Value, kind: &str) -> Value {
        json!({"name": name, "values": values, "kind": kind, "scope": "compile", "does": "what", "source": "who"})
    }

    fn space(options: &[Value]) -> Result<OptionSpace, SpaceError> {
        OptionSpace::parse("cpu.json", &json!({"schema": 1, "platform": "cpu", "options": options}).to_string())
    }

    #[test]
    fn each_class_has_the_choices_of_the_one_before() {
        let mut fast = entry("fast", json!([true]), "fast-math");
        fast["with"] = json!({"honor_nans": false, "level": 2});
        let options = [
            fast,
            entry("width", json!([128, 512]), "safe"),
            entry("xla_disable_hlo_passes", json!(["cse", "dce"]), "passes"),
            entry("seed", json!([true]), "rng"),
            entry("limit", json!([1]), "memory"),
        ];
        let space = space(&options).unwrap();
        let names = |class| space.choices(class).iter().map(OptionChoice::to_string).collect::<Vec<_>>();
        assert_eq!(names(OptionClass::Safe), ["width=128", "width=512"]);
        let passes = ["xla_disable_hlo_passes=cse", "xla_disable_hlo_passes=dce"];
        assert_eq!(names(OptionClass::Passes), [&["width=128", "width=512"], &passes[..]].concat());
        assert_eq!(names(OptionClass::FastMath)[0], "fast=True");
        assert_eq!(names(OptionClass::FastMath).len(), 5, "no random bits, no memory");
        let fast = space.choices(OptionClass::FastMath).remove(0);
        let wanted = [("fast", "True"), ("honor_nans", "False"), ("level", "2")];
        assert_eq!(fast.overrides(), wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn errors_name_their_place() {
        let with = |member: &str, value: Value| {
            let mut entry = entry("a", json!([true]), "safe");
            entry[member] = value;
            entry
        };
        for (entry, message) in [
            (entry("--a", json!([1]), "safe"), "`--a` is not an option's name"),
            (entry("a", json!([]), "safe"), "there is no value"),
            (entry("a", json!([null]), "safe"), "the value is `null`"),
            (entry("a", json!([1, 1]), "safe"), "`a=1` sets what `a=1` sets already"),
            (entry("a", json!([true, "True"]), "safe"), "`a=True` sets what `a=True` sets already"),
            (entry("a", json!(vec![1; 300]), "safe"), "300 values, at most 256"),
            (entry("a", json!([1]), "fast"), "unknown variant `fast`"),
            (with("scope", json!("thread")), "unknown variant `thread`"),
            (with("with", json!({"a": false})), "`a` is set to `True` and to `False`"),
            (with("with", json!({"b": []})), "`b`: the value is a list"),
            (with("versions", json!([""])), "not one line"),
            (with("versions", json!(["jaxlib"])), "`jaxlib` is neither such as"),
            (with("versions", json!(["jaxlib 0.9.2 to"])), "is neither such as"),
            (with("versions", json!(["jaxlib 0.9.2 to new"])), "is neither such as"),
            (with("does", json!("two\nlines")), "not one line"),
            (with("source", json!("x".repeat(513))), "not one line"),
            (with("more", json!(1)), "unknown field `more`"),
        ] {
            let error = space(&[entry]).unwrap_err().to_string();
            assert!(error.starts_with("cpu.json:1:") && error.contains(message), "{error}");
        }
        // a set would not say what acts on what
        let mut process = entry("a", json!([1]), "safe");
        process["scope"] = json!("process");
        let mut sets_it = entry("b", json!([1]), "safe");
        sets_it["with"] = json!({"a": 2});
        for other in [entry("a", json!([2]), "safe"), sets_it] {
            let error = space(&[other, process.clone()]).unwrap_err().to_string();
            assert!(error.contains("`a` acts on a process"), "{error}");
        }
        let text = "{\"schema\": 1, \"platform\": \"cpu\", \"options\": [\n{\"name\": \"a\", \"values\":\
                    \n  [], \"kind\": \"safe\", \"scope\": \"compile\", \"does\": \"d\", \"source\": \"s\"}]}";
        assert_eq!(OptionSpace::parse("f", text).unwrap_err().to_string(), "f:3:3: there is no value");
        let error = OptionSpace::parse("f", "{\"schema\": 2}").unwrap_err().to_string();
        assert!(error.contains("schema 2, this version reads 1"), "{error}");
        let error = OptionSpace::parse("f", "{\"schema\": 1, \"platform\": \"C P\", \"options\": []}").unwrap_err();
        assert!(error.message.contains("lower-case"), "{error}");
        let text = r#"{"schema": 1, "platform": "cpu", "asked": ["jaxlib 0.x"], "options": []}"#;
        let error = OptionSpace::parse("f", text).unwrap_err();
        assert!(error.message.contains("not a list of at most 64 compilers"), "{error}");
        assert!(OptionSpace::open(Path::new("/dev/zero")).unwrap_err().message.contains("cannot be read"));
    }
}
