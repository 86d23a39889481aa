//! GPU specifics: clocks as a condition, and programs that XLA measures during compilation. SIMULATED: plugin, driver
//! and GPU are our own (`tests/data/pjrt/simulated_driver.c`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::PathBuf;

use crate::pjrt_profiler::Simulated;
use crate::support::compiled_elsewhere::as_compiled_elsewhere;
use crate::support::executable::write_executable;
use crate::support::pjrt::build;
use crate::support::program::command;
use autotune_lowered::call::Call;
use autotune_lowered::digest::Digest;
use autotune_lowered::failure::FailureKind;
use autotune_lowered::measured_by::{Clocks, Metric};
use autotune_lowered::registry::{Program, ProgramFormat};
use autotune_lowered::signature::{PrivateKey, PublicKeys, Signer};
use autotune_lowered::timer::pjrt::{CompiledOptions, PjrtOptions, PjrtTimer, probe};
use autotune_lowered::timer::{InputArray, Job, JobCandidate, ProgramFile, Timer, TimerExt};
use serde_json::{Value, json};

const FREE: &str = "0 1980 0 0";
const SET: &str = "1410 1395 6 0";

/// The simulated plugin as a GPU plugin, with a driver beside it.
struct Gpu {
    simulated: Simulated,
    exe: PathBuf,
}

impl Gpu {
    fn new() -> Option<Self> {
        let simulated = Simulated::new()?;
        let folder = simulated.folder.path();
        build("simulated_driver.c", &folder.join("libcuda.so.1"));
        fs::copy(folder.join("libcuda.so.1"), folder.join("libnvidia-ml.so.1")).unwrap();
        let exe = folder.join("as-gpu");
        let variables: String =
            variables(&simulated).iter().map(|(name, value)| format!("{name}='{value}' ")).collect();
        let real = env!("CARGO_BIN_EXE_autotune-lowered");
        write_executable(&exe, &format!("#!/bin/sh\nexport {variables}\nexec '{real}' \"$@\"\n"));
        Some(Self { simulated, exe })
    }

    fn say(&self, clocks: &str) {
        fs::write(self.simulated.folder.path().join("clocks"), clocks).unwrap();
    }

    fn options(&self) -> PjrtOptions {
        let executables = self.simulated.folder.path().join("executables");
        PjrtOptions::new(&self.exe, self.simulated.library(), executables).metric(Some(Metric::Elapsed))
    }
}

fn variables(simulated: &Simulated) -> [(&'static str, String); 4] {
    let folder = simulated.folder.path();
    [
        ("SIMULATED_PROFILER_BASE", simulated.base.display().to_string()),
        ("SIMULATED_PLATFORM", "cuda".to_owned()),
        ("SIMULATED_CLOCKS", folder.join("clocks").display().to_string()),
        ("LD_LIBRARY_PATH", folder.display().to_string()),
    ]
}

fn clocks(sm_mhz: u32) -> Clocks {
    Clocks { sm_mhz, memory_mhz: 2619, max_sm_mhz: 1980, max_memory_mhz: 2619 }
}

#[test]
fn simulated_clocks_are_those_of_the_gpu_that_is_measured() {
    let Some(gpu) = Gpu::new() else { return };
    gpu.say(FREE);
    let probed = probe(&gpu.options()).unwrap();
    assert_eq!((probed.clocks, probed.notes), (Some(clocks(1980)), Vec::new()), "the default of 1095 is no limit");
    gpu.say(SET);
    let mut timer = PjrtTimer::start(&gpu.options()).unwrap();
    assert_eq!(timer.info().clocks, Some(clocks(1410)));
    assert_eq!(timer.info().measured_by(&Default::default()).clocks, Some(clocks(1410)));
    timer.begin(&gpu.simulated.job()).unwrap();
    timer.prepare(0).unwrap();
    assert_eq!(timer.info().clocks_seen, None);
    timer.run(0, 3).unwrap();
    gpu.say("1410 1410 1 0");
    timer.run_batches(0, 2, 2).unwrap();
    let seen = "the GPU ran at 1395 to 1410 of 1980 MHz when it was measured; held back by its power limit, the clocks that are set";
    assert_eq!(timer.info().clocks_seen.clone().unwrap(), seen);
    gpu.say(FREE);
    let failure = timer.restart(&[]).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Device);
    let expected = "changed during the measurement: up to 1980 MHz, memory 2619 MHz, before 1410 of 1980 MHz";
    assert!(failure.message.contains(expected), "{failure}");
}

