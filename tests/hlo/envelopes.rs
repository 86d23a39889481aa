//! Modules in envelopes, and labels that stand beside the scopes: `tests/data/hlo/README.md` says who wrote them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::support::xspace::Message;
use autotune_lowered::hlo::{
    Evidence, HloModule, ModuleForm, Scan, ScanOptions, UserLabels, modules_before_passes, read_program, scan_bytes,
    scan_path, semantic_digest,
};

const GATE: &str = r#"tokamax:{"op":{"__type":"demo.ops.gate.Gate","config":{}},"arguments":{"x":"bf16[8,16]","w":"bf16[16,32]","act":"relu"}}"#;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hlo")
}

fn read(name: &str) -> Vec<u8> {
    fs::read(data().join(name)).unwrap()
}

fn scan(bytes: &[u8]) -> Scan {
    scan_bytes(bytes, "module", &ScanOptions::default()).unwrap()
}

fn is_gate(scan: &Scan, occurrences: u64) {
    let [found] = &scan.labels[..] else { panic!("{:?}", scan.labels) };
    let key = found.label.call_key.as_deref();
    assert_eq!((found.label.op_name(), key), ("demo.ops.gate.Gate", Some("20aca138f7d758aa")));
    assert_eq!((found.occurrences, found.backward), (occurrences, false));
    let [site] = &found.call_sites[..] else { panic!("{:?}", found.call_sites) };
    let operands: Vec<String> = site.operands.iter().map(ToString::to_string).collect();
    assert_eq!(operands, ["bf16[8,16]", "bf16[16,32]"]);
}

/// `HloModuleProto` of the gate, which `gate.hlo.pb` holds in an `HloProto`.
fn module() -> Vec<u8> {
    let file = read("payload/gate.hlo.pb");
    read_program(&file, "gate").unwrap().bytes.to_vec()
}

fn after_its_length(message: &Message) -> Vec<u8> {
    // field 1 of a message is its tag, its length and the message
    Message::default().message(1, message).0[1..].to_vec()
}

#[test]
fn a_label_in_the_table_of_payloads_is_that_of_its_instructions() {
    let scan = scan_path(data().join("payload/gate.hlo.pb"), &ScanOptions::default()).unwrap();
    is_gate(&scan, 2);
    // the last instruction has none
    let file = read("payload/gate.hlo.pb");
    let module = HloModule::read(&file, "gate").unwrap();
    let payloads: Vec<&str> = module.instructions.iter().map(|one| one.payload()).collect();
    assert_eq!(payloads, ["", "", GATE, GATE, ""]);
}

#[test]
fn every_envelope_holds_the_module() {
    let whole = read("payload/gate.hlo.pb");
    let bare = module();
    let inner = Message::default().bytes(1, &bare);
    let with_config = inner.clone().message(2, &Message::default().number(1, 7));
    let arguments = Message::default().message(1, &Message::default().message(1, &Message::default().number(2, 16)));
    let unoptimized = after_its_length(&inner.clone().message(2, &arguments));
    // the values of the arguments follow, each after its own length
    let with_values = [&unoptimized[..], &after_its_length(&arguments)].concat();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(&unoptimized).unwrap();
    is_gate(&scan(&packed.finish().unwrap()), 2);
    for (what, bytes) in [
        ("HloModuleProto", bare.clone()),
        ("HloProto", whole.clone()),
        ("HloModuleProtoWithConfig", with_config.0),
        ("HloSnapshot", Message::default().message(1, &inner).bytes(4, "CPU").0),
        ("HloUnoptimizedSnapshot", unoptimized),
        ("HloUnoptimizedSnapshot with values", with_values),
    ] {
        let found = scan(&bytes);
        is_gate(&found, 2);
        assert_eq!((found.form, found.module.as_deref()), (ModuleForm::HloProto, Some("jit_gate")), "{what}");
        assert_eq!(read_program(&bytes, what).unwrap().bytes, bare, "{what}");
        assert_eq!(HloModule::read(&bytes, what).unwrap().name, "jit_gate");
        assert_eq!(HloModule::identity(&bytes).unwrap().0, "jit_gate");
        assert_eq!(semantic_digest(&bytes, what).unwrap(), semantic_digest(&bare, what).unwrap());
        for at in 0..bytes.len() {
            let _ = scan_bytes(&bytes[..at], what, &ScanOptions::default());
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x83;
            let _ = scan_bytes(&damaged, what, &ScanOptions::default()).map(|found| found.labels);
            let _ = read_program(&damaged, what).map(|program| program.arguments(what));
            let _ = HloModule::read(&damaged, what);
        }
    }
}

