//! The scanner on real samples and on bad input.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use autotune_lowered::digest::Digest;
use autotune_lowered::hlo::{Evidence, Label};
use autotune_lowered::hlo::{
    FoundLabel, ModuleForm, Scan, ScanErrorKind, ScanOptions, UserLabels, scan_bytes, scan_path, scan_reader,
};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hlo").join(name)
}

fn scan(name: &str) -> Scan {
    scan_path(data(name), &ScanOptions::default()).unwrap()
}

fn find<'a>(scan: &'a Scan, op_id: &str) -> &'a FoundLabel {
    scan.labels
        .iter()
        .find(|label| label.label.op_id == op_id)
        .unwrap_or_else(|| panic!("{op_id} in {:?}", scan.labels))
}

fn codes(scan: &Scan) -> Vec<&str> {
    scan.diagnosis.iter().map(|said| said.code.as_str()).collect()
}

fn shapes(label: &FoundLabel, backward: bool) -> Vec<Vec<String>> {
    label
        .call_sites
        .iter()
        .filter(|site| site.backward == backward)
        .map(|site| site.operands.iter().map(ToString::to_string).collect())
        .collect()
}

/// A module that calls one operation this often, with so many of the calls in the backward pass.
fn calls(all: usize, backward: usize) -> String {
    let scope = |at: usize| if at < backward { "transpose(jvp(f))/" } else { "" };
    let line = |at: usize| {
        let name = format!("jit(f)/{}ejkernel_ops#gate_mix@v3:00aa11bb22cc33dd/neg", scope(at));
        format!("  %n.{at} = f32[4]{{0}} negate(%a), metadata={{op_name=\"{name}\"}}\n")
    };
    let body: String = (0..all).map(line).collect();
    format!(
        "HloModule jit_deep\n\nENTRY %main (a: f32[4]) -> f32[4] {{\n  %a = f32[4]{{0}} parameter(0)\n{body}  \
         ROOT %r = f32[4]{{0}} copy(%a)\n}}\n"
    )
}

#[test]
fn call_sites_beyond_the_list_are_counted() {
    for (all, backward, listed) in [(300, 0, 256), (300, 120, 256), (600, 299, 256), (256, 1, 256), (3, 3, 3)] {
        let scan = scan_bytes(calls(all, backward).as_bytes(), "x", &ScanOptions::default()).unwrap();
        let label = find(&scan, "gate_mix@v3");
        assert_eq!((label.forward_calls, label.backward_calls), ((all - backward) as u64, backward as u64));
        assert_eq!(label.call_sites.len(), listed);
        let said = codes(&scan).contains(&"call-sites-cut");
        assert_eq!(said, all > listed, "{:?}", scan.diagnosis);
        if said {
            let message = &scan.diagnosis.last().unwrap().message;
            assert!(message.contains(&format!("`gate_mix@v3:00aa11bb22cc33dd` has {all}")), "{message}");
        }
    }
}

