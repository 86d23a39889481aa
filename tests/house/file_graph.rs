//! Which file of `src` and `crates` uses which: paths are followed through re-exports to the file with the definition.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::source::Source;

/// A module by its names from the root of the crate; the root has none.
pub(crate) type Module = Vec<String>;

struct File {
    name: String,
    source: Source,
}

/// The files of the crates, by module: rooms have different names in all of them.
pub(crate) struct FileGraph(BTreeMap<Module, File>);

/// The crates below the program's own, from the lowest: each sees only those before it, which cargo checks.
const CRATES: [&str; 4] = ["lookup", "search", "profile", "timer"];

/// The sources of all crates, by their names below `src`; the crates' roots only list their rooms.
pub(crate) fn sources(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let below = CRATES.map(|name| root.join("crates").join(name).join("src"));
    assert_eq!(fs::read_dir(root.join("crates")).unwrap().count(), CRATES.len(), "name each crate here");
    for src in below.iter().chain([&root.join("src")]) {
        let mut open = vec![src.to_owned()];
        while let Some(folder) = open.pop() {
            for path in fs::read_dir(folder).unwrap().map(|item| item.unwrap().path()) {
                let name = path.strip_prefix(src).unwrap().to_str().unwrap().to_owned();
                if path.is_dir() {
                    open.push(path);
                } else if name.ends_with(".rs") && (name != "lib.rs" || *src == root.join("src")) {
                    let text = fs::read_to_string(&path).unwrap();
                    assert!(found.insert(name, text).is_none(), "two files are {}", path.display());
                }
            }
        }
    }
    found
}

impl FileGraph {
    /// Reads all crates as if they were one.
    pub(crate) fn of_crates(root: &Path) -> Self {
        let as_one = |(name, text): (String, String)| {
            let is_root = name == "lib.rs";
            let text = CRATES
                .iter()
                .filter(|_| !is_root)
                .fold(text, |text, name| text.replace(&format!("autotune_lowered_{name}::"), "crate::"));
            (name, text)
        };
        Self::of_files(sources(root).into_iter().map(as_one))
    }

    /// Reads files, given by their names below `src`.
    pub(crate) fn of_files(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let files = files.into_iter().filter(|(name, _)| name != "main.rs").map(|(name, text)| {
            let mut module: Module = name.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
            module.pop_if(|last| *last == "mod" || *last == "lib");
            (module, File { name, source: Source::read(&text) })
        });
        Self(files.collect())
    }

    /// Each file's top-level module and name, without the root's.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let below_root = self.0.iter().filter(|(module, _)| !module.is_empty());
        below_root.map(|(module, file)| (module[0].as_str(), file.name.as_str()))
    }

    /// Each file's top-level module and name, and the top-level modules that it names in any way.
    pub(crate) fn rooms_used(&self) -> impl Iterator<Item = (&str, &str, BTreeSet<String>)> {
        self.0.iter().filter(|(module, _)| !module.is_empty()).map(|(module, file)| {
            let imported = file.source.imports.iter().map(|import| &import.path);
            let named = imported.chain(&file.source.paths).filter_map(|path| {
                let from_root = absolute(module, path)?;
                from_root.first().cloned()
            });
            (module[0].as_str(), file.name.as_str(), named.collect())
        })
    }

    /// The files that a file uses.
    fn uses(&self, module: &Module) -> BTreeSet<&str> {
        let file = &self.0[module];
        let mut used: BTreeSet<&str> = BTreeSet::new();
        for import in &file.source.imports {
            match import.as_name.as_str() {
                "*" if import.is_handed_on => {}
                "*" => used.extend(file.source.names.iter().filter_map(|name| {
                    let path = [import.path.as_slice(), std::slice::from_ref(name)].concat();
                    self.definer(module, &path)
                })),
                name if import.is_handed_on && !file.source.names.contains(name) => {}
                _ => used.extend(self.definer(module, &import.path)),
            }
        }
        used.extend(file.source.paths.iter().filter_map(|path| self.definer(module, path)));
        used.remove(file.name.as_str());
        used
    }

    /// The file that defines the target of a path in a module; `None` for other crates, and for modules.
    fn definer(&self, module: &Module, path: &[String]) -> Option<&str> {
        let (at, rest) = start(module, path)?;
        self.below(at, rest, &mut BTreeSet::new())
    }

    /// Follows a path down from a module, visiting each name in a module once: re-exports may form cycles.
    fn below<'a>(
        &'a self,
        mut module: Module,
        path: &[String],
        seen: &mut BTreeSet<(Module, String)>,
    ) -> Option<&'a str> {
        let mut rest = path.iter();
        loop {
            let file = self.0.get(&module)?;
            let name = rest.next()?;
            if file.source.children.contains(name) {
                module.push(name.clone());
                continue;
            }
            if file.source.items.contains(name) {
                return Some(&file.name);
            }
            if !seen.insert((module.clone(), name.clone())) {
                return None;
            }
            let rest = rest.as_slice();
            let mut followed = file.source.imports.iter().filter_map(|import| {
                let more = match import.as_name.as_str() {
                    "*" => [std::slice::from_ref(name), rest].concat(),
                    word if word == name => rest.to_vec(),
                    _ => return None,
                };
                let path = [import.path.clone(), more].concat();
                let (at, below) = start(&module, &path)?;
                self.below(at, below, seen)
            });
            return followed.next();
        }
    }

    /// Files that use each other, directly or indirectly: each cycle sorted.
    pub(crate) fn circles(&self) -> Vec<Vec<&str>> {
        let uses: BTreeMap<&str, BTreeSet<&str>> =
            self.0.keys().map(|module| (self.0[module].name.as_str(), self.uses(module))).collect();
        let reached: BTreeMap<&str, BTreeSet<&str>> = uses.keys().map(|file| (*file, reach(&uses, file))).collect();
        let mut circles: BTreeSet<Vec<&str>> = BTreeSet::new();
        for (file, others) in &reached {
            let circle: Vec<&str> = others.iter().copied().filter(|other| reached[other].contains(file)).collect();
            circles.extend((circle.len() > 1).then_some(circle));
        }
        circles.into_iter().collect()
    }

    /// The edges inside a cycle, as a help to break it.
    pub(crate) fn arrows<'a>(&'a self, circle: &'a [&str]) -> Vec<(&'a str, &'a str)> {
        let files = self.0.iter().filter(|(_, file)| circle.contains(&file.name.as_str()));
        let arrows = files.flat_map(|(module, file)| {
            let used = self.uses(module).into_iter().filter(|used| circle.contains(used));
            used.map(|used| (file.name.as_str(), used)).collect::<Vec<_>>()
        });
        arrows.collect()
    }
}

