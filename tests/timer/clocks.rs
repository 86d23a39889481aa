//! A GPU's clocks as a condition. SIMULATED: plugin, driver and GPU are our own (`tests/data/pjrt/simulated_driver.c`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::PathBuf;

use crate::pjrt_profiler::{Simulated, build};
use crate::support::executable::write_executable;
use crate::support::program::command;
use autotune_lowered::failure::FailureKind;
use autotune_lowered::measured_by::{Clocks, Metric};
use autotune_lowered::timer::Timer;
use autotune_lowered::timer::pjrt::{PjrtOptions, PjrtTimer, probe};
use serde_json::{Value, json};

const FREE: &str = "0 1980 0 0";
const SET: &str = "1410 1395 6 0";

/// The simulated plugin as one for GPUs, with a driver beside it.
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
    assert_eq!(timer.clocks(), Some(clocks(1410)));
    assert_eq!(timer.measured_by(&Default::default()).clocks, Some(clocks(1410)));
    timer.begin(&gpu.simulated.job()).unwrap();
    timer.prepare(0).unwrap();
    assert_eq!(timer.clocks_seen(), None);
    timer.measure(0, 3).unwrap();
    gpu.say("1410 1410 1 0");
    timer.measure_batches(0, 2, 2).unwrap();
    let seen = "the GPU ran at 1395 to 1410 of 1980 MHz when it was measured; held back by its power limit, the clocks that are set";
    assert_eq!(timer.clocks_seen().unwrap(), seen);
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
fn a_result_tells_simulated_clocks_that_are_set_and_how_fast_the_gpu_ran() {
    let Some(gpu) = Gpu::new() else { return };
    gpu.say(SET);
    let folder = gpu.simulated.folder.path();
    let (plugin, program) = (gpu.simulated.library(), "tests/data/timer/add.mlir");
    let mut command = command(&folder.join("cache"));
    command.args(["compare", program, program, "--timer", "pjrt", "--metric", "elapsed", "--rounds", "6"]);
    command.args(["--format", "json", "--plugin"]).arg(plugin).envs(variables(&gpu.simulated));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let by = &result["measured_by"];
    let told = json!({"sm_mhz": 1410, "memory_mhz": 2619, "max_sm_mhz": 1980, "max_memory_mhz": 2619});
    assert_eq!((&by["clocks"], &by["launch"]), (&told, &json!("replay")), "{result}");
    let notes = result["notes"].to_string();
    assert!(notes.contains("the GPU ran at 1395 of 1980 MHz when it was measured; held back by its power"), "{notes}");
}