#[test]
fn why_simulated_clocks_are_not_known_is_one_line() {
    let Some(gpu) = Gpu::new() else { return };
    let library = gpu.simulated.folder.path().join("libnvidia-ml.so.1");
    for (says, expected) in [
        ("0 0 0 1", "`nvmlInit_v2` failed with 9 (driver not loaded)"),
        ("0 0 0 2", "it is unknown which of 2 GPUs is measured: `cuDeviceGetPCIBusId` failed with 1"),
        ("4000000000 0 0 0", "`nvmlDeviceGetApplicationsClock` reports 4000000000 MHz"),
        ("no library", "`libnvidia-ml.so.1` cannot be loaded: "),
    ] {
        match says {
            "no library" => fs::write(&library, "no library").unwrap(),
            _ => gpu.say(says),
        }
        let probed = probe(&gpu.options()).unwrap();
        let [note] = probed.notes.as_slice() else { panic!("{:?}", probed.notes) };
        assert!(note.starts_with("the GPU's clocks are unknown: ") && note.contains(expected), "{note}");
        assert!(!note.contains('\n') && probed.clocks.is_none(), "{note}");
    }
}

#[test]
fn a_result_tells_simulated_clocks_that_are_set_and_how_kernels_are_launched() {
    let Some(gpu) = Gpu::new() else { return };
    gpu.say(SET);
    let folder = gpu.simulated.folder.path();
    let (plugin, program) = (gpu.simulated.library(), "tests/data/timer/add.mlir");
    for (launch, words) in [("replay", &[][..]), ("eager", &["--launch", "eager"])] {
        let mut command = command(&folder.join("cache"));
        command.args(["compare", program, program, "--timer", "pjrt", "--metric", "elapsed", "--rounds", "6"]);
        command.args(["--format", "json", "--plugin"]).arg(&plugin).args(words).envs(variables(&gpu.simulated));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        let by = &result["measured_by"];
        let told = json!({"sm_mhz": 1410, "memory_mhz": 2619, "max_sm_mhz": 1980, "max_memory_mhz": 2619});
        assert_eq!((&by["clocks"], &by["launch"]), (&told, &json!(launch)), "{result}");
        let notes = result["notes"].to_string();
        let expected = "the GPU ran at 1395 of 1980 MHz when it was measured; held back by its power";
        assert!(notes.contains(expected), "{notes}");
    }
}

/// A GPU's XLA chooses how to compute a product by measuring, and blindly without a GPU: such a program is compiled on
/// the device, even if the store has it. Without that measuring, both choose alike.
#[test]
fn what_a_simulated_gpu_would_measure_as_it_compiles_is_compiled_there() {
    let Some(gpu) = Gpu::new() else { return };
    gpu.say(FREE);
    let folder = gpu.simulated.folder.path();
    let product = fs::read_to_string("tests/data/timer/matmul.mlir").unwrap();
    let sum = product.lines().map(|line| match line.split_once(" = stablehlo.dot_general") {
        Some((result, _)) => format!("{result} = stablehlo.add %arg0, %arg1 : tensor<64x64xf32>\n"),
        None => format!("{line}\n"),
    });
    let sum: String = sum.collect();
    let candidates = [("product", &product), ("sum", &sum)].map(|(name, text)| {
        let path = folder.join(format!("{name}.mlir"));
        fs::write(&path, text).unwrap();
        let digest = Digest::of(text.as_bytes());
        let program = Program::new(ProgramFormat::StablehloText, digest, digest);
        let config = serde_json::from_value(json!({"operation": name})).unwrap();
        JobCandidate::new(config).program(Some(ProgramFile::new(path, program)))
    });
    let inputs = ["a", "b"].map(|name| {
        let path = folder.join(name);
        fs::write(&path, vec![0; 4 * 64 * 64]).unwrap();
        InputArray::new(name, "f32[64,64]".parse().unwrap(), path)
    });
    let job = Job::new(Call::new("test@v1", "0123456789abcdef"), folder);
    let job = job.inputs(inputs.to_vec()).candidates(candidates.to_vec());
    let (key, public) = PrivateKey::generate(&folder.join("key")).unwrap();
    let (signer, trusted) = (Signer::Key(key), PublicKeys::read(&public).unwrap());
    let prepared = |options: PjrtOptions| {
        let mut timer = PjrtTimer::start(&options).unwrap();
        timer.begin(&job).unwrap();
        let reused = [0, 1].map(|candidate| timer.prepare(candidate).unwrap().reused);
        (reused, timer.info().notes.clone())
    };
    for (flags, expected) in [("", [false, true]), ("--xla_gpu_autotune_level=0", [true, true])] {
        let at = |name: &str| folder.join(format!("{name}{}", flags.len()));
        let options = |kept: &str| {
            PjrtOptions::new(&gpu.exe, gpu.simulated.library(), at(kept))
                .metric(Some(Metric::Elapsed))
                .xla_flags(Some(flags.to_owned()))
        };
        assert_eq!(prepared(options("first")).0, [false, false]);
        assert_eq!(as_compiled_elsewhere(&at("first"), &at("store"), &signer, |_, _| {}), 2);
        let compiled = CompiledOptions::new([at("store")], vec![trusted.clone()]);
        let (reused, notes) = prepared(options("second").compiled(Some(compiled)));
        assert_eq!(reused, expected, "{flags}: {notes:?}");
    }
}
