//! Gives the shared library the name that programs are linked against.

#![allow(clippy::print_stdout)]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // before version 1 each minor version may break the ABI, and a program must not load another one
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    let abi = if major == "0" { format!("0.{minor}") } else { major.to_owned() };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libautotune_lowered.so.{abi}");
}