/// The files reachable from a file; itself only through others.
fn reach<'a>(uses: &BTreeMap<&'a str, BTreeSet<&'a str>>, file: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(next) = open.pop() {
        for used in uses.get(next).into_iter().flatten() {
            if reached.insert(*used) {
                open.push(used);
            }
        }
    }
    reached
}

/// The start of a path and the rest: all of it for a plain name.
fn start<'a>(module: &Module, path: &'a [String]) -> Option<(Module, &'a [String])> {
    let mut at = module.clone();
    let mut rest = path;
    while let Some(word) = rest.first() {
        match word.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()?),
            _ => break,
        }
        rest = &rest[1..];
    }
    Some((at, rest))
}

/// A path from the root of the crate; `None` for a plain name.
fn absolute(module: &Module, path: &[String]) -> Option<Module> {
    let (at, rest) = start(module, path)?;
    (rest.len() < path.len()).then(|| [&at, rest].concat())
}

#[test]
fn circles_are_seen_through_re_exports_and_groups() {
    let graph = |files: &[(&str, &str)]| {
        FileGraph::of_files(files.iter().map(|(name, text)| (String::from(*name), String::from(*text))))
    };
    // by the module's re-export of another file's definition
    let hidden = graph(&[
        ("lib.rs", "pub mod room; pub mod other;"),
        ("room/mod.rs", "mod a; mod b; pub use a::A; pub use b::*;"),
        ("room/a.rs", "use super::B; pub struct A(B);"),
        ("room/b.rs", "pub struct B; fn f() { crate::room::A::new() }"),
        ("other.rs", "use crate::room::{self, A}; fn f() { room::B }"),
    ]);
    assert_eq!(hidden.circles(), [["room/a.rs", "room/b.rs"]]);
    assert_eq!(hidden.arrows(&["room/a.rs", "room/b.rs"]).len(), 2);
    // a front file that only re-exports uses nobody; one with code does
    let files = |front| [("room/mod.rs", front), ("room/a.rs", "use super::Shared; pub struct A(Shared);")];
    assert!(graph(&files("mod a; pub use a::A; pub struct Shared;")).circles().is_empty());
    assert_eq!(graph(&files("mod a; pub use a::A; pub struct Shared(A);")).circles().len(), 1);
    assert_eq!(graph(&files("mod a; pub struct Shared; fn f() { a::A::new() }")).circles().len(), 1);
    // a long way around in the paths, and one edge alone
    let files = |last| {
        [
            ("lib.rs", "mod r;"),
            ("r/mod.rs", "mod a; mod b;"),
            ("r/a.rs", "use super::b::B; struct A;"),
            ("r/b.rs", last),
        ]
    };
    assert!(graph(&files("struct B;")).circles().is_empty());
    assert_eq!(graph(&files("use super::super::r::a::A; struct B;")).circles(), [["r/a.rs", "r/b.rs"]]);
}
