//! The committed Rust of `proto/*.proto` is what `cargo run -p autotune-lowered-proto` wrote for these schemas: each
//! file begins with the digests of its schema and of its code.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn committed_code_is_the_generated_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut schemas: Vec<_> = fs::read_dir(root.join("proto")).unwrap().map(|item| item.unwrap().path()).collect();
    schemas.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    let files = [
        ("xplane", "crates/profile/src/profile/xplane.rs"),
        ("xla_data", "crates/lookup/src/hlo/schema/xla_data.rs"),
        ("hlo", "crates/lookup/src/hlo/schema/hlo.rs"),
        ("triton", "crates/lookup/src/hlo/schema/triton.rs"),
        ("compile_options", "crates/timer/src/timer/pjrt/compile/options_proto.rs"),
    ];
    assert_eq!(schemas.len(), files.len(), "{schemas:?}");
    for (name, path) in files {
        let schema = fs::read(root.join(format!("proto/{name}.proto"))).unwrap();
        let file = fs::read_to_string(root.join(path)).unwrap();
        let (of_schema, rest) = file.split_once('\n').unwrap();
        let (of_code, code) = rest.split_once('\n').unwrap();
        assert!(
            of_schema == format!("// From proto/{name}.proto, SHA-256 {};", digest(&schema))
                && of_code == format!("// what follows has SHA-256 {}", digest(code.as_bytes())),
            "{path} is not what its schema gives: renew it with `cargo run -p autotune-lowered-proto`"
        );
    }
}
