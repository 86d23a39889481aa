//! The JSON Schema files of `docs/schemas`; every document that a test reads is validated against them.
//!
//! The reader knows the keywords that these files use, and refuses any other.
//! `tests/data/cli/schema_cases.json` has documents for each keyword; `tests/python/test_schemas.py` holds the same
//! cases and files against Python's `jsonschema`.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

/// Definitions that several schemas share; no document has this schema.
pub const DEFINITIONS: &str = "definitions";

/// The schemas' files by name.
pub fn files() -> BTreeMap<String, PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schemas");
    let paths = fs::read_dir(folder).unwrap().map(|item| item.unwrap().path());
    let name = |path: &Path| path.file_name()?.to_str()?.strip_suffix(".schema.json").map(str::to_owned);
    paths.map(|path| (name(&path).unwrap(), path)).collect()
}

static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let read = |path: &PathBuf| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    files().iter().map(|(name, path)| (name.clone(), read(path))).collect()
});

/// Why a document does not match the schema of this name, if so.
pub fn wrong(name: &str, document: &Value) -> Option<String> {
    // for a module without labels, the main job prints the document of `scan`
    let name = if name == "tune" && document.get("form").is_some() { "scan" } else { name };
    let schema = SCHEMAS.get(name).unwrap_or_else(|| panic!("there is no docs/schemas/{name}.schema.json"));
    fault(schema, document).map(|fault| format!("docs/schemas/{name}.schema.json: {fault}"))
}

/// The first fault of a document, with its place; a `$ref` without a file is one into `root`.
pub fn fault(root: &Value, document: &Value) -> Option<String> {
    check(root, root, document, "").err()
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let schema = schema.as_object().unwrap_or_else(|| panic!("{schema} is no schema"));
    let require = |holds: bool, what: &dyn Fn() -> String| match holds {
        true => Ok(()),
        false => Err(format!("`{at}`: {}: {value}", what())),
    };
    for (keyword, given) in schema {
        let limit = || given.as_u64().unwrap() as usize;
        // keywords speak of values of one type, and hold for all others
        let (number, array, object) = (value.as_f64(), value.as_array(), value.as_object());
        let holds = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" => true,
            "type" => is_of_type(value, given.as_str().unwrap()),
            "const" => value == given,
            "enum" => given.as_array().unwrap().contains(value),
            "minimum" => number.is_none_or(|number| number >= given.as_f64().unwrap()),
            "maximum" => number.is_none_or(|number| number <= given.as_f64().unwrap()),
            "exclusiveMinimum" => number.is_none_or(|number| number > given.as_f64().unwrap()),
            "pattern" => value.as_str().is_none_or(|text| Regex::new(given.as_str().unwrap()).unwrap().is_match(text)),
            "minItems" => array.is_none_or(|items| items.len() >= limit()),
            "maxItems" => array.is_none_or(|items| items.len() <= limit()),
            "minProperties" => object.is_none_or(|members| members.len() >= limit()),
            "required" => {
                let missing =
                    |name: &&Value| object.is_some_and(|members| !members.contains_key(name.as_str().unwrap()));
                let missing = given.as_array().unwrap().iter().find(missing);
                require(missing.is_none(), &|| format!("{} is missing", missing.unwrap()))?;
                true
            }
            "items" => {
                let mut items = array.into_iter().flatten().enumerate();
                items.try_for_each(|(place, item)| check(root, given, item, &format!("{at}/{place}")))?;
                true
            }
            "properties" => {
                let mut members = object.into_iter().flatten();
                members.try_for_each(|(name, member)| match given.get(name) {
                    Some(given) => check(root, given, member, &format!("{at}/{name}")),
                    None => Ok(()),
                })?;
                true
            }
            "additionalProperties" => {
                let mut others = object.into_iter().flatten().filter(|(name, _)| !is_listed(schema, name));
                others.try_for_each(|(name, member)| match given {
                    Value::Bool(false) => Err(format!("`{at}`: `{name}` is not allowed")),
                    given => check(root, given, member, &format!("{at}/{name}")),
                })?;
                true
            }
            "$ref" => {
                let (root, schema) = referenced(root, given.as_str().unwrap());
                check(root, schema, value, at)?;
                true
            }
            "anyOf" | "oneOf" => {
                let tried: Vec<_> = given.as_array().unwrap().iter().map(|one| check(root, one, value, at)).collect();
                let matching = tried.iter().filter(|tried| tried.is_ok()).count();
                let faults: Vec<_> = tried.into_iter().filter_map(Result::err).collect();
                let holds = matching == 1 || matching > 1 && keyword == "anyOf";
                require(holds, &|| format!("{matching} of {keyword} match ({})", faults.join("; ")))?;
                true
            }
            other => panic!("a schema has `{other}`, which this reader does not know"),
        };
        require(holds, &|| format!("{keyword} is {given}"))?;
    }
    Ok(())
}

fn is_listed(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get("properties").is_some_and(|properties| properties.get(name).is_some())
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        other => panic!("a schema has the type `{other}`"),
    }
}

/// The schema that a `$ref` names, and the document it is in.
fn referenced<'a>(root: &'a Value, reference: &str) -> (&'a Value, &'a Value) {
    let (file, place) = reference.split_once('#').unwrap();
    let root = if file.is_empty() { root } else { &SCHEMAS[file.strip_suffix(".schema.json").unwrap()] };
    (root, root.pointer(place).unwrap_or_else(|| panic!("nothing is at {reference}")))
}

/// The name of the schema of a command's output; `None` if it prints no JSON.
pub fn of_command(arguments: &[&str]) -> Option<String> {
    let format = arguments.windows(2).find(|pair| pair[0] == "--format")?[1];
    let mut words = arguments.iter().skip_while(|word| word.starts_with('-')).copied();
    let command = match (words.next()?, words.next()) {
        ("cache", Some("export")) if format == "options-json" => "cache-export-options".to_owned(),
        ("device", _) if arguments.contains(&"--measure-peaks") => "device-measure-peaks".to_owned(),
        (group @ ("cache" | "registry" | "candidates" | "profile"), Some(command)) => format!("{group}-{command}"),
        (command, _) if SCHEMAS.contains_key(command) => command.to_owned(),
        _ => "tune".to_owned(),
    };
    ["json", "options-json"].contains(&format).then_some(command)
}
