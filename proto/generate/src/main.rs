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

/// What few instructions have: behind a pointer it takes no room in the others.
const RARE: [&str; 11] = [
    "HloInstructionProto.window",
    "HloInstructionProto.convolution_dimension_numbers",
    "HloInstructionProto.dot_dimension_numbers",
    "HloInstructionProto.ragged_dot_dimension_numbers",
    "HloInstructionProto.gather_dimension_numbers",
    "HloInstructionProto.scatter_dimension_numbers",
    "HloInstructionProto.frontend_attributes",
    "HloInstructionProto.collective_device_list",
    "HloInstructionProto.iota_collective_device_list",
    "HloInstructionProto.mesh_axes_replica_group_list",
    "ShapeProto.layout",
];

fn main() -> Result<(), Box<dyn Error>> {
    // slices of the file instead of copies, and an order that does not change between runs
    write("xplane", "crates/profile/src/profile/xplane.rs", Config::new().bytes(["."]).btree_map(["."]))?;
    for name in ["xla_data", "hlo"] {
        let mut config = Config::new();
        config.bytes(["."]);
        for field in RARE {
            config.boxed(field);
        }
        write(name, &format!("crates/lookup/src/hlo/schema/{name}.rs"), &mut config)?;
    }
    write("triton", "crates/lookup/src/hlo/schema/triton.rs", Config::new().bytes(["."]))?;
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
