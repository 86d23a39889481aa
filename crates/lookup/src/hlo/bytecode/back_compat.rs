//! Artifacts of every version of VHLO, from StableHLO's own tests: each beside the text that it was made from.
//! `AUTOTUNE_LOWERED_TEST_VHLO` names their folder, `stablehlo/tests/vhlo`; `.ci/full artifacts` fetches it.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::{find_cut, functions, semantic_digest};
use crate::hlo::graph::{Computation, Node, Type};
use crate::hlo::index_range::index_ranges_of_functions;
use crate::hlo::mlir_text;

/// The variable that names the folder.
const FOLDER: &str = "AUTOTUNE_LOWERED_TEST_VHLO";

/// The artifacts of a folder with their texts, and the version in each name:
/// `stablehlo_legalize_to_vhlo.1_20_0.mlir.bc`.
fn artifacts(folder: &Path) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let read = |path: &Path| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{FOLDER}={}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".mlir.bc"));
    paths.sort();
    let version = |path: &Path| path.to_string_lossy().rsplit('.').nth(2).unwrap_or_default().to_owned();
    paths.iter().map(|path| (version(path), read(path), read(&path.with_extension("")))).collect()
}

/// What call sites are computed from. Types that are no arrays are spelled in ways of their own.
fn shown(node: &Node<'_>) -> String {
    let types: Vec<String> = node.results.iter().map(shown_type).collect();
    let called: Vec<_> = node.called.iter().map(|name| String::from_utf8_lossy(name)).collect();
    let Node { kind, name, opcode, operands, holder, scope, payload, .. } = node;
    format!("{kind:?} {name} {opcode} {operands:?} {types:?} {called:?} {holder:?} {scope:?} {payload:?}")
}

fn shown_type(shown: &Type) -> String {
    match shown {
        Type::Array(array) => array.to_string(),
        Type::Tuple(elements) => elements.iter().map(shown_type).collect::<Vec<_>>().join(", "),
        Type::Other(spelled) if spelled.starts_with("tensor") => "no plain array".to_owned(),
        Type::Other(spelled) => spelled.split('<').next().unwrap_or_default().to_owned(),
    }
}

/// What must be equal of a function.
#[derive(Debug, PartialEq)]
struct Told {
    name: String,
    nodes: Vec<String>,
    returns: String,
    results: usize,
    /// By argument, the number of values that it has as an index.
    ranges: Vec<Option<u64>>,
}

fn told(mut functions: Vec<Computation<'_>>) -> Vec<Told> {
    let count = functions.len();
    let told = |at: usize| {
        // ranges are those of the function that a program begins with
        let name = std::mem::replace(functions.get_mut(at)?.name.to_mut(), b"main".to_vec());
        let ranges = index_ranges_of_functions(&functions);
        let function = functions.get_mut(at)?;
        let told = Told {
            name: String::from_utf8_lossy(&name).into_owned(),
            nodes: function.nodes.iter().map(shown).collect(),
            returns: format!("{:?}", function.returns),
            results: function.results.as_ref().map_or(0, Vec::len),
            ranges,
        };
        function.name = name.into();
        Some(told)
    };
    (0..count).filter_map(told).collect()
}

#[test]
fn artifacts_of_every_version_say_what_their_text_says() {
    let Some(folder) = std::env::var_os(FOLDER).filter(|folder| !folder.is_empty()) else {
        // bypasses the harness, which hides the output of passing tests
        let _ = writeln!(std::io::stderr(), "skipped: {FOLDER} names no folder of StableHLO's artifacts");
        return;
    };
    let artifacts = artifacts(Path::new(&folder));
    assert!(!artifacts.is_empty(), "{FOLDER}: no `*.mlir.bc` in it");
    for (version, bytecode, text) in artifacts {
        assert!(find_cut(&bytecode).is_none() && semantic_digest(&bytecode).is_ok(), "{version}");
        let expected = told(mlir_text::functions(&text));
        let found = told(functions(&bytecode).unwrap_or_else(|| panic!("{version} cannot be read")));
        assert!(expected.len() > 100 && expected.iter().any(|one| one.ranges.iter().any(Option::is_some)));
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{version}");
        }
        assert_eq!(found.len(), expected.len(), "{version}");
        for at in (0..bytecode.len()).step_by(101) {
            functions(&bytecode[..at]);
            let mut damaged = bytecode.clone();
            damaged[at] ^= 0x55;
            functions(&damaged);
        }
        let _ = writeln!(std::io::stderr(), "{version}: {} functions", found.len());
    }
}
