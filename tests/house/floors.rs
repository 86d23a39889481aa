//! The floors: a module uses only modules on lower floors; two on one floor never use each other, except on the ground
//! floor.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use crate::file_graph::{FileGraph, sources};

/// Each module and its floor, from the bottom.
const FLOORS: &[(&str, u32)] = &[
    ("call", 0),
    ("clock", 0),
    ("compiler_flags", 0),
    ("core_limits", 0),
    ("peaks", 0),
    ("target", 0),
    ("failure", 0),
    ("measured_by", 0),
    ("open_enum", 0),
    ("setters", 0),
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
    ("known_options", 0),
    ("junit", 0),
    ("printable", 0),
    ("io_hint", 0),
    ("scratch", 0),
    ("chance", 0),
    ("atomic_write", 0),
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
    ("exchange", 3),
    ("merge", 3),
    ("sled_store", 3),
    ("ledger", 4),
    ("matching", 3),
    ("remote", 5),
    ("timer", 5),
    ("lowering", 6),
    ("measure", 6),
    ("settings", 6),
    ("race", 7),
    ("tune", 8),
    ("compare", 9),
    ("compile", 9),
    ("compiler_options", 9),
    ("gate", 9),
    ("upgrade", 9),
    ("selftest", 9),
    ("autotune", 10),
    ("prove", 10),
    ("report", 11),
    ("cli", 12),
];

fn floor_of(module: &str) -> Option<u32> {
    FLOORS.iter().find(|(name, _)| *name == module).map(|(_, floor)| *floor)
}

/// How many files of each module are in cycles: files that use each other, directly or indirectly. These numbers may
/// only fall, until there are none: breaking a cycle includes lowering it here.
const IN_CIRCLES: &[(&str, usize)] = &[];

static SOURCES: LazyLock<FileGraph> = LazyLock::new(|| FileGraph::of_crates(Path::new(env!("CARGO_MANIFEST_DIR"))));

fn text(name: &str) -> String {
    static TEXTS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| sources(Path::new(env!("CARGO_MANIFEST_DIR"))));
    TEXTS[name].clone()
}

/// The violations in the files of a crate, in words.
fn violations(files: &FileGraph) -> Vec<String> {
    let mut found = Vec::new();
    for (room, name, used) in files.rooms_used() {
        let floor = floor_of(room).unwrap_or_else(|| panic!("`{room}` has no floor: add it to tests/house/floors.rs"));
        for used in used.iter().filter(|used| *used != room) {
            match floor_of(used) {
                Some(below) if below < floor || (below == 0 && floor == 0) => {}
                Some(other) => {
                    found.push(format!("src/{name}: `{room}` (floor {floor}) uses `{used}` (floor {other})"))
                }
                None => found.push(format!("src/{name}: `crate::{used}` is on no floor")),
            }
        }
    }
    found
}