/// Written by hand after a snapshot of XLA; one of two instructions says that it has no payload.
#[test]
fn a_snapshot_is_scanned_as_its_module() {
    let found = scan_path(data().join("envelopes/snapshot.pb"), &ScanOptions::default()).unwrap();
    assert_eq!((found.module.as_deref(), found.labels.len()), (Some("jit_gate"), 0));
}

#[test]
fn an_exported_program_is_scanned_as_its_bytecode() {
    let file = read("envelopes/exported.bin");
    let found = scan_path(data().join("envelopes/exported.bin"), &ScanOptions::default()).unwrap();
    let [label] = &found.labels[..] else { panic!("{:?}", found.labels) };
    assert_eq!((label.label.op_id.as_str(), label.evidence), ("gate_mix@v3", Evidence::Exact));
    assert_eq!(label.label.call_key.as_deref(), Some("00aa11bb22cc33dd"));
    assert_eq!(found.form, ModuleForm::StablehloBytecode);
    let program = read_program(&file, "exported").unwrap();
    assert!(program.form == ModuleForm::StablehloBytecode && program.bytes.starts_with(b"ML\xefR"));
    assert_eq!(semantic_digest(&file, "x").unwrap(), semantic_digest(program.bytes, "x").unwrap());
    let cut = scan_bytes(&file[..file.len() - 600], "cut", &ScanOptions::default()).unwrap_err().to_string();
    assert!(cut.contains("`jax.export`") && cut.contains("truncated"), "{cut}");
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 0x83;
        let _ = scan_bytes(&damaged, "damaged", &ScanOptions::default());
        let _ = scan_bytes(&file[..at], "cut", &ScanOptions::default());
    }
}

/// Its derivative's program computes `a @ b`'s two cotangents, each by one product in the transposed scope.
#[test]
fn an_exported_program_has_the_labels_of_its_derivative_too() {
    let file = read("envelopes/with_vjp.bin");
    let found = scan_bytes(&file, "exported", &ScanOptions::default()).unwrap();
    let [label] = &found.labels[..] else { panic!("{:?}", found.labels) };
    assert_eq!(label.label.op_id, "gate_mix@v3");
    assert!(label.backward && label.forward_calls > 0 && label.backward_calls > 0, "{label:?}");
    assert!(found.diagnosis.iter().any(|one| one.code == "derivatives" && one.message.contains("of 1 derivative:")));
    let function = scan_path(data().join("envelopes/exported.bin"), &ScanOptions::default()).unwrap();
    assert!(!function.labels[0].backward && function.diagnosis.is_empty(), "{function:?}");
    assert_eq!((found.form, found.module.as_deref()), (function.form, Some("jit_gate")));
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 0x83;
        let _ = scan_bytes(&damaged, "damaged", &ScanOptions::default());
        let _ = scan_bytes(&file[..at], "cut", &ScanOptions::default());
    }
}

#[test]
fn a_dump_folder_of_snapshots_alone_holds_their_modules() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("module_0001.jit_gate.hlo_unoptimized_snapshot.pb");
    fs::write(&file, after_its_length(&Message::default().bytes(1, module()))).unwrap();
    is_gate(&scan_path(folder.path(), &ScanOptions::default()).unwrap(), 2);
    let found = modules_before_passes(folder.path()).unwrap();
    assert_eq!((found.files, found.only_later), (vec![file], Vec::<String>::new()));
}

/// A module of one instruction: its scopes, and its payload as JAX 0.8 and 0.9 write it.
fn with_attribute(op_name: &str, payload: &str) -> Vec<u8> {
    let shape = Message::default().number(2, 11).bytes(3, [4]);
    let attribute = |key: &str, value: &str| Message::default().bytes(1, key).bytes(2, value);
    let attributes = Message::default()
        .message(1, &attribute("other", "mine=no/1"))
        .message(1, &attribute("xla_metadata_payload", payload));
    let parameter = Message::default().bytes(1, "p").bytes(2, "parameter").message(3, &shape).number(35, 1);
    let call = Message::default()
        .bytes(1, "c")
        .bytes(2, "custom-call")
        .message(3, &shape)
        .message(7, &Message::default().bytes(2, op_name))
        .number(35, 2)
        .number(36, 1)
        .message(68, &attributes);
    let main = Message::default().bytes(1, "main").message(2, &parameter).message(2, &call).number(5, 1).number(6, 2);
    Message::default().bytes(1, "jit_f").bytes(2, "main").message(3, &main).number(6, 1).0
}

