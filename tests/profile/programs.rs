//! The HLO of captures: which of several protos is used for a program, and the effect of damaged ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::support::xspace::*;
use autotune_lowered::analysis::{HloFiles, Programs};
use autotune_lowered::hlo::HloModule;
use autotune_lowered::profile::{StatValue, XSpace};

/// A module of one instruction, whose opcode identifies it.
fn module(name: &str, id: i64, opcode: &str) -> Vec<u8> {
    proto(name, id, &[("x", opcode, "")]).0
}

/// A capture with these protos in `/host:metadata`, under the profiler's name for it.
fn capture(protos: &[(&str, i64, &[u8])]) -> XSpace {
    let mut plane = Message::default().bytes(2, "/host:metadata");
    for (place, (name, program, proto)) in (1..).zip(protos) {
        let wrapped = Message::default().bytes(1, proto);
        let stat = Message::default().number(1, 1).message(6, &wrapped);
        let id = Message::default().number(1, 2).number(4, *program);
        let metadata = Message::default().number(1, place).bytes(2, name).message(5, &stat).message(5, &id);
        plane = plane.message(4, &Message::default().number(1, place).message(2, &metadata));
    }
    for (id, name) in [(1, "Hlo Proto"), (2, "program_id")] {
        let metadata = Message::default().number(1, id).bytes(2, name);
        plane = plane.message(5, &Message::default().number(1, id).message(2, &metadata));
    }
    XSpace::from_bytes(Message::default().message(1, &plane).0).unwrap()
}

fn opcode(programs: &Programs<'_>, name: &str, id: Option<i64>) -> Option<String> {
    programs.find(name, id).map(|module| module.instruction("x").unwrap().opcode().to_owned())
}

#[test]
fn programs_are_found_by_id_and_files_stand_in() {
    let (three, four) = (module("jit_f", 3, "dot"), module("jit_f", 4, "add"));
    let damaged = &module("jit_g", 5, "lost")[..20];
    let space = capture(&[("jit_f(3)", 3, &three), ("jit_f(4)", 4, &four), ("jit_g(5)", 5, damaged)]);
    let mut files = HloFiles::default();
    files.add("f9", module("jit_f", 9, "exp"));
    files.add("f10", module("jit_f", 10, "log"));
    files.add("g", module("jit_g", 1, "sin"));
    let programs = Programs::new(&space, &files);
    let found = |name, id| opcode(&programs, name, id);
    assert_eq!(found("jit_f", Some(3)).as_deref(), Some("dot"));
    assert_eq!(found("jit_f", Some(4)).as_deref(), Some("add"));
    assert_eq!(found("jit_f", Some(10)).as_deref(), Some("log"));
    // no file has this id: the first one with its name is used
    assert_eq!(found("jit_f", Some(77)).as_deref(), Some("exp"));
    let guessed = [("jit_f", 77), ("jit_f", 10), ("jit_f", 3), ("jit_g", 6)];
    assert_eq!(guessed.map(|(name, id)| programs.guessed_among(name, Some(id))), [Some(2), None, None, None]);
    assert_eq!(found("jit_g", Some(5)).as_deref(), Some("sin"));
    assert_eq!(found("jit_h", Some(6)), None);
    assert_eq!(found("jit_f", None).as_deref(), Some("dot"));
    let problems = programs.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("`HLO proto of jit_g(5)`: is truncated"), "{problems:?}");
}

