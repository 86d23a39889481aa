//! Why a compiler refuses a program: what is the program's fault, and what is the machine's.

use std::path::Path;

use crate::failure::{Failure, FailureKind};
use crate::timer::pjrt::plugin::{PjrtError, one_line, packages_for};
use crate::timer::protocol::one_line as shortened;

/// Why the plugin of a device does not compile a program.
pub(crate) fn compile_failure(error: &PjrtError, plugin: &Path) -> Failure {
    let message = one_line(&error.message);
    match unhandled_target(&message) {
        Some(target) => Failure::new(
            FailureKind::CustomCall,
            format!(
                "this plugin has no handler for the custom call `{target}`: time with `--timer jax`, whose JAX has \
                 the handlers of its own kernels and of LAPACK ({message})"
            ),
        ),
        None => refusal(error, plugin),
    }
}

/// Whether XLA tried several kernels for an operation and says only that none compiled.
pub(crate) fn gives_no_reason(error: &PjrtError) -> bool {
    error.message.contains("No candidates could be compiled")
}

/// Why a compiler refuses a program, with the compiler's message.
pub(crate) fn refusal(error: &PjrtError, plugin: &Path) -> Failure {
    let message = one_line(&error.message);
    // XLA appends the whole kernel in escapes
    let message = message.split(" input ir:").next().unwrap_or_default().to_owned();
    if let Some((_, tool)) = OF_CUDA.iter().find(|(words, _)| message.contains(words)) {
        // the rest lists every place that it searched
        let first = message.split(". ").next().unwrap_or_default();
        let message = format!(
            "the plugin finds no {tool}: install {} beside it, or name CUDA's folder with CUDA_HOME or \
             XLA_FLAGS=--xla_gpu_cuda_data_dir=DIR ({first})",
            packages_for(plugin)
        );
        return Failure::new(FailureKind::Device, message);
    }
    // not its fault either: another package brings the function that the kernel calls
    if message.contains("Failed to materialize symbols") {
        let message = format!(
            "the plugin lacks a function that this kernel calls, such as Mosaic GPU's: install {JAX_PLUGIN}, or name \
             its libmosaic_gpu_runtime.so in MOSAIC_GPU_RUNTIME_LIB_PATH ({message})"
        );
        return Failure::new(FailureKind::CustomCall, message);
    }
    if let Some(reason) = OF_THE_MACHINE.iter().find(|reason| message.contains(**reason)) {
        let message = format!("this machine cannot compile now: {reason}; free it and compile again ({message})");
        return Failure::new(FailureKind::Device, message);
    }
    // the same program is accepted where recorder and compiler are of one version, so this says nothing of the device
    if UNREADABLE.iter().any(|words| message.contains(words)) {
        let why = shortened(&message, MOST_OF_A_REASON);
        let message =
            format!("the compiler cannot read the program, because another version wrote it or it is damaged ({why})");
        return Failure::new(FailureKind::Unreadable, message);
    }
    if let Some(target) = unhandled_target(&message) {
        let message = format!("this plugin has no handler for the custom call `{target}`{} ({message})", whose(target));
        return Failure::new(FailureKind::CustomCall, message);
    }
    let kind = match () {
        () if is_of_a_signal(&message) => FailureKind::Crash,
        () if message.contains("Cannot allocate memory") => FailureKind::Memory,
        () => FailureKind::Compile,
    };
    Failure::new(kind, message)
}

/// XLA's messages if it lacks a tool of CUDA, with its name. That is not the program's fault: without ptxas none
/// compiles, and without libdevice none with a function such as `tanh`.
const OF_CUDA: [(&str, &str); 2] = [("No PTX compilation provider", "ptxas"), ("libdevice not found", "libdevice")];

/// The package beside a CUDA plugin that brings what JAX's own kernels call.
const JAX_PLUGIN: &str = "jax-cuda13-plugin (jax-cuda12-plugin for CUDA 12) in the plugin's version beside it";

/// Who brings the handler of a custom call that the plugin does not have.
fn whose(target: &str) -> &'static str {
    match target {
        // jaxlib registers it from `_triton.so` of that package, which only Python can load
        "triton_kernel_call" | "triton_kernel_call_ffi" => {
            ", which jax-cuda13-plugin (jax-cuda12-plugin for CUDA 12) brings for JAX alone: only `--timer jax` runs it"
        }
        _ => "",
    }
}

/// How compilers say that they cannot read a kernel or a module: XLA of Triton kernels and of StableHLO, MLIR of
/// bytecode, and libtpu of Mosaic kernels.
const UNREADABLE: [&str; 5] = [
    "Failed to parse",
    "Failed to deserialize",
    "in bytecode version",
    "Unsupported version: expected",
    "Unsupported Mosaic version",
];

/// Characters of such a message that are shown.
const MOST_OF_A_REASON: usize = 300;

/// The C library's messages when the machine runs out of something, whatever the program.
const OF_THE_MACHINE: [&str; 4] =
    ["No space left on device", "Disk quota exceeded", "Too many open files", "Read-only file system"];

