//! The JSON Schema files of `docs/schemas`; every document that a test reads is validated against them.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

/// Definitions that several schemas share; no document has this schema.
pub const DEFINITIONS: &str = "definitions";

/// The schemas' files by name.
pub fn files() -> BTreeMap<String, PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schemas");
    let paths = fs::read_dir(folder).unwrap().map(|item| item.unwrap().path());
    let name = |path: &Path| path.file_name()?.to_str()?.strip_suffix(".schema.json").map(str::to_owned);
    paths.map(|path| (name(&path).unwrap(), path)).collect()
}

struct Compiled {
    schemas: Schemas,
    of_name: BTreeMap<String, SchemaIndex>,
}

static COMPILED: LazyLock<Compiled> = LazyLock::new(|| {
    let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
    let files = files();
    let url = |name: &str| format!("https://schemas.invalid/{name}.schema.json");
    for (name, path) in &files {
        let text = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        compiler.add_resource(&url(name), text).unwrap();
    }
    let index = |name: &String| {
        let index = compiler.compile(&url(name), &mut schemas).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        (name.clone(), index)
    };
    let of_name = files.keys().map(index).collect();
    Compiled { schemas, of_name }
});

/// Why a document does not match the schema of this name, if so.
pub fn wrong(name: &str, document: &Value) -> Option<String> {
    // for a module without labels, the main job prints the document of `scan`
    let name = if name == "tune" && document.get("form").is_some() { "scan" } else { name };
    let Compiled { schemas, of_name } = &*COMPILED;
    let index = of_name.get(name).unwrap_or_else(|| panic!("there is no docs/schemas/{name}.schema.json"));
    schemas.validate(document, *index).err().map(|error| format!("docs/schemas/{name}.schema.json: {error:#}"))
}

/// The name of the schema of a command's output; `None` if it prints no JSON.
pub fn of_command(arguments: &[&str]) -> Option<String> {
    let format = arguments.windows(2).find(|pair| pair[0] == "--format")?[1];
    let mut words = arguments.iter().skip_while(|word| word.starts_with('-')).copied();
    let command = match (words.next()?, words.next()) {
        ("cache", Some("export")) if format == "options-json" => "cache-export-options".to_owned(),
        ("device", _) if arguments.contains(&"--measure-peaks") => "device-measure-peaks".to_owned(),
        (group @ ("cache" | "registry" | "candidates" | "profile"), Some(command)) => format!("{group}-{command}"),
        (command, _) if COMPILED.of_name.contains_key(command) => command.to_owned(),
        _ => "tune".to_owned(),
    };
    ["json", "options-json"].contains(&format).then_some(command)
}
