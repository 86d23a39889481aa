//! Everything around a compilation except the plugin's call: reading the program, timing, the executable's figures, writing it
//! to a file.

use std::path::Path;
use std::time::Instant;

use super::cuda_tools::packages_for;
use super::custom_call::unhandled_target;
use super::executable::{PlainExecutable, read_bounded};
use super::gpu_code::kernels_of;
use super::job::nanoseconds;
use super::llo;
use super::plugin::{PjrtError, one_line};
use super::signature::{module_of, read_signature};
use crate::failure::{Failure, FailureKind};
use crate::hlo::{Cost, HloModule};
use crate::registry::ProgramFormat;
use crate::timer::protocol::{Compiled, CostAnalysis, KernelSchedule, ProgramRef, one_line as shortened};

/// Largest program that is read.
const MAX_PROGRAM_BYTES: u64 = 1 << 30;

/// Largest `CompileOptionsProto` that is read: one with a profile for the compiler has a few megabytes.
const MAX_OPTIONS_BYTES: u64 = 1 << 24;

/// A program's bytes.
pub(super) fn read_code(program: &ProgramRef) -> Result<Vec<u8>, Failure> {
    read_bounded(&program.path, MAX_PROGRAM_BYTES).map_err(|error| Failure::new(FailureKind::NoProgram, error.message))
}

/// The program's own compile options, followed by `own`, which names devices and overrides. If both set a field, the later
/// message wins.
pub(super) fn options_of(program: &ProgramRef, own: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let Some(path) = &program.compile_options else { return Ok(own) };
    let of_program = read_bounded(path, MAX_OPTIONS_BYTES);
    let of_program = of_program.map_err(|error| Failure::new(FailureKind::NoProgram, error.message))?;
    Ok([of_program, own].concat())
}

/// Compiles, and measures the elapsed time and the processor time.
pub(super) fn timed<T>(compile: impl FnOnce() -> Result<T, PjrtError>) -> Result<(T, Compiled), PjrtError> {
    let (start, cpu_start) = (Instant::now(), processor_ns());
    let executable = compile()?;
    let (compile_ns, cpu_ns) = (nanoseconds(start.elapsed()), processor_ns().saturating_sub(cpu_start));
    Ok((executable, Compiled::new(compile_ns).cpu_ns(cpu_ns)))
}

/// Adds what the executable reports about itself, as far as its plugin supports it.
pub(super) fn described(
    compiled: Compiled,
    executable: &PlainExecutable,
    program: &ProgramRef,
    code: &[u8],
    llo_dump: Option<&Path>,
) -> Compiled {
    let optimized = executable.optimized_program().ok();
    let module = optimized.as_ref().and_then(|(code, format)| module_of(code, format));
    let cycles = module.and_then(cycles_of);
    let schedule = module.zip(llo_dump).and_then(|(module, folder)| schedule_of(module, folder));
    let signature = optimized.and_then(|(code, format)| read_signature(&code, &format)).or_else(|| {
        // a module in XLA's own format contains the signature, so the plugin is not needed
        (program.format == ProgramFormat::HloProto).then(|| read_signature(code, "hlo")).flatten()
    });
    let cost = CostAnalysis::with_estimates(executable.cost().ok().flatten(), cycles, schedule);
    compiled.signature(signature).memory(executable.memory().ok()).cost(cost)
}

/// The compiler's estimate of the cycles of one run of an optimized module.
fn cycles_of(module: &[u8]) -> Option<f64> {
    // compilers for other devices write none, so nothing is parsed
    memchr::memmem::find(module, b"estimated_cycles")?;
    Cost::of_run(module).map(|cost| cost.estimated_cycles).filter(|cycles| *cycles > 0.0)
}

/// The compiler's schedule of an optimized module's Pallas kernels, read from its dump.
fn schedule_of(module: &[u8], folder: &Path) -> Option<KernelSchedule> {
    let kernels = HloModule::read(module, "the optimized program").ok()?.tpu_kernels();
    llo::schedule(folder, &kernels)
}

/// The cost of a run, counted from the optimized program, if the plugin provides it.
pub(super) fn work_of(executable: &PlainExecutable) -> Option<Cost> {
    let (code, format) = executable.optimized_program().ok()?;
    Cost::of_run(module_of(&code, &format)?)
}

/// Writes an executable to its file, if it can be serialized, and adds its kernels' figures. `platform` is the device's.
pub(super) fn written(
    compiled: Compiled,
    executable: &PlainExecutable,
    path: &Path,
    platform: &str,
) -> Result<Compiled, Failure> {
    let bytes = match executable.serialize() {
        Ok(bytes) => bytes,
        Err(error) => {
            // the compiler accepted the program all the same
            if !error.is_unimplemented() {
                tracing::warn!("the executable cannot be serialized: {}", one_line(&error.message));
            }
            return Ok(compiled.serialized(false));
        }
    };
    write_file(path, &bytes)?;
    Ok(match kernels_of(&bytes) {
        Ok(kernels) => compiled.kernels(kernels),
        Err(unknown) if platform.eq_ignore_ascii_case("cuda") => {
            compiled.kernels_unknown(Some(unknown.reason().to_owned()))
        }
        // only CUDA's executables hold cubins
        Err(_) => compiled,
    })
}

/// Processor time of this process so far, over all threads, because a plugin compiles with several.
fn processor_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let (seconds, rest) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Why the plugin of a device does not compile a program.
pub(super) fn compile_failure(error: &PjrtError, plugin: &Path) -> Failure {
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
pub(super) fn gives_no_reason(error: &PjrtError) -> bool {
    error.message.contains("No candidates could be compiled")
}

/// Why a compiler refuses a program, with the compiler's message.
pub(super) fn refusal(error: &PjrtError, plugin: &Path) -> Failure {
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
            "the plugin lacks a function that this kernel calls, such as Mosaic GPU's: install {JAX_PLUGIN}, or name its \
             libmosaic_gpu_runtime.so in MOSAIC_GPU_RUNTIME_LIB_PATH ({message})"
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

/// XLA's messages if it lacks a tool of CUDA, with its name. That is not the program's fault: without ptxas none compiles, and
/// without libdevice none with a function such as `tanh`.
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

/// How compilers say that they cannot read a kernel or a module: XLA of Triton kernels and of StableHLO, MLIR of bytecode, and
/// libtpu of Mosaic kernels.
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

/// Whether a signal ended the plugin's assembler: anybody may have sent it, so it says nothing about the program. XLA reports
/// the status in the format of `wait`, whose lower seven bits are the signal.
fn is_of_a_signal(message: &str) -> bool {
    let status = message.split_once("ptxas exited with non-zero error code ").map(|(_, rest)| rest);
    let digits = status.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    digits.and_then(|digits| digits.parse::<u32>().ok()).is_some_and(|status| status & 0x7f != 0)
}

pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes)
        .map_err(|error| Failure::new(FailureKind::Device, format!("{}: cannot be written: {error}", path.display())))
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
            "-:0:0: error: string size exceeds the available data size -:0:0: note: in bytecode version 6 produced by: x",
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
}