fn error(bytes: &[u8]) -> String {
    let error = scan_bytes(bytes, "x", &ScanOptions::default()).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn call_sites_carry_the_operations_operands() {
    // the model calls flash attention on (2, 128, 4, 32) twice; its backward pass takes the cotangent as a fourth
    // operand
    let qkv = vec!["f32[2,128,4,32]".to_owned(); 3];
    let with_cotangent = vec!["f32[2,128,4,32]".to_owned(); 4];
    for (name, op_id) in [
        ("tf2_train.hash.stablehlo_debug.mlir.gz", "flash_attention@v2"),
        ("tf2_train.json.stablehlo_debug.mlir.gz", "flash_attention@v2"),
        ("tf2_train.hash.pre.hlo.txt.gz", "flash_attention"),
        ("tf2_train.hash.alt.pre.hlo.txt.zst", "flash_attention@v2"),
    ] {
        let scan = scan(name);
        let label = find(&scan, op_id);
        assert_eq!(shapes(label, false), vec![qkv.clone(); 2], "{name}");
        assert_eq!(shapes(label, true), vec![with_cotangent.clone(); 2], "{name}");
        assert!(label.backward, "{name}");
        assert_eq!(scan.module.as_deref(), Some("jit_step"));
        assert_eq!(scan.partitioned, Some(false));
    }
    // an operation without an inner call: its instructions use lhs, group sizes and rhs
    let scan = scan("grouped_matmul.hash.stablehlo_debug.mlir");
    let sites = shapes(find(&scan, "grouped_matmul@v0"), false);
    assert_eq!(sites, [["f32[256,128]", "s32[4]", "f32[4,128,64]"]]);
    assert!(!find(&scan, "grouped_matmul@v0").backward);
}

#[test]
fn text_and_proto_of_one_module_agree() {
    let (text, proto) = (scan("grouped_matmul.hash.pre.hlo.txt"), scan("grouped_matmul.hash.pre.hlo.pb"));
    assert_eq!(proto.form, ModuleForm::HloProto);
    assert_eq!(text.module, proto.module);
    let (a, b) = (find(&text, "grouped_matmul"), find(&proto, "grouped_matmul"));
    assert_eq!((a.occurrences, a.evidence, a.backward), (b.occurrences, b.evidence, b.backward));
    assert_eq!(shapes(a, false), shapes(b, false));
    assert_eq!(a.line, Some(1 + line_of(&data("grouped_matmul.hash.pre.hlo.txt"), "ejkernel_ops#")));
    assert_eq!(b.line, None);
}

fn line_of(path: &Path, needle: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().position(|line| line.contains(needle)).unwrap() as u64
}

#[test]
fn recomputed_keys_are_those_of_the_hash_stamps() {
    // ejkernel itself stamped the same model in both ways
    let (hash, json) = (scan("tf2_train.hash.stablehlo_debug.mlir.gz"), scan("tf2_train.json.stablehlo_debug.mlir.gz"));
    let labels = |scan: &Scan| scan.labels.iter().map(|label| label.label.clone()).collect::<Vec<Label>>();
    assert_eq!(labels(&hash), labels(&json));
    assert!(json.labels.iter().all(|label| label.evidence == Evidence::Recomputed && label.arguments.is_some()));
    for name in ["grouped_matmul.json.pre.hlo.txt", "grouped_matmul.json.pre.hlo.pb"] {
        let cut = scan(name);
        let label = find(&cut, "grouped_matmul");
        assert_eq!(label.label.call_key.as_deref(), Some("767c86f7af7379fc"), "{name}");
        assert!(codes(&cut).contains(&"recomputed-version-lost"), "{name}");
    }
}

#[test]
fn tokamax_labels_have_class_arguments_and_key() {
    // keys: sha256(json.dumps(arguments, sort_keys=True, separators=(",", ":"))) in Python 3.11, for the two whose
    // floats have the same spelling in Python and JSON; counts: a text search for `tokamax:`
    let (mlir, hlo) = (scan("tokamax_mix_fwd.stablehlo_debug.mlir.gz"), scan("tokamax_mix_fwd.pre.hlo.txt.gz"));
    for (scan, total) in [(&mlir, 62), (&hlo, 89)] {
        let attention = find(scan, "tokamax._src.ops.attention.xla_chunked.XlaChunkedDotProductAttention");
        assert_eq!(attention.label.call_key.as_deref(), Some("227e7ed20221d18e"));
        let unit = find(scan, "tokamax._src.ops.gated_linear_unit.base.GatedLinearUnit");
        assert_eq!(unit.label.call_key.as_deref(), Some("c36532923a427249"));
        assert_eq!(unit.arguments.as_ref().unwrap()["x"], "f32[64,256]");
        assert_eq!(shapes(unit, false), [["f32[64,256]", "f32[256,2,128]"]]);
        assert_eq!(scan.labels.iter().map(|label| label.occurrences).sum::<u64>(), total);
        assert!(scan.labels.iter().all(|label| label.family == "tokamax" && label.evidence == Evidence::Exact));
    }
}

#[test]
fn bytecode_keeps_whole_labels() {
    let scan = scan("flash_attention.hash.jaxexport.mlirbc");
    assert_eq!(scan.form, ModuleForm::StablehloBytecode);
    assert_eq!(scan.labels.len(), 1);
    // `strings FILE | grep -c ejkernel_ops#`
    assert_eq!((scan.labels[0].occurrences, scan.labels[0].evidence), (2, Evidence::Exact));
    assert_eq!(scan.labels[0].label, Label::new("flash_attention@v2", Some("39205d2e7dfcef1b".to_owned())));
}

#[test]
fn partitioning_is_told_where_the_form_tells_it() {
    assert_eq!(scan("sharded8.pre.hlo.txt").partitioned, Some(false));
    let after = scan("sharded8.post.hlo.txt");
    assert_eq!(after.partitioned, Some(true));
    // (64, 32) over eight devices
    assert_eq!(shapes(find(&after, "mm"), false), [["f32[8,32]", "f32[32,16]"]]);
    assert_eq!(scan("grouped_matmul.hash.pre.hlo.pb").partitioned, None);
}

#[test]
fn missing_labels_are_diagnosed_by_what_was_seen() {
    let short = scan("grouped_matmul.hash.pre.short.hlo.txt");
    assert_eq!(codes(&short), ["no-metadata"]);
    assert!(short.diagnosis[0].message.contains("grouped_matmul"), "names hint: {}", short.diagnosis[0].message);
    assert!(short.diagnosis[0].message.contains("as_text(debug_info=True)"));
    assert_eq!(codes(&scan("grouped_matmul.hash.stablehlo.mlir")), ["no-metadata"]);
    assert_eq!(codes(&scan("grouped_matmul.hash.pre.hlo.txt")), ["labels-cut"]);
    // its only stamp has more than 1,024 characters: it exists before optimisation, but not after it
    assert!(codes(&scan("flash_attention.json.pre.hlo.txt")).contains(&"long-names"));
    let lost = scan("flash_attention.json.post.hlo.pb");
    assert_eq!(codes(&lost), ["no-labels"]);
    assert!(lost.diagnosis[0].message.contains("longer than 1024"), "{}", lost.diagnosis[0].message);
    // the advice depends on the stamp's library
    for (function, is_ejkernel) in [("rms_norm", false), ("ejkernel/modules/rms_norm", true)] {
        let text = format!(
            "func.func @main(%x: f32) {{\n  %0 = stablehlo.abs %x loc(#loc1)\n}}\n#loc1 = loc(\"jit(f)/{function}\")\n"
        );
        let own = scan_bytes(text.as_bytes(), "own", &ScanOptions::default()).unwrap();
        let [said] = &own.diagnosis[..] else { panic!("{:?}", own.diagnosis) };
        assert_eq!((said.code.as_str(), said.message.contains("EJKERNEL_OPS_STAMP")), ("no-labels", is_ejkernel));
        for way in ["`@autotune_lowered.tunable`", "`--label-regex`", "`--compiler-options safe`"] {
            assert!(said.message.contains(way), "{}", said.message);
        }
    }
}

#[test]
fn backward_is_carried_into_called_computations() {
    let text = "HloModule m\n\n%inner.1 (a: f32[2]) -> f32[2] {\n  %a = f32[2]{0} parameter(0)\n  \
        ROOT %r = f32[2]{0} negate(%a), metadata={op_name=\"ejkernel_ops#neg.v1:0123456789abcdef/neg\"}\n}\n\n\
        ENTRY %main (x: f32[2]) -> f32[2] {\n  %x = f32[2]{0} parameter(0)\n  \
        ROOT %c = f32[2]{0} call(%x), to_apply=%inner.1, metadata={op_name=\"jit(f)/SCOPE/jit(inner)\"}\n}\n";
    for (scope, backward) in [("transpose(jvp())", true), ("jvp()", false)] {
        let scan = scan_bytes(text.replace("SCOPE", scope).as_bytes(), "x", &ScanOptions::default()).unwrap();
        let label = find(&scan, "neg@v1");
        assert_eq!(label.backward, backward);
        assert_eq!(shapes(label, backward), [["f32[2]"]]);
    }
}

#[test]
fn what_a_labelled_call_calls_is_inside_it() {
    let text = "HloModule m\n\n%inner.1 (a: f32[2]) -> f32[2] {\n  %a = f32[2]{0} parameter(0)\n  \
        ROOT %r = f32[2]{0} negate(%a), metadata={op_name=\"jit(f)/ejkernel_ops#op.v1:0123456789abcdef/neg\"}\n}\n\n\
        ENTRY %main (x: f32[2,3]) -> f32[2] {\n  %x = f32[2,3]{1,0} parameter(0)\n  \
        ROOT %c = f32[2]{0} call(%x), to_apply=%inner.1, metadata={op_name=\"jit(f)/ejkernel_ops#op.v1:0123456789abcdef/jit\"}\n}\n";
    let scan = scan_bytes(text.as_bytes(), "x", &ScanOptions::default()).unwrap();
    assert_eq!(find(&scan, "op@v1").occurrences, 2);
    assert_eq!(shapes(find(&scan, "op@v1"), false), [["f32[2,3]"]]);
}

#[test]
fn a_users_own_labels_are_found_beside_the_others() {
    let options = ScanOptions::default().user_labels(UserLabels::new("mine=(?P<op>[a-z]+)(/(?P<key>[0-9]+))?").ok());
    let text = "HloModule m\n\nENTRY %main (x: f32[4]) -> f32[4] {\n  %x = f32[4]{0} parameter(0)\n  \
        %a = f32[4]{0} negate(%x), metadata={op_name=\"jit(f)/transpose(jvp(mine=neg/17))/neg\"}\n  \
        ROOT %b = f32[4]{0} negate(%a), metadata={op_name=\"jit(f)/mine=pos\"}\n}\n";
    let scan = scan_bytes(text.as_bytes(), "x", &options).unwrap();
    let (neg, pos) = (find(&scan, "neg"), find(&scan, "pos"));
    assert_eq!(
        (neg.label.call_key.as_deref(), neg.evidence, neg.line, neg.backward),
        (Some("17"), Evidence::Exact, Some(5), true)
    );
    assert_eq!(
        (pos.label.call_key.as_deref(), pos.evidence, pos.line, pos.backward),
        (None, Evidence::ByName, Some(6), false)
    );
    assert_eq!(shapes(neg, true), [["f32[4]"]]);
    assert!(UserLabels::new("(?P<name>x)").unwrap_err().to_string().contains("no group `op`"));
    assert!(!UserLabels::new("(?P<op>x").unwrap_err().to_string().contains('\n'));
}

#[test]
fn compression_and_streams_change_nothing() {
    let path = data("grouped_matmul.hash.pre.hlo.txt");
    let plain = scan_path(&path, &ScanOptions::default()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(plain.digest, Some(Digest::of(&bytes)));
    let streamed = scan_reader(bytes.as_slice(), "<stdin>", &ScanOptions::default()).unwrap();
    assert_eq!(streamed, plain);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&bytes).unwrap();
    let packed = packed.finish().unwrap();
    for layers in 1..=2 {
        let mut file = packed.clone();
        if layers == 2 {
            let mut again = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            again.write_all(&packed).unwrap();
            file = again.finish().unwrap();
        }
        let scan = scan_bytes(&file, "x", &ScanOptions::default()).unwrap();
        assert_eq!(scan.labels, plain.labels);
        assert_eq!(scan.digest, Some(Digest::of(&file)));
    }
}

#[test]
fn the_side_file_is_used_while_its_digest_fits() {
    let folder = tempfile::tempdir().unwrap();
    let module = folder.path().join("m.hlo.txt");
    std::fs::copy(data("grouped_matmul.hash.pre.hlo.txt"), &module).unwrap();
    let digest = Digest::of(&std::fs::read(&module).unwrap());
    let side = folder.path().join("m.hlo.txt.labels.json");
    let write = |digest: &str| {
        let labels = r#"[{"op_id":"grouped_matmul@v0","call_key":"767c86f7af7379fc","shapes":["f32[256,128]"]}]"#;
        std::fs::write(&side, format!(r#"{{"schema":1,"module_digest":"{digest}","labels":{labels}}}"#)).unwrap();
    };
    write(&digest.to_string());
    let scan = scan_path(&module, &ScanOptions::default()).unwrap();
    assert_eq!(codes(&scan), ["side-file"]);
    assert_eq!(scan.labels.len(), 1);
    let label = find(&scan, "grouped_matmul@v0");
    assert_eq!(
        (label.evidence, label.occurrences, label.label.call_key.as_deref()),
        (Evidence::Exact, 14, Some("767c86f7af7379fc"))
    );

    write(&"0".repeat(64));
    let stale = scan_path(&module, &ScanOptions::default()).unwrap();
    assert_eq!(codes(&stale), ["labels-cut", "side-file-stale"]);
    std::fs::write(&side, "{").unwrap();
    let broken = scan_path(&module, &ScanOptions::default()).unwrap();
    assert_eq!(codes(&broken), ["labels-cut", "side-file-unreadable"]);
    std::fs::write(&side, r#"{".pre.hlo.txt":{"labels":0}}"#).unwrap();
    assert_eq!(codes(&scan_path(&module, &ScanOptions::default()).unwrap()), ["labels-cut"], "another program's file");
}

#[test]
fn a_side_file_that_adds_nothing_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let listed = r#"{"op_id":"grouped_matmul@v0","call_key":"767c86f7af7379fc","shapes":["f32[256,128]"]}"#;
    for (name, labels) in [
        // complete in the module, which also shows its call sites
        ("grouped_matmul.hash.stablehlo_debug.mlir", listed),
        // nothing in either: the module's own diagnosis must remain
        ("grouped_matmul.hash.stablehlo.mlir", ""),
    ] {
        let module = folder.path().join(name);
        std::fs::copy(data(name), &module).unwrap();
        let alone = scan_path(&module, &ScanOptions::default()).unwrap();
        let digest = Digest::of(&std::fs::read(&module).unwrap());
        let side = format!(r#"{{"schema":1,"module_digest":"{digest}","labels":[{labels}]}}"#);
        std::fs::write(folder.path().join(format!("{name}.labels.json")), side).unwrap();
        assert_eq!(scan_path(&module, &ScanOptions::default()).unwrap(), alone, "{name}");
        assert!(alone.labels.is_empty() != alone.diagnosis.is_empty(), "{alone:?}");
    }
}

#[test]
fn bad_input_gets_one_clear_line() {
    assert!(matches!(scan_path("/nonexistent", &ScanOptions::default()).unwrap_err().kind, ScanErrorKind::Missing));
    assert!(error(b"").contains("is empty"));
    assert!(error(b" \n\n").contains("is empty"));
    assert!(error(b"hello\nworld").contains("text that begins with `hello`"));
    assert!(error(b"\x7fELF\x02\x01\x01\0").contains("an ELF binary"));
    assert!(error(b"PK\x03\x04\0\0").contains("zip archive"));
    assert!(error(&[0x80; 4096]).contains("binary data"));
    assert!(error(b"\x1f\x8b\x08\0garbage").contains("gzip"));
    assert!(error(b"\x28\xb5\x2f\xfdgarbage").contains("zstd"));
    let xspace = b"\x0a\xfc\x16\x12\x0e/host:metadata";
    assert!(error(xspace).contains("is not a module: a profile"));
    assert!(error(br#"{"displayTimeUnit":"ns","traceEvents":[]}"#).contains("a Chrome trace; "));
    assert!(error(&std::fs::read(data("utf16.hlo")).unwrap()).contains("UTF-16 text"));
    for name in ["grouped_matmul.hash.pre.hlo.pb", "flash_attention.hash.jaxexport.mlirbc"] {
        // read as text and written again
        let text = String::from_utf8_lossy(&std::fs::read(data(name)).unwrap()).into_owned();
        assert!(error(text.as_bytes()).contains("went through a text decoder"), "{name}: {}", error(text.as_bytes()));
    }
}

#[test]
fn truncated_files_are_told() {
    let proto = std::fs::read(data("grouped_matmul.hash.pre.hlo.pb")).unwrap();
    let text = std::fs::read(data("grouped_matmul.hash.pre.hlo.txt")).unwrap();
    // after the beginning of the first computation, a proto cut anywhere is either reported as cut or ends between two
    // fields
    let mut told = 0;
    for length in (200..proto.len()).step_by(7) {
        match scan_bytes(&proto[..length], "x", &ScanOptions::default()) {
            Err(error) => {
                assert!(error.to_string().contains("truncated"), "{length}: {error}");
                told += 1;
            }
            Ok(scan) => assert!(scan.labels.len() <= 1),
        }
    }
    assert!(told > 600, "{told}");
    let cut = scan_bytes(&text[..text.len() / 2], "x", &ScanOptions::default()).unwrap();
    assert!(codes(&cut).contains(&"truncated"), "{:?}", codes(&cut));
    // StableHLO cut in its first function, and in the locations after the last one
    let mlir = std::fs::read(data("grouped_matmul.hash.stablehlo_debug.mlir")).unwrap();
    for length in [mlir.len() / 3, mlir.len() - 300] {
        let cut = scan_bytes(&mlir[..length], "x", &ScanOptions::default()).unwrap();
        assert!(codes(&cut).contains(&"truncated"), "{length}: {:?}", codes(&cut));
    }
    assert!(codes(&scan("grouped_matmul.hash.stablehlo_debug.mlir")).is_empty());
    let bytecode = std::fs::read(data("flash_attention.hash.jaxexport.mlirbc")).unwrap();
    for length in (32..bytecode.len()).step_by(11) {
        assert!(error(&bytecode[..length]).contains("truncated"), "{length}");
    }
    let mut gz = Vec::new();
    std::fs::File::open(data("tf2_train.hash.pre.hlo.txt.gz")).unwrap().take(12_000).read_to_end(&mut gz).unwrap();
    assert!(error(&gz).contains("gzip stream is damaged"), "{}", error(&gz));
    let zst = std::fs::read(data("tf2_train.hash.alt.pre.hlo.txt.zst")).unwrap();
    assert!(error(&zst[..9_000]).contains("zstd stream is damaged"), "{}", error(&zst[..9_000]));
}

#[test]
fn each_byte_of_a_proto_flipped_is_no_panic() {
    let mut proto = std::fs::read(data("grouped_matmul.hash.pre.hlo.pb")).unwrap();
    for at in 0..proto.len() {
        proto[at] ^= 0xff;
        let _ = scan_bytes(&proto, "x", &ScanOptions::default());
        proto[at] ^= 0xff;
    }
}

/// Each of twenty locations names the next one 32 times: 32^8 names up to the depth limit, if all of them were
/// followed.
#[test]
fn a_bomb_of_locations_ends() {
    let aliases: String =
        (0..20).map(|n| format!("#loc{n} = loc(fused[{}])\n", vec![format!("#loc{}", n + 1); 32].join(", "))).collect();
    let text = format!(
        "module @jit_f attributes {{}} {{\n  func.func public @main(%arg0: tensor<1xf32>) -> tensor<1xf32> {{\n    \
         %0 = stablehlo.add %arg0, %arg0 : tensor<1xf32> loc(#loc0)\n    return %0 : tensor<1xf32> loc(#loc0)\n  \
         }} loc(#loc0)\n}} loc(#loc0)\n{aliases}#loc20 = loc(\"jit(f)/ejkernel_op#flash_attention@v1:0123456789abcdef#\")\n"
    );
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(scan_bytes(text.as_bytes(), "bomb", &ScanOptions::default()).is_ok()));
    assert_eq!(ended.recv_timeout(std::time::Duration::from_secs(300)), Ok(true), "it does not end");
}

#[test]
fn damaged_text_is_no_panic() {
    // a fixed sequence of cuts, repetitions and foreign bytes at positions from a linear congruence
    let mut state = 1_u64;
    let mut next = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    for name in ["grouped_matmul.json.pre.hlo.txt", "grouped_matmul.hash.stablehlo_debug.mlir"] {
        let whole = std::fs::read(data(name)).unwrap();
        for _ in 0..150 {
            let mut text = whole.clone();
            for _ in 0..1 + next(8) {
                let at = next(text.len() - 40);
                match next(4) {
                    0 => drop(text.drain(at..at + next(40))),
                    1 => text[at] = b"\"\\(){}[]<>%#@:,;= \xff"[next(19)],
                    2 => text.truncate(at + 40),
                    _ => {
                        let piece = text[at..at + 40].to_vec();
                        text.splice(at..at, piece);
                    }
                }
            }
            if let Err(error) = scan_bytes(&text, "x", &ScanOptions::default()) {
                assert!(!error.to_string().contains('\n'));
            }
        }
    }
}

#[test]
fn a_bomb_ends_in_an_error_or_in_flat_memory() {
    // zeros from a megabyte of gzip: refused after the first bytes, and not expanded further, so that the damaged part
    // is never reached
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..256 {
        packed.write_all(&zeros).unwrap();
    }
    let mut packed = packed.finish().unwrap();
    let middle = packed.len() / 2;
    packed[middle..].fill(0xff);
    assert!(error(&packed).contains("not a module"), "{}", error(&packed));
}

/// Returns the head, then labels in one endless line, without storing it.
struct OneLine {
    left: u64,
    unit: Vec<u8>,
    at: usize,
}

impl Read for OneLine {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.unit[self.at..];
        let n = rest.len().min(buffer.len()).min(self.left as usize);
        buffer[..n].copy_from_slice(&rest[..n]);
        self.at = (self.at + n) % self.unit.len();
        self.left -= n as u64;
        Ok(n)
    }
}

#[test]
fn a_huge_single_line_is_scanned_whole() {
    let unit = format!("{:>65535}", "metadata={op_name=\"jit(f)/ejkernel_ops#rms_norm@v1:020151af84a38253/mul\"}")
        .into_bytes();
    let units = 4_400; // 288 MB, beyond what is held in memory for structure
    let line = OneLine { left: unit.len() as u64 * units, unit, at: 0 };
    let stream = (&b"HloModule one_line, is_scheduled=true\n"[..]).chain(line);
    let scan = scan_reader(stream, "<stdin>", &ScanOptions::default()).unwrap();
    assert_eq!(scan.labels.len(), 1);
    assert_eq!((scan.labels[0].occurrences, scan.labels[0].line), (units, Some(2)));
    assert_eq!(scan.module.as_deref(), Some("one_line"));
    assert_eq!(codes(&scan), ["no-call-sites"]);
}

#[test]
fn a_large_sparse_file_is_scanned_in_blocks() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{:<65535}", "HloModule sparse\n ").unwrap();
    file.as_file().set_len(400_000_000).unwrap();
    let label = b"\"ejkernel_ops#rms_norm@v1:020151af84a38253/mul\"";
    use std::os::unix::fs::FileExt as _;
    for at in [1 << 18, (1 << 18) * 7 - 20, 399_999_900_u64] {
        file.as_file().write_at(label, at - 5).unwrap();
    }
    let scan = scan_path(file.path(), &ScanOptions::default()).unwrap();
    assert_eq!(codes(&scan), ["truncated", "no-call-sites"], "it ends in zeros");
    assert_eq!(scan.labels[0].occurrences, 3);
    assert_eq!(scan.labels[0].line, Some(3));
}