#[test]
fn payloads_of_older_versions_stand_on_the_instruction() {
    let found = scan(&with_attribute("jit(f)/custom_call", GATE));
    let [label] = &found.labels[..] else { panic!("{:?}", found.labels) };
    assert_eq!((label.occurrences, label.backward, label.call_sites.len()), (1, false, 1));
    assert_eq!(label.call_sites[0].operands, ["f32[4]".parse().unwrap()]);
    // the direction is that of the scopes
    let found = scan(&with_attribute("jit(f)/transpose(jvp())/custom_call", GATE));
    assert!(found.labels[0].backward && found.labels[0].call_sites[0].backward);
    // nested operations join their labels
    let nested = format!("{GATE}/ejkernel_ops#inner.v1:0123456789abcdef");
    let found = scan(&with_attribute("jit(f)/custom_call", &nested));
    let names: Vec<&str> = found.labels.iter().map(|label| label.label.op_name()).collect();
    assert_eq!(names, ["demo.ops.gate.Gate", "inner"]);
    // the user's own expression sees payloads as it sees names
    let user = UserLabels::new(r"mine=(?P<op>\w+)/(?P<key>\w+)").unwrap();
    let options = ScanOptions::default().user_labels(Some(user));
    let found = scan_bytes(&with_attribute("jit(f)/mine=a/1", "mine=b/2"), "x", &options).unwrap();
    let found: Vec<(&str, usize)> =
        found.labels.iter().map(|label| (label.label.op_name(), label.call_sites.len())).collect();
    assert_eq!(found, [("a", 1), ("b", 1)]);
}

#[test]
fn a_payload_that_repeats_its_scope_counts_once() {
    let label = "ejkernel_ops#inner.v1:0123456789abcdef";
    let scope = format!("jit(f)/{label}/mine=a/1/custom_call");
    let options = ScanOptions::default().user_labels(Some(UserLabels::new(r"mine=(?P<op>\w+)/(?P<key>\w+)").unwrap()));
    for (payload, expected) in [
        (label.to_owned(), vec![("a", 1), ("inner", 1)]),
        (format!("{label}/mine=a/1"), vec![("a", 1), ("inner", 1)]),
        (format!("{GATE}/mine=b/2"), vec![("a", 1), ("b", 1), ("demo.ops.gate.Gate", 1), ("inner", 1)]),
    ] {
        let found = scan_bytes(&with_attribute(&scope, &payload), "module", &options).unwrap();
        let found: Vec<(&str, u64)> =
            found.labels.iter().map(|label| (label.label.op_name(), label.occurrences)).collect();
        assert_eq!(found, expected, "{payload}");
    }
}

/// What a call site takes out of a tuple is one operand, and what is no plain array is said.
#[test]
fn operands_are_parts_of_tuples_and_untyped_ones_are_counted() {
    let array = |dims: &[u8]| Message::default().number(2, 11).bytes(3, dims);
    // at most eight, which counts as eight; and a type of no element that is known here
    let bounded = array(&[8]).bytes(6, [1]);
    let unknown = Message::default().number(2, 99).bytes(3, [8]);
    let tuple = [&array(&[2]), &array(&[3, 4]), &bounded, &unknown];
    let tuple = tuple.into_iter().fold(Message::default().number(2, 13), |tuple, part| tuple.message(4, part));
    let instruction = |name: &str, opcode: &str, shape: &Message, id: i64| {
        Message::default().bytes(1, name).bytes(2, opcode).message(3, shape).number(35, id)
    };
    let label = Message::default().bytes(2, "jit(f)/ejkernel_ops#op.v1:0123456789abcdef/get");
    let taken = |index: i64, shape: &Message| {
        let name = format!("g.{index}");
        let taken = instruction(&name, "get-tuple-element", shape, 10 + index);
        taken.number(36, 1).number(13, index).message(7, &label)
    };
    let main = Message::default()
        .bytes(1, "main")
        .message(2, &instruction("t", "custom-call", &tuple, 1))
        .message(2, &taken(1, &array(&[3, 4])))
        .message(2, &taken(2, &bounded))
        .message(2, &taken(3, &unknown))
        .number(5, 1);
    let found = scan(&Message::default().bytes(1, "jit_f").bytes(2, "main").message(3, &main).number(6, 1).0);
    let operands: Vec<String> =
        found.labels[0].call_sites.iter().flat_map(|site| &site.operands).map(ToString::to_string).collect();
    assert_eq!(operands, ["f32[3,4]", "f32[8]"]);
    let said = found.diagnosis.iter().find(|one| one.code == "operands-untyped").unwrap();
    assert!(said.message.contains("lack 1 operand,") && said.message.contains("`type 99[8]`"), "{}", said.message);
}
