//! Sets the shared library's soname.

#![allow(clippy::print_stdout)]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // before version 1 each minor version may break the ABI, so a program must not load a different one
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    let abi = if major == "0" { format!("0.{minor}") } else { major.to_owned() };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libautotune_lowered.so.{abi}");
}
