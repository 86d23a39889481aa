//! A program to compile: its bytes, its options, and how long the compiler takes.

use std::time::Instant;

use crate::failure::{Failure, FailureKind};
use crate::timer::clock::nanoseconds;
use crate::timer::pjrt::plugin::{PjrtError, read_bounded};
use crate::timer::protocol::{CompileAnswer, ProgramRef};

/// Largest program that is read.
const MAX_PROGRAM_BYTES: u64 = 1 << 30;

/// Largest `CompileOptionsProto` that is read: one with a profile for the compiler has a few megabytes.
const MAX_OPTIONS_BYTES: u64 = 1 << 24;

/// A program's bytes.
pub(crate) fn read_code(program: &ProgramRef) -> Result<Vec<u8>, Failure> {
    read_bounded(&program.path, MAX_PROGRAM_BYTES).map_err(|error| Failure::new(FailureKind::NoProgram, error.message))
}

/// The program's own compile options, followed by `own`, which names devices and overrides. If both set a field, the
/// later message wins.
pub(crate) fn options_of(program: &ProgramRef, own: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let Some(path) = &program.compile_options else { return Ok(own) };
    let of_program = read_bounded(path, MAX_OPTIONS_BYTES);
    let of_program = of_program.map_err(|error| Failure::new(FailureKind::NoProgram, error.message))?;
    Ok([of_program, own].concat())
}

/// Compiles, and measures the elapsed time and the processor time.
pub(crate) fn timed<T>(compile: impl FnOnce() -> Result<T, PjrtError>) -> Result<(T, CompileAnswer), PjrtError> {
    let (start, cpu_start) = (Instant::now(), processor_ns());
    let executable = compile()?;
    let (compile_ns, cpu_ns) = (nanoseconds(start.elapsed()), processor_ns().saturating_sub(cpu_start));
    Ok((executable, CompileAnswer::new(compile_ns).cpu_ns(cpu_ns)))
}

/// Processor time of this process so far, over all threads, because a plugin compiles with several.
fn processor_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let (seconds, rest) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}
