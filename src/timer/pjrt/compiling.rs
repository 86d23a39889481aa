//! What compiling a program takes besides the plugin: its bytes, its time, what it says of itself, and its file.

use std::path::Path;
use std::time::Instant;

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
use crate::timer::protocol::{Compiled, CostAnalysis, KernelSchedule, ProgramRef};

/// Largest program that is read.
const MAX_PROGRAM_BYTES: u64 = 1 << 30;

/// Largest `CompileOptionsProto` that is read: one with a profile for the compiler has some megabytes.
const MAX_OPTIONS_BYTES: u64 = 1 << 24;

/// A program's bytes.
pub(super) fn read_code(program: &ProgramRef) -> Result<Vec<u8>, Failure> {
    read_bounded(&program.path, MAX_PROGRAM_BYTES).map_err(|error| Failure::new(FailureKind::NoProgram, error.message))
}

/// What its compiler is told of a program where it is used, and then `own`, which names devices and overrides: the later one of
/// two messages holds where both set a field.
pub(super) fn options_of(program: &ProgramRef, own: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let Some(path) = &program.compile_options else { return Ok(own) };
    let told = read_bounded(path, MAX_OPTIONS_BYTES);
    let told = told.map_err(|error| Failure::new(FailureKind::NoProgram, error.message))?;
    Ok([told, own].concat())
}

/// Compiles, and takes the time and the processor time of it.
pub(super) fn timed<T>(compile: impl FnOnce() -> Result<T, PjrtError>) -> Result<(T, Compiled), PjrtError> {
    let (start, cpu_start) = (Instant::now(), processor_ns());
    let executable = compile()?;
    let (compile_ns, cpu_ns) = (nanoseconds(start.elapsed()), processor_ns().saturating_sub(cpu_start));
    Ok((executable, Compiled::new(compile_ns).cpu_ns(cpu_ns)))
}

/// The same with what the executable says of itself, as far as its plugin can show.
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
        // a module in the form that XLA itself writes tells it without the plugin
        (program.format == ProgramFormat::HloProto).then(|| read_signature(code, "hlo")).flatten()
    });
    let cost = CostAnalysis::with_estimates(executable.cost().ok().flatten(), cycles, schedule);
    compiled.signature(signature).memory(executable.memory().ok()).cost(cost)
}

/// Cycles that the compiler estimated for one run of an optimized module.
fn cycles_of(module: &[u8]) -> Option<f64> {
    // compilers for other devices write none: nothing is counted for nothing
    memchr::memmem::find(module, b"estimated_cycles")?;
    Cost::of_run(module).map(|cost| cost.estimated_cycles).filter(|cycles| *cycles > 0.0)
}

/// What the compiler scheduled for the Pallas kernels of an optimized module, by its dump.
fn schedule_of(module: &[u8], folder: &Path) -> Option<KernelSchedule> {
    let kernels = HloModule::read(module, "the optimized program").ok()?.tpu_kernels();
    llo::schedule(folder, &kernels)
}

/// What a run does, counted from the optimized program, where the plugin gives it.
pub(super) fn work_of(executable: &PlainExecutable) -> Option<Cost> {
    let (code, format) = executable.optimized_program().ok()?;
    Cost::of_run(module_of(&code, &format)?)
}

/// Writes an executable to its file, where it can be serialized, and tells of the kernels in it.
pub(super) fn written(compiled: Compiled, executable: &PlainExecutable, path: &Path) -> Result<Compiled, Failure> {
    let bytes = match executable.serialize() {
        Ok(bytes) => bytes,
        Err(error) => {
            // the compiler took the program all the same
            if !error.is_unimplemented() {
                tracing::warn!("the executable cannot be serialized: {}", one_line(&error.message));
            }
            return Ok(compiled.serialized(false));
        }
    };
    write_file(path, &bytes)?;
    Ok(compiled.kernels(kernels_of(&bytes).unwrap_or_default()))
}

