//! Tests whether a plugin's profiler reports the device time of executions, with two trivial programs.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::compile::compile_failure;
use super::execute::{Buffer, DeviceArguments, Executable, Profiler};
use super::plugin::{Client, PjrtError, one_line};
use crate::array::{ArraySpec, DType};
use crate::measured_by::Metric;
use crate::profile::XSpace;
use crate::timer::clock::NO_PROFILER;
use crate::timer::profiled::ProfiledRound;
use crate::timer::subscriber;

/// The launches of the trial session: program and runs. Both programs have the same name, as candidates may.
const LAUNCHES: [(usize, u32); 4] = [(0, 2), (1, 3), (0, 1), (1, 1)];

/// The profiler of this plugin, if a trial finds every execution of every launch in its profile; else the reason.
pub(super) fn probe(
    client: &Rc<Client>,
    device: usize,
    compile_options: &[u8],
    plugin: &Path,
) -> Result<Profiler, String> {
    let profiler = match Profiler::of(&client.plugin) {
        Ok(Some(profiler)) => profiler,
        Ok(None) => return Err(NO_PROFILER.to_owned()),
        Err(error) => return Err(one_line(&error.message)),
    };
    let [add, multiply] = ["add", "multiply"].map(|operation| trial_program(client, operation, compile_options));
    // what does not compile is not the profiler's fault
    let compiled = add.and_then(|add| Ok([add, multiply?]));
    let programs = compiled.map_err(|error| compile_failure(&error, plugin).message)?;
    let bytes = trial(&profiler, client, device, &programs)
        .map_err(|error| explained(&format!("the plugin's profiler does not work: {}", one_line(&error.message))))?;
    check(bytes).map_err(|reason| explained(&format!("the plugin's profiler was tried, and {reason}")))?;
    Ok(profiler)
}

fn explained(reason: &str) -> String {
    // under a profiling tool, some sessions start but record nothing
    match subscriber::named(reason).or_else(subscriber::from_environment) {
        Some(holder) => {
            format!("{reason}; {holder} holds CUPTI, which serves one at a time: end it to get device time")
        }
        None => reason.to_owned(),
    }
}

/// Compiles a program that needs nothing but the compiler itself: it combines an array with itself.
pub(super) fn trial_program(
    client: &Rc<Client>,
    operation: &str,
    compile_options: &[u8],
) -> Result<Executable, PjrtError> {
    let code = format!(
        "module @autotune_lowered_trial {{
  func.func public @main(%a: tensor<1024xf32>) -> tensor<1024xf32> {{
    %0 = stablehlo.{operation} %a, %a : tensor<1024xf32>
    return %0 : tensor<1024xf32>
  }}
}}
"
    );
    Executable::compile(client, code.as_bytes(), "mlir", compile_options)
}

fn trial(
    profiler: &Profiler,
    client: &Rc<Client>,
    device: usize,
    programs: &[Executable; 2],
) -> Result<Vec<u8>, PjrtError> {
    let spec = ArraySpec::new(DType::F32, vec![1024]);
    let input = Buffer::from_host(client, device, &spec, &[0; 4096])?;
    let run = |program: usize| match programs.get(program) {
        Some(program) => {
            let arguments = [(std::slice::from_ref(&input), false)];
            program.run(&DeviceArguments::new(1, &arguments)?, Duration::ZERO).map(drop)
        }
        None => Ok(()),
    };
    // the first run loads code onto the device, so it is not profiled
    run(0)?;
    run(1)?;
    let session = profiler.start()?;
    for (program, runs) in LAUNCHES {
        for _ in 0..runs {
            run(program)?;
        }
    }
    session.finish()
}

/// Reads the profile like a round's: every launch is found and takes time, and the programs can be distinguished.
fn check(bytes: Vec<u8>) -> Result<(), String> {
    let space = XSpace::from_bytes(bytes).map_err(|error| format!("its profile cannot be read: {error}"))?;
    let round = ProfiledRound::of(&space, None, &LAUNCHES).map_err(|failure| failure.message)?;
    // if programs have ids, `find` has compared them with the launches
    if (0..LAUNCHES.len()).any(|launch| round.runs(launch).any(|run| run.program_id.is_none())) {
        return Err("its profile does not distinguish programs".to_owned());
    }
    if round.durations(&Metric::Busy).iter().flatten().any(|&duration| duration == 0) {
        return Err("its profile holds executions that took no time".to_owned());
    }
    Ok(())
}
