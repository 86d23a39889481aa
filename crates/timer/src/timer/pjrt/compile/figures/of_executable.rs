//! What a compiled program says about itself: its signature, its memory, its cost, and its kernels' figures.

use std::path::Path;

use super::gpu_code::kernels_of;
use super::llo;
use crate::failure::{Failure, FailureKind};
use crate::hlo::{Cost, HloModule};
use crate::registry::ProgramFormat;
use crate::timer::pjrt::compile::plain_executable::PlainExecutable;
use crate::timer::pjrt::compile::signature::{module_of, read_signature};
use crate::timer::pjrt::plugin::one_line;
use crate::timer::protocol::{CompileAnswer, CostAnalysis, KernelSchedule, ProgramRef};

/// Adds what the executable reports about itself, as far as its plugin supports it.
pub(crate) fn described(
    compiled: CompileAnswer,
    executable: &PlainExecutable,
    program: &ProgramRef,
    code: &[u8],
    llo_dump: Option<&Path>,
) -> CompileAnswer {
    let optimized = executable.optimized_program().ok();
    let module = optimized.as_ref().and_then(|(code, format)| module_of(code, format));
    let cycles = module.as_deref().and_then(cycles_of);
    let schedule = module.as_deref().zip(llo_dump).and_then(|(module, folder)| schedule_of(module, folder));
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
    // an operation without an estimate may have the largest number instead, and a sum with it is none
    let is_estimate = |cycles: &f64| *cycles > 0.0 && *cycles < i64::MAX as f64;
    Cost::of_run(module).map(|cost| cost.estimated_cycles).filter(is_estimate)
}

/// The compiler's schedule of an optimized module's Pallas kernels, read from its dump.
fn schedule_of(module: &[u8], folder: &Path) -> Option<KernelSchedule> {
    let kernels = HloModule::read(module, "the optimized program").ok()?.tpu_kernels();
    llo::schedule(folder, &kernels)
}

/// The cost of a run, counted from the optimized program, if the plugin provides it.
pub(crate) fn work_of(executable: &PlainExecutable) -> Option<Cost> {
    let (code, format) = executable.optimized_program().ok()?;
    Cost::of_run(&module_of(&code, &format)?)
}

/// Writes an executable to its file, if it can be serialized, and adds its kernels' figures. `platform` is the
/// device's.
pub(crate) fn written(
    compiled: CompileAnswer,
    executable: &PlainExecutable,
    path: &Path,
    platform: &str,
) -> Result<CompileAnswer, Failure> {
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

/// Writes a file that the tuner reads.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes)
        .map_err(|error| Failure::new(FailureKind::Device, format!("{}: cannot be written: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Synthetic, from a CPU program. libtpu 0.0.42 wrote the largest number into operations of a Pallas program.
    #[test]
    fn a_sum_that_lacks_the_estimate_of_an_operation_is_none() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/hlo/cost/loop.hlo.pb");
        let mut program = std::fs::read(path).unwrap();
        let own = br#"{"outer_dimension_partitions":[],"fusion_config":{"kind":"__ynn_fusion"}}"#;
        let at = program.windows(own.len()).position(|bytes| bytes == own).unwrap();
        // the operation runs eight times
        for (cycles, of_run) in [("2146", Some(8.0 * 2146.0)), ("9223372036854775807", None)] {
            let config = format!(r#"{{"window_config":{{"estimated_cycles":"{cycles}"}}"#);
            let config = format!("{config}{}}}", " ".repeat(own.len() - config.len() - 1));
            program[at..at + own.len()].copy_from_slice(config.as_bytes());
            assert_eq!(cycles_of(&program), of_run);
        }
    }
}
