//! What `cargo package` takes along: a crate's sources embed data of the repository, which must be in its package.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The workspace's packages that others can build, and their folders.
const PACKAGES: [(&str, &str); 5] = [
    ("autotune-lowered", "."),
    ("autotune-lowered-lookup", "crates/lookup"),
    ("autotune-lowered-profile", "crates/profile"),
    ("autotune-lowered-search", "crates/search"),
    ("autotune-lowered-timer", "crates/timer"),
];

/// The files that a source embeds outside its tests, as their paths in the package.
fn embedded(name: &Path, source: &str) -> Vec<PathBuf> {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap();
    let calls = ["include_str!(\"", "include_bytes!(\""].iter().flat_map(|call| code.split(call).skip(1));
    let inside = |rest: &str| resolved(&name.parent().unwrap().join(rest.split('"').next().unwrap()));
    calls.map(inside).collect()
}

/// A path without its `..`, as the package's root sees it: links are not followed.
fn resolved(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut found, part| {
        match part {
            Component::ParentDir => assert!(found.pop(), "`{}` leaves its package", path.display()),
            part => found.push(part),
        }
        found
    })
}

#[test]
fn each_package_holds_what_its_sources_embed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for (package, folder) in PACKAGES {
        let list = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["package", "--list", "--allow-dirty", "--offline", "--quiet", "--package", package])
            .current_dir(root)
            .output()
            .unwrap();
        assert!(list.status.success(), "{package}: {}", String::from_utf8_lossy(&list.stderr));
        let list = String::from_utf8(list.stdout).unwrap();
        let files: BTreeSet<&Path> = list.lines().map(Path::new).collect();
        for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs")) {
            for data in embedded(file, &fs::read_to_string(root.join(folder).join(file)).unwrap()) {
                assert!(files.contains(&*data), "{package}: {} embeds {}", file.display(), data.display());
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count} files are embedded");
}

#[test]
fn a_file_outside_the_package_is_found() {
    let found = embedded("src/a/b.rs".as_ref(), "const A: &str = include_str!(\"../../data/x.json\");");
    assert_eq!(found, [Path::new("data/x.json")]);
    let outside = || resolved("src/../../data".as_ref());
    assert!(std::panic::catch_unwind(outside).is_err());
}
