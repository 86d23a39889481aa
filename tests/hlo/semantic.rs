//! The semantic digest on equal and on different programs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use autotune_lowered::digest::Digest;
use autotune_lowered::hlo::{ScanErrorKind, semantic_digest};

fn read(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hlo").join(name)).unwrap()
}

fn digest(name: &str) -> Digest {
    semantic_digest(&read(name), name).unwrap()
}

#[test]
fn path_scope_and_module_name_do_not_count() {
    // recorded from two paths with different line numbers, under two scopes and two module names
    for form in ["mlirbc", "mlir", "pb"] {
        let (a, b) = (format!("semantic/a.base.{form}"), format!("semantic/b.base.{form}"));
        assert_ne!(read(&a), read(&b), "the bytes do differ");
        assert_eq!(digest(&a), digest(&b), "{form}");
    }
    assert_eq!(digest("semantic/a.base.mlir"), digest("semantic/a.base.plain.mlir"));
    // ejkernel's two stamps of one operation
    assert_eq!(digest("grouped_matmul.hash.pre.hlo.pb"), digest("grouped_matmul.json.pre.hlo.pb"));
    assert_eq!(digest("grouped_matmul.hash.stablehlo_debug.mlir"), digest("grouped_matmul.json.stablehlo_debug.mlir"));
    assert_eq!(digest("grouped_matmul.hash.stablehlo_debug.mlir"), digest("grouped_matmul.hash.stablehlo.mlir"));
}

#[test]
fn another_constant_or_operation_counts() {
    // one constant, 2 or 3
    for form in ["mlirbc", "mlir", "pb"] {
        assert_ne!(digest(&format!("semantic/a.base.{form}")), digest(&format!("semantic/a.k3.{form}")), "{form}");
    }
    assert_ne!(digest("semantic/a.base.mlirbc"), digest("semantic/a.flip.mlirbc"));
    assert_ne!(digest("semantic/a.base.mlirbc"), digest("flash_attention.hash.jaxexport.mlirbc"));
    assert_ne!(digest("grouped_matmul.hash.pre.hlo.pb"), digest("grouped_matmul.hash.post.hlo.pb"));
    // operands exchanged, in text
    let text = String::from_utf8(read("semantic/a.base.plain.mlir")).unwrap();
    let exchanged = text.replace("stablehlo.subtract %7, %15", "stablehlo.subtract %15, %7");
    assert_ne!(text, exchanged);
    assert_ne!(semantic_digest(exchanged.as_bytes(), "x").unwrap(), digest("semantic/a.base.plain.mlir"));
}

#[test]
fn donated_buffers_count() {
    // HloModuleProto's field 18, `buffer_donor`: one entry, for parameter 0 (openxla/xla, `xla/service/hlo.proto`)
    let mut donating = read("semantic/a.base.pb");
    donating.extend([0x92, 0x01, 0x04, 0x0a, 0x02, 0x08, 0x00]);
    assert_ne!(semantic_digest(&donating, "x").unwrap(), digest("semantic/a.base.pb"));
}

#[test]
fn each_program_has_a_digest_of_its_own_form() {
    let refused = semantic_digest(&read("grouped_matmul.hash.pre.hlo.txt"), "x").unwrap_err();
    assert!(matches!(refused.kind, ScanErrorKind::Unsupported { .. }), "{refused}");
    let refused = semantic_digest(&read("tf2_train.hash.pre.hlo.txt.gz"), "x").unwrap_err();
    assert!(matches!(refused.kind, ScanErrorKind::Unsupported { .. }), "{refused}");
}

#[test]
fn damaged_bytecode_is_no_panic() {
    let whole = read("semantic/a.base.mlirbc");
    let expected = digest("semantic/a.base.mlirbc");
    for length in (0..whole.len()).step_by(3) {
        assert!(semantic_digest(&whole[..length], "x").is_err(), "cut at {length}");
    }
    let mut damaged = whole.clone();
    let mut noticed = 0;
    for at in 0..whole.len() {
        damaged[at] ^= 0xff;
        noticed += usize::from(semantic_digest(&damaged, "x").map_or(true, |digest| digest != expected));
        damaged[at] = whole[at];
    }
    // unnoticed changes affect names, locations and padding, which are not part of the digest
    assert!(noticed > whole.len() / 3, "{noticed} of {}", whole.len());
}
