//! Compilers that never end with one program, under the limit that follows what the others took. It rests on two
//! seconds here, and on half a minute for users: `tests/cli/endless.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::pjrt::{NamedTimes, build};
use autotune_lowered::call::Call;
use autotune_lowered::config::Config;
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::FailureKind;
use autotune_lowered::registry::{Program, ProgramFormat};
use autotune_lowered::target::Target;
use autotune_lowered::timer::pjrt::{
    CompileOutcome, PjrtOptions, PjrtTimer, TargetCompiler, TargetOptions, TargetProgram,
};
use autotune_lowered::timer::{CompileTimes, InputArray, Job, JobCandidate, ProgramFile, Timer, WorkerLimits};

/// Five are compiled before the limit follows them, and two after the one that hangs.
const PROGRAMS: usize = 8;
const HANGS: usize = 5;

/// An hour, until the limit follows what was seen.
fn limits() -> WorkerLimits {
    let hour = Duration::from_secs(3600);
    WorkerLimits::default().compile(hour).compile_times(Some(CompileTimes::resting_on(Duration::from_secs(2))))
}

fn program(folder: &Path, number: usize, text: &str) -> ProgramFile {
    let path = folder.join(format!("{number}.mlir"));
    fs::write(&path, text).unwrap();
    let digest = Digest::of(text.as_bytes());
    ProgramFile::new(path, Program::new(ProgramFormat::StablehloText, digest, digest))
}

fn config(number: usize) -> Config {
    serde_json::from_str(&format!("{{\"form\":{number}}}")).unwrap()
}

fn add() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/timer/add.mlir")).unwrap()
}

#[track_caller]
fn assert_told(message: &str) {
    let told = ["timeout: no answer to `compile` within ", "twice as long as nine in ten took here", "`--timeout`"];
    assert!(told.iter().all(|words| message.contains(words)) && !message.contains('\n'), "{message}");
}

#[test]
fn of_programs_for_an_absent_device_one_that_hangs_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("libtpu.so");
    build("../targets/simulated_libtpu.c", &plugin);
    let target = Target::named("tpu:v5e").unwrap();
    let exe = env!("CARGO_BIN_EXE_autotune-lowered");
    let options = TargetOptions::new(exe, plugin, target, folder.path().join("store"));
    let mut compiler = TargetCompiler::start(&options.limits(limits()).compile_jobs(Some(1)), None).unwrap();
    let programs: Vec<TargetProgram> = (0..PROGRAMS)
        .map(|number| {
            let word = if number == HANGS { "endless" } else { "fine" };
            let program = program(folder.path(), number, &format!("// {word} {number}\n{}", add()));
            TargetProgram { operation: "op@v1:0123456789abcdef".into(), config: config(number), program }
        })
        .collect();
    let outcomes = compiler.compile(&programs, &|| false, &mut |_, _| ()).unwrap();
    for (number, outcome) in outcomes.into_iter().enumerate() {
        match outcome.unwrap() {
            CompileOutcome::Failed { reason } if number == HANGS => assert_told(&reason),
            CompileOutcome::Compiled { .. } if number != HANGS => {}
            other => panic!("{number}: {other:?}"),
        }
    }
}

#[test]
fn of_the_candidates_of_a_call_one_that_hangs_fails_alone() {
    let Some(named) = NamedTimes::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let plugin: PathBuf = folder.path().join("endless_8.so");
    named.copy(&plugin);
    let input = |name: &str| {
        let path = folder.path().join(format!("{name}.bin"));
        fs::write(&path, [0; 16]).unwrap();
        InputArray::new(name, "f32[4]".parse().unwrap(), path)
    };
    let candidates = (0..PROGRAMS).map(|number| {
        let takes = if number == HANGS { 8 } else { 1 };
        let text = add().replacen("@jit__lambda", &format!("@takes_{takes}000{number}"), 1);
        JobCandidate::new(config(number)).program(Some(program(folder.path(), number, &text)))
    });
    let job = Job::new(Call::new("test@v1", "0123456789abcdef"), folder.path())
        .inputs(vec![input("a"), input("b")])
        .candidates(candidates.collect());
    let program = folder.path().join("program");
    named.program(&program);
    let options = PjrtOptions::new(program, plugin, folder.path().join("executables"));
    let mut timer = PjrtTimer::start(&options.limits(limits()).compile_jobs(Some(1))).unwrap();
    timer.begin(&job).unwrap();
    for number in 0..PROGRAMS {
        match timer.prepare(number) {
            Err(failure) if number == HANGS => {
                assert_eq!(failure.kind, FailureKind::Compile);
                assert_told(&failure.message);
            }
            Ok(_) if number != HANGS => {}
            other => panic!("{number}: {other:?}"),
        }
    }
}