#[test]
fn every_module_keeps_to_its_floor() {
    let files = &*SOURCES;
    assert!(files.files().count() > 50, "the sources were not found");
    let broken = violations(files);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn planted_violations_are_found() {
    let planted = |name: &str, text: &str| violations(&FileGraph::of_files([(name.to_owned(), text.to_owned())]));
    for (name, source) in [
        ("decision/mod.rs", "use crate::timer::Timer;"),
        ("cache/mod.rs", "use crate::samples::SampleLog;"),
        ("hlo/mod.rs", "use crate::{digest::Digest, registry::Registry};"),
        ("call.rs", "fn f() { crate::cli::main(); }"),
        ("cache/mod.rs", "use crate::nowhere::Thing;"),
        ("cache/key.rs", "use super::super::samples::SampleLog;"),
        ("exchange/tokamax/text.rs", "fn f() { super::super::super::timer::f() }"),
        ("exchange/mod.rs", "mod inner { use super::super::gate::Gate; }"),
    ] {
        assert_eq!(planted(name, source).len(), 1, "{name}: {source}");
    }
    assert!(planted("tune/mod.rs", "use crate::{cache::CacheKey, timer::Timer};\n// crate::cli").is_empty());
    assert!(planted("cache/snapshot/mod.rs", "use super::super::digest::Digest; use super::key::CacheKey;").is_empty());
}

/// The errors about cycles, with the edges of each affected cycle; `None` if all match this list.
fn wrong_about_circles(files: &FileGraph, allowed: &[(&str, usize)]) -> Option<String> {
    let circles = files.circles();
    let rooms: BTreeSet<&str> =
        files.files().map(|(room, _)| room).chain(allowed.iter().map(|(room, _)| *room)).collect();
    let mut said = String::new();
    for room in rooms {
        let of_room = |circle: &&Vec<&str>| circle.iter().any(|name| room_of(name) == room);
        let found = circles.iter().flatten().filter(|name| room_of(name) == room).count();
        let may = allowed.iter().find(|(name, _)| *name == room).map_or(0, |(_, count)| *count);
        if found < may {
            said +=
                &format!("`{room}`: {found} files are in circles, fewer than {may}: lower the number in IN_CIRCLES\n");
        } else if found > may {
            said += &format!("`{room}`: {found} files are in circles, and {may} may be:\n");
            for circle in circles.iter().filter(of_room) {
                let arrows = files.arrows(circle).into_iter().map(|(from, to)| format!("    {from} -> {to}\n"));
                said += &format!("  a circle of {}:\n{}", circle.len(), arrows.collect::<String>());
            }
        }
    }
    (!said.is_empty()).then_some(said)
}

fn room_of(name: &str) -> &str {
    name.split('/').next().unwrap().trim_end_matches(".rs")
}

#[test]
fn circles_among_the_files_of_a_room_grow_fewer() {
    let wrong = wrong_about_circles(&SOURCES, IN_CIRCLES);
    assert!(wrong.is_none(), "{}", wrong.unwrap());
}

#[test]
fn planted_circles_are_found_and_cut_ones_are_asked_for() {
    let files = |last: &str| {
        let files =
            [("cache/mod.rs", "mod a; mod b;"), ("cache/a.rs", "use super::b::B; struct A;"), ("cache/b.rs", last)];
        FileGraph::of_files(files.map(|(name, text)| (name.to_owned(), text.to_owned())))
    };
    let circle = files("use super::a::A; struct B;");
    let wrong = wrong_about_circles(&circle, &[]).unwrap();
    assert!(wrong.contains("cache/a.rs -> cache/b.rs") && wrong.contains("cache/b.rs -> cache/a.rs"), "{wrong}");
    assert_eq!(wrong_about_circles(&circle, &[("cache", 2)]), None);
    assert!(wrong_about_circles(&files("struct B;"), &[("cache", 2)]).unwrap().contains("lower"));
    assert!(wrong_about_circles(&files("struct B;"), &[("gone", 2)]).unwrap().contains("lower"));
}

/// Names that say nothing about the content.
#[test]
fn no_room_is_a_lumber_room() {
    for (_, name) in SOURCES.files() {
        let stem = Path::new(name).file_stem().unwrap().to_str().unwrap();
        assert!(!["utils", "util", "common", "helpers", "manager", "misc"].contains(&stem), "{name}");
    }
}

/// The errors about a file's unsafe code: it must be in an allowed module, with a reason for each block.
fn wrong_about_unsafe(name: &str, source: &str, may_be_unsafe: bool) -> Option<String> {
    let code: String = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let holds_unsafe = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait"]
        .iter()
        .any(|word| code.contains(word));
    let (blocks, reasons) = (source.matches("unsafe {").count(), source.matches("// SAFETY:").count());
    match () {
        () if holds_unsafe && !may_be_unsafe => Some(format!("{name}: unsafe code")),
        () if reasons < blocks => Some(format!("{name}: {blocks} unsafe blocks, {reasons} reasons")),
        () => None,
    }
}

/// Unsafe code is allowed in the PJRT binding, in the mapping of files, and at the C ABI.
#[test]
fn unsafe_code_stands_in_three_rooms() {
    let in_library = |name: &str| name.split('/').any(|part| part == "pjrt") || name == "mapped_file.rs";
    let mut wrong: Vec<String> =
        SOURCES.files().filter_map(|(_, name)| wrong_about_unsafe(name, &text(name), in_library(name))).collect();
    let capi = Path::new(env!("CARGO_MANIFEST_DIR")).join("capi/src");
    let mut seen = 0;
    for path in fs::read_dir(capi).unwrap().map(|item| item.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        // the tests call the exported functions, with pointers to their own data
        if path.is_file() && name != "tests.rs" {
            let may_be_unsafe = ["abi.rs", "layout.rs", "pointers.rs"].contains(&name);
            wrong.extend(wrong_about_unsafe(name, &fs::read_to_string(&path).unwrap(), may_be_unsafe));
            seen += 1;
        }
    }
    assert!(wrong.is_empty() && seen > 5, "{}", wrong.join("\n"));
    assert!(wrong_about_unsafe("call.rs", "fn f() { unsafe { g() } }", false).is_some());
    assert!(wrong_about_unsafe("abi.rs", "// SAFETY: so\nunsafe { g() }; unsafe { g() }", true).is_some());
}

/// Truncating a mapped file ends the process: code that reads a snapshot only once must read it into memory.
#[test]
fn what_ends_soon_maps_no_snapshot() {
    let rooms = ["cli", "remote", "race", "tune", "gate", "selftest", "report"];
    for (room, name) in SOURCES.files().filter(|(room, _)| rooms.contains(room)) {
        assert!(!text(name).contains("Mapping::WhereLocal"), "{name}: `{room}` maps a file");
    }
}