/// Processor time of this process so far, of all its threads: a plugin compiles with several.
fn processor_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let (seconds, rest) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Why a device's plugin does not compile a program.
pub(super) fn compile_failure(error: &PjrtError) -> Failure {
    let message = one_line(&error.message);
    match unhandled_target(&message) {
        Some(target) => Failure::new(
            FailureKind::CustomCall,
            format!(
                "this plugin has no handler for the custom call `{target}`: time with `--timer jax`, whose JAX has \
                 the handlers of its own kernels and of LAPACK ({message})"
            ),
        ),
        None => refusal(error),
    }
}

/// Why a compiler does not compile a program, in its own words.
pub(super) fn refusal(error: &PjrtError) -> Failure {
    let message = one_line(&error.message);
    // no program's fault: without ptxas none compiles
    if message.contains("No PTX compilation provider") {
        // what follows is every place that it looked in
        let first = message.split(". ").next().unwrap_or_default();
        let message = format!(
            "the plugin finds no ptxas: install nvidia-cuda-nvcc-cu12 beside it, or name CUDA's folder with \
             XLA_FLAGS=--xla_gpu_cuda_data_dir=DIR ({first})"
        );
        return Failure::new(FailureKind::Device, message);
    }
    // nor is this: what the kernel calls is brought by JAX, and the plugin alone does not have it
    if message.contains("Failed to materialize symbols") {
        let message = format!(
            "the plugin lacks a function that this kernel calls during compilation, such as Mosaic GPU's, which come \
             with JAX ({message})"
        );
        return Failure::new(FailureKind::CustomCall, message);
    }
    if let Some(reason) = OF_THE_MACHINE.iter().find(|reason| message.contains(**reason)) {
        let message = format!("this machine cannot compile now: {reason}; free it and compile again ({message})");
        return Failure::new(FailureKind::Device, message);
    }
    let kind = match () {
        () if is_of_a_signal(&message) => FailureKind::Crash,
        () if message.contains("Cannot allocate memory") => FailureKind::Memory,
        () => FailureKind::Compile,
    };
    Failure::new(kind, message)
}

/// What the C library says of a machine that has run out of something, whatever the program is.
const OF_THE_MACHINE: [&str; 4] =
    ["No space left on device", "Disk quota exceeded", "Too many open files", "Read-only file system"];

/// Whether a signal ended the assembler that the plugin runs: anybody may have sent it, so it says nothing of the program. XLA
/// gives the status as `wait` has it, whose lower seven bits are the signal.
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
        let kind = |message: &str| refusal(&PjrtError { code: 13, message: message.to_owned() }).kind;
        // a real plugin's words where ptxas was killed
        assert_eq!(kind("ptxas exited with non-zero error code 9, output: "), FailureKind::Crash);
        // exit code 255
        let refused = "ptxas exited with non-zero error code 65280, output: ptxas fatal   : Unsupported .version";
        assert_eq!(kind(refused), FailureKind::Compile);
        assert_eq!(kind("Shared memory size limit exceeded: requested 196608"), FailureKind::Compile);
        // a full folder for temporary files, as XLA and ptxas tell it, and a machine without memory
        for full in
            ["INTERNAL: /tmp/x.ptx; No space left on device", "ptxas fatal : Could not open: Too many open files"]
        {
            assert_eq!(kind(full), FailureKind::Device, "{full}");
        }
        assert_eq!(kind("INTERNAL: fork: Cannot allocate memory"), FailureKind::Memory);
        let runtime = "INTERNAL: Failed to materialize symbols: { (main, { mosaic_gpu_init_tma_desc }) }";
        assert_eq!(kind(runtime), FailureKind::CustomCall);
        let none = "No PTX compilation provider is available. Neither ptxas/nvlink nor nvjtlink is available.";
        assert_eq!(kind(none), FailureKind::Device);
        let told = refusal(&PjrtError { code: 14, message: none.to_owned() }).message;
        assert!(told.ends_with("=DIR (No PTX compilation provider is available)"), "{told}");
    }
}