#[test]
fn a_dump_folder_gives_the_last_stage_of_each_module() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let open = |path: &Path| HloFiles::open(&[path.to_owned()]);
    let none = open(folder.path()).unwrap_err().to_string();
    assert!(none.contains("holds no module among its 0 files") && none.contains("--xla_dump_to=FOLDER"), "{none}");
    write("jax_ir0000_jit_f_compile.mlir", b"module @jit_f {}\n");
    let none = open(folder.path()).unwrap_err().to_string();
    assert!(none.contains("holds only StableHLO") && none.contains("--xla_dump_to=FOLDER"), "{none}");
    write("module_0001.jit_f.before_optimizations.hlo.pb", &module("jit_f", 1, "before"));
    write("module_0001.jit_f.cpu_after_optimizations.hlo.pb", &module("jit_f", 1, "after"));
    write("module_0001.jit_f.cpu_after_optimizations.txt", b"HloModule jit_f");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&module("jit_g", 2, "packed")).unwrap();
    write("module_0002.jit_g.gpu_after_optimizations.hlo.pb.gz", &gzip.finish().unwrap());
    write("module_0003.jit_h.before_optimizations.hlo.pb", &module("jit_h", 3, "only"));
    write("module_0004.jit_i.cpu_after_optimizations.hlo.pb.gz", b"\x1f\x8bno gzip at all");
    write("module_0005.jit_k.before_optimizations.hlo.pb", &module("jit_k", 5, "before"));
    write("module_0005.jit_k.sm_9.0_gpu_after_optimizations.hlo.pb", &module("jit_k", 5, "gpu"));
    // as `--xla_dump_to` alone writes them, and a proto by another name
    let text = |opcode: &str| format!("HloModule jit_l\n\nENTRY main {{\n  x = f32[4]{{0}} {opcode}()\n}}\n");
    write("module_0007.jit_l.cpu_after_optimizations.txt", text("negate").as_bytes());
    write("module_0008.jit_l.cpu_after_optimizations.txt", text("tanh").as_bytes());
    write("module_0008.jit_l.cpu_after_optimizations-buffer-assignment.txt", b"BufferAssignment:\nallocation 0: \n");
    write("module_0008.jit_l.before_optimizations.txt", text("before").as_bytes());
    write("mine.pb", &module("jit_m", 6, "snapshot"));
    let files = open(folder.path()).unwrap();
    assert_eq!(files.notes().len(), 1);
    assert!(files.notes()[0].contains("jit_i") && files.notes()[0].contains("gzip"), "{:?}", files.notes());
    let space = capture(&[]);
    let programs = Programs::new(&space, &files);
    let found = ["jit_f", "jit_g", "jit_h", "jit_k", "jit_l", "jit_m", "jit_i"];
    let found = found.map(|name| opcode(&programs, name, Some(9)));
    assert_eq!(
        found.each_ref().map(Option::as_deref),
        [Some("after"), Some("packed"), Some("only"), Some("gpu"), Some("negate"), Some("snapshot"), None]
    );
    // XLA numbers its files by the modules' ids
    assert_eq!(opcode(&programs, "jit_l", Some(8)).as_deref(), Some("tanh"));
    // a named file must be HLO
    let mlir = open(&folder.path().join("jax_ir0000_jit_f_compile.mlir")).unwrap_err().to_string();
    assert!(mlir.contains("is StableHLO, and devices run HLO"), "{mlir}");
    let text = folder.path().join("module_0001.jit_f.cpu_after_optimizations.txt");
    fs::write(&text, b"HloModule jit_f, entry_computation_layout={()->f32[]}\n").unwrap();
    assert!(open(&text).unwrap_err().to_string().contains("HLO text without a computation"));
    fs::write(&text, b"nothing of the kind").unwrap();
    assert!(open(&text).unwrap_err().to_string().contains("is not a module"), "{}", open(&text).unwrap_err());
    assert!(open(Path::new("nowhere.hlo.pb")).unwrap_err().to_string().contains("`nowhere.hlo.pb`: cannot be read"));
}

