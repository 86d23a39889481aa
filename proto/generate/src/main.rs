//! Writes the Rust of `proto/*.proto`: `cargo run -p autotune-lowered-proto`, from the repository's root.
//!
//! Each file begins with the digests of its schema and of its code. `tests/house/generated.rs` compares these on every
//! change, without the compilers of schemas that this program brings; `.ci/full features` runs this program and compares
//! the files.

use std::error::Error;
use std::fs;
use std::path::Path;

use prost_build::Config;
use sha2::{Digest, Sha256};

fn main() -> Result<(), Box<dyn Error>> {
    // slices of the file instead of copies, and an order that does not change between runs
    write("xplane", "crates/profile/src/profile/xplane.rs", Config::new().bytes(["."]).btree_map(["."]))?;
    write("compile_options", "crates/timer/src/timer/pjrt/compile/options_proto.rs", Config::new().btree_map(["."]))
}

fn write(name: &str, path: &str, config: &mut Config) -> Result<(), Box<dyn Error>> {
    let schema = Path::new("proto").join(name).with_extension("proto");
    let folder = tempfile::tempdir()?;
    config.out_dir(folder.path()).compile_fds(protox::compile([&schema], ["proto"])?)?;
    let code = fs::read_to_string(folder.path().join(format!("autotune_lowered.{name}.rs")))?;
    let (of_schema, of_code) = (hexadecimal(&fs::read(&schema)?), hexadecimal(code.as_bytes()));
    let head = format!("// From {}, SHA-256 {of_schema};\n// what follows has SHA-256 {of_code}\n", schema.display());
    Ok(fs::write(path, head + &code)?)
}

fn hexadecimal(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
