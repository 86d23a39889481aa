//! The committed Rust of `proto/compile_options.proto` equals the current output of prost-build.
//!
//! `BLESS=1 cargo test --test house timer_proto` updates it.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

#[test]
fn committed_code_is_the_generated_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schema = protox::compile([root.join("proto/compile_options.proto")], [root.join("proto")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    prost_build::Config::new().btree_map(["."]).out_dir(folder.path()).compile_fds(schema).unwrap();
    let made = std::fs::read_to_string(folder.path().join("autotune_lowered.compile_options.rs")).unwrap();
    let committed = root.join("src/timer/pjrt/compile_options.rs");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&committed, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&committed).unwrap();
    assert!(made == kept, "{} is not what its schema gives: renew it with BLESS=1", committed.display());
}