/// Whether a signal ended the plugin's assembler: anybody may have sent it, so it says nothing about the program. XLA
/// reports the status in the format of `wait`, whose lower seven bits are the signal.
fn is_of_a_signal(message: &str) -> bool {
    let status = message.split_once("ptxas exited with non-zero error code ").map(|(_, rest)| rest);
    let digits = status.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    digits.and_then(|digits| digits.parse::<u32>().ok()).is_some_and(|status| status & 0x7f != 0)
}

/// XLA's messages up to the target's name: `xla/service/cpu/thunk_emitter.cc`, `xla/service/gpu/thunk_emitter.cc` and
/// `xla/ffi/ffi_registry.cc`.
const BEFORE_TARGET: [&str; 2] = ["custom call to ", "No FFI handler registered for "];

/// The target named in the message, if it is about a custom call without a handler.
fn unhandled_target(message: &str) -> Option<&str> {
    let missing = message.contains("No registered implementation") || message.contains("No FFI handler registered");
    let rest = BEFORE_TARGET
        .iter()
        .find_map(|before| message.find(before).and_then(|at| message.get(at + before.len()..)))
        .filter(|_| missing)?;
    let target = rest.split_whitespace().next()?.trim_matches(['"', '`', '\'', ';', ',']);
    (!target.is_empty()).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_of_the_program_is_no_refusal() {
        let plugin = Path::new("/p/jax_plugins/xla_cuda13/xla_cuda_plugin.so");
        let refusal = |message: &str| refusal(&PjrtError { code: 13, message: message.to_owned() }, plugin);
        let kind = |message: &str| refusal(message).kind;
        // a real plugin's message after ptxas was killed
        assert_eq!(kind("ptxas exited with non-zero error code 9, output: "), FailureKind::Crash);
        // exit code 255
        let refused = "ptxas exited with non-zero error code 65280, output: ptxas fatal   : Unsupported .version";
        assert_eq!(kind(refused), FailureKind::Compile);
        assert_eq!(kind("Shared memory size limit exceeded: requested 196608"), FailureKind::Compile);
        // messages of XLA and ptxas for a full temporary folder and for a lack of memory
        for full in
            ["INTERNAL: /tmp/x.ptx; No space left on device", "ptxas fatal : Could not open: Too many open files"]
        {
            assert_eq!(kind(full), FailureKind::Device, "{full}");
        }
        assert_eq!(kind("INTERNAL: fork: Cannot allocate memory"), FailureKind::Memory);
        let runtime = "INTERNAL: Failed to materialize symbols: { (main, { mosaic_gpu_init_tma_desc }) }";
        assert_eq!(kind(runtime), FailureKind::CustomCall);
        for unreadable in [
            // of jax-cuda12-pjrt 0.12.0.1 and 0.10.2, and of two versions of libtpu
            "Failed to parse Triton module: -:0:0: error: expected mlir::BoolAttr, but got: 1 : i32",
            "-:0:0: error: string size exceeds the available data size -:0:0: note: in bytecode version 6 produced \
             by: x",
            "<unknown>:0: error: Failed to parse using StableHLO v1.17.0, this could indicate forward incompatibility",
            "Failed to deserialize the Mosaic module: INTERNAL: Unsupported version: expected <= 7 but got 8",
            "error: Unsupported Mosaic version: 3",
        ] {
            assert_eq!(kind(unreadable), FailureKind::Unreadable, "{unreadable}");
        }
        let no_handler = "No registered implementation for custom call to tpu_custom_call for platform CUDA";
        assert_eq!(kind(no_handler), FailureKind::CustomCall);
        let tried = "INTERNAL: No candidates could be compiled.";
        assert_eq!(kind(tried), FailureKind::Compile);
        assert!(gives_no_reason(&PjrtError { code: 13, message: tried.to_owned() }));
        let none = "No PTX compilation provider is available. Neither ptxas/nvlink nor nvjtlink is available.";
        assert_eq!(kind(none), FailureKind::Device);
        let message = refusal(none).message;
        assert!(message.ends_with("=DIR (No PTX compilation provider is available)"), "{message}");
        // of a real plugin that finds ptxas on PATH
        let no_library = refusal("libdevice not found at ./libdevice.10.bc");
        assert_eq!(no_library.kind, FailureKind::Device);
        let expected = "the plugin finds no libdevice: install nvidia-cuda-nvcc and nvidia-nvvm beside it, or name";
        assert!(no_library.message.starts_with(expected), "{}", no_library.message);
        let escaped = format!("Failed to parse Triton module: {} input ir: \"ML\\xefR\"", "error: no ".repeat(100));
        let message = refusal(&escaped).message;
        assert!(message.len() < 400 && !message.contains("input ir") && message.ends_with(')'), "{message}");
    }

    #[test]
    fn a_custom_call_without_a_handler_is_named() {
        // messages of three CPU plugins and of XLA's GPU compiler
        for (message, target) in [
            ("No registered implementation for untyped custom call to lapack_sgetrf for Host", Some("lapack_sgetrf")),
            (
                "No FFI handler registered for lapack_spotrf_ffi on a platform Host (canonical host)",
                Some("lapack_spotrf_ffi"),
            ),
            (
                "No registered implementation for custom call to \"tpu_custom_call\" for platform \"CUDA\"",
                Some("tpu_custom_call"),
            ),
            ("a custom call to arms", None),
            ("failed to verify", None),
        ] {
            assert_eq!(unhandled_target(message), target, "{message}");
        }
    }
}
