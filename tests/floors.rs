//! The house's floors: a module uses only modules on lower floors; two on one floor never see each other, save on the
//! ground floor.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

/// Each module and its floor, from the bottom.
const FLOORS: &[(&str, u32)] = &[
    ("call", 0),
    ("failure", 0),
    ("measured_by", 0),
    ("open_enum", 0),
    ("device", 0),
    ("digest", 0),
    ("config", 0),
    ("constraint", 0),
    ("array", 0),
    ("batch", 0),
    ("stats", 0),
    ("wire", 0),
    ("mapped_file", 0),
    ("outside_file", 0),
    ("counted", 0),
    ("printable", 0),
    ("remedy", 0),
    ("scratch", 0),
    ("whole_file", 0),
    ("hlo", 1),
    ("nsys", 1),
    ("profile", 1),
    ("candidates", 1),
    ("decision", 1),
    ("signature", 1),
    ("analysis", 2),
    ("registry", 2),
    ("samples", 2),
    ("cache", 2),
    ("search", 2),
    ("ledger", 3),
    ("matching", 3),
    ("remote", 4),
    ("timer", 4),
    ("measure", 5),
    ("tune", 5),
    ("gate", 6),
    ("selftest", 6),
    ("report", 7),
    ("cli", 8),
];

fn floor_of(module: &str) -> Option<u32> {
    FLOORS.iter().find(|(name, _)| *name == module).map(|(_, floor)| *floor)
}

/// The modules of this crate that a source text names after `crate::`, in code or in links of its documentation.
fn modules_named(source: &str) -> Vec<String> {
    let mut named = Vec::new();
    for line in source.lines().map(str::trim_start) {
        // a link in a comment builds no dependency
        if line.starts_with("//") {
            continue;
        }
        for (at, _) in line.match_indices("crate::") {
            let rest = &line[at + "crate::".len()..];
            if let Some(group) = rest.strip_prefix('{') {
                let inside = group.split('}').next().unwrap_or_default();
                named.extend(inside.split(',').map(|part| word(part.trim())));
            } else {
                named.push(word(rest));
            }
        }
    }
    named
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// What one file breaks, in words.
fn violations(module: &str, path: &Path, source: &str) -> Vec<String> {
    let floor = floor_of(module).unwrap_or_else(|| panic!("`{module}` has no floor: add it to tests/floors.rs"));
    let mut found = Vec::new();
    for used in modules_named(source) {
        match floor_of(&used) {
            _ if used == module => {}
            Some(below) if below < floor || (below == 0 && floor == 0) => {}
            Some(other) => {
                found.push(format!("{}: `{module}` (floor {floor}) uses `{used}` (floor {other})", path.display()))
            }
            None => found.push(format!("{}: `crate::{used}` is on no floor", path.display())),
        }
    }
    found
}

fn sources() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut open = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(folder) = open.pop() {
        for path in fs::read_dir(folder).unwrap().map(|item| item.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let first = path.strip_prefix(&root).unwrap().iter().next().unwrap().to_str().unwrap();
                let module = first.trim_end_matches(".rs").to_owned();
                if module != "lib" && module != "main" {
                    files.push((module, path));
                }
            }
        }
    }
    files.sort();
    files
}

#[test]
fn every_module_keeps_to_its_floor() {
    let files = sources();
    assert!(files.len() > 50, "the sources were not found");
    let broken: Vec<String> =
        files.iter().flat_map(|(module, path)| violations(module, path, &fs::read_to_string(path).unwrap())).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn planted_violations_are_found() {
    let path = Path::new("planted.rs");
    for (module, source) in [
        ("decision", "use crate::timer::Timer;"),
        ("cache", "use crate::samples::SampleLog;"),
        ("hlo", "use crate::{digest::Digest, registry::Registry};"),
        ("call", "fn f() { crate::cli::main(); }"),
        ("cache", "use crate::nowhere::Thing;"),
    ] {
        assert_eq!(violations(module, path, source).len(), 1, "{module}: {source}");
    }
    assert!(violations("tune", path, "use crate::{cache::CacheKey, timer::Timer};\n// crate::cli").is_empty());
}

/// Names that say nothing about what is inside.
#[test]
fn no_room_is_a_lumber_room() {
    for (_, path) in sources() {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert!(!["utils", "util", "common", "helpers", "manager", "misc"].contains(&stem), "{}", path.display());
    }
}

/// Unsafe code stands in the PJRT binding alone, each block with its reason.
#[test]
fn unsafe_code_stands_in_the_binding_alone() {
    for (_, path) in sources() {
        let source = fs::read_to_string(&path).unwrap();
        let code: String = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let holds_unsafe = code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl");
        let in_binding = path.components().any(|part| part.as_os_str() == "pjrt");
        assert!(!holds_unsafe || in_binding || path.ends_with("src/mapped_file.rs"), "{}", path.display());
        if holds_unsafe {
            let (blocks, reasons) = (source.matches("unsafe {").count(), source.matches("// SAFETY:").count());
            assert!(reasons >= blocks, "{}: {blocks} unsafe blocks, {reasons} reasons", path.display());
        }
    }
}

/// A file that is mapped and cut ends the process: what reads a snapshot once and ends reads it into memory.
#[test]
fn what_ends_soon_maps_no_snapshot() {
    let rooms = ["cli", "remote", "tune", "gate", "selftest", "report"];
    for (module, path) in sources().into_iter().filter(|(module, _)| rooms.contains(&module.as_str())) {
        let source = fs::read_to_string(&path).unwrap();
        assert!(!source.contains("Mapping::WhereLocal"), "{}: `{module}` maps a file", path.display());
    }
}
