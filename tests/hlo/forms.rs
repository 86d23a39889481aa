//! One module in every form in which it is written, and StableHLO text as it is printed by different settings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use autotune_lowered::hlo::{
    FoundLabel, Label, Program, ProgramArgument, Scan, ScanOptions, UserLabels, read_plain, read_program, scan_bytes,
    scan_path,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hlo").join(name)
}

fn printed(name: &str) -> Scan {
    scan_path(data("printed").join(name), &ScanOptions::default()).unwrap()
}

#[derive(Deserialize)]
struct Lowered {
    name: String,
    backward: bool,
    /// The operands of each forward call, where the program shows them plainly.
    forward: Option<Vec<Vec<String>>>,
    forms: BTreeMap<String, Written>,
}

#[derive(Deserialize)]
struct LoweredInterface {
    name: String,
    interface: Declared,
    forms: BTreeMap<String, Written>,
}

/// What the source of a program shows.
#[derive(Deserialize)]
struct Declared {
    /// The path of each, whether it is donated, and how many values it has as an index.
    arguments: Vec<(String, bool, Option<u64>)>,
    results: Vec<String>,
}

/// Text as it is, or bytes in Base64.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes { base64: String },
}

impl Written {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Bytes { base64 } => STANDARD.decode(base64).unwrap(),
        }
    }
}

/// Call sites of a label: whether each is backward, and its operands, of which forms have another order.
type Sites = Vec<(bool, Vec<String>)>;

fn sites(label: &FoundLabel) -> Sites {
    let site = |site: &autotune_lowered::hlo::CallSite| {
        let mut operands: Vec<String> = site.operands.iter().map(ToString::to_string).collect();
        operands.sort();
        (site.backward, operands)
    };
    let mut sites: Sites = label.call_sites.iter().map(site).collect();
    sites.sort();
    sites
}

fn labels(scan: &Scan) -> BTreeMap<Label, (bool, Sites)> {
    scan.labels.iter().map(|label| (label.label.clone(), (label.backward, sites(label)))).collect()
}

/// The forms that say everything about a program's interface.
const STABLEHLO: [&str; 6] =
    ["text", "generic text", "text with pretty locations", "text in local scopes", "bytecode", "portable bytecode"];

/// What a program says about itself besides its labels.
#[derive(Debug, PartialEq)]
struct Interface {
    arguments: Option<Vec<ProgramArgument>>,
    results: Vec<String>,
    has_results: Option<bool>,
    index_ranges: Vec<Option<u64>>,
}

impl Interface {
    fn of(program: &Program<'_>) -> Self {
        Self {
            arguments: program.arguments("program").unwrap(),
            results: program.results(),
            has_results: program.has_results(),
            index_ranges: program.index_ranges(),
        }
    }
}

fn unpacked(name: &str) -> Vec<u8> {
    read_plain(std::fs::read(data(name)).unwrap(), 1 << 28, name).unwrap()
}

/// `make_interfaces.py`: each program with its interface as its source shows it.
#[test]
fn a_programs_interface_is_that_of_its_source_in_every_form() {
    let programs: Vec<LoweredInterface> = serde_json::from_slice(&unpacked("interfaces.json.zst")).unwrap();
    assert_eq!(programs.len(), 3);
    for LoweredInterface { name, interface: Declared { arguments, results }, forms } in programs {
        assert_eq!(forms.len(), 8, "{name}");
        for form in STABLEHLO.into_iter().chain(["HloModuleProto"]) {
            let bytes = forms[form].bytes();
            let program = read_program(&bytes, form).unwrap();
            let found = Interface::of(&program);
            let all = found.arguments.unwrap().into_iter().zip(found.index_ranges);
            let all: Vec<_> = all.map(|(one, range)| (one.path, one.is_donated, range)).collect();
            assert_eq!((all, found.has_results), (arguments.clone(), Some(true)), "{name} as {form}");
            // XLA's own form lacks the names of results
            let names = if form == "HloModuleProto" { Vec::new() } else { results.clone() };
            assert_eq!(found.results, names, "{name} as {form}");
        }
    }
}

/// `make_forms.py`: XLA's own conversion to HLO has the labels, directions and operands that StableHLO has.
#[test]
fn a_program_says_the_same_in_every_form() {
    let programs: Vec<Lowered> = serde_json::from_slice(&unpacked("forms.json.zst")).unwrap();
    assert_eq!(programs.len(), 61);
    for Lowered { name, backward, forward, forms } in programs {
        assert_eq!(forms.len(), 8, "{name}");
        let same = Interface::of(&read_program(&forms["text"].bytes(), &name).unwrap());
        assert!(same.arguments.as_ref().is_some_and(|arguments| arguments.len() > 1), "{name}");
        for form in STABLEHLO {
            assert_eq!(Interface::of(&read_program(&forms[form].bytes(), form).unwrap()), same, "{name} as {form}");
        }
        let scanned = |form: &str| scan_bytes(&forms[form].bytes(), form, &ScanOptions::default()).unwrap();
        let expected = labels(&scanned("text"));
        assert!(!expected.is_empty() && expected.values().all(|(_, sites)| !sites.is_empty()), "{name}");
        for (label, (is_backward, sites)) in &expected {
            assert_eq!((*is_backward, sites.iter().any(|site| site.0)), (backward, backward), "{name}: {label}");
            if let Some(forward) = &forward {
                let sorted = |mut operands: Vec<String>| {
                    operands.sort();
                    operands
                };
                let forward: Vec<_> = forward.iter().map(|operands| (false, sorted(operands.clone()))).collect();
                let found: Vec<_> = sites.iter().filter(|site| !site.0).cloned().collect();
                assert_eq!(found, forward, "{name}: {label}");
            }
        }
        for form in forms.keys() {
            let scan = scanned(form);
            assert_eq!(labels(&scan), expected, "{name} as {form}");
            assert!(scan.diagnosis.is_empty(), "{name} as {form}: {:?}", scan.diagnosis);
        }
    }
}

