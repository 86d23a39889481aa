//! Layouts of text. White space means nothing, as in the parsers of XLA and MLIR, and text around a module is no part of
//! it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use autotune_lowered::hlo::{CallSite, Label, Scan, ScanOptions, read_plain, read_program, scan_bytes};

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hlo").join(name);
    String::from_utf8(read_plain(std::fs::read(path).unwrap(), 1 << 28, name).unwrap()).unwrap()
}

/// Each byte outside of strings as `change` has it.
fn outside_strings(text: &str, change: impl Fn(char) -> char) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let mut changed = |one: char| {
        let is_inside = in_string;
        in_string = if one == '"' && !escaped { !in_string } else { in_string };
        escaped = one == '\\' && !escaped;
        if is_inside { one } else { change(one) }
    };
    text.chars().map(&mut changed).collect()
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("      {line}\n")).collect()
}

fn layouts(text: &str) -> Vec<(&'static str, String)> {
    vec![
        ("indented", indented(text)),
        ("flat", text.lines().map(|line| format!("{}\n", line.trim_start())).collect()),
        ("lines of Windows", text.replace('\n', "\r\n")),
        ("one line", outside_strings(text, |one| if one == '\n' { ' ' } else { one })),
        ("a line a word", outside_strings(text, |one| if one == ' ' { '\n' } else { one })),
        ("tabs", outside_strings(text, |one| if one == ' ' { '\t' } else { one })),
        ("fenced in Markdown", format!("# A report\n\nIt fails (see below) = here.\n\n```hlo\n{text}```\n\nThanks\n")),
        ("quoted in a list", format!("1. This one:\n\n{}", indented(text))),
    ]
}

/// A label, its occurrences, whether it is backward, and its call sites without their lines.
type PlacelessLabel = (Label, u64, bool, Vec<CallSite>);

/// All of a scan but places in the file.
fn read(text: &str) -> (Scan, Vec<PlacelessLabel>) {
    let scan = scan_bytes(text.as_bytes(), "text", &ScanOptions::default()).unwrap();
    let labels = scan.labels.iter().map(|found| {
        let site = |site: &CallSite| {
            let mut site = site.clone();
            site.line = None;
            site
        };
        let mut sites: Vec<CallSite> = found.call_sites.iter().map(site).collect();
        // they are listed by line
        sites.sort_by(|one, other| one.name.cmp(&other.name));
        (found.label.clone(), found.occurrences, found.backward, sites)
    });
    let labels = labels.collect();
    (scan, labels)
}

#[test]
fn a_module_says_the_same_in_every_layout() {
    for name in [
        "tf2_train.hash.alt.pre.hlo.txt.zst",
        "grouped_matmul.hash.pre.hlo.txt",
        "grouped_matmul.hash.post.hlo.txt",
        "sharded8.post.hlo.txt",
        "tf2_train.hash.stablehlo_debug.mlir.gz",
        "flash_attention.hash.stablehlo_debug.mlir",
        "printed/gate.mlir",
        "printed/generic.mlir",
        "printed/pretty.mlir",
        "printed/shard_map.mlir",
    ] {
        let usual = text(name);
        let (scan, labels) = read(&usual);
        assert!(labels.iter().any(|(.., sites)| !sites.is_empty()), "{name}");
        let program = read_program(usual.as_bytes(), name).unwrap();
        for (layout, changed) in layouts(&usual) {
            let (again, labels_again) = read(&changed);
            let unread = again.diagnosis.iter().find(|one| matches!(&*one.code, "structure-unread" | "truncated"));
            assert_eq!(unread, None, "{name}, {layout}");
            assert_eq!((again.module, again.partitioned), (scan.module.clone(), scan.partitioned), "{name}, {layout}");
            assert_eq!(labels_again, labels, "{name}, {layout}");
            let read = read_program(changed.as_bytes(), layout).unwrap();
            let said = (read.partitions, read.is_optimized);
            assert_eq!(said, (program.partitions, program.is_optimized), "{name}, {layout}");
        }
    }
}

/// Written by hand; XLA's parser takes it in each of these layouts.
const CALLED_BACKWARD: &str = r#"HloModule jit_g

%inner (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %n = f32[4]{0} negate(%x), metadata={op_name="ejkernel_ops#gate_mix@v3:00aa11bb22cc33dd/neg"}
}

ENTRY %main (a: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(0)
  ROOT %c = f32[4]{0} call(%a), to_apply=%inner, metadata={op_name="jit(g)/transpose(jvp(f))/call"}
}
"#;

#[test]
fn a_call_from_a_backward_scope_is_backward_in_every_layout() {
    for (layout, changed) in layouts(CALLED_BACKWARD) {
        let (scan, labels) = read(&changed);
        assert_eq!(scan.module.as_deref(), Some("jit_g"), "{layout}");
        let [(label, 1, true, sites)] = &labels[..] else { panic!("{layout}: {labels:?}") };
        assert_eq!(label.to_string(), "gate_mix@v3:00aa11bb22cc33dd");
        let operands: Vec<String> = sites[0].operands.iter().map(ToString::to_string).collect();
        assert_eq!((sites.len(), sites[0].backward, operands), (1, true, vec!["f32[4]".to_owned()]), "{layout}");
    }
}

/// As XLA prints an instruction of JAX with a payload, by hand.
#[test]
fn a_payload_is_a_label_of_its_instruction() {
    let payload = r#"metadata_payload="tokamax:{\"op\":{\"__type\":\"demo.Gate\"},\"arguments\":{}}""#;
    let frontend = format!("frontend_attributes={{xla_{payload}}}");
    let metadata = format!("metadata={{op_name=\"jit(f)/transpose(jvp())/dot\" stack_frame_id=2 {payload}}}");
    for (attribute, is_backward) in [(frontend, false), (metadata, true)] {
        let text = format!(
            "HloModule jit_f\nENTRY main {{\n a = (bf16[8,16], s32[]) parameter(0)\n g = bf16[8,16] get-tuple-element(a), \
             index=0\n d = f32[8,32]{{1,0}} dot(g, /*index=1*/g), {attribute}\n ROOT t = f32[8,32] tanh(d), \
             {attribute}\n}}"
        );
        let (_, labels) = read(&text);
        let [(label, 2, backward, sites)] = &labels[..] else { panic!("{labels:?} in {text}") };
        assert_eq!((&*label.op_id, *backward), ("demo.Gate", is_backward));
        let operands: Vec<String> = sites[0].operands.iter().map(ToString::to_string).collect();
        assert_eq!((sites.len(), sites[0].backward, operands), (1, is_backward, vec!["bf16[8,16]".to_owned()]));
    }
}

#[test]
fn what_cannot_be_read_is_counted() {
    let text = CALLED_BACKWARD.replace("%x = f32[4]{0} parameter(0)", "%x = f32[4]{0} parameter\n  ???");
    let (scan, _) = read(&text);
    let said = scan.diagnosis.iter().find(|one| one.code == "structure-unread").unwrap();
    assert!(said.message.starts_with("this HLO text holds 2 pieces") && said.message.contains("line 4"), "{said:?}");
    // instructions that were copied without their computation
    let (scan, _) =
        read("%a = f32[4]{0} add(%x, %y), metadata={op_name=\"jit(f)/ejkernel_ops#a.v1:00aa11bb22cc33dd\"}\n");
    assert!(scan.diagnosis.iter().any(|one| one.code == "structure-unread"), "{:?}", scan.diagnosis);
}