#[test]
fn sizes_calls_and_stacks_by_hand() {
    let shape = |element: i64, dims: &[u8]| Message::default().number(2, element).bytes(3, dims);
    // a tuple of f32[2,3], s4[3] and an unknown type
    let tuple = Message::default().number(2, 13);
    let tuple = [shape(11, &[2, 3]), shape(21, &[3]), shape(99, &[5])]
        .iter()
        .fold(tuple, |tuple, element| tuple.message(4, element));
    let metadata = Message::default().bytes(2, "f").number(15, 2);
    let one = Message::default().bytes(1, "one").bytes(2, "dot").message(3, &tuple).message(7, &metadata).number(35, 1);
    let two = Message::default().bytes(1, "two").number(35, 2).number(36, 1).number(38, 8).number(38, 9);
    let main = Message::default().bytes(1, "main").message(2, &one).message(2, &two).number(5, 7);
    let called = Message::default().bytes(1, "called").message(2, &Message::default().bytes(1, "in")).number(5, 8);
    let location = |function: i64, line: i64| Message::default().number(1, 1).number(2, function).number(3, line);
    let frame = |location: i64, parent: i64| Message::default().number(1, location).number(2, parent);
    let index = Message::default()
        .bytes(1, "m.py")
        .bytes(2, "outer")
        .bytes(2, "inner")
        .message(3, &location(1, 10))
        .message(3, &location(2, 20))
        .message(4, &frame(1, 0))
        .message(4, &frame(2, 1))
        // one that is its own parent, and one with a missing parent
        .message(4, &frame(1, 3))
        .message(4, &frame(9, 99));
    let build = |stack: i64| {
        let metadata = Message::default().number(15, stack);
        let other = Message::default().bytes(1, "other").message(7, &metadata).number(35, 3);
        let main = main.clone().message(2, &other);
        Message::default().bytes(1, "m").message(3, &main).message(3, &called).message(17, &index).0
    };
    let bytes = build(3);
    let module = HloModule::read(&bytes, "m").unwrap();
    let [one, two] = ["one", "two"].map(|name| module.instruction(name).unwrap());
    assert_eq!(one.bytes, 24 + 2);
    assert_eq!(module.operands_of(two).map(|operand| operand.name()).collect::<Vec<_>>(), ["one"]);
    assert_eq!(module.called_by(two).map(|inner| inner.name()).collect::<Vec<_>>(), ["in"]);
    assert_eq!(module.caller(module.instruction("in").unwrap()).unwrap().name(), "two");
    let stack: Vec<(String, u64)> =
        module.stack(one).iter().map(|frame| (frame.function.to_string(), frame.line)).collect();
    assert_eq!(stack, [("outer".to_owned(), 10), ("inner".to_owned(), 20)]);
    assert_eq!(module.source(one).unwrap().line, 20);
    // a cycle ends, and a missing parent gives an empty stack
    assert!(module.stack(module.instruction("other").unwrap()).len() <= 512);
    for stack in [4, 99, -1] {
        let bytes = build(stack);
        let module = HloModule::read(&bytes, "m").unwrap();
        assert!(module.stack(module.instruction("other").unwrap()).is_empty(), "{stack}");
    }
}

/// Bytes changed or cut anywhere give an error or a module, never a panic.
#[test]
fn damaged_protos_never_panic() {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xplane/multi8_shardmap.xplane.pb.gz");
    let space = XSpace::open(&path).unwrap();
    let plane = space.planes().find(|plane| plane.name() == "/host:metadata").unwrap();
    let protos = plane.all_event_metadata().flat_map(|metadata| metadata.stats()).filter_map(|stat| match stat.value {
        StatValue::Bytes(bytes) => Some(bytes),
        _ => None,
    });
    let proto = protos.max_by_key(|bytes| bytes.len()).unwrap();
    assert!(HloModule::read(proto, "whole").is_ok());
    let (mut read, mut refused) = (0, 0);
    let mut look = |bytes: &[u8]| match HloModule::read(bytes, "damaged") {
        Ok(module) => {
            read += 1;
            for instruction in &module.instructions {
                let inner = module.called_by(instruction).chain(module.operands_of(instruction)).count();
                let _ = (inner, module.stack(instruction), module.caller(instruction), instruction.bytes);
            }
        }
        Err(_) => refused += 1,
    };
    for at in (0..proto.len()).step_by(97) {
        look(&proto[..at]);
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = proto.to_vec();
            bytes[at] ^= flip;
            look(&bytes);
        }
    }
    assert!(read > 100 && refused > 100, "{read} {refused}");
}