/// A payload that repeats the label of its scopes is the same occurrence: without it, the module holds as many.
#[test]
fn a_label_in_two_places_of_an_instruction_counts_once() {
    let programs: Vec<Lowered> = serde_json::from_slice(&unpacked("forms.json.zst")).unwrap();
    let both = programs.into_iter().find(|program| program.name == "two_carriers").unwrap();
    let count = |scan: &Scan, family: &str| {
        let of_family = scan.labels.iter().filter(|label| label.family == family);
        of_family.map(|label| label.occurrences).sum::<u64>()
    };
    for (form, written) in &both.forms {
        let mut bytes = written.bytes();
        let scan = scan_bytes(&bytes, form, &ScanOptions::default()).unwrap();
        let expected = count(&scan, "ejkernel-hash");
        assert!(expected > 0 && count(&scan, "tokamax") > 0, "{form}");
        // the payload, which is another label, becomes that of the scopes
        let label = b"ejkernel_ops#gate_mix.v3:00aa11bb22cc33dd/";
        let payloads: Vec<usize> = memchr::memmem::find_iter(&bytes, "tokamax:{").collect();
        payloads.into_iter().for_each(|at| bytes[at..at + label.len()].copy_from_slice(label));
        let scan = scan_bytes(&bytes, form, &ScanOptions::default()).unwrap();
        assert_eq!((count(&scan, "ejkernel-hash"), scan.labels.len()), (expected, 1), "{form}");
    }
}

/// Each was written by hand after a printer of MLIR; what is right follows from the text itself.
#[test]
fn texts_of_any_printer_show_their_call_sites() {
    for (file, module, expected) in [
        ("case.mlir", "jit_f", vec![(false, "f32[64,8] f32[8,16]")]),
        ("names.mlir", "jit_f", vec![(false, "f32[64,8] f32[8,16]")]),
        ("generic.mlir", "jit_f", vec![(false, "f32[4,8] f32[8,16]")]),
        ("pretty.mlir", "jit_f", vec![(false, "f32[4,8] f32[8,16]")]),
        ("gate.mlir", "jit_gate", vec![(false, "bf16[16,32] bf16[8,16]")]),
        ("shard_map.mlir", "jit_g", vec![(false, "bf16[8,16] f32[16,8]"), (true, "f32[16,16] f32[16,8]")]),
        ("types.mlir", "jit_f", vec![(false, "c64[4,8] f32[4,8]")]),
    ] {
        let scan = printed(file);
        assert_eq!(scan.module.as_deref(), Some(module), "{file}");
        let [label] = &scan.labels[..] else { panic!("{file}: {:?}", scan.labels) };
        let found: Vec<(bool, String)> =
            sites(label).into_iter().map(|(backward, operands)| (backward, operands.join(" "))).collect();
        let expected: Vec<(bool, String)> =
            expected.into_iter().map(|(backward, operands)| (backward, operands.to_owned())).collect();
        assert_eq!((found.clone(), label.backward), (expected, found.iter().any(|site| site.0)), "{file}");
        let codes: Vec<&str> = scan.diagnosis.iter().map(|one| one.code.as_str()).collect();
        let said = match file {
            "types.mlir" => vec!["operands-untyped"],
            // printed without locations
            "gate.mlir" => vec!["directions-unknown"],
            _ => Vec::new(),
        };
        assert_eq!(codes, said, "{file}");
    }
    let untyped = printed("types.mlir").diagnosis.remove(0).message;
    for said in ["2 operands", "tensor<?x8xf32>", "tensor<4x!quant.uniform<i8:f32, 0.25:3>>"] {
        assert!(untyped.contains(said), "{untyped}");
    }
    let payload = Label::new("demo.ops.gate.Gate", Some("20aca138f7d758aa".to_owned()));
    assert_eq!((&printed("gate.mlir").labels[0].label, printed("gate.mlir").labels[0].occurrences), (&payload, 2));
}

/// A person writes a name as it is read, whatever the escapes of the file.
#[test]
fn users_names_are_matched_without_escapes() {
    let found = |bytes: &[u8], pattern: &str| {
        let options = ScanOptions::default().user_labels(Some(UserLabels::new(pattern).unwrap()));
        let scan = scan_bytes(bytes, "text", &options).unwrap();
        let labels = scan.labels.into_iter().filter(|label| label.family == "user");
        labels.map(|label| (label.label.op_id, label.line, label.call_sites.len())).collect::<Vec<_>>()
    };
    let mlir = std::fs::read(data("printed/beyond_ascii.mlir")).unwrap();
    assert_eq!(found(&mlir, "(?P<op>Schicht_Größe)"), [("Schicht_Größe".to_owned(), Some(1), 1)]);
    let hlo =
        "HloModule m\nENTRY e {\n  ROOT p = f32[4] negate(q), metadata={op_name=\"jit(f)/Schicht_Größe/neg\"}\n}\n";
    let escaped = hlo.replace('ö', r"\303\266");
    for text in [hlo, &escaped] {
        assert_eq!(found(text.as_bytes(), "(?P<op>Schicht_Größe)"), [("Schicht_Größe".to_owned(), Some(3), 1)]);
    }
    // in a payload there are quotes
    let gate = std::fs::read(data("printed/gate.mlir")).unwrap();
    let expression = r#""__type":"(?P<op>[a-zA-Z.]+)""#;
    assert_eq!(found(&gate, expression), [("demo.ops.gate.Gate".to_owned(), Some(3), 1)]);
}
